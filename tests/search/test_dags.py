"""Op DAGs: every choice of operators below the roots, each once, the program's own first."""

from __future__ import annotations

from itertools import product

import pytest
import search_programs as programs
from hypothesis import given
from hypothesis import strategies as st

from prism.egraph import load_axioms, saturate
from prism.ir import Program
from prism.search.cone import Cone, build_cone
from prism.search.dags import Steps, dag_table, op_dags
from prism.search.generate import preferred_dag
from prism.search.macros import Operator


def every(_):
    return True


@st.composite
def cones(draw):
    """Small acyclic cones: class 0 is a leaf, class i reads classes before it."""
    choices = {}
    count = draw(st.integers(1, 6))
    for cls in range(1, count + 1):
        earlier = st.integers(0, cls - 1)
        children = st.lists(earlier, min_size=1, max_size=2).map(tuple)
        nodes = draw(st.lists(children, min_size=1, max_size=3, unique=True))
        choices[cls] = tuple(Operator(f"op{i}", c) for i, c in enumerate(nodes))
    roots = draw(st.lists(st.integers(0, count), min_size=1, max_size=2))
    order = tuple(range(1, count + 1))
    program = Program("none", (), (), (), ())
    return Cone(
        program, {0: None}, choices, {}, frozenset(range(count + 1)), order, tuple(roots), ()
    )


def brute_force(cone, max_operators):
    """Choose for every class, keep what the roots need."""
    found = set()
    for chosen in product(*(cone.choices[c] for c in cone.order)):
        of = dict(zip(cone.order, chosen, strict=True))
        needed, stack = set(), [r for r in cone.roots if r in of]
        while stack:
            cls = stack.pop()
            needed.add(cls)
            stack.extend(c for c in of[cls].children if c in of and c not in needed)
        if len(needed) <= max_operators:
            found.add(frozenset((c, of[c]) for c in needed))
    return found


@given(cone=cones(), budget=st.integers(0, 6))
def test_every_dag_comes_once(cone, budget):
    found = [frozenset(d) for d in op_dags(dag_table(cone, every), budget, Steps(10**6))]
    assert len(found) == len(set(found))
    assert set(found) == brute_force(cone, budget)


@given(cone=cones())
def test_dags_come_closest_to_the_preferred_one_first(cone):
    distances = [
        sum(operator != cone.choices[cls][0] for cls, operator in dag)
        for dag in op_dags(dag_table(cone, every), 10, Steps(10**6))
    ]
    assert distances == sorted(distances)


@given(cone=cones())
def test_operators_come_after_their_operands(cone):
    for dag in op_dags(dag_table(cone, every), 10, Steps(10**6)):
        place = {cls: i for i, (cls, _) in enumerate(dag)}
        assert all(place.get(c, -1) < place[cls] for cls, o in dag for c in o.children)


def test_a_walk_that_is_cut_short_says_so_and_has_the_program():
    program = programs.trace(programs.rmsnorm)
    cone = build_cone(program, saturate(program, load_axioms()))
    own = preferred_dag(cone)
    steps = Steps(len(own))
    (dag,) = op_dags(dag_table(cone, every), 20, steps)
    assert steps.is_cut
    assert dict(dag) == dict(own)


def test_without_expression_pruning_dead_ends_are_tried_and_given_up():
    program = programs.trace(programs.rmsnorm)
    cone = build_cone(program, saturate(program, load_axioms()))

    def is_alive(operator):
        return cone.computable.issuperset(operator.children)

    pruned, all_of_them = Steps(10**6), Steps(10**6)
    with_pruner = set(op_dags(dag_table(cone, is_alive), 12, pruned))
    without = set(op_dags(dag_table(cone, every), 12, all_of_them))
    assert with_pruner == without
    assert all_of_them.visited > pruned.visited


@pytest.mark.parametrize("budget", [0, 1])
def test_no_dag_is_within_a_budget_that_is_too_small(budget):
    program = programs.trace(programs.softmax_matmul)
    cone = build_cone(program, saturate(program, load_axioms()))
    assert list(op_dags(dag_table(cone, every), budget, Steps(100))) == []
