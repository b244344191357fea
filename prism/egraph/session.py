"""One e-graph over one axiom set: the only place that calls egglog.

egglog has no limit inside an iteration and no way to cancel, so every call here runs one iteration
and the caller looks at size and clock in between. With a rule that grows terms for ever the last
iteration takes longer than all before it together: within `deadline` an iteration that would end
too late, going by the one before it, is not begun. A guarded iteration counts first: each rule
has a twin that matches the same and does nothing, and what it matched bounds the e-nodes to come.

Terms are inserted through the head of one rule that let-binds every distinct sub-term once: a
shared sub-term costs one line however often it occurs, and egglog 13 is several times faster this
way than with one action per term.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from egglog.bindings import EggSmolError, EGraph

from prism.egraph.analyses import Extras, declarations
from prism.egraph.axioms import AxiomSet, counting
from prism.egraph.bank import TermBank, TermId
from prism.egraph.signature import ANALYSES, constructors
from prism.errors import AxiomError, PrismError

ClassId = int
"""An e-class of a `Table`."""


@dataclass(frozen=True, slots=True)
class Row:
    """An e-node: constructor, child classes, other arguments, and the class it belongs to."""

    head: str
    children: tuple[ClassId, ...]
    attributes: tuple[int | str, ...]
    owner: ClassId


@dataclass(frozen=True, slots=True)
class Table:
    """A frozen e-graph: rows in a fixed order, the `dims` mask of each class, inserted roots."""

    rows: tuple[Row, ...]
    dims: dict[ClassId, int]
    roots: dict[int, ClassId]


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop. Verdicts depend on nodes and iterations alone; the clock is a safety stop.

    `guarded`: the most e-nodes that one run of a ruleset may make, see `Session.iterate`.
    """

    nodes: int = 20_000
    iterations: int = 40
    seconds: float = 20.0
    guarded: int = 0


GUARDED_FROM = 1_000
"""Counting takes as long as matching: small e-graphs, most of all, do without."""


class OutOfTimeError(PrismError):
    """The next iteration would end after the deadline."""


class TooLargeError(PrismError):
    """The next iteration might make more e-nodes than are allowed."""


End = Callable[[], float]
"""When something ends, on the monotonic clock; it may come nearer while it is waited for."""

_DEADLINE: ContextVar[End] = ContextVar("deadline", default=lambda: math.inf)


@contextmanager
def deadline(at: float | End) -> Iterator[None]:
    """Within, `Session.iterate` raises OutOfTimeError rather than end after `at` (monotonic).

    Of deadlines within each other the nearest counts.
    """
    outer = _DEADLINE.get()
    own = at if callable(at) else lambda: at
    token = _DEADLINE.set(lambda: min(own(), outer()))
    try:
        yield
    finally:
        _DEADLINE.reset(token)


def seconds_left() -> float:
    """Until the `deadline`; infinite where there is none."""
    return _DEADLINE.get()() - time.monotonic()


@dataclass(slots=True)
class Noted:
    """What happened in e-graphs: rules that matched something, the most e-nodes there were."""

    rules: set[str] = field(default_factory=set)
    nodes: int = 0


_NOTED: ContextVar[Noted | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[Noted]:
    """Within, what happens in any e-graph is noted."""
    noted = Noted()
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


class Session:
    """An e-graph; not to be shared between threads (egglog 13 forbids it)."""

    def __init__(
        self, axioms: AxiomSet, rulesets: AbstractSet[str], heads: AbstractSet[str]
    ) -> None:
        """For terms made of `heads` (`TermBank.heads`) under the rules of `rulesets`.

        Raises:
            PrismError: this process was forked from one that has used an e-graph.
        """
        _refuse_fork()
        self._heads = frozenset(constructors()) | {h.name for h in axioms.helpers}
        self._insertions = 0
        self._predicted: dict[tuple[str, ...], float] = {}
        self._axioms = axioms
        self._rulesets = rulesets
        # equal sizes are stated as Size = Size or Size = Const
        self._known_heads = heads | {"Size", "Const"}
        self._nodes_made: dict[str, dict[str, int]] = {}
        self._counted: dict[str, int] = {}
        self._egraph = EGraph()
        text, self._extras = axioms.commands(rulesets, self._known_heads)
        try:
            self._egraph.run_program(*_parsed(text + _ROOT))
        except EggSmolError as error:
            raise _blame(axioms, error) from error

    def insert(self, bank: TermBank, roots: Sequence[tuple[int, TermId]]) -> None:
        """Insert terms, each remembered under its number."""
        name = f"insert-{self._insertions}"
        self._insertions += 1
        lines = bank.let_lines([term for _, term in roots], self._extras)
        lines += [f"(root {number} t{term})" for number, term in roots]
        self._execute(
            self._egraph.parse_program(
                f"(ruleset {name})"
                f'(rule () ({" ".join(lines)}) :ruleset {name} :name "{name}")'
                f"(run-schedule (run {name}))"
            )
        )

    def iterate(self, *rulesets: str, most: int = 0) -> bool:
        """Bring the analyses up to date, then run each ruleset once; whether anything changed.

        `most`: the e-nodes there may be after each ruleset (0: any number). An e-graph is guarded
        from `GUARDED_FROM` e-nodes on.

        Raises:
            OutOfTimeError: it would end after the `deadline`.
            TooLargeError: there might be more e-nodes.
        """
        if most and self.node_count() > GUARDED_FROM:
            changed = [self._guarded(name, most) for name in rulesets]
            return any(changed)
        start = time.monotonic()
        if self._predicted.get(rulesets, 0.0) > seconds_left():
            raise OutOfTimeError("the next iteration of the e-graph would take too long")
        before = self.node_count()
        inner = " ".join(f"(run {name})" for name in rulesets)
        schedule = f"(run-schedule (seq (saturate (run {ANALYSES})) {inner}))"
        (output,) = self._execute(_parsed(schedule))
        for name in rulesets:
            self._counted.pop(name, None)
        after = self.node_count()
        noted = _NOTED.get()
        if noted is not None:
            noted.rules.update(name for name, n in output.report.num_matches_per_rule.items() if n)
            noted.nodes = max(noted.nodes, after)
        # rules that join two e-nodes look at the square of their number
        growth = max(1.0, after / max(1, before))
        self._predicted[rulesets] = (time.monotonic() - start) * growth**2
        return bool(output.report.updated)

    def _guarded(self, ruleset: str, most: int) -> bool:
        """Run a ruleset once if that cannot make too many e-nodes; whether anything changed."""
        ahead = self.node_count() + self.nodes_to_come(ruleset)
        if ahead > most:
            raise TooLargeError(f"the next iteration might make {ahead} e-nodes")
        return self.iterate(ruleset)

    def nodes_to_come(self, ruleset: str) -> int:
        """No fewer than the e-nodes that running a ruleset once would add.

        Matches are counted since the last run before which they were counted, so the first answer
        is about all there are.
        """
        if ruleset not in self._nodes_made:
            rules = self._axioms.reachable(self._rulesets, self._known_heads)
            own = [rule for rule in rules if rule.ruleset == ruleset]
            self._nodes_made[ruleset] = {rule.name: rule.nodes_made for rule in own}
            lines = [f"(ruleset {counting(ruleset)})", *(rule.counting for rule in own)]
            self._execute(_parsed("\n".join(lines)))
        inner = f"(saturate (run {ANALYSES})) (run {counting(ruleset)})"
        (output,) = self._execute(_parsed(f"(run-schedule (seq {inner}))"))
        matches = output.report.num_matches_per_rule
        new = sum(matches.get(name, 0) * n for name, n in self._nodes_made[ruleset].items())
        self._counted[ruleset] = self._counted.get(ruleset, 0) + new
        return self._counted[ruleset]

    def settle(self, limits: Limits, *rulesets: str) -> bool:
        """Iterate until nothing changes; false when a limit was reached first.

        Raises:
            OutOfTimeError: the next iteration would end after the `deadline`.
        """
        stop = time.monotonic() + limits.seconds
        for _ in range(limits.iterations):
            try:
                if not self.iterate(*rulesets, most=limits.guarded):
                    return True
            except TooLargeError:
                return False
            if self.node_count() > limits.nodes or time.monotonic() > stop:
                return False
        return False

    def settle_in_time(self, limits: Limits, *rulesets: str) -> tuple[int, bool]:
        """The same, no iteration begun that would end late; also says how many there were."""
        with deadline(time.monotonic() + limits.seconds):
            for iteration in range(1, limits.iterations + 1):
                try:
                    if not self.iterate(*rulesets, most=limits.guarded):
                        return iteration, True
                except (OutOfTimeError, TooLargeError):
                    return iteration - 1, False
                if self.node_count() > limits.nodes:
                    return iteration, False
        return limits.iterations, False

    def node_count(self) -> int:
        """E-nodes, not counting the facts of analyses."""
        (output,) = self._execute(_parsed("(print-size)"))
        return sum(size for name, size in output.sizes if name in self._heads)

    def roots(self) -> dict[int, object]:
        """The class of each inserted root, as a value to compare with the others'."""
        functions = self._egraph.freeze().functions
        as_int = self._egraph.value_to_i64
        return {as_int(row.inputs[0]): row.inputs[1] for row in functions["root"].rows}

    def table(self) -> Table:
        """The whole e-graph."""
        functions = self._egraph.freeze().functions
        number: dict[object, ClassId] = {}
        rows: list[Row] = []
        for head in sorted(self._heads & set(functions)):
            function = functions[head]
            for row in function.rows:
                children: list[ClassId] = []
                attributes: list[int | str] = []
                for sort, value in zip(function.input_sorts, row.inputs, strict=True):
                    match sort:
                        case "E":
                            children.append(number.setdefault(value, len(number)))
                        case "String":
                            attributes.append(self._egraph.value_to_string(value))
                        case _:
                            attributes.append(self._egraph.value_to_i64(value))
                owner = number.setdefault(row.output, len(number))
                rows.append(Row(head, tuple(children), tuple(attributes), owner))
        as_int = self._egraph.value_to_i64
        dims = {
            number[row.inputs[0]]: as_int(row.output)
            for row in functions["dims"].rows
            if row.inputs[0] in number
        }
        roots = {as_int(row.inputs[0]): number[row.inputs[1]] for row in functions["root"].rows}
        return Table(tuple(rows), dims, roots)

    def _execute(self, commands: Sequence[Any]) -> list[Any]:
        """Run commands; a Rust panic (a BaseException) becomes an error of ours."""
        try:
            return list(self._egraph.run_program(*commands))
        except EggSmolError as error:
            raise PrismError(f"the e-graph refused a command of Prism's own: {error}") from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            raise PrismError(f"egglog failed inside: {error}; please report it") from None


def _refuse_fork() -> None:
    """In a child of a fork egglog would wait for ever, for threads that are not there."""
    if _PROCESS and _PROCESS[0] != os.getpid():
        raise PrismError(
            "an e-graph was used before this process was forked from its parent, and its threads "
            "do not survive that: start the process by multiprocessing's methods 'spawn' or "
            "'forkserver', or search, verify and optimize in the child alone"
        )
    _PROCESS[:] = [os.getpid()]


_PROCESS: list[int] = []
"""The process that has used an e-graph."""
_ROOT = "\n(relation root (i64 E))"


def _parsed(text: str) -> tuple[Any, ...]:
    """The commands of a text, one in each line.

    A command says where it stands with a copy of all that was parsed with it: the shipped axioms at
    once take 320 MB and eight times as long to run, line by line 0.1 MB.
    """
    return tuple(command for line in text.split("\n") if line for command in _command(line))


@lru_cache(maxsize=4_096)
def _command(line: str) -> tuple[Any, ...]:
    """A line, parsed once per process."""
    return tuple(EGraph().parse_program(line))


def _blame(axioms: AxiomSet, error: EggSmolError) -> AxiomError:
    """Which axiom egglog refuses, with its file and line."""
    extras = Extras(known=True, value=True)
    base = declarations((*constructors().values(), *axioms.helpers), extras)
    for rule in axioms.rules:
        egraph = EGraph()
        try:
            egraph.run_program(*_parsed(f"{base}\n{rule.text}"))
        except EggSmolError as own:
            axiom = rule.axiom
            return AxiomError(f"{axiom.place}: rule {axiom.name!r}: {own}")
    return AxiomError(f"egglog refuses the axiom set: {error}")
