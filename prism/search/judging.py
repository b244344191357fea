"""Judges candidates: builds their graphs, proves or admits them, keeps what is right.

Two ways (`SearchOptions.verify`):

  full     every graph is judged by full terms and by the placement interpreter: PROVED
  sample   a graph is ADMITTED where the local lemmas and its whole form say so
           (`prism.verify.admission`), and judged in full where they do not. Then a sample of the
           admitted ones, drawn by the seed, is judged in full too. If any of it is not PROVED,
           no admission counts: all are judged in full, and what time does not allow is left out.

To count graphs the second is enough; only what is PROVED is ever run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from prism.artifact import FoundGraph
from prism.egraph.session import OutOfTimeError, deadline
from prism.identity import Identifier
from prism.ir import GraphOp, Mapping, MapVar, SGraph, stage_names
from prism.search.assemble import GraphBuilder
from prism.search.explain import Explainer
from prism.search.explain_threads import ThreadExplainer
from prism.search.mapper import Cuts
from prism.search.options import RejectedGraph
from prism.search.ranking import Ranked
from prism.verdict import Verdict
from prism.verify import Admission, Block, ParallelVerifier, Verifier, VerifyLimits

MAX_REJECTED = 20

SAMPLE = 24
"""Admitted graphs that are judged in full."""

FEW = 100
"""So many graphs are proved as quickly as they are admitted, so all of them are proved."""

EXPECTED = 8
"""Graphs that show the verifier what is to come."""

FIRST_BATCH, MOST_BATCH, FASTER = 10, 1_000, 4
"""Graphs admitted at a time; each batch may be so many times the one before it."""

Progress = Callable[[int, int], None]
"""How many candidates are judged, and of how many."""


@dataclass(frozen=True, slots=True)
class Judges:
    """Full terms within `limits`; and lemmas, None where all is to be proved.

    `seed` draws the sample.
    """

    verifier: Verifier | ParallelVerifier
    limits: VerifyLimits
    admission: Admission | None
    seed: int


@dataclass(frozen=True, slots=True)
class _Built:
    """A candidate with its graph."""

    id: str
    ranked: Ranked
    graph: SGraph


@dataclass(slots=True, eq=False)
class _UnderWay:
    """A block of graphs, and those of them that have no verdict yet."""

    block: Block
    left: deque[_Built]


class Judging:
    """Judges candidates in their order and collects the answers.

    `judged` are ids of graphs that need no judging any more.
    """

    def __init__(
        self, builder: GraphBuilder, judges: Judges, cuts: Cuts, judged: Iterable[str] = ()
    ) -> None:
        self.unproved: list[Ranked] = []
        self.rejected: list[RejectedGraph] = []
        self.verdicts = dict.fromkeys(Verdict, 0)
        self._found: dict[str, FoundGraph] = {}
        self._builder = builder
        self._identifier = Identifier()
        self._explainer = Explainer()
        self._threads = ThreadExplainer()
        self._verifier = judges.verifier
        self._admission = judges.admission
        self._limits = judges.limits
        self._each = 1e-6  # seconds per graph, of the last that were proved
        self._random = Random(judges.seed)
        self._cuts = cuts
        self._judged = set(judged)
        self._admitted: dict[str, _Built] = {}
        self._stages: dict[tuple[object, ...], tuple[str, ...]] = {}
        self._looped: dict[tuple[tuple[str, ...], Mapping], frozenset[MapVar]] = {}

    @property
    def found(self) -> tuple[FoundGraph, ...]:
        """What is proved or admitted, in the order of the candidates."""
        return tuple(self._found.values())

    def judge(
        self, candidates: Sequence[Ranked], seconds_left: Callable[[], float], progress: Progress
    ) -> None:
        """Judge as many candidates as there is time for."""
        total = len(candidates)
        if self._admission is None:
            size = self._limits.renew
            parts = (candidates[start : start + size] for start in range(0, total, size))
            built = ((len(part), self._build(part)) for part in parts)
            self._prove_all(built, total, seconds_left, progress)
        else:
            self._admit_all(candidates, seconds_left, progress)
        progress(total, total)

    def _admit_all(
        self, candidates: Sequence[Ranked], seconds_left: Callable[[], float], progress: Progress
    ) -> None:
        """Admit what the lemmas do, prove the rest and a sample."""
        size = FIRST_BATCH
        each = 1e-6  # seconds per graph, of the last batch
        start = 0
        while start < len(candidates):
            progress(start, len(candidates))
            rest, now = seconds_left(), time.perf_counter()
            # late, a smaller batch
            now_size = size if each * size <= rest else max(1, int(rest / each))
            if _in_time(rest, self._decide, candidates[start : start + now_size]) is None:
                self._not_judged(len(candidates) - start)
                break
            start += now_size
            each = max(1e-6, (time.perf_counter() - now) / now_size)
            size = min(FASTER * size, MOST_BATCH)
        if self._admitted:
            self._try_sample(seconds_left)

    def _prove_all(
        self,
        blocks: Iterable[tuple[int, Sequence[_Built]]],
        total: int,
        seconds_left: Callable[[], float],
        progress: Progress,
    ) -> None:
        """Prove graphs block by block, each given with the number of candidates it stands for.

        Where the verifier has room for several blocks, later ones are judged meanwhile.
        """
        waiting = iter(blocks)
        under_way: deque[_UnderWay] = deque()
        begun = 0
        try:
            while True:
                while len(under_way) < self._verifier.room(total - begun):
                    count, built = next(waiting, (0, ()))
                    if not count:
                        break
                    begun += count
                    self._judged.update(b.id for b in built)
                    block = self._verifier.begin([b.graph for b in built])
                    under_way.append(_UnderWay(block, deque(built)))
                if not under_way:
                    return
                open_count = total - begun + sum(len(u.left) for u in under_way)
                progress(total - open_count, total)
                if under_way[0].left and not self._take_next(under_way[0], seconds_left()):
                    break
                if not under_way[0].left:
                    under_way.popleft()
        finally:
            # time is over, or an interrupt: workers may have done more than was taken
            for one in under_way:
                self._take_all(one, one.block.ready())
        self._not_judged(total - begun + sum(len(u.left) for u in under_way))

    def _take_next(self, one: _UnderWay, rest: float) -> bool:
        """Take the next verdicts of a block; false where there are none in time."""
        batch, now = self._limits.batch, time.perf_counter()
        # late, a smaller batch
        most = batch if self._each * batch <= rest else max(1, int(rest / self._each))
        verdicts = _in_time(rest, one.block.next, min(most, len(one.left)))
        if verdicts is None:
            return False
        self._take_all(one, verdicts)
        self._each = max(1e-6, (time.perf_counter() - now) / len(verdicts))
        return True

    def _take_all(self, one: _UnderWay, verdicts: Sequence[Verdict]) -> None:
        for verdict in verdicts:
            self._take(one.left.popleft(), verdict)

    def _not_judged(self, count: int) -> None:
        self._cuts.out_of_time(f"{count} graphs were not judged", count)

    def _decide(self, batch: Sequence[Ranked]) -> bool:
        """Build and judge one batch; true once that is done."""
        built = self._build(batch)
        graphs = [b.graph for b in built]
        assert self._admission is not None
        if not self._found:
            self._verifier.expect(graphs[:EXPECTED])
        is_admitted = self._admission.admitted(graphs)
        self._judged.update(b.id for b in built)
        open_ = [b for b, admitted in zip(built, is_admitted, strict=True) if not admitted]
        verdicts = iter(self._verifier.verify([b.graph for b in open_]))
        for one, admitted in zip(built, is_admitted, strict=True):
            if admitted:
                self.verdicts[Verdict.ADMITTED] += 1
                self._admitted[one.id] = one
                self._list(one, Verdict.ADMITTED)
            else:
                self._take(one, next(verdicts))
        return True

    def _build(self, batch: Sequence[Ranked]) -> list[_Built]:
        """The graphs of candidates, those not judged before."""
        built: dict[str, _Built] = {}
        for ranked in batch:
            graph = self._builder.graph(ranked.candidate)
            key = self._identifier.graph_id(graph)
            if key not in self._judged:
                built[key] = _Built(key, ranked, graph)
        return list(built.values())

    def _prove(self, built: Sequence[_Built]) -> bool:
        """Judge in full; true once that is done."""
        self._judged.update(b.id for b in built)
        verdicts = self._verifier.verify([b.graph for b in built])
        for one, verdict in zip(built, verdicts, strict=True):
            self._take(one, verdict)
        return True

    def _take(self, one: _Built, verdict: Verdict) -> None:
        """List or reject a graph that was judged in full."""
        if self._admitted.pop(one.id, None) is not None:
            self.verdicts[Verdict.ADMITTED] -= 1
        self.verdicts[verdict] += 1
        # proofs take all chunks for equally long; what the interpreter refuses may be right
        # then, and wrong where the last chunk is shorter
        fault = self._explainer.explain(one.graph) or self._threads.explain(one.graph)
        if verdict is Verdict.PROVED and fault is None:
            self._list(one, verdict)
            return
        self._found.pop(one.id, None)
        self.unproved.append(one.ranked)
        if verdict is Verdict.GAVE_UP:
            self._cuts.add("gave_up", "verification: a limit was reached on some graphs")
        if len(self.rejected) < MAX_REJECTED:
            fault = fault or self._verifier.thread_fault(one.graph)
            reason = fault or "placement finds no fault; the axioms may be too weak"
            self.rejected.append(RejectedGraph(one.id, verdict, reason))

    def _list(self, one: _Built, verdict: Verdict) -> None:
        """Put a graph on the list, in its place if it is there already."""
        counts = (one.ranked.op_count, one.ranked.accumulator_count)
        self._found[one.id] = FoundGraph(
            one.id, one.graph, verdict, *counts, self._stage_names(one.graph)
        )

    def _stage_names(self, graph: SGraph) -> tuple[str, ...]:
        """The graph's stages, worked out once for those that differ in the grid alone."""
        key = tuple((id(k.block), self._loop_maps(k)) for k in graph.kernels)
        if key not in self._stages:
            self._stages[key] = stage_names(graph)  # the identifier keeps the blocks
        return self._stages[key]

    def _loop_maps(self, kernel: GraphOp) -> frozenset[MapVar]:
        loops = tuple([p.name for p in kernel.loops])
        key = (loops, kernel.mapping)
        if key not in self._looped:
            self._looped[key] = frozenset(v for v in kernel.mapping.true if v.par in loops)
        return self._looped[key]

    def _try_sample(self, seconds_left: Callable[[], float]) -> None:
        """Judge some admitted graphs in full, and all of them if one is not proved."""
        count = min(SAMPLE, len(self._admitted))
        sample = [self._admitted[key] for key in self._random.sample(list(self._admitted), count)]
        unproved = len(self.unproved)
        if _in_time(seconds_left(), self._prove, sample) is None:
            self._cuts.out_of_time("no admitted graph was judged in full as well", budget="sample")
            return
        if len(self.unproved) == unproved:
            self._admitted.clear()
            return
        self._admission = None
        self._cuts.add("admission", count=len(self._admitted))
        rest = list(self._admitted.values())
        size = self._limits.renew
        parts = (rest[start : start + size] for start in range(0, len(rest), size))
        try:
            blocks = ((len(part), part) for part in parts)
            self._prove_all(blocks, len(rest), seconds_left, lambda *_: None)
        finally:
            for key in self._admitted:
                del self._found[key]
            self.verdicts[Verdict.ADMITTED] -= len(self._admitted)
            self._admitted.clear()


T = TypeVar("T")
R = TypeVar("R")


def _in_time(rest: float, work: Callable[[T], R], given: T) -> R | None:
    """What comes of work with `rest` seconds left; None where they do not suffice."""
    if rest <= 0:
        return None
    try:
        with deadline(time.monotonic() + rest):
            return work(given)
    except OutOfTimeError:
        return None
