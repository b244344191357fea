"""What a report says of one cell: its answers as values, whichever command gave them.

`view` reads the JSON objects of a cell; a field of another type than it should have stops it with
the field's name, so nothing unvetted gets any further.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from prism.describe import graph_json
from prism.errors import ParseError, PrismError
from prism.files import require_printable
from prism.ir import parse_sgraph
from prism.record import Trial
from prism.record import from_line as trial_of
from prism.report_page.facts import Facts
from prism.report_page.shapes import GraphShape, read_graph, read_proof
from prism.sweep.cell import Cell
from prism.verdict import ProofAxioms

STAGES = ("states", "dags", "candidates", "verified", "proved", "admitted", "not_proved", "gave_up")
"""The counters of a search's stages, in the order in which candidates pass them."""


OPTIMIZED = "optimized.json"
"""The file of a cell that says which graph the kernel is of; only proved graphs become kernels."""


@dataclass(frozen=True, slots=True)
class Pruner:
    """What a pruner saw and dropped, or an encoding's models and assignments."""

    name: str
    seen: int
    dropped: int
    seconds: float | None
    example: str


@dataclass(frozen=True, slots=True)
class Searched:
    """A search."""

    search_s: float | None
    complete: bool | None
    cuts: tuple[str, ...]
    """What was left out, each with the limit that did it first: `max_graphs: 3 were not judged`."""
    graph_count: int
    graphs: tuple[GraphShape, ...]
    stages: tuple[tuple[str, int], ...]
    pruners: tuple[Pruner, ...]
    facts: tuple[tuple[str, str], ...]
    """Encoding, axioms, limits and the like, in words."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """A tuning run; the fields of the best kernel are empty where none passed."""

    graph: str
    parameters: str
    median_s: float | None
    min_s: float | None
    predicted_s: float | None
    max_error: float | None
    facts: tuple[tuple[str, str], ...]
    trials: tuple[tuple[str, int], ...]
    space_size: int | None
    stopped: str


@dataclass(frozen=True, slots=True)
class Contestant:
    """One line of a benchmark."""

    name: str
    median_s: float | None
    min_s: float | None
    ratio: float | None
    bandwidth_fraction: float | None
    error: float | None
    note: str


@dataclass(frozen=True, slots=True)
class View:
    """One cell as the report shows it."""

    cell: Cell
    where: str
    search: Searched | None = None
    tuned: Tuned | None = None
    contestants: tuple[Contestant, ...] = ()
    verdict: str = ""
    proof: ProofAxioms | None = None
    program_text: str = ""
    winner: GraphShape | None = None
    trials: tuple[Trial, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be shown, and why."""

    @property
    def kernel_s(self) -> float | None:
        """The time of our kernel: as the benchmark measured it, else the tuner; never predicted."""
        ours = [c.median_s for c in self.contestants if c.name == "prism"]
        if ours:
            return ours[0]
        return None if self.tuned is None else self.tuned.median_s

    @property
    def program(self) -> str:
        """The program's name."""
        named = (str(r["program"]) for r in self.cell.results.values() if "program" in r)
        return next(named, str(self.cell.settings.get("program", "")))

    @property
    def source(self) -> str:
        """The kernel's source, where the record has it."""
        return self.cell.files.get("kernel.py", "")


def view(cell: Cell, where: str) -> View:
    """Read a cell's answers.

    Raises:
        ParseError: a field is of another type than it should be.
    """
    facts = Facts(cell.results, f"{where}: results")
    searching = next((facts.part(n) for n in ("search", "optimize") if cell.result(n)), None)
    tuning = next((facts.part(n) for n in ("tune", "optimize") if cell.result(n)), None)
    verifying = facts.part("verify")
    saved, problem = _saved(cell)
    trials, unread = _trials(cell.files.get("trials.jsonl", ""))
    lost = () if not unread else (f"{unread} lines of its trials.jsonl are no trials",)
    return View(
        cell,
        where,
        search=None if searching is None else _searched(searching),
        tuned=None if tuning is None else _tuned(tuning),
        contestants=tuple(map(_contestant, facts.part("bench").parts("contestants"))),
        verdict=verifying.text("verdict"),
        proof=read_proof(verifying),
        program_text=(searching.text("program_text") if searching else "") or saved.program_text,
        winner=saved.winner,
        trials=trials,
        notes=(*problem, *lost),
    )


def _searched(facts: Facts) -> Searched:
    inner = facts.part("search") if "search" in facts.data else facts
    counters = inner.part("counters")
    if isinstance(inner.data.get("graphs"), list):
        graphs = tuple(map(read_graph, inner.parts("graphs")))
        listed = sum(not graph.is_fallback for graph in graphs)
        count = inner.count("graph_count") or listed  # a line lists the first ones only
    else:
        graphs, count = (), inner.count("graphs") or 0
    return Searched(
        search_s=inner.number("search_s"),
        complete=inner.flag("complete"),
        cuts=inner.texts("cuts"),
        graph_count=count,
        graphs=graphs,
        stages=tuple((n, counters.count(n) or 0) for n in STAGES if n in counters.data),
        pruners=tuple(_pruner(n, each) for n, each in counters.part("pruners").named()),
        facts=_words(inner),
    )


def _words(facts: Facts) -> tuple[tuple[str, str], ...]:
    """How a search was set, in words."""
    limits = ", ".join(f"{n} {v}" for n, v in facts.counts("limits"))
    found = {
        "verified": facts.text("verify"),
        "axioms": ", ".join(facts.texts("axioms")),
        "axioms' fingerprint": facts.text("axioms_fingerprint"),
        "encoding": facts.text("encoding"),
        "generator": facts.text("generator"),
        "pruners left out": ", ".join(facts.texts("without")),
        "concrete maps": ", ".join(facts.texts("concrete")),
        "limits": limits,
    }
    return tuple((name, text) for name, text in found.items() if text)


def _pruner(name: str, facts: Facts) -> Pruner:
    return Pruner(
        name,
        facts.count("seen") or 0,
        facts.count("dropped") or 0,
        facts.number("seconds"),
        facts.text("example"),
    )


def _tuned(facts: Facts) -> Tuned:
    best = facts.part("best")
    sizes = [
        f"kernel {i}: {_pairs(best.counts_of(sizes, f'par_sizes[{i}]'))}"
        for i, sizes in enumerate(best.array("par_sizes"))
        if sizes
    ]
    schedule = _pairs(best.counts("schedule"))
    extra = ("registers", "shared_bytes", "spills", "launch_overhead_s", "host_launch_s", "clock")
    return Tuned(
        graph=best.text("graph"),
        parameters="; ".join([*sizes, *([schedule] if schedule else [])]),
        median_s=best.number("median_s"),
        min_s=best.number("min_s"),
        predicted_s=best.number("predicted_s"),
        max_error=best.number("max_error"),
        facts=tuple((n, _plain(best, n)) for n in extra if n in best.data),
        trials=facts.counts("trials"),
        space_size=facts.count("space_size"),
        stopped=facts.text("stopped"),
    )


def _pairs(counts: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name} = {n}" for name, n in counts)


def _plain(facts: Facts, name: str) -> str:
    if isinstance(facts.data[name], str):
        return facts.text(name)
    number = facts.number(name)
    return "-" if number is None else f"{number:g}"


def _contestant(facts: Facts) -> Contestant:
    return Contestant(
        name=facts.text("name"),
        median_s=facts.number("median_s"),
        min_s=facts.number("min_s"),
        ratio=facts.number("ratio"),
        bandwidth_fraction=facts.number("bandwidth_fraction"),
        error=facts.number("error"),
        note=facts.text("failure") or facts.text("way"),
    )


@dataclass(frozen=True, slots=True)
class _Saved:
    """What a saved kernel says of itself."""

    program_text: str = ""
    winner: GraphShape | None = None


def _saved(cell: Cell) -> tuple[_Saved, tuple[str, ...]]:
    """The program and graph of the kernel that won; or why the graph cannot be drawn."""
    if (text := cell.files.get(OPTIMIZED)) is None:
        return _Saved(), ()
    try:
        data = json.loads(text)
        require_printable(data)
        if not isinstance(data, dict):
            raise ParseError("it is no JSON object")
        facts = Facts(data, "")
        winner, program_text = facts.part("winner"), facts.text("program")
        if not winner.data:
            return _Saved(program_text), ()
        shape = graph_json(winner.text("graph_id"), parse_sgraph(winner.text("graph")), "proved")
        return _Saved(program_text, read_graph(Facts(shape, ""))), ()
    except (ValueError, RecursionError, PrismError) as error:
        return _Saved(), (f"the graph in its {OPTIMIZED} cannot be drawn: {error}",)


def _trials(text: str) -> tuple[tuple[Trial, ...], int]:
    """The trials of a record's text, and how many lines are none."""
    found, unread = [], 0
    for line in filter(str.strip, text.split("\n")):
        try:
            found.append(trial_of(line))
        except ParseError:
            unread += 1
    return tuple(found), unread
