"""Terms of programs and graphs: what loaders, accumulators and savers become; what does not fit."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from verify.table import CASES, PROGRAMS

from prism import frontend as pr
from prism.egraph import Session, TermBank, build_program, graph_terms, load_axioms, program_terms
from prism.errors import GraphError
from prism.ir import Accumulator, Apply, BlockGraph, DimInfo, Input, Mapping, MapVar, Program


def graph(name):
    return next(c.graph for c in CASES if c.name == name)


def edited(graph, nodes=None, mapping=None):
    (kernel,) = graph.kernels
    block = kernel.block if nodes is None else BlockGraph(tuple(nodes))
    mapping = kernel.mapping if mapping is None else mapping
    return replace(graph, kernels=(replace(kernel, block=block, mapping=mapping),))


def test_a_program_becomes_one_term_per_output():
    assert program_terms(PROGRAMS["both"]) == (
        '(Exp (Input "x"))',
        '(Matmul (Input "x") (Input "w") 1)',
    )


def test_a_mean_divides_by_the_size_of_the_whole_dimension():
    assert program_terms(PROGRAMS["centred"]) == (
        '(Sub (Input "x") (Div (Sum (Input "x") 1) (Size 1)))',
    )


def test_loaders_partition_grid_dims_then_the_loop():
    (term,) = graph_terms(graph("a contraction in chunks"))
    assert term == (
        '(Comb (Red (Matmul (Part (Repl (Input "x") 40) 1 43)'
        ' (Part (Part (Input "w") 2 40) 1 43) 1) 43) 2 40)'
    )


def test_a_grid_dim_that_the_output_does_not_map_picks_one_copy():
    (term,) = graph_terms(graph("every block computes everything"))
    assert term.startswith("(Pick (Red")


def test_what_does_not_vary_is_read_in_the_body_through_repl():
    (term,) = graph_terms(graph("a partial value divided by what does not vary"))
    assert term == (
        '(Red (Div (Matmul (Part (Input "x") 1 43) (Part (Input "w") 1 43) 1)'
        ' (Repl (Input "s") 43)) 43)'
    )


def test_a_size_is_replicated_to_where_it_is_read():
    (term,) = graph_terms(graph("the mean of a tile divides by the whole size"))
    assert "(Repl (Size 1) 43)" in term


def test_the_largest_of_tiles_is_red_max():
    assert graph_terms(graph("the largest of the tiles' largest")) == (
        '(RedMax (MaxOver (Part (Input "x") 1 43) 1) 43)',
    )


def test_aliases_have_the_size_of_their_root():
    def gram(x: "n d"):
        return pr.mean(pr.exp(x @ x.T), axis=-1)

    (term,) = program_terms(pr.trace(gram))
    assert "(Size 0)" in term


def without(graph, kind):
    """The graph in which readers of an accumulator read its operand."""
    (kernel,) = graph.kernels
    moved, nodes = {}, []
    for i, node in enumerate(kernel.block.nodes):
        if isinstance(node, kind):
            moved[i] = moved[node.operand]
            continue
        moved[i] = len(nodes)
        match node:
            case Apply(operands=operands):
                nodes.append(replace(node, operands=tuple(moved[j] for j in operands)))
            case _ if hasattr(node, "operand"):
                nodes.append(replace(node, operand=moved[node.operand]))
            case _:
                nodes.append(node)
    return edited(graph, nodes)


def test_a_value_of_the_loop_read_after_it_does_not_fit():
    with pytest.raises(GraphError, match="differs in every iteration of the loop and is read"):
        graph_terms(without(graph("a contraction in chunks"), Accumulator))


REFUSED = {
    "only one operand is partitioned": "disagree about d: one is split along nothing, the other",
    "the output is mapped along another dimension": "put together along n over x, but it is not",
    "the output is not put together": "is stored as one tile of itself: a mapping is missing",
    "partial products side by side": "put together along h over i, but it is not split that way",
    "a product in place of the contraction": "stored over other dimensions than the program's",
}


@pytest.mark.parametrize(("name", "message"), REFUSED.items())
def test_values_that_do_not_fit_together_are_refused(name, message):
    with pytest.raises(GraphError, match=message):
        graph_terms(graph(name))


def test_a_mapping_of_an_unknown_dimension_is_refused():
    bad = Mapping(frozenset({MapVar("x", "q", "x")}))
    with pytest.raises(GraphError, match=r"m\[x,q,x\] maps a dimension that the program does not"):
        graph_terms(edited(graph("a contraction in chunks"), mapping=bad))


def test_an_output_that_no_kernel_stores_is_refused():
    nodes = graph("two outputs").kernels[0].block.nodes[:-1]
    with pytest.raises(GraphError, match="no kernel stores out1"):
        graph_terms(edited(graph("two outputs"), nodes))


def doubling(depth):
    """x + x, and that plus itself, and so on: a tree of 2^depth leaves, a DAG of depth nodes."""
    nodes = [Input("x", "x", ("n",)), *(Apply("add", (i, i)) for i in range(depth))]
    base = PROGRAMS["row_max"]
    argument = replace(base.arguments[0], axes=("n",))
    output = replace(base.outputs[0], tensor=depth, axes=("n",))
    return Program("doubling", (DimInfo("n", "n"),), (argument,), tuple(nodes), (output,))


def test_shared_sub_terms_are_inserted_once():
    begin = time.process_time()
    program = doubling(60)
    bank = TermBank(["n"])
    (root,) = build_program(bank, program)
    session = Session(load_axioms(), frozenset(), bank.heads)
    session.insert(bank, [(0, root)])
    assert session.node_count() == 61
    assert time.process_time() - begin < 20.0  # 2^60 leaves would take for ever


def test_too_many_dimensions_are_refused():
    with pytest.raises(GraphError, match="41 dimensions and the e-graph takes at most 40"):
        TermBank(f"d{i}" for i in range(41))


def test_input_names_are_quoted():
    bank = TermBank(["n"])
    term = bank.input('x" (run 9) "\\', ["n"])
    session = Session(load_axioms(), frozenset(), bank.heads)
    session.insert(bank, [(0, term)])
    (row,) = session.table().rows
    assert row.attributes == ('x" (run 9) "\\',)
