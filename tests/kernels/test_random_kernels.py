"""Random programs with random legal graphs and mappings run as their float64 meaning says."""

from __future__ import annotations

from random import Random

import pytest
from kernels.legal import random_mugraph
from kernels.programs import relative_error, run_filled
from strategies import random_arrays, random_program

from prism.ir import bind_sizes, evaluate, evaluate_graph

EXTENTS = (1, 2, 3, 5, 7, 8, 13, 16, 17, 19, 33, 64)


def check_seed(compiled, seed, dtype, tolerance):
    random = Random(seed)
    program = random_program(seed, random.randint(1, 9))
    sizes = bind_sizes(program, {n: random.choice(EXTENTS) for n in program.size_names})
    arrays = {k: v.astype(dtype) for k, v in random_arrays(program, sizes, seed).items()}
    expected = evaluate(program, arrays)
    mu = random_mugraph(program, sizes, seed)
    for whole, by_blocks in zip(expected, evaluate_graph(mu, arrays), strict=True):
        assert relative_error(by_blocks, whole) < 1e-9, f"seed {seed}: not a graph of its program"
    outputs = run_filled(compiled(mu, dtype), [arrays[a.name] for a in program.arguments])
    for out, reference in zip(outputs, expected, strict=True):
        assert relative_error(out, reference) < tolerance, f"seed {seed}: {mu.par_sizes}"


@pytest.mark.parametrize("first", range(0, 100, 5))
def test_random_graphs_are_right_in_double_precision(compiled, first):
    for seed in range(first, first + 5):
        check_seed(compiled, seed, "float64", 1e-11)


@pytest.mark.parametrize("first", range(1000, 1030, 5))
def test_random_graphs_are_right_in_single_precision(compiled, first):
    # random programs cancel now and then, so the bound is loose; structure faults are of order 1
    for seed in range(first, first + 5):
        check_seed(compiled, seed, "float32", 5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 10_600, 50))
def test_more_random_graphs_are_right(compiled, first):
    for seed in range(first, first + 50):
        check_seed(compiled, seed, "float64", 1e-11)


def test_the_generator_reaches_every_kind_of_accumulator():
    kinds = set()
    for seed in range(300):
        random = Random(seed)
        program = random_program(seed, random.randint(1, 9))
        sizes = dict.fromkeys(program.size_names, 4)
        block = random_mugraph(program, bind_sizes(program, sizes), seed).graph.kernels[0].block
        kinds |= {node.kind.value for node in block.nodes if hasattr(node, "kind")}
    assert kinds == {"sum", "max", "concat"}
