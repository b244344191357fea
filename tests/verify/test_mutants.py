"""No wrong graph is accepted: the stored mutants, each refuted by numbers (`mutants_store`).

Neither the axioms, alone or beside right graphs, nor the lemmas, nor `prism verify` take one; the
placement interpreter takes none whose fault is where its parts are. The store is made by
`mutants_make`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from random import Random

import pytest
from verify.mutants import KINDS, is_well_formed, made_from
from verify.mutants_make import JUDGED, Fate, fate_of, mutants, workloads
from verify.mutants_store import (
    FOLDER,
    difference,
    format_family,
    is_right,
    load,
    names,
    witness_of,
)

from prism.egraph import graph_terms, load_axioms
from prism.ir import InputLoader, Output, OutputSaver, Program, format_sgraph
from prism.search import explain, program_graph
from prism.search.placement import transfer
from prism.verify import (
    Admission,
    Verdict,
    Verifier,
    find_counterexample,
    verify_graphs,
    verify_programs,
)

NAMES = names()
FRESH = 11
"""The seed of mutants that are not in the store."""
family = cache(load)


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


# --- the store ----------------------------------------------------------------------------------


def test_there_are_enough_of_each_kind_over_all_workloads():
    assert workloads() == NAMES
    counts = Counter(m.kind for name in NAMES for m in family(name).mutants)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 10
    assert sum(counts.values()) >= 200
    texts = {format_sgraph(m.graph) for name in NAMES for m in family(name).mutants}
    assert len(texts) == sum(counts.values())


def test_they_are_made_from_graphs_of_all_shapes():
    right = [g for name in NAMES for g in family(name).right.values()]
    assert {len(g.kernels) for g in right} == {1, 2}
    assert {len(k.loops) for g in right for k in g.kernels} == {0, 1, 2}


@pytest.mark.parametrize("name", NAMES)
def test_the_text_says_it_all(name):
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert format_family(family(name)) == text


@pytest.mark.parametrize("name", NAMES)
def test_numbers_refute_every_mutant(name):
    """The values are those of the text, so a reader can trust it."""
    for mutant in family(name).mutants:
        stored = mutant.witness
        found = difference(mutant.graph, stored.sizes, stored.seed)
        assert found is not None, mutant.name
        if stored.is_clash:
            assert found.fault == stored.fault
        else:
            assert (found.output, found.entry) == (stored.output, stored.entry)
            given = pytest.approx((stored.wanted, stored.given), rel=1e-6, abs=1e-9, nan_ok=True)
            assert (found.wanted, found.given) == given


@pytest.mark.parametrize("name", NAMES)
def test_what_they_are_made_from_is_right_and_proved(name, axioms):
    """At sizes that divide into two chunks and into three."""
    graphs = list(family(name).right.values())
    assert set(verify_graphs(family(name).program, graphs, axioms)) == {Verdict.PROVED}
    for graph in graphs:
        assert is_right(graph, range(1))
        assert explain(graph) is None


# --- nobody takes one ---------------------------------------------------------------------------


@pytest.fixture
def every(thorough):
    """Of a file one mutant in seven, or all."""
    return 1 if thorough else 7


def in_company(found, every):
    """Mutants, each beside the right graph that it was made from."""
    some = found.mutants[::every]
    return [graph for m in some for graph in (m.graph, found.right[m.name.partition(".")[0]])]


@pytest.mark.parametrize("name", NAMES)
def test_no_mutant_is_proved_in_the_company_of_right_graphs(name, every, axioms):
    found = family(name)
    verdicts = verify_graphs(found.program, in_company(found, every), axioms)
    for mutant, verdict in zip(found.mutants[::every], verdicts[::2], strict=True):
        assert verdict is not Verdict.PROVED, (mutant.name, str(mutant.witness))
    assert set(verdicts[1::2]) == {Verdict.PROVED}


@pytest.mark.parametrize("name", NAMES)
def test_no_mutant_is_proved_alone(name, every, axioms):
    for mutant in family(name).mutants[1 % every :: every]:
        (verdict,) = verify_graphs(mutant.graph.program, [mutant.graph], axioms)
        assert verdict is not Verdict.PROVED, (mutant.name, str(mutant.witness))


@pytest.mark.parametrize("name", NAMES)
def test_no_mutant_is_admitted(name, every, axioms):
    program = family(name).program
    judge = Admission(program, axioms, transfer, Verifier(program, axioms).verify)
    assert not any(judge.admitted([m.graph for m in family(name).mutants[2 % every :: every]]))


@pytest.mark.parametrize("name", NAMES)
def test_the_verifier_has_to_judge_them(name):
    """They obey the rules of the IR and their values fit together."""
    for mutant in family(name).mutants:
        assert is_well_formed(mutant.graph)
        assert graph_terms(mutant.graph)


@pytest.mark.parametrize("name", NAMES)
def test_placement_takes_none_that_one_block_gets_right(name):
    """It says nothing about algebra, but all about what blocks and iterations do."""
    for mutant in family(name).mutants:
        sizes = mutant.witness.sizes
        once = replace(sizes, counts=tuple(dict.fromkeys(c, 1) for c in sizes.counts))
        if difference(mutant.graph, once, mutant.witness.seed) is None:
            assert explain(mutant.graph) is not None, mutant.name


def test_many_mutants_are_right_in_one_block():
    """So that the test above tests something."""
    faulty = 0
    for name in NAMES:
        for mutant in family(name).mutants:
            faulty += explain(mutant.graph) is not None
    assert faulty >= 80


# --- as two functions of a user -----------------------------------------------------------------


def as_program(graph) -> Program:
    """A graph of one kernel without grid and loop as a program."""
    inputs = {n.name: n for n in graph.program.inputs}
    nodes = graph.kernels[0].block.nodes
    saved = {n.target: n.operand for n in nodes if isinstance(n, OutputSaver)}
    return replace(
        graph.program,
        nodes=tuple(
            inputs[n.source] if isinstance(n, InputLoader) else n
            for n in nodes
            if not isinstance(n, OutputSaver)
        ),
        outputs=tuple(
            Output(saved[f"out{k}"], output.axes) for k, output in enumerate(graph.program.outputs)
        ),
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_mutant_of_a_program_is_equal_to_it(name, thorough, axioms):
    count = 40 if thorough else 2
    program = family(name).program
    own = program_graph(program)
    made = {text: graph for kind in KINDS for text, graph in made_from(own, kind).items()}
    drawn = Random(7).sample(sorted(made), min(4 * count, len(made)))
    wrong = [made[t] for t in drawn if fate_of(made[t]) is None and witness_of(made[t])][:count]
    assert wrong
    for mutant in wrong:
        found = verify_programs(program, as_program(mutant), axioms)
        assert found.verdict is not Verdict.PROVED
        assert found.counterexample is not None, format_sgraph(mutant)
        # what the axioms say, before numbers are tried
        assert "an axiom may be unsound" not in found.reason


# --- more, slower -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_fresh_mutant_that_numbers_refute_is_proved(name, axioms):
    """One of each kind of the program's own graph and of four others; `--tally` judges more."""
    made = [m for m in mutants(name, each=1, most=1, seed=FRESH) if m.fate in JUDGED]
    assert sum(m.fate is Fate.WRONG for m in made) >= 10
    verdicts = verify_graphs(made[0].graph.program, [m.graph for m in made], axioms)
    proved = [m for m, v in zip(made, verdicts, strict=True) if v is Verdict.PROVED]
    for one in proved:
        assert one.witness is None, (str(one.witness), format_sgraph(one.graph))
        # once more, with the sizes and values of somebody else; overflow refutes no proof
        assert find_counterexample(one.graph.program, one.graph, is_proved=True) is None
