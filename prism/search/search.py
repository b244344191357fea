"""The search: from a program to its verified sGraphs, for all sizes at once (ARCHITECTURE.md).

    saturate   everything the axioms prove equal to the program        prism.egraph
    cone       one choice of operator per e-class                      cone
    generate   every op DAG within the operator budget                 dags, wiring
               every mapping of its inputs and outputs                 mappings (an encoding)
               grid dims that leave every output where its omap says   grid, placement
               what runs in the loop body and what after it            stages, nests
               or only what may be the fastest; or several kernels     fronts, plans
    verify     the axioms judge each graph, and placement once more    ranking, judging,
                                                                       prism.verify, explain,
                                                                       explain_threads

The pruners judge partial graphs on the way (`pruning`), told the sizes and the device where these
are known (`situation`). Limits are part of the answer.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from prism.artifact import FoundGraph
from prism.egraph import AxiomSet, saturate
from prism.egraph import Limits as SaturationLimits
from prism.egraph.session import deadline
from prism.egraph.soundness import load_sound
from prism.errors import GraphError
from prism.identity import PROGRAM_ID, graph_id
from prism.ir import OPS, Apply, InputLoader, OpKind, Program, stage_names
from prism.protocols import Encoding
from prism.search.answers import load_encoding
from prism.search.assemble import GraphBuilder, program_graph
from prism.search.clock import Clock, noting_interrupts
from prism.search.cone import Cone, build_cone
from prism.search.fronts import FrontGenerator
from prism.search.generate import Generator, Materials, preferred_dag
from prism.search.generators import make_generator
from prism.search.judging import FEW, Judges, Judging
from prism.search.mapper import Cuts, Limits
from prism.search.mappings import Answers
from prism.search.options import SearchOptions, SearchResult
from prism.search.placement import transfer
from prism.search.plans import PlanGenerator
from prism.search.pruning import Gate, load_pruners
from prism.search.ranking import Ranked, best_looking
from prism.search.situation import Situation
from prism.search.wiring import Arena
from prism.verdict import Verdict
from prism.verify import Admission, ParallelVerifier, Verifier, VerifyLimits, core_count

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

COLLECT_LESS = 10
"""A search makes so many times more objects between two garbage collections than is usual."""

MAX_SQUARES = 30_000
"""Nodes of the program squared, times graphs, in one verification e-graph. At 30 operators 100
graphs took 2.3 GB, 30 take 0.9."""


def search(
    program: Program, options: SearchOptions | None = None, progress: Progress | None = None
) -> SearchResult:
    """Every graph of the program within the budgets that the axioms prove right.

    Raises:
        UsageError: an option that cannot be used.
        SizeError: sizes that do not fit the program.
        PluginError: an encoding, pruner or axiom set that is not installed, or an encoding that
            breaks the rules.
        AxiomError: an axiom file that cannot be used.
    """
    options = SearchOptions() if options is None else options
    options.check()
    clock = Clock(options.budget_s)
    with noting_interrupts(clock), deadline(clock.end), _few_collections():
        encoding = load_encoding(options.encoding)
        situation = Situation.of(program, options.sizes, options.device)
        gate = Gate(load_pruners(options.without, options.also, situation))
        axioms = load_sound(options.axioms, seed=options.seed)
        clock.begin()  # imports, and tests of own axioms, are not searching
        parts = _Parts(encoding, situation, gate, axioms, clock, progress or _silent)
        return _Search(program, options, parts).run()


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let the garbage collector look less often at what lives until the end of a search.

    Measured: a fifth less time where 3,000 graphs are found; with 100 for 10 the garbage that only
    the collector frees costs more than it saves.
    """
    usual = gc.get_threshold()
    gc.set_threshold(COLLECT_LESS * usual[0], *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _silent(step: str, done: int, total: int | None) -> None:
    """No progress is shown."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a run is given besides program and options."""

    encoding: Encoding
    situation: Situation
    gate: Gate
    axioms: AxiomSet
    clock: Clock
    progress: Progress


class _Search:
    """One run. `run` names the steps in order; the rest is what they share."""

    def __init__(self, program: Program, options: SearchOptions, parts: _Parts) -> None:
        self.clock = parts.clock
        self.program = program
        self.options = options
        self.answers = Answers(parts.encoding)
        self.situation = parts.situation
        self.gate = parts.gate
        self.axioms = parts.axioms
        self.progress = parts.progress
        self.arena = Arena(program)
        self.cuts = Cuts(is_interrupted=lambda: self.clock.is_interrupted)
        self.seconds: dict[str, float] = {}
        self.limits = Limits(0, 0, 0, 0)
        self.generator: Generator | None = None
        self.candidate_count = 0
        self.judging: Judging | None = None
        self.verifier: Verifier | ParallelVerifier | None = None

    def run(self) -> SearchResult:
        """The pipeline."""
        try:
            self.steps()
        except KeyboardInterrupt:
            self.note_interrupt()
        except GraphError as error:
            # more dimensions than the e-graph takes; the program itself is right all the same
            self.cuts.add("e-graph", f"e-graph: {error}")
        finally:
            if isinstance(self.verifier, ParallelVerifier):
                self.verifier.close()
        if self.clock.is_interrupted:
            self.note_interrupt()
        return self.result()

    def steps(self) -> None:
        """What may be interrupted."""
        beyond = beyond_search(self.program, self.options.generator)
        if beyond:
            self.cuts.add("beyond", f"operators: no graphs with {', '.join(beyond)}")
            return
        cone = self.cone()
        if cone is None:
            return
        self.limits = self.in_numbers(cone)
        candidates = self.candidates(cone)
        self.clock.grant_grace()
        self.verify(candidates)
        unproved = () if self.judging is None else self.judging.unproved
        if self.options.mode == "tune" and self.generator is not None and unproved:
            # what an unproved graph had beaten may be right, and then is on the front
            count = len(unproved)
            self.cuts.add("unproved", f"fronts: {count} graphs were not proved", count)
            self.verify(self.generator.instead(tuple(unproved)))

    def note_interrupt(self) -> None:
        """The answer says that it is only a part."""
        self.cuts.add("interrupt", "interrupted: only the graphs proved so far are listed")

    def cone(self) -> Cone | None:
        """Saturate, and keep what lies below the program's outputs; None after an interrupt."""
        self.progress("saturate", 0, None)
        begin = time.perf_counter()
        budget = self.options.budget_s
        seconds = SATURATE_S if budget is None else SATURATE_SHARE * budget
        saturation = saturate(self.program, self.axioms, SaturationLimits(seconds=seconds))
        self.seconds["saturate"] = time.perf_counter() - begin
        if self.clock.is_interrupted:
            return None
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
            self.options.loop_dims,
        )

    def candidates(self, cone: Cone) -> list[Ranked]:
        """Every candidate within the budgets, the best looking first."""
        begin = time.perf_counter()
        materials = Materials(
            self.arena, self.gate, self.answers, self.limits, self.cuts, self.situation
        )
        if self.options.mode == "tune":
            self.generator = FrontGenerator(materials, self.options.seed)
        else:
            self.generator = make_generator(
                self.options.generator, self.options.concrete, materials
            )
        if self.options.max_kernels > 1:
            is_best = self.options.mode == "tune"
            self.generator = PlanGenerator(
                self.generator,
                materials,
                self.options.max_kernels,
                self.options.seed,
                is_best=is_best,
            )
        out = self.generator.candidates(
            cone,
            lambda share: self.clock.is_late(share * GENERATE_SHARE),
            lambda count: self.progress("generate", count, None),
        )
        self.candidate_count = len(out)
        self.seconds["generate"] = time.perf_counter() - begin
        return out

    def verify(self, candidates: Sequence[Ranked]) -> None:
        """Judge the candidates in order, as many as the budgets allow."""
        begin = time.perf_counter()
        most = self.options.max_graphs
        if most is not None and len(candidates) > most:
            left = len(candidates) - most
            self.cuts.add(
                "max_graphs", f"max_graphs: {left} worse looking graphs were not judged", left
            )
            candidates = best_looking(candidates, most)
        if self.judging is None:
            self.judging = self.new_judging(len(candidates))
        self.judging.judge(
            candidates,
            self.seconds_left,
            lambda done, total: self.progress("verify", done, total),
        )
        self.seconds["verify"] = self.seconds.get("verify", 0.0) + time.perf_counter() - begin

    def new_judging(self, count: int) -> Judging:
        """Full terms, and lemmas where these are enough; the program's own graph is known."""
        limits = _verify_limits(self.program)
        verifier = Verifier(self.program, self.axioms, limits)
        if self.options.workers != 1:
            self.verifier = ParallelVerifier(verifier, self.options.workers or core_count())
        else:
            self.verifier = verifier
        admission = None
        if self.options.verify == "sample" and count > FEW:
            admission = Admission(self.program, self.axioms, transfer, verifier.verify)
        judges = Judges(self.verifier, limits, admission, self.options.seed)
        own = graph_id(program_graph(self.program))
        return Judging(GraphBuilder(self.arena), judges, self.cuts, [own])

    def seconds_left(self) -> float:
        """What is left of the time; infinite without a budget."""
        return self.clock.end() - time.monotonic()

    def result(self) -> SearchResult:
        """What was found, the program's own graph as the last resort."""
        judging = self.judging
        return SearchResult(
            program=self.program,
            graphs=(*(() if judging is None else judging.found), _fallback(self.program)),
            rejected=() if judging is None else tuple(judging.rejected),
            complete=not self.cuts.sentences,
            cuts=tuple(self.cuts.sentences),
            nearest={
                **{reason: miss for reason, (_, miss) in self.cuts.nearest.items()},
                **self.gate.nearest(),
            },
            limits={
                "max_ops": self.limits.max_ops,
                "max_accumulators": self.limits.max_accumulators,
                "grid_dims": self.limits.grid_dims,
                "loop_dims": self.limits.loop_dims,
            },
            search_s=self.clock.elapsed_s,
            counters=self.counters(),
            options=self.options,
            fingerprint=self.axioms.fingerprint,
        )

    def counters(self) -> dict[str, Any]:
        """What the search did, as `prism search --json` prints it."""
        generator = self.generator
        asked = self.answers.count
        verdicts = dict.fromkeys(Verdict, 0) if self.judging is None else self.judging.verdicts
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
                    "problems": asked.problems,
                    "models": asked.models,
                    "assignments": asked.assignments,
                    "seconds": asked.seconds,
                }
            },
            **({"states": 0, "dags": 0} if generator is None else generator.counters()),
            "candidates": self.candidate_count,
            "verified": sum(verdicts.values()),
            "proved": verdicts[Verdict.PROVED],
            "admitted": verdicts[Verdict.ADMITTED],
            "not_proved": verdicts[Verdict.NOT_PROVED],
            "gave_up": verdicts[Verdict.GAVE_UP],
            # gave up because of the clock, so that another machine might say more
            "late": 0 if self.verifier is None else self.verifier.late,
            "hard_stops": 0 if self.verifier is None else self.verifier.hard_stops,
            "cut": dict(self.cuts.counts),
            "seconds": dict(self.seconds),
        }


def beyond_search(program: Program, generator: str) -> list[str]:
    """The program's operators with which no graph is generated, and why.

    No kernel computes in tiles what mixes places along a dim; the forward generator tries operators
    of one and two operands.
    """
    rows = [OPS[op] for op in sorted({n.op for n in program.nodes if isinstance(n, Apply)})]
    along = [f"{row.name}, along a dim" for row in rows if row.kind is OpKind.ALONG]
    wide = [f"{row.name}, of {row.arity} operands" for row in rows if row.arity > 2]
    return along or (wide if generator == "forward" else [])


def _verify_limits(program: Program) -> VerifyLimits:
    """The usual limits, and more for long programs, which come in smaller batches."""
    usual, nodes = VerifyLimits(), len(program.nodes)
    renew = max(1, min(usual.renew, MAX_SQUARES // nodes**2))
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
