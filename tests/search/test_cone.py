"""The cone: one choice of operator per e-class, whatever state the e-graph is in."""

from __future__ import annotations

import search_programs as programs

from prism.egraph import ENode, Saturation, load_axioms, saturate
from prism.ir import Apply, Argument, DimInfo, Input, Output, Program
from prism.search.cone import CYCLE_CUT, UNSATURATED_CUT, build_cone
from prism.search.generate import preferred_dag
from prism.search.macros import Operator


def cone_of(function):
    program = programs.trace(function)
    return build_cone(program, saturate(program, load_axioms()))


def operators(cone):
    return [o for nodes in cone.choices.values() for o in nodes]


def names(cone):
    return {o.op for o in operators(cone)}


def handmade(*nodes, dims, root, complete=True):
    """A saturated e-graph over one input x[n], class 0."""
    rows = ((ENode("input", (), leaf="x"), 0), *nodes)
    return Saturation(rows, dims, (root,), complete, 1)


def unary_program(*ops):
    nodes = (Input("x", "x", ("n",)), *(Apply(op, (i,)) for i, op in enumerate(ops)))
    return Program(
        "unary",
        (DimInfo("n", "n"),),
        (Argument("x", ("n",)),),
        nodes,
        (Output(len(ops), ("n",)),),
    )


N = frozenset({"n"})


def test_the_programs_own_operators_come_first():
    own = [o.op for _, o in preferred_dag(cone_of(programs.softmax_matmul))]
    assert own == ["exp", "sum", "div", "matmul"]


def test_a_root_mean_square_is_one_operator_and_hides_its_root():
    cone = cone_of(programs.rmsnorm_paper)
    assert "rms" in names(cone)
    rms_class = next(c for c, nodes in cone.choices.items() if nodes[0].op == "rms")
    assert len(cone.choices[rms_class]) == 1


def test_an_epsilon_under_the_root_belongs_to_the_composite():
    cone = cone_of(programs.rmsnorm)
    (composite,) = [o for o in operators(cone) if o.op == "rms_eps"]
    assert len(composite.children) == 2
    assert composite.dim == "d"


def test_a_matmul_stands_for_the_sum_of_products():
    cone = cone_of(programs.matmul)
    assert names(cone) == {"matmul"}
    assert len(operators(cone)) == 1


def test_commutative_twins_are_one_choice():
    cone = cone_of(programs.relu_product)
    assert len([o for o in operators(cone) if o.op == "mul"]) == 1


def test_internal_operators_are_there_only_where_the_program_has_them():
    assert "reciprocal" not in names(cone_of(programs.softmax_matmul))
    assert [o.op for o in operators(cone_of(programs.inverse))] in (["div"], ["reciprocal"])


def test_classes_are_ordered_children_first():
    for function in (programs.rmsnorm, programs.layernorm_linear, programs.swiglu):
        cone = cone_of(function)
        place = {c: i for i, c in enumerate(cone.order)}
        for cls in cone.order:
            for operator in cone.choices[cls]:
                assert all(place.get(c, -1) < place[cls] for c in operator.children)


def test_a_cycle_is_broken_in_favour_of_the_program_and_said_so():
    # 1 = exp(x), 2 = sqrt(1), and 1 = square(2)
    saturation = handmade(
        (ENode("exp", (0,)), 1),
        (ENode("sqrt", (1,)), 2),
        (ENode("square", (2,)), 1),
        dims=(N, N, N),
        root=2,
    )
    cone = build_cone(unary_program("exp", "sqrt"), saturation)
    assert cone.choices[1] == (Operator("exp", (0,)),)
    assert cone.cuts == (CYCLE_CUT,)


def test_a_class_over_itself_is_no_choice():
    saturation = handmade((ENode("exp", (0,)), 1), (ENode("relu", (1,)), 1), dims=(N, N), root=1)
    cone = build_cone(unary_program("exp"), saturation)
    assert cone.choices[1] == (Operator("exp", (0,)),)


def test_an_e_graph_that_was_cut_off_still_has_the_program():
    saturation = handmade(dims=(N, N), root=1, complete=False)
    cone = build_cone(unary_program("exp", "tanh"), saturation)
    assert [o.op for _, o in preferred_dag(cone)] == ["exp", "tanh"]
    assert cone.roots == (1,)
    assert cone.cuts == (UNSATURATED_CUT,)


def test_an_identity_has_an_empty_cone():
    cone = cone_of(programs.identity)
    assert cone.order == ()
    assert cone.roots[0] in cone.leaves
