"""What is right is proved, or an instance of a known gap: counts over what brute force makes.

    PYTHONPATH=tests python -m verify.completeness     # prints the table, some minutes

Brute force makes every op DAG (and every kernel, nest and pair of kernels) of small generated
programs. One is right when it gives the program's numbers at several sizes, down to one, numbers of
chunks and kinds of values, and has a value wherever the program has one.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

import numpy as np
import search_programs as programs
from brute_force import Expected, count_of, generated, gives_its_numbers
from brute_force_blocks import right_graphs
from brute_force_kernels import Plans, is_well_formed
from brute_force_nests import right_nests
from strategies import random_sizes
from verify.known_gaps import GAPS, GROWN, Gap, with_gaps
from verify.mutants_store import SEEDS, arrays_for, is_right

from prism.egraph import AxiomSet, graph_terms, load_axioms
from prism.errors import GraphError
from prism.ir import Apply, Const, Input, Program, SGraph, SizeOf, format_program, format_sgraph
from prism.ir.evaluate import Value, apply_op, input_values
from prism.verify import Verdict, verify_graphs, verify_programs

axioms = cache(load_axioms)
ROUNDING = 1e-9
PROVED = "proved"
SEVERAL = "several gaps at once"


@cache
def extended(gap: Gap | None = None) -> AxiomSet:
    """The axioms with the rules of one gap, or of all."""
    return with_gaps(axioms(), GAPS if gap is None else (gap,))


def gap_of(judge: Callable[[AxiomSet], Verdict]) -> str | None:
    """The gap that a candidate is an instance of; `judge` gives a verdict under axioms."""
    for gap in GAPS:
        if gap.rules and judge(extended(gap)) is Verdict.PROVED:
            return gap.name
    return SEVERAL if judge(extended()) is Verdict.PROVED else None


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


def is_equal(reference: Program, candidate: Program, seeds: Sequence[int] = range(16)) -> bool:
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


def judged_dags(program: Program) -> Counter[str]:
    """What becomes of the right op DAGs: proved, or the name of a gap."""
    found = Counter()
    for candidate in candidates(program):
        if not is_equal(program, candidate):
            continue
        answer = verify_programs(program, candidate, axioms())
        if answer.verdict is Verdict.PROVED:
            found[PROVED] += 1
        elif answer.counterexample is None:  # draws miss a rare zero; it shows that one is wrong
            gap = gap_of(lambda a, c=candidate: verify_programs(program, c, a).verdict)
            assert gap is not None, format_program(program) + format_program(candidate)
            found[gap] += 1
    return found


def candidates(program: Program) -> Iterator[Program]:
    """The op DAGs that brute force gives, as programs."""
    expected = Expected(program, count_of(program))
    if expected.is_defined:
        yield from map(expected.as_program, expected.dags)


# --- graphs -------------------------------------------------------------------------------------


def judged_graphs(graphs: Sequence[SGraph]) -> Counter[str]:
    """What becomes of right graphs of one program."""
    found = Counter()
    if not graphs:
        return found
    verdicts = verify_graphs(graphs[0].program, graphs, axioms())
    for graph, verdict in zip(graphs, verdicts, strict=True):
        if verdict is Verdict.PROVED:
            found[PROVED] += 1
            continue
        gap = GROWN.name if not fits(graph) else gap_of(lambda a, g=graph: verdict_on(g, a))
        assert gap is not None, format_sgraph(graph)
        found[gap] += 1
    return found


def verdict_on(graph: SGraph, axiom_set: AxiomSet) -> Verdict:
    """The verdict on one graph."""
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
        and is_right(graph, range(SEEDS), count=3)
    )


def proved_dags(program: Program) -> Iterator[tuple[Expected, frozenset]]:
    """The op DAGs that are proved as programs, so that only parallel steps are left."""
    expected = Expected(program, count_of(program))
    for dag in expected.dags if expected.is_defined else ():
        whole = expected.as_program(dag)
        if verify_programs(program, whole, axioms()).verdict is Verdict.PROVED:
            yield expected, dag


def judged_kernels(program: Program) -> Counter[str]:
    """Kernels with a grid dim or none, a loop or none."""
    found = Counter()
    for expected, dag in proved_dags(program):
        made = [g for count in (1, 0) for g in right_graphs(expected.terms, dag, count)]
        found += judged_graphs(list(filter(gives_all_numbers, made)))
    return found


def judged_plans(program: Program) -> Counter[str]:
    """Pairs of kernels, blocks that stack among them."""
    found = Counter()
    for expected, dag in proved_dags(program):
        made = Plans(expected.terms, dag, tied=False).graphs()
        found += judged_graphs([g for g in made if is_well_formed(g) and is_right_pair(g)])
    return found


def is_right_pair(graph: SGraph) -> bool:
    """With as many blocks in both kernels, and where the first has more of them that stack."""
    return is_right(graph) and is_right(graph, spare=2)


def judged_nests(program: Program) -> Counter[str]:
    """Kernels with a loop in a loop."""
    return judged_graphs([g for g in right_nests(program) if is_right(g)])


# --- samples ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """Programs, and what brute force makes of them. `least`: the share that has to be proved."""

    name: str
    programs: Callable[[], list[Program]]
    judged: Callable[[Program], Counter[str]]
    least: float

    def counts(self) -> Counter[str]:
        """What becomes of all right candidates."""
        return sum(map(self.judged, self.programs()), Counter())


def drawn(seeds: Iterable[int], most: int = 3) -> list[Program]:
    """The generated programs of at most so many operators."""
    return [p for p in map(generated, seeds) if count_of(p) <= most]


def nested() -> list[Program]:
    """Programs with two dims to loop over."""
    functions = (programs.matmul, programs.exp_sum, programs.exp_matmul, programs.relu_product)
    return list(map(programs.trace, functions))


SAMPLES = (
    Sample("op DAGs of up to 3 operators", lambda: drawn(range(860)), judged_dags, 0.9),
    Sample("op DAGs of up to 4 operators", lambda: drawn(range(80), 4), judged_dags, 0.8),
    Sample("kernels", lambda: drawn(range(80, 240)), judged_kernels, 0.95),
    Sample("pairs of kernels", lambda: drawn(range(44, 80)), judged_plans, 0.95),
    Sample("loops in loops", nested, judged_nests, 1.0),
)


def table(samples: Sequence[Sample] = SAMPLES) -> str:
    """Right candidates, how many are proved, and how many are instances of which gap."""
    lines = ["right | proved | known gaps | what"]
    gaps = Counter()
    for sample in samples:
        found = sample.counts()
        right, proved = found.total(), found.pop(PROVED)
        lines.append(f"{right} | {proved} | {right - proved} | {sample.name}")
        gaps += found
    lines += ["", "right candidates | known gap"]
    lines += [f"{count} | {name}" for name, count in gaps.most_common()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
