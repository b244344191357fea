"""Decides which sGraphs compute their program, for every size (paper, section 5).

Program and candidates go into one e-graph; a candidate is proved when each of its outputs ends in
the class of the program's. The parallel rules run first, on a whole batch: they are directional and
nearly always suffice. What they leave open is judged alone, in an e-graph of its own, with the
algebra too, so that a negative verdict does not depend on what else was asked. A graph is PROVED
with its thread graphs; how threads share elementwise operators has proofs of its own (`threads`).

Iterations are counted and nodes capped because egglog cannot be interrupted and some terms grow for
ever. A batch that reaches a cap is halved until the culprit is alone; only the culprit gives up.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from prism.egraph import (
    ALGEBRA,
    ALGEBRA_VERIFY,
    PAR_RULES,
    AxiomSet,
    GraphTerms,
    Limits,
    Session,
    TermBank,
    TermId,
    build_program,
    new_bank,
)
from prism.egraph.session import OutOfTimeError, TooLargeError
from prism.errors import GraphError
from prism.ir import Program, SGraph
from prism.verdict import Verdict
from prism.verify.threads import ThreadProofs

Terms = tuple[TermId, ...]
"""One term per output."""


@dataclass(frozen=True, slots=True)
class VerifyLimits:
    """Verdicts depend on iterations and nodes alone; `seconds` is a safety stop per candidate.

    `batch` candidates enter an e-graph at a time (egglog 13 is slow on more), `renew` in all
    before a fresh one is started. The parallel rules may add `parallel_nodes` per candidate
    of a batch, and to a candidate alone as much as to a batch. No run of the algebra's rules that
    might make more than `guarded_nodes` is begun: no size is looked at while rules run.
    """

    batch: int = 40
    renew: int = 400
    parallel_iterations: int = 80
    parallel_nodes: int = 2_000
    algebra_iterations: int = 24
    algebra_nodes: int = 6_000
    guarded_nodes: int = 100_000
    seconds: float = 30.0

    def times(self, factor: int) -> VerifyLimits:
        """The limits of one question, so many times as large."""
        return replace(
            self,
            parallel_iterations=factor * self.parallel_iterations,
            parallel_nodes=factor * self.parallel_nodes,
            algebra_iterations=factor * self.algebra_iterations,
            algebra_nodes=factor * self.algebra_nodes,
            guarded_nodes=factor * self.guarded_nodes,
            seconds=factor * self.seconds,
        )


LIMITS = VerifyLimits()


def verify_graphs(
    program: Program,
    graphs: Sequence[SGraph],
    axioms: AxiomSet,
    limits: VerifyLimits = LIMITS,
) -> tuple[Verdict, ...]:
    """The verdict on each graph.

    PROVED is right in any company; a graph that stops short of a proof alone may be proved beside
    others, whose terms are steps on the way. The same graphs in the same order give the same.
    A graph whose values do not fit together (`GraphError`) computes nothing: NOT_PROVED.
    """
    return Verifier(program, axioms, limits).verify(graphs)


class Block(Protocol):
    """Graphs that are judged together, their verdicts asked for piece by piece."""

    def next(self, most: int) -> tuple[Verdict, ...]:
        """The next verdicts, at least one: no more than `most` where they are made here and now.

        Raises:
            OutOfTimeError: none before the deadline.
        """

    def ready(self) -> tuple[Verdict, ...]:
        """The next verdicts that are known already."""


class Verifier:
    """Verifies graphs of one program in several calls, setting up once."""

    def __init__(self, program: Program, axioms: AxiomSet, limits: VerifyLimits = LIMITS) -> None:
        self.program = program
        self.axioms = axioms
        self.limits = limits
        self.bank = new_bank(program)
        self.terms = GraphTerms(self.bank, program)
        self.targets = build_program(self.bank, program)
        self.judge = Judge(self.bank, self.targets, axioms, limits)
        self.threads = ThreadProofs(axioms)
        self.late = 0
        """How many gave up because of the clock, which another machine might not reach."""
        self.hard_stops = 0
        """Of processes: none, where all is judged in this one."""

    def expect(self, graphs: Sequence[SGraph]) -> None:
        """Say what is to come, so that the first e-graph has the operators for it."""
        for graph in graphs:
            with suppress(GraphError):
                self.terms.build(graph.kernels)

    def verify(self, graphs: Sequence[SGraph]) -> tuple[Verdict, ...]:
        """The verdict on each graph (see `verify_graphs`); many are judged in blocks."""
        if len(graphs) <= self.limits.renew:
            return self.judged(self.judge, graphs, self.built(graphs))
        blocks = in_blocks(graphs, self.limits.renew)
        return tuple(v for block in blocks for v in self.begin(block).next(len(block)))

    def begin(self, graphs: Sequence[SGraph]) -> Block:
        """Begin to judge at most `renew` graphs in e-graphs of their own."""
        return _OwnBlock(self, graphs)

    def room(self, coming: int) -> int:  # noqa: ARG002 - where there are workers it counts
        """Blocks that should be under way when `coming` graphs have not begun: one at a time."""
        return 1

    def thread_fault(self, graph: SGraph) -> str | None:
        """Why a graph's thread graphs are not proved; None where they are, or time is over."""
        with suppress(OutOfTimeError):
            self.threads.faults([graph])
        return self.threads.known_fault(graph)

    def built(self, graphs: Sequence[SGraph]) -> list[Terms | None]:
        """The terms of each graph; None where its values do not fit together."""
        out: list[Terms | None] = []
        for graph in graphs:
            try:
                out.append(self.terms.build(graph.kernels))
            except GraphError:
                out.append(None)
        return out

    def judged(
        self, judge: Judge, graphs: Sequence[SGraph], terms: Sequence[Terms | None]
    ) -> tuple[Verdict, ...]:
        """The verdict on each graph by its terms, and by its thread graphs."""
        late = judge.late
        found = judge.verdicts({i: known for i, known in enumerate(terms) if known is not None})
        self.late += judge.late - late
        proved = [index for index, verdict in found.items() if verdict is Verdict.PROVED]
        faults = self.threads.faults([graphs[index] for index in proved])
        unproved = [i for i, fault in zip(proved, faults, strict=True) if fault is not None]
        found |= dict.fromkeys(unproved, Verdict.NOT_PROVED)
        return tuple(found.get(index, Verdict.NOT_PROVED) for index in range(len(graphs)))


class _OwnBlock:
    """A block that is judged here, as its verdicts are asked for."""

    def __init__(self, verifier: Verifier, graphs: Sequence[SGraph]) -> None:
        self._verifier = verifier
        self._graphs = graphs
        self._terms: list[Terms | None] | None = None
        self._done = 0
        # not the one that has seen other graphs
        self._judge = Judge(verifier.bank, verifier.targets, verifier.axioms, verifier.limits)

    def next(self, most: int) -> tuple[Verdict, ...]:
        """Judge the next graphs."""
        if self._terms is None:  # of all, so that the first e-graph has the operators for them
            self._terms = self._verifier.built(self._graphs)
        part = slice(self._done, self._done + most)
        verdicts = self._verifier.judged(self._judge, self._graphs[part], self._terms[part])
        self._done += len(verdicts)
        return verdicts

    def ready(self) -> tuple[Verdict, ...]:
        """None: nothing is done before it is asked for."""
        return ()


def in_blocks(graphs: Sequence[SGraph], size: int) -> Iterator[Sequence[SGraph]]:
    """The graphs in order, `size` at a time."""
    return (graphs[start : start + size] for start in range(0, len(graphs), size))


class Judge:
    """Compares terms of one bank with the targets; keeps its e-graph from call to call."""

    def __init__(
        self, bank: TermBank, targets: Terms, axioms: AxiomSet, limits: VerifyLimits = LIMITS
    ) -> None:
        self.bank = bank
        self.targets = targets
        self.axioms = axioms
        self.limits = limits
        self._shared: _Shared | None = None
        self.late = 0
        """See `Verifier.late`."""
        self.reached = ""
        """The limit at which it last gave up, in words."""

    def verdicts(self, candidates: Mapping[int, Terms]) -> dict[int, Verdict]:
        """The verdict on each candidate; equal candidates are judged once."""
        known: dict[Terms, Verdict] = {}
        asked = list(dict.fromkeys(candidates.values()))
        for start in range(0, len(asked), self.limits.batch):
            known |= self._batch(asked[start : start + self.limits.batch])
        return {index: known[terms] for index, terms in candidates.items()}

    def _batch(self, asked: Sequence[Terms]) -> dict[Terms, Verdict]:
        """Parallel rules on the whole batch, then each open candidate alone."""
        shared = self._session_for(len(asked))
        numbers = shared.insert(asked)
        is_saturated = shared.run_parallel(len(asked))
        proved = shared.proved(numbers)
        if is_saturated:
            found = dict.fromkeys(proved, Verdict.PROVED)
            return found | {terms: self._alone(terms) for terms in asked if terms not in proved}
        self._shared = None  # it holds what grows for ever
        if len(asked) == 1:
            return {asked[0]: Verdict.PROVED if proved else self._alone(asked[0])}
        middle = len(asked) // 2
        return self._batch(asked[:middle]) | self._batch(asked[middle:])

    def _session_for(self, count: int) -> _Shared:
        """The e-graph shared by batches, a new one when it is full or lacks an operator."""
        shared = self._shared
        if (
            shared is None
            or shared.inserted + count > self.limits.renew
            or not self.bank.heads <= shared.heads
        ):
            shared = self._shared = _Shared(self, frozenset({PAR_RULES, ALGEBRA}))
        return shared

    def _alone(self, terms: Terms) -> Verdict:
        """One candidate in an e-graph of its own: the algebra too, step by step."""
        stop = time.monotonic() + self.limits.seconds
        verdict = self._step_by_step(terms, stop)
        self.late += verdict is Verdict.GAVE_UP and time.monotonic() > stop
        return verdict

    def _step_by_step(self, terms: Terms, stop: float) -> Verdict:
        own = _Shared(self, frozenset({PAR_RULES, ALGEBRA, ALGEBRA_VERIFY}))
        numbers = own.insert([terms])
        is_saturated = own.run_parallel(1)
        if own.proved(numbers):
            return Verdict.PROVED
        for rulesets in ((ALGEBRA,), (ALGEBRA, ALGEBRA_VERIFY)):
            for _ in range(self.limits.algebra_iterations):
                limit = self._limit(own, stop, is_saturated=is_saturated)
                if limit is not None:
                    return self._gave_up(limit)
                try:
                    has_changed = own.session.iterate(*rulesets, most=self.limits.guarded_nodes)
                except TooLargeError:
                    return self._gave_up(f"{self.limits.guarded_nodes} e-nodes")
                is_saturated = own.run_parallel(1)
                if own.proved(numbers):
                    return Verdict.PROVED
                if not has_changed:
                    break
            else:
                return self._gave_up(f"{self.limits.algebra_iterations} iterations")
        return Verdict.NOT_PROVED

    def _limit(self, own: _Shared, stop: float, *, is_saturated: bool) -> str | None:
        """The limit that has been reached, if one has."""
        limits = self.limits
        if time.monotonic() > stop:
            return f"{limits.seconds:g} s"
        if not is_saturated:
            return f"{limits.parallel_iterations} iterations or {limits.parallel_nodes} e-nodes"
        if own.session.node_count() > limits.algebra_nodes:
            return f"{limits.algebra_nodes} e-nodes"
        return None

    def _gave_up(self, limit: str) -> Verdict:
        self.reached = limit
        return Verdict.GAVE_UP


class _Shared:
    """An e-graph in which the targets are saturated under the algebra, and candidates so far."""

    def __init__(self, judge: Judge, rulesets: frozenset[str]) -> None:
        self.bank = judge.bank
        self.limits = judge.limits
        self.heads = judge.bank.heads
        self.inserted = 0
        self._outputs = len(judge.targets)
        self.session = Session(judge.axioms, rulesets, self.heads)
        self.session.insert(self.bank, [(-1 - i, t) for i, t in enumerate(judge.targets)])
        limits = Limits(self.limits.algebra_nodes, self.limits.algebra_iterations, math.inf)
        self.session.settle(limits, ALGEBRA)

    def insert(self, asked: Sequence[Terms]) -> dict[Terms, int]:
        """Insert candidates; each gets a number."""
        numbers = {terms: self.inserted + i for i, terms in enumerate(asked)}
        self.inserted += len(asked)
        self.session.insert(
            self.bank,
            [
                (number * self._outputs + i, term)
                for terms, number in numbers.items()
                for i, term in enumerate(terms)
            ],
        )
        return numbers

    def run_parallel(self, count: int) -> bool:
        """Parallel rules until nothing changes; false when a limit was reached first.

        One candidate may add what a whole batch may: alone it needs no more than beside others, so
        one that is proved in company does not give up alone.
        """
        shares = count if count > 1 else self.limits.batch
        most = self.session.node_count() + shares * self.limits.parallel_nodes
        limits = Limits(most, self.limits.parallel_iterations, self.limits.seconds)
        return self.session.settle(limits, PAR_RULES)

    def proved(self, numbers: Mapping[Terms, int]) -> frozenset[Terms]:
        """The candidates all of whose outputs are in the class of the targets."""
        classes = self.session.roots()
        return frozenset(
            terms
            for terms, number in numbers.items()
            if all(
                classes[number * self._outputs + i] == classes[-1 - i] for i in range(self._outputs)
            )
        )
