"""Terms of graphs mean, in NumPy, what the graphs compute block by block."""

from __future__ import annotations

import numpy as np
import pytest
from verify.table import CASES, PROGRAMS

from prism.egraph import GraphTerms, build_program, new_bank
from prism.egraph.meaning import Meaning, Sizes
from prism.errors import GraphError
from prism.ir import MuGraph, evaluate_graph

COUNT = 2


def meaning_of(case):
    """The graph's outputs by its terms, and by running its blocks."""
    program = PROGRAMS[case.program]
    bank = new_bank(program)
    build_program(bank, program)
    terms = GraphTerms(bank, program).build(case.graph.kernels)
    names = [d.name for d in program.dims]
    sizes = Sizes(
        {bank.ids[n]: COUNT * COUNT * (1 + i) for i, n in enumerate(names)},
        dict.fromkeys(range(40, 44), COUNT),
    )
    rng = np.random.default_rng(0)
    arrays, leaves = {}, {}
    for tensor in program.inputs:
        axes = next(a.axes for a in program.arguments if a.name == tensor.argument)
        shape = [1 if d is None else sizes.data[bank.ids[d]] for d in axes]
        arrays[tensor.argument] = rng.normal(0, 1, shape)
        used = [n for n in names if n in tensor.dims]
        squeezed = arrays[tensor.argument].reshape([sizes.data[bank.ids[d]] for d in tensor.dims])
        ordered = squeezed.transpose([tensor.dims.index(n) for n in used])
        full = [sizes.data[bank.ids[n]] if n in used else 1 for n in names]
        leaves[tensor.name] = ordered.reshape(full + [1] * 4)
    meaning = Meaning(bank, sizes, leaves)
    (kernel,) = case.graph.kernels
    mu = MuGraph(
        case.graph,
        tuple((n, sizes.data[bank.ids[n]]) for n in names),
        (tuple((p.name, COUNT) for p in (*kernel.grid, *kernel.loops)),),
    )
    return program, names, [meaning.value(t) for t in terms], evaluate_graph(mu, arrays)


@pytest.mark.parametrize("case", [c for c in CASES if c.is_right], ids=lambda c: c.name)
def test_a_right_graphs_terms_mean_what_its_blocks_compute(case):
    program, names, by_term, by_block = meaning_of(case)
    for output, a, b in zip(program.outputs, by_term, by_block, strict=True):
        axes = [d for d in output.axes if d is not None]
        used = [n for n in names if n in axes]
        squeezed = a.reshape([s for s in a.shape if s != 1])
        np.testing.assert_allclose(
            squeezed.transpose([used.index(d) for d in axes]), b.squeeze(), rtol=1e-9
        )


@pytest.mark.parametrize("case", [c for c in CASES if not c.is_right], ids=lambda c: c.name)
def test_a_wrong_graphs_terms_do_too_where_they_exist(case):
    """The two meanings know nothing of each other, and agree on wrong graphs as well."""
    try:
        _, _, by_term, by_block = meaning_of(case)
    except GraphError:
        return
    for a, b in zip(by_term, by_block, strict=True):
        np.testing.assert_allclose(np.sort(a.ravel()), np.sort(b.ravel()), rtol=1e-9)
