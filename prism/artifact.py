"""The search artifact: a JSON file with the verified graphs of a program.

It is for all sizes and machines, unless its search was told some (`prism.scope`).

It is what the search half hands to the tuning half, often on another machine, so nothing here
needs ortools, egglog or z3. A loaded file is data from a stranger: every field is vetted, every
graph parsed and checked, and its id must be the hash of what it says. What is wrong comes out as
one `ParseError` with the place in the file.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from prism.errors import ParseError
from prism.files import read_regular, require_printable, write_atomically
from prism.identity import PROGRAM_ID, graph_id
from prism.ir import (
    Program,
    SGraph,
    format_program,
    format_sgraph,
    parse_program,
    parse_sgraph,
    stage_names,
)
from prism.scope import Scope
from prism.verdict import ProofAxioms, Verdict, are_axiom_names, proof_json

SCHEMA = "prism.search/1"
MAX_BYTES = 256 * 2**20
"""A larger file is no artifact of ours: it is refused before it is read."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FoundGraph:
    """A graph that was verified, as a search returns it and an artifact holds it.

    `stages[k]`: where each block node of kernel k runs ("once", "body", "after"), joined by
    blanks. The program's own graph has the id "program" and is there even where the budgets leave
    it out: `is_fallback` marks it. `proof` is None where nobody asked or time was over.
    """

    id: str
    graph: SGraph
    verdict: Verdict
    op_count: int
    accumulator_count: int
    stages: tuple[str, ...]
    is_fallback: bool = False
    proof: ProofAxioms | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """A vetted search artifact."""

    program: Program
    graphs: tuple[FoundGraph, ...]
    complete: bool
    cuts: tuple[str, ...]
    search_s: float
    counters: Mapping[str, Any]
    options: Mapping[str, Any]
    encoding: str
    fingerprint: str
    seed: int
    prism_version: str
    scope: Scope


class _Options(Protocol):
    """The options of a search: a dataclass."""

    @property
    def encoding(self) -> str: ...
    @property
    def seed(self) -> int: ...

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Searched(Protocol):
    """What `save_artifact` takes: the result of a search."""

    @property
    def program(self) -> Program:
        """What was searched."""

    @property
    def graphs(self) -> Sequence[FoundGraph]:
        """What was found."""

    @property
    def complete(self) -> bool:
        """Whether nothing was cut short."""

    @property
    def cuts(self) -> tuple[str, ...]:
        """What was."""

    @property
    def search_s(self) -> float:
        """How long it took."""

    @property
    def counters(self) -> Mapping[str, Any]:
        """What it did."""

    @property
    def options(self) -> _Options:
        """What was asked."""

    @property
    def scope(self) -> Scope:
        """What it is good for."""

    @property
    def fingerprint(self) -> str:
        """The axiom set."""


def save_artifact(result: Searched, path: Path | str) -> None:
    """Write a search result; a reader sees all of it or none.

    Raises:
        UsageError: the file cannot be written.
    """
    write_atomically(Path(path), format_artifact(result))


def format_artifact(result: Searched) -> str:
    """A search result as the text of an artifact."""
    content = {
        "schema": SCHEMA,
        "prism_version": version("prism-superopt"),
        "seed": result.options.seed,
        "program": format_program(result.program),
        "encoding": result.options.encoding,
        "axioms": result.fingerprint,
        "options": asdict(result.options),
        "sizes": None if result.scope.sizes is None else dict(result.scope.sizes),
        "device": result.scope.device,
        "complete": result.complete,
        "cuts": list(result.cuts),
        "search_s": result.search_s,
        "counters": result.counters,
        "graphs": [
            {
                "id": g.id,
                "verdict": g.verdict.value,
                "op_count": g.op_count,
                "accumulator_count": g.accumulator_count,
                "stages": list(g.stages),
                "is_fallback": g.is_fallback,
                **proof_json(g.proof),
                "text": format_sgraph(g.graph),
            }
            for g in result.graphs
        ],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def load_artifact(path: Path | str) -> Artifact:
    """Read and vet an artifact.

    Raises:
        ParseError: the file cannot be read, or is not a sound artifact.
    """
    file = Path(path)
    try:
        text = read_regular(file, MAX_BYTES).decode()
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise ParseError(
                f"{file} is larger than {MAX_BYTES >> 20} MiB, too large for a search artifact; "
                "search again with a smaller --budget or --max-ops"
            ) from error
        raise ParseError(
            f"the artifact {file} cannot be read: {error.strerror or error}; "
            "write one with prism search PROGRAM -o FILE"
        ) from error
    except UnicodeDecodeError as error:
        raise ParseError(f"{file} is not a search artifact: it is not text in UTF-8") from error
    except ValueError as error:  # a zero byte in the path
        raise ParseError(f"the artifact {str(file)!r} cannot be read: {error}") from error
    try:
        return parse_artifact(text)
    except ParseError as error:
        raise ParseError(f"{file}: {error}") from error
    except RecursionError as error:
        raise ParseError(f"{file}: nested too deep") from error


def parse_artifact(text: str) -> Artifact:
    """Vet the text of an artifact.

    Raises:
        ParseError: it is not a sound artifact; names the place.
    """
    content = _json(text)
    require_printable(content)
    root = _Object("", content)
    _check_schema(root)
    program = _parsed(parse_program, root.get("program", str), "program")
    graphs = tuple(
        _graph(_Object(f"graphs[{i}]", item), program)
        for i, item in enumerate(root.get("graphs", list))
    )
    seen: set[str] = set()
    for i, graph in enumerate(graphs):
        if graph.id in seen:
            raise ParseError(f"graphs[{i}].id: {graph.id!r} is there twice")
        seen.add(graph.id)
    seconds = root.get("search_s", float)
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ParseError(f"search_s: {seconds} is no duration")
    return Artifact(
        program=program,
        graphs=graphs,
        complete=root.get("complete", bool),
        cuts=root.strings("cuts"),
        search_s=seconds,
        counters=root.get("counters", dict),
        options=root.get("options", dict),
        encoding=root.get("encoding", str),
        fingerprint=root.get("axioms", str),
        seed=root.get("seed", int),
        prism_version=root.get("prism_version", str),
        scope=_scope(root, program),
    )


def _scope(root: _Object, program: Program) -> Scope:
    """What the search was told; older files say nothing, and are for everything."""
    device = None if root.fields.get("device") is None else root.get("device", str)
    if root.fields.get("sizes") is None:
        return Scope(None, device)
    given = _Object("sizes", root.get("sizes", dict))
    if set(given.fields) != set(program.size_names):
        raise ParseError(
            f"sizes: the program's are {', '.join(program.size_names)}, not "
            f"{', '.join(given.fields) or 'none'}"
        )
    sizes = tuple((name, given.count(name)) for name in program.size_names)
    if any(size < 1 for _, size in sizes):
        raise ParseError("sizes: a size must be at least 1")
    return Scope(sizes, device)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(text.rstrip()) - 1
        hint = "; the file ends early: was it copied whole?" if is_cut else ""
        raise ParseError(
            f"not JSON at line {error.lineno}, column {error.colno}: {error.msg}{hint}"
        ) from error
    except (RecursionError, ValueError) as error:
        # nested too deep, or a number of too many digits
        raise ParseError(f"not a search artifact: {error}") from error


def _check_schema(root: _Object) -> None:
    schema = root.get("schema", str)
    if schema == SCHEMA:
        return
    if schema.startswith("prism.search/"):
        raise ParseError(
            f"schema: the artifact is of version {schema}, this Prism reads {SCHEMA}; search again"
        )
    raise ParseError(f"schema: {schema!r} is no search artifact ({SCHEMA})")


def _graph(item: _Object, program: Program) -> FoundGraph:
    graph = _parsed(parse_sgraph, item.get("text", str), item.at("text"))
    if graph.program != program:
        raise ParseError(f"{item.at('text')}: the graph is of another program than the artifact")
    name = item.get("id", str)
    if name not in (PROGRAM_ID, graph_id(graph)):
        raise ParseError(
            f"{item.at('id')}: {name!r} is not the id of this graph ({graph_id(graph)}); "
            "the file was changed by hand: search again"
        )
    stages = stage_names(graph)
    if item.strings("stages") != stages:
        raise ParseError(f"{item.at('stages')}: the stages are not those of the graph")
    verdicts = [v.value for v in Verdict]
    verdict = item.get("verdict", str)
    if verdict not in verdicts:
        raise ParseError(
            f"{item.at('verdict')}: {verdict!r} is no verdict; there are {', '.join(verdicts)}"
        )
    return FoundGraph(
        id=name,
        graph=graph,
        verdict=Verdict(verdict),
        op_count=item.count("op_count"),
        accumulator_count=item.count("accumulator_count"),
        stages=stages,
        is_fallback=item.get("is_fallback", bool),
        proof=_proof(item),
    )


def _proof(item: _Object) -> ProofAxioms | None:
    """What a graph's proof needs; older files, and most graphs, do not say."""
    if item.fields.get("axioms_used") is None:
        return None
    names = item.strings("axioms_used")
    if not are_axiom_names(names):
        raise ParseError(f"{item.at('axioms_used')}: a list of names of axioms was expected")
    return ProofAxioms(names, item.get("axioms_used_minimal", bool))


def _parsed(parse: Parse[T], text: str, where: str) -> T:
    try:
        return parse(text)
    except ParseError as error:
        raise ParseError(f"{where}: {error}") from error
    except RecursionError as error:
        raise ParseError(f"{where}: nested too deep") from error


T_co = TypeVar("T_co", covariant=True)


class Parse(Protocol[T_co]):
    """Reads a text form."""

    def __call__(self, text: str) -> T_co:
        """The value the text describes."""


class _Object:
    """A JSON object and where it stands in the file."""

    def __init__(self, where: str, value: object) -> None:
        if not isinstance(value, dict):
            place = f"{where}: " if where else ""
            raise ParseError(f"{place}an object was expected, not {_kind(value)}")
        self.where = where
        self.fields = value

    def at(self, name: str) -> str:
        """Where a field stands."""
        return f"{self.where}.{name}" if self.where else name

    def get(self, name: str, kind: type[T]) -> T:
        """A field of this type; an integer will do for a float."""
        if name not in self.fields:
            raise ParseError(f"{self.at(name)} is missing: not a search artifact ({SCHEMA})?")
        value = self.fields[name]
        if kind is float and type(value) is int:
            value = float(value) if abs(value) < 2**53 else math.inf
        if type(value) is not kind:
            raise ParseError(f"{self.at(name)}: {_NAMES[kind]} was expected, not {_kind(value)}")
        return value

    def strings(self, name: str) -> tuple[str, ...]:
        """A field that is a list of strings."""
        items = self.get(name, list)
        for i, item in enumerate(items):
            if not isinstance(item, str):
                raise ParseError(f"{self.at(name)}[{i}]: text was expected, not {_kind(item)}")
        return tuple(items)

    def count(self, name: str) -> int:
        """A field that counts something."""
        value = self.get(name, int)
        if value < 0:
            raise ParseError(f"{self.at(name)}: {value} is no count")
        return value


_NAMES: Mapping[type, str] = {
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


def _kind(value: object) -> str:
    return "nothing" if value is None else _NAMES.get(type(value), type(value).__name__)
