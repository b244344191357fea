"""The callable that `optimize` gives back: a checked kernel, or the program itself in NumPy.

It can be saved (JSON and the kernel's source) and loaded elsewhere. What lies on disk is data, not
code: `load` emits the kernel anew from the saved muGraph and compares, so that only a source we
generate ourselves is ever executed.
"""

from __future__ import annotations

import functools
import json
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from prism.arguments import as_arrays, in_order
from prism.cache import kernel_folder, write_atomically
from prism.dtypes import dtype_of
from prism.errors import (
    GraphError,
    KernelError,
    ParseError,
    PrismError,
    SizeError,
    UsageError,
)
from prism.files import read_regular, require_printable
from prism.ir import (
    MuGraph,
    Program,
    check_mugraph,
    evaluate,  # noqa: TID251 - the function, not the module of that name
    format_program,
    format_sgraph,
    parse_program,
    parse_sgraph,
)
from prism.limits import check_memory
from prism.plugins import Group, make
from prism.protocols import Kernel, Target
from prism.record import Outcome, counts_of, digest
from prism.report import render, vet_facts
from prism.scope import sizes_text
from prism.tune.cases import prepare
from prism.tune.check import check

SCHEMA = "prism.optimized/1"
FACTS_FILE = "optimized.json"
KERNEL_FILE = "kernel.py"
MAX_BYTES = 64 * 2**20
"""A larger file is no kernel of ours."""

Array = NDArray[np.generic]


class StaleKernelError(KernelError):
    """A saved kernel is of another version of Prism."""


@dataclass(frozen=True, slots=True)
class Winner:
    """The kernel that won: the muGraph it comes from and its source."""

    graph_id: str
    mu: MuGraph
    source: str


@dataclass(frozen=True, slots=True, repr=False)
class Optimized:
    """A program at fixed sizes and dtype, ready to be called on arrays.

    `facts` is what the report says, as JSON: how the search and the tuning went. An `Optimized` is
    neither copied nor pickled: `save` and `load` it.
    """

    program: Program
    sizes: Mapping[str, int]
    dtype: str
    target: str
    winner: Winner | None
    facts: dict[str, Any]
    _kernel: Kernel | None = field(default=None, compare=False)
    _path: Path | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        """One line; `report()` tells all."""
        sizes = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        how = "no kernel" if self.winner is None else f"{self.target} kernel"
        here = "; NumPy evaluates it here" if self.is_fallback else ""
        return f"<Optimized {self.program.name}({sizes}) {self.dtype}, {how}{here}>"

    def __hash__(self) -> int:
        """Of what cannot differ in what is equal."""
        return hash((self.program.name, self.dtype, self.target, self.source))

    def __reduce__(self) -> NoReturn:
        """Machine code has no copy.

        Raises:
            TypeError: always.
        """
        raise TypeError("an Optimized holds machine code: save(FOLDER) it, and Optimized.load it")

    def __call__(self, *arrays: object, **named: object) -> Any:  # noqa: ANN401 - array or tuple
        """Run on the program's arguments, in order or by name; inputs are never written to.

        Arrays may have any strides; anything with `__array__` or `__dlpack__` is taken, and plain
        numbers for scalar arguments; the results are NumPy arrays. A kernel for the GPU also takes
        arrays that lie there (PyTorch, CuPy and others) and gives back arrays of the same library,
        without waiting for the kernel.

        Raises:
            UsageError: a wrong number or name of arguments, no array, or another dtype.
            SizeError: a shape this kernel was not made for.
        """
        kernel = self._kernel
        outputs = None if named or kernel is None else kernel.direct(arrays)
        if outputs is None:
            outputs = self._run(in_order(self.program, arrays, named))
        return outputs[0] if len(outputs) == 1 else outputs

    def _run(self, given: Sequence[object]) -> tuple[Any, ...]:
        kernel = self._kernel
        if kernel is not None and any(map(kernel.takes, given)):
            return kernel(*given)
        taken = as_arrays(self.program, self.sizes, self.dtype, given)
        return self._evaluate(taken) if kernel is None else kernel(*taken)

    @property
    def is_fallback(self) -> bool:
        """Whether calls evaluate the program in NumPy: no kernel passed, or it cannot run here."""
        return self._kernel is None

    @property
    def source(self) -> str:
        """The kernel's source text."""
        if self.winner is None:
            commented = "".join(f"# {line}\n" for line in format_program(self.program).splitlines())
            return f"# No kernel: NumPy evaluates the program itself.\n{commented}"
        return self.winner.source

    @property
    def path(self) -> Path | None:
        """The file the kernel was loaded from."""
        return self._path

    def report(self) -> str:
        """Program, search funnel, chosen graph, parameters, time, trials by outcome, error."""
        graph = None if self.winner is None else format_sgraph(self.winner.mu.graph)
        kernel = "none" if self._path is None else str(self._path)
        if self.winner is not None and self.is_fallback:
            kernel += (
                f"\ncompiled for {self.target}, which cannot run here: calls evaluate the program "
                "in NumPy, in float64"
            )
        return render(format_program(self.program), self.sizes, graph, kernel, self.facts)

    def save(self, folder: str | Path) -> None:
        """Write `optimized.json` and `kernel.py` into a folder."""
        where = Path(folder)
        write_atomically(where / KERNEL_FILE, self.source)
        write_atomically(where / FACTS_FILE, self.to_json())

    def to_json(self) -> str:
        """Everything but the source, whose hash it holds."""
        data: dict[str, Any] = {
            "schema": SCHEMA,
            "program": format_program(self.program),
            "sizes": dict(self.sizes),
            "dtype": self.dtype,
            "target": self.target,
            "source_sha256": digest(self.source),
            "winner": None if self.winner is None else _winner_to_json(self.winner),
            "facts": self.facts,
        }
        return json.dumps(data, indent=1) + "\n"

    @classmethod
    def load(cls, folder: str | Path, *, target: str | None = None) -> Optimized:
        """Read what `save` wrote, vet it, and compile the kernel.

        A target that is no installed plug-in but a file has to be named again: what a saved kernel
        says must not choose a file to run.

        Raises:
            UsageError: a file is missing, or the target has to be named.
            ParseError: a file is not what `save` writes, or was modified.
            KernelError: this version of Prism emits another kernel for the saved graph, or the
                kernel does not compute its program.
            SizeError: this machine cannot hold the arrays.
        """
        where = Path(folder)
        try:
            text = read_regular(where / FACTS_FILE, MAX_BYTES).decode()
            source = read_regular(where / KERNEL_FILE, MAX_BYTES).decode()
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{where} holds no saved kernel: {error} (OptimizedShapes loads several shapes)"
            ) from error
        return from_json(text, source, str(where), target)

    def _evaluate(self, arrays: Sequence[Array]) -> tuple[Array, ...]:
        names = (a.name for a in self.program.arguments)
        outputs = evaluate(self.program, dict(zip(names, arrays, strict=True)))
        with np.errstate(over="ignore"):
            return tuple(output.astype(dtype_of(self.dtype)) for output in outputs)


def source_path(program: Program, source: str) -> Path:
    """Where a kernel lies in the cache."""
    return kernel_folder() / f"{program.name}_{digest(source)[:16]}.py"


def compiled(made: Optimized, where: str | None = None, cases: Sequence[str] = ()) -> Optimized:
    """With its winner compiled in this process; without one where that fails (the fallback).

    One that no tuning run checked, `where` says where it is from, is checked: on inputs as drawn
    and on these cases. Where the target cannot run its kernels, the winner stays and is not loaded:
    calls evaluate the program.

    Raises:
        KernelError: it does not compute its program.
    """
    winner = made.winner
    if winner is None:
        return made
    try:
        target: Target = make(Group.TARGET, made.target)
        if not target.measures:
            return replace(made, _path=_written(made.program, winner.source))
        kernel, path = _loaded(made, winner, target)
    except Exception as error:  # whatever a compiler may raise: the fallback is right
        warnings.warn(
            f"the kernel of {made.program.name} does not load here ({error}); NumPy evaluates the "
            "program instead",
            stacklevel=2,
        )
        tuned = {**made.facts.get("tune", {}), "best": None}
        return replace(made, winner=None, facts={**made.facts, "tune": tuned})
    if where is not None:
        _check(made, kernel, where, cases)
    return replace(made, _kernel=kernel, _path=path)


def _loaded(made: Optimized, winner: Winner, target: Target) -> tuple[Kernel, Path]:
    """The kernel from its file in the cache; where that cannot be used, from one of our own."""
    emitted = target.emit(winner.mu, made.dtype)
    if emitted.text != winner.source:
        raise KernelError("Prism has changed since the kernel was emitted: optimize anew")
    meta, path = emitted.meta, source_path(made.program, winner.source)
    try:
        return target.load(_written(made.program, winner.source), meta), path
    except Exception:  # a spoilt file or what a compiler left beside it: once more elsewhere
        path = Path(_own_folder().name) / path.name
        write_atomically(path, winner.source)
        return target.load(path, meta), path


def _written(program: Program, source: str) -> Path:
    """The kernel's file in the cache."""
    path = source_path(program, source)
    if not _holds(path, source):
        write_atomically(path, source)
    return path


@functools.cache
def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of this process; it goes when the process ends."""
    return tempfile.TemporaryDirectory(prefix="prism-kernels-", ignore_cleanup_errors=True)


def _holds(path: Path, source: str) -> bool:
    try:
        return read_regular(path, MAX_BYTES) == source.encode()
    except OSError:
        return False


def from_json(text: str, source: str, where: str, target: str | None) -> Optimized:
    """The inverse of `to_json`, with the kernel's source beside it; see `Optimized.load`."""
    data = _parse(text, where)
    if target not in {None, data["target"]} or (target is None and ".py:" in data["target"]):
        raise UsageError(
            f"{where}: made for target {data['target']!r}; name that target to load it"
        )
    if data["source_sha256"] != digest(source):
        raise ParseError(f"{where}: the kernel's source was modified; it is not run")
    try:
        made = _restored(data, source)
    except _BAD_VALUE as error:
        raise ParseError(f"{where}: {FACTS_FILE} has a bad value: {error}") from error
    if made.winner is not None:
        target_: Target = make(Group.TARGET, made.target)
        try:
            emitted = target_.emit(made.winner.mu, made.dtype).text
        except PrismError:
            raise
        except Exception as error:  # the graph is a stranger's
            raise KernelError(f"{where}: the saved graph cannot be emitted: {error}") from error
        if emitted != source:
            raise StaleKernelError(
                f"{where}: this version of Prism emits another kernel for the graph that was saved "
                f"for {sizes_text(made.sizes)}; the saved one is not run, optimize the program at "
                "these sizes again and save it"
            )
    return compiled(made, where)


def _check(made: Optimized, kernel: Kernel, where: str, cases: Sequence[str]) -> None:
    """Hold a kernel against its program in float64, on one random draw and what follows from it.

    That it is the one of the saved graph does not say that the graph is right.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="prism-check-") as folder:
            sizes = dict(made.sizes)
            data = prepare(made.program, sizes, made.dtype, 0, Path(folder), names=cases)
            result = check(kernel, data)
    except Exception as error:  # whatever a kernel may raise
        raise KernelError(f"{where}: the kernel cannot be checked here: {error}") from error
    if result.outcome is not Outcome.OK:
        raise KernelError(
            f"{where}: the kernel does not compute its program ({result.detail}); it is not used"
        )


_BAD_VALUE = (
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    OverflowError,
    RecursionError,
    GraphError,
    SizeError,
    ParseError,
)


def _restored(data: dict[str, Any], source: str) -> Optimized:
    dtype_of(data["dtype"])
    program = parse_program(data["program"])
    sizes = check_memory(program, data["sizes"])
    vet_facts(data["facts"])
    winner = None
    if data["winner"] is not None:
        winner = _winner_from_json(data["winner"], program, sizes, source)
    return Optimized(program, sizes, data["dtype"], data["target"], winner, data["facts"])


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
        require_printable(data)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{where}: {FACTS_FILE} is not JSON: {error}") from error
    except ParseError as error:
        raise ParseError(f"{where}: {FACTS_FILE}: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ParseError(f"{where}: {FACTS_FILE} is not of schema {SCHEMA}")
    texts = ("program", "dtype", "target", "source_sha256")
    kinds = {**dict.fromkeys(texts, str), "sizes": dict, "facts": dict, "winner": dict | None}
    for name, kind in kinds.items():
        if name not in data or not isinstance(data[name], kind):
            raise ParseError(f"{where}: {FACTS_FILE} lacks {name!r}, or it is of another type")
    return data


def _winner_to_json(winner: Winner) -> dict[str, Any]:
    return {
        "graph_id": winner.graph_id,
        "graph": format_sgraph(winner.mu.graph),
        "par_sizes": [dict(counts) for counts in winner.mu.par_sizes],
        "schedule": dict(winner.mu.schedule),
    }


def _winner_from_json(
    data: dict[str, Any], program: Program, sizes: dict[str, int], source: str
) -> Winner:
    graph = parse_sgraph(data["graph"])
    if graph.program != program:
        raise ParseError("the graph computes another program")
    par_sizes = tuple(counts_of(counts) for counts in data["par_sizes"])
    mu = MuGraph(graph, tuple(sorted(sizes.items())), par_sizes, counts_of(data["schedule"]))
    check_mugraph(mu)
    return Winner(str(data["graph_id"]), mu, source)
