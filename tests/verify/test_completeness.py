"""What is right is proved, or an instance of a known gap: candidates that numbers accept.

Brute force makes every op DAG (and every kernel, nest and pair of kernels) of small generated
programs; one is right when it gives the program's numbers at several sizes, down to one, numbers of
chunks and kinds of values, and has a value wherever the program has one.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from random import Random
from textwrap import dedent, indent

import numpy as np
import pytest
import search_programs as programs
from brute_force import Expected, count_of, generated, gives_its_numbers
from brute_force_blocks import right_graphs
from brute_force_kernels import Plans, is_well_formed
from brute_force_nests import right_nests
from strategies import random_sizes
from verify.known_gaps import GAPS, GROWN, with_gaps
from verify.mutants_store import arrays_for, is_right

from prism import frontend as pr
from prism.egraph import graph_terms, load_axioms
from prism.errors import GraphError
from prism.ir import Apply, Const, Input, Program, SGraph, SizeOf, format_program, parse_sgraph
from prism.ir.evaluate import Value, apply_op, input_values
from prism.verify import Verdict, verify_graphs, verify_programs

axioms = cache(load_axioms)
ROUNDING = 1e-9


@cache
def extended(gap=None):
    """The axioms with the rules of one gap, or of all."""
    return with_gaps(load_axioms(), GAPS if gap is None else (gap,))


# --- op DAGs as programs ------------------------------------------------------------------------


def reals(program: Program, arrays, sizes) -> np.ndarray:
    """The first output over the reals: what an undefined value enters is undefined."""
    inputs = input_values(program, arrays)
    values = []
    with np.errstate(all="ignore"):
        for node in program.nodes:
            match node:
                case Input(name=name):
                    value = inputs[name]
                case Const(value=number):
                    value = Value((), np.asarray(number))
                case SizeOf(dim=dim):
                    value = Value((), np.asarray(float(sizes[dim])))
                case Apply(op=op, operands=operands, dim=dim):
                    value = apply_op(op, dim, [values[j] for j in operands], sizes)
            array = np.where(np.isfinite(value.array), value.array, np.nan)
            values.append(Value(value.dims, array))
    (output,) = program.outputs
    return values[output.tensor].along([d for d in output.axes if d is not None])


def is_equal(reference: Program, candidate: Program, seeds=range(16)) -> bool:
    """Whether the candidate gives the numbers that the reference has, sizes down to one."""
    seen = 0
    for seed in seeds:
        sizes = random_sizes(reference, Random(seed), 5)
        arrays = arrays_for(reference, sizes, seed)
        wanted, given = (reals(p, arrays, sizes) for p in (reference, candidate))
        defined = np.isfinite(wanted)
        wanted, given = (np.broadcast_to(a, defined.shape)[defined] for a in (wanted, given))
        seen += wanted.size
        if not (np.abs(wanted - given) <= ROUNDING * np.abs(wanted).max(initial=0.0)).all():
            return False
    return seen > 0


def gap_of(judge) -> str | None:
    """The gap that a candidate is an instance of; `judge` gives a verdict under axioms."""
    for gap in GAPS:
        if gap.rules and judge(extended(gap)) is Verdict.PROVED:
            return gap.name
    return "several" if judge(extended()) is Verdict.PROVED else None


def judged_dags(program: Program) -> Counter:
    """What becomes of the right op DAGs: proved, or the name of a gap."""
    expected = Expected(program, count_of(program))
    found = Counter()
    if not expected.is_defined:
        return found
    for dag in expected.dags:
        candidate = expected.as_program(dag)
        if not is_equal(program, candidate):
            continue
        if verify_programs(program, candidate, axioms()).verdict is Verdict.PROVED:
            found["proved"] += 1
            continue
        gap = gap_of(lambda a, c=candidate: verify_programs(program, c, a).verdict)
        assert gap is not None, format_program(program) + format_program(candidate)
        found[gap] += 1
    return found


def judged_all(seeds, judged, most) -> Counter:
    """Of generated programs of at most so many operators."""
    drawn = (generated(seed) for seed in seeds)
    return sum((judged(p) for p in drawn if count_of(p) <= most), Counter())


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_right_op_dags_are_proved_or_known_gaps(first):
    found = judged_all(range(first, first + 20), judged_dags, 3)
    assert found["proved"] >= 10


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(60, 860, 100))
def test_so_are_those_of_more_programs(first):
    found = judged_all(range(first, first + 100), judged_dags, 3)
    assert found["proved"] >= 0.8 * found.total() > 80


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 80, 20))
def test_so_are_those_of_larger_programs(first):
    found = judged_all(range(first, first + 20), judged_dags, 4)
    assert found["proved"] >= 0.8 * found.total() > 20


# --- graphs -------------------------------------------------------------------------------------


def judged_graphs(graphs: list[SGraph]) -> Counter:
    """What becomes of right graphs of one program."""
    found = Counter()
    if not graphs:
        return found
    verdicts = verify_graphs(graphs[0].program, graphs, axioms())
    for graph, verdict in zip(graphs, verdicts, strict=True):
        if verdict is Verdict.PROVED:
            found["proved"] += 1
            continue
        gap = GROWN.name if not fits(graph) else gap_of(lambda a, g=graph: verdict_on(g, a))
        assert gap is not None, graph
        found[gap] += 1
    return found


def verdict_on(graph: SGraph, axiom_set) -> Verdict:
    return verify_graphs(graph.program, [graph], axiom_set)[0]


def fits(graph: SGraph) -> bool:
    """Whether the values of a graph fit together, so that there is something to prove."""
    try:
        graph_terms(graph)
    except GraphError:
        return False
    return True


def gives_all_numbers(graph: SGraph) -> bool:
    """At ragged sizes, and at others with two equal chunks and with three."""
    return (
        all(gives_its_numbers(graph, seed) for seed in range(2))
        and is_right(graph)
        and is_right(graph, range(4), count=3)
    )


def judged_kernels(program: Program) -> Counter:
    """Kernels with a grid dim or none, a loop or none, of the right DAGs that are proved."""
    expected = Expected(program, count_of(program))
    found = Counter()
    for dag in expected.dags if expected.is_defined else ():
        whole = expected.as_program(dag)
        if verify_programs(program, whole, axioms()).verdict is Verdict.PROVED:
            right = [
                graph
                for count in (1, 0)
                for graph in right_graphs(expected.terms, dag, count)
                if gives_all_numbers(graph)
            ]
            found += judged_graphs(right)
    return found


def judged_plans(program: Program) -> Counter:
    """Pairs of kernels of the right DAGs that are proved, blocks that stack among them."""
    expected = Expected(program, count_of(program))
    found = Counter()
    for dag in expected.dags if expected.is_defined else ():
        whole = expected.as_program(dag)
        if verify_programs(program, whole, axioms()).verdict is Verdict.PROVED:
            graphs = Plans(expected.terms, dag, tied=False).graphs()
            found += judged_graphs([g for g in graphs if is_well_formed(g) and is_right(g)])
    return found


@pytest.mark.parametrize("seeds", [(41, 44, 45, 47), (26, 50, 79)])
def test_right_kernels_are_proved_or_known_gaps(seeds):
    found = judged_all(seeds, judged_kernels, 3)
    assert found["proved"] >= 40
    assert len(found) >= 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 320, 40))
def test_so_are_those_of_more(first):
    found = judged_all(range(first, first + 40), judged_kernels, 3)
    assert found["proved"] >= 0.95 * found.total() > 200


def test_right_pairs_of_kernels_are_proved_or_known_gaps():
    found = judged_all([26, 41, 44, 45, 50], judged_plans, 3)
    assert found["proved"] >= 20
    assert len(found) >= 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, 80, 20))
def test_so_are_more_pairs(first):
    found = judged_all(range(first, first + 20), judged_plans, 3)
    assert found["proved"] >= 0.95 * found.total() > 100


NESTED = [programs.matmul, programs.exp_sum, programs.exp_matmul, programs.relu_product]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("function", NESTED, ids=lambda f: f.__name__)
def test_right_loops_in_loops_are_proved_or_known_gaps(function):
    graphs = [g for g in right_nests(programs.trace(function)) if is_right(g)]
    found = judged_graphs(graphs)
    assert found["proved"] >= 0.95 * found.total() > 10


# --- the gaps -----------------------------------------------------------------------------------


def traced(text: str) -> Program:
    """The program with this body."""
    names = {"pr": pr}
    body = f'def fn(x: "n d", y: "n d", s: "n", q: "k", w: "d h"):\n    return {text}\n'
    exec(body, names)
    return pr.trace(names["fn"])


def candidate_of(program: Program, text: str) -> Program | SGraph:
    if "load" not in text:
        return traced(text)
    kernel = indent(dedent(text).strip(), "  ")
    return parse_sgraph(f"sgraph\n{format_program(program)}kernel 0\n{kernel}\n")


@pytest.mark.parametrize("gap", GAPS, ids=lambda g: g.name)
def test_a_gap_is_one(gap):
    """Its example is right, and not proved; a gap that is closed is to be taken off the table."""
    reference = traced(gap.example[0])
    candidate = candidate_of(reference, gap.example[1])
    if isinstance(candidate, SGraph):
        assert is_right(candidate)
        assert fits(candidate) is bool(gap.rules)
    else:
        assert is_equal(reference, candidate)
    assert verify_programs(reference, candidate, axioms()).verdict is not Verdict.PROVED
    if gap.rules:
        assert verify_programs(reference, candidate, extended(gap)).verdict is Verdict.PROVED
