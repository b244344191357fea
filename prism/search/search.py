"""The search: from a program to its verified sGraphs, for all sizes at once (ARCHITECTURE.md).

    saturate   everything the axioms prove equal to the program        prism.egraph
    cone       one choice of operator per e-class                      cone
    generate   every op DAG within the operator budget                 dags, wiring
               every mapping of its inputs and outputs                 mappings (an encoding)
               grid dims that leave every output where its omap says   grid, placement
               what runs in the loop body and what after it            stages
    verify     the axioms judge each graph, and placement once more    ranking, prism.verify,
                                                                       explain

The pruners judge partial graphs on the way (`pruning`). Limits are part of the answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from prism.artifact import FoundGraph
from prism.egraph import AxiomSet, load_axioms, saturate
from prism.egraph import Limits as SaturationLimits
from prism.egraph.session import OutOfTimeError, deadline
from prism.errors import GraphError
from prism.identity import PROGRAM_ID, graph_id
from prism.ir import Apply, InputLoader, Program, SGraph, stage_names
from prism.protocols import Encoding
from prism.search.answers import load_encoding
from prism.search.assemble import build_graph, program_graph
from prism.search.cone import Cone, build_cone
from prism.search.explain import explain
from prism.search.fronts import FrontGenerator
from prism.search.generate import Generator, Materials, preferred_dag
from prism.search.generators import make_generator
from prism.search.mapper import Cuts, Limits
from prism.search.options import RejectedGraph, SearchOptions, SearchResult
from prism.search.pruning import Gate, load_pruners
from prism.search.ranking import Ranked, best_looking
from prism.search.wiring import Arena
from prism.verdict import Verdict
from prism.verify import Verifier, VerifyLimits

Progress = Callable[[str, int, int | None], None]
"""Called with a step's name, how much is done, and of how much (None: unknown)."""

SPARE_OPERATORS = 6
"""Operators beyond the program's own that a search without `max_ops` allows: accumulators, and
operators the program does not have (a division moved after a product needs none)."""

DEFAULT_ACCUMULATORS = 4
MAX_CANDIDATES = 50_000
CANDIDATES_PER_GRAPH = 20
"""Candidates listed for each that may be verified: the worse looking rest is not even listed."""

SATURATE_S, SATURATE_SHARE, GENERATE_SHARE = 20.0, 0.25, 0.5
"""Seconds to saturate without a budget; the parts of a budget that end these steps."""

ITERATIONS_PER_NODE, NODES_PER_NODE = 2, 40
"""What verification may spend more for each node of the program: the parallel rules move through a
term step by step, so a long program takes longer to settle."""

MAX_NODES = 3_200
"""Nodes of programs, times graphs, in one verification e-graph: long programs fill the memory."""

MAX_REJECTED = 20


def search(
    program: Program, options: SearchOptions | None = None, progress: Progress | None = None
) -> SearchResult:
    """Every graph of the program within the budgets that the axioms prove right.

    Raises:
        UsageError: an option that cannot be used.
        PluginError: an encoding, pruner or axiom set that is not installed, or an encoding that
            breaks the rules.
        AxiomError: an axiom file that cannot be used.
    """
    options = SearchOptions() if options is None else options
    options.check()
    encoding = load_encoding(options.encoding)
    gate = Gate(load_pruners(options.without, options.also))
    return _Search(program, options, encoding, gate, progress or _silent).run()


def _silent(step: str, done: int, total: int | None) -> None:
    """No progress is shown."""


class _Search:
    """One run. `run` names the steps in order; the rest is what they share."""

    def __init__(
        self,
        program: Program,
        options: SearchOptions,
        encoding: Encoding,
        gate: Gate,
        progress: Progress,
    ) -> None:
        self.start = time.perf_counter()
        self.program = program
        self.options = options
        self.encoding = encoding
        self.gate = gate
        self.progress = progress
        self.arena = Arena(program)
        self.cuts = Cuts()
        self.seconds: dict[str, float] = {}
        self.limits = Limits(0, 0, 0, 0)
        self.generator: Generator | None = None
        self.candidate_count = 0
        self.verdicts = dict.fromkeys(Verdict, 0)
        self.found: list[FoundGraph] = []
        self.judged = {graph_id(program_graph(program))}
        self.unproved: list[Ranked] = []
        self.rejected: list[RejectedGraph] = []

    def run(self) -> SearchResult:
        """The pipeline."""
        axioms = load_axioms(self.options.axioms)
        try:
            cone = self.cone(axioms)
            self.limits = self.in_numbers(cone)
            candidates = self.candidates(cone)
            self.verify(axioms, candidates)
            if isinstance(self.generator, FrontGenerator) and self.unproved:
                # what an unproved graph had beaten may be right, and then is on the front
                count = len(self.unproved)
                self.cuts.add("unproved", f"fronts: {count} graphs were not proved", count)
                self.verify(axioms, self.generator.instead(self.unproved))
        except KeyboardInterrupt:
            self.cuts.add("interrupt", "interrupted: only the graphs proved so far are listed")
        except GraphError as error:
            # more dimensions than the e-graph takes; the program itself is right all the same
            self.cuts.add("e-graph", f"e-graph: {error}")
        return self.result(axioms)

    def cone(self, axioms: AxiomSet) -> Cone:
        """Saturate, and keep what lies below the program's outputs."""
        self.progress("saturate", 0, None)
        begin = time.perf_counter()
        budget = self.options.budget_s
        seconds = SATURATE_S if budget is None else SATURATE_SHARE * budget
        saturation = saturate(self.program, axioms, SaturationLimits(seconds=seconds))
        self.seconds["saturate"] = time.perf_counter() - begin
        cone = build_cone(self.program, saturation)
        for sentence in cone.cuts:
            self.cuts.add("cone", sentence)
        return cone

    def in_numbers(self, cone: Cone) -> Limits:
        """The budgets in numbers: what the program itself needs and some more, where not given."""
        max_ops, accumulators = self.options.max_ops, self.options.max_accumulators
        own = len(self.program.inputs) + len(preferred_dag(cone))
        if max_ops is None:
            max_ops = own + SPARE_OPERATORS
        elif max_ops < own:
            self.cuts.miss("max_ops", own, f"the program itself: {own} block operators")
        candidates = MAX_CANDIDATES
        if self.options.max_graphs is not None:
            candidates = min(candidates, CANDIDATES_PER_GRAPH * self.options.max_graphs)
        return Limits(
            max_ops,
            DEFAULT_ACCUMULATORS if accumulators is None else accumulators,
            self.options.grid_dims,
            candidates,
        )

    def candidates(self, cone: Cone) -> list[Ranked]:
        """Every candidate within the budgets, the best looking first."""
        begin = time.perf_counter()
        materials = Materials(self.arena, self.gate, self.encoding, self.limits, self.cuts)
        if self.options.mode == "tune":
            self.generator = FrontGenerator(materials, self.options.seed)
        else:
            self.generator = make_generator(
                self.options.generator, self.options.concrete, materials
            )
        out = self.generator.candidates(
            cone,
            lambda share: self.is_late(share * GENERATE_SHARE),
            lambda count: self.progress("generate", count, None),
        )
        self.candidate_count = len(out)
        self.seconds["generate"] = time.perf_counter() - begin
        return out

    def verify(self, axioms: AxiomSet, candidates: Sequence[Ranked]) -> None:
        """Judge the candidates in order, as many as the budgets allow."""
        begin = time.perf_counter()
        most = self.options.max_graphs
        if most is not None and len(candidates) > most:
            left = len(candidates) - most
            self.cuts.add(
                "max_graphs", f"max_graphs: {left} worse looking graphs were not judged", left
            )
            candidates = best_looking(candidates, most)
        limits = _verify_limits(self.program)
        verifier = Verifier(self.program, axioms, limits)
        start = 0
        each = 1e-6  # seconds per graph, of the last batch
        while start < len(candidates):
            self.progress("verify", start, len(candidates))
            rest, now = self.seconds_left(), time.perf_counter()
            # late, a smaller batch; what company a graph is judged in changes no verdict
            size = limits.batch if each * limits.batch <= rest else max(1, int(rest / each))
            try:
                if rest > 0:
                    with deadline(None if rest == math.inf else time.monotonic() + rest):
                        self.judge(verifier, candidates[start : start + size])
            except OutOfTimeError:
                rest = 0.0
            if rest <= 0:
                left = len(candidates) - start
                self.cuts.add("budget_s", f"time: {left} graphs were not judged", left)
                break
            start += size
            each = max(1e-6, (time.perf_counter() - now) / size)
        self.progress("verify", len(candidates), len(candidates))
        self.seconds["verify"] = self.seconds.get("verify", 0.0) + time.perf_counter() - begin

    def judge(self, verifier: Verifier, batch: Sequence[Ranked]) -> None:
        """Build and verify one batch; sort it into found and rejected."""
        built: dict[str, tuple[Ranked, SGraph]] = {}
        for ranked in batch:
            graph = build_graph(self.arena, ranked.candidate)
            key = graph_id(graph)
            if key not in self.judged:
                self.judged.add(key)
                built[key] = (ranked, graph)
        verdicts = verifier.verify([g for _, g in built.values()])
        for (key, (ranked, graph)), verdict in zip(built.items(), verdicts, strict=True):
            self.verdicts[verdict] += 1
            # proofs take all chunks for equally long; what the interpreter refuses may be right
            # then, and wrong where the last chunk is shorter
            fault = explain(graph)
            if verdict is Verdict.PROVED and fault is None:
                counts = (ranked.op_count, ranked.accumulator_count)
                self.found.append(FoundGraph(key, graph, verdict, *counts, stage_names(graph)))
                continue
            self.unproved.append(ranked)
            if verdict is Verdict.GAVE_UP:
                self.cuts.add("gave_up", "verification: a limit was reached on some graphs")
            if len(self.rejected) < MAX_REJECTED:
                reason = fault or "placement finds no fault; the axioms may be too weak"
                self.rejected.append(RejectedGraph(key, verdict, reason))

    def is_late(self, share: float) -> bool:
        """Whether this share of the time budget is used up."""
        budget = self.options.budget_s
        return budget is not None and time.perf_counter() - self.start > share * budget

    def seconds_left(self) -> float:
        """What is left of the time budget; infinite without one."""
        budget = self.options.budget_s
        return math.inf if budget is None else self.start + budget - time.perf_counter()

    def result(self, axioms: AxiomSet) -> SearchResult:
        """What was found, the program's own graph as the last resort."""
        return SearchResult(
            program=self.program,
            graphs=(*self.found, _fallback(self.program)),
            rejected=tuple(self.rejected),
            complete=not self.cuts.sentences,
            cuts=tuple(self.cuts.sentences),
            nearest={reason: miss for reason, (_, miss) in self.cuts.nearest.items()},
            limits={
                "max_ops": self.limits.max_ops,
                "max_accumulators": self.limits.max_accumulators,
                "grid_dims": self.limits.grid_dims,
            },
            search_s=time.perf_counter() - self.start,
            counters=self.counters(),
            options=self.options,
            fingerprint=axioms.fingerprint,
        )

    def counters(self) -> dict[str, Any]:
        """What the search did, as `prism search --json` prints it."""
        generator = self.generator
        encoding = None if generator is None else generator.mapper.mappings.count
        return {
            "pruners": {
                name: {
                    "seen": c.seen,
                    "dropped": c.dropped,
                    "seconds": c.seconds,
                    "example": c.example,
                }
                for name, c in self.gate.counts.items()
            },
            "encodings": {
                self.options.encoding: {
                    "problems": encoding.problems if encoding else 0,
                    "models": encoding.models if encoding else 0,
                    "assignments": encoding.assignments if encoding else 0,
                    "seconds": encoding.seconds if encoding else 0.0,
                }
            },
            **({"states": 0, "dags": 0} if generator is None else generator.counters()),
            "candidates": self.candidate_count,
            "verified": sum(self.verdicts.values()),
            "proved": self.verdicts[Verdict.PROVED],
            "not_proved": self.verdicts[Verdict.NOT_PROVED],
            "gave_up": self.verdicts[Verdict.GAVE_UP],
            "cut": dict(self.cuts.counts),
            "seconds": dict(self.seconds),
        }


def _verify_limits(program: Program) -> VerifyLimits:
    """The usual limits, and more for long programs, which come in smaller batches."""
    usual, nodes = VerifyLimits(), len(program.nodes)
    renew = max(1, min(usual.renew, MAX_NODES // nodes))
    return replace(
        usual,
        batch=max(1, min(usual.batch, renew // 2)),
        renew=renew,
        parallel_iterations=usual.parallel_iterations + ITERATIONS_PER_NODE * nodes,
        parallel_nodes=usual.parallel_nodes + NODES_PER_NODE * nodes,
    )


def _fallback(program: Program) -> FoundGraph:
    """The program's own graph. It is the program, so nothing needs to prove it."""
    graph = program_graph(program)
    nodes = graph.kernels[0].block.nodes
    op_count = sum(isinstance(node, Apply | InputLoader) for node in nodes)
    return FoundGraph(
        PROGRAM_ID, graph, Verdict.PROVED, op_count, 0, stage_names(graph), is_fallback=True
    )
