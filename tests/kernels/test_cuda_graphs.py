"""Every verified graph of the shipped workloads is right in the simulator, at all sizes."""

from __future__ import annotations

from functools import cache
from random import Random

import numpy as np
import pytest
from kernels.programs import random_arguments
from kernels.simulated import assert_computes

from prism.errors import KernelError
from prism.frontend import trace
from prism.ir import MuGraph, bind_sizes
from prism.search import SearchOptions, search
from prism.tune.space import legal_choices
from prism_experiments.workloads import matmul, rmsnorm, rmsnorm_paper, softmax_matmul
from prism_kernels.lower import tile_programs

WORKLOADS = {f.__name__: f for f in (matmul, rmsnorm, rmsnorm_paper, softmax_matmul)}
SIZES = {
    "divisible": (8, 16, 32),
    "odd": (5, 9, 15),
    "prime": (7, 13, 11),
    "size one": (1, 1, 1),
    "one row": (1, 17, 3),
    "one column": (3, 5, 1),
}
TILE_CHOICES = 3
SAMPLED = 12
"""Graphs of each workload that are looked at without --slow."""


@cache
def graphs_of(name):
    return search(trace(WORKLOADS[name]), SearchOptions(budget_s=None)).graphs


def is_refused(mu):
    """Whether a parallel dim splits two dims, which no target runs."""
    try:
        tile_programs(mu)
    except KernelError as error:
        return "a parallel dim may split one data dim only" in str(error)
    return False


def check_graph(graph, sizes, seed):
    """The graph is right at three tile choices, the whole in one block among them."""
    random, rng = Random(seed), np.random.default_rng(seed)
    program = graph.program
    bound = bind_sizes(program, dict(zip(program.size_names, sizes, strict=True)))
    choices = legal_choices(graph.kernels[0], bound, threads=4)
    picked = [choices[0], *(random.choice(choices) for _ in range(TILE_CHOICES - 1))]
    for counts in dict.fromkeys(picked):
        mu = MuGraph(graph, tuple(bound.items()), (counts,))
        if is_refused(mu):
            continue
        arguments = random_arguments(program, bound, rng)
        options = {"S": random.choice((0, 1, 2)), "T": random.choice((32, 64, 128))}
        assert_computes(mu, arguments, seed=seed, **options)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("sizes", SIZES)
def test_verified_graphs_are_right(name, sizes, thorough):
    found = graphs_of(name)
    if not thorough:
        found = Random(name).sample(found, min(SAMPLED, len(found)))
    for k, entry in enumerate(found):
        check_graph(entry.graph, SIZES[sizes], k)
