"""The pruner `hardware` drops nothing that a target takes at any legal counts, and says what."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import search_programs as programs
from strategies import random_program

from prism.ir import MuGraph, bind_sizes
from prism.search import SearchOptions, search
from prism.search.hardware import REGISTER_BYTES, _needed, _Tile, _together
from prism.tune.space import is_legal
from prism_kernels.cpu import cost as cpu_cost
from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cuda import emit as cuda_emit
from prism_kernels.cuda.target import OfflineTarget

LIMIT = 1 << 17
"""Bytes of workspace, of 1 GiB really: small programs overflow it."""


@pytest.fixture(autouse=True)
def _small_workspace(monkeypatch):
    monkeypatch.setattr(cpu_cost, "WORKSPACE_LIMIT_BYTES", LIMIT)
    monkeypatch.setattr(cuda_emit, "MEMORY_LIMIT_BYTES", LIMIT)


TARGETS = {"cpu": CpuTarget(), "sm_90": OfflineTarget("sm_90")}


def searched(program, at, target, **options):
    device = replace(target.device(), workspace_bytes=LIMIT)
    given = {"sizes": tuple(at.items()), "device": device, "max_graphs": 3000, "budget_s": None}
    return search(program, SearchOptions(**given | options))


def some_counts(kernel, sizes, random, most):
    """All corners and some counts between that leave no tile empty."""
    names = [p.name for p in (*kernel.grid, *kernel.loops)]
    largest = max(sizes.values())
    choices = sorted({1, 2, 3, largest, *(1 << k for k in range(largest.bit_length()))})
    for _ in range(most):
        yield {name: random.choice(choices) for name in names}
    for corner in range(1 << len(names)):
        best = dict.fromkeys(names, 1)
        for k, name in enumerate(names):
            if corner >> k & 1:
                legal = [c for c in choices if is_legal(kernel, best | {name: c}, sizes)]
                best[name] = max(legal, default=1)
        yield best


def refusals(found, sizes, target, random, most=12):
    """What a target says at the counts that are tried; None where it takes the graph."""
    (kernel,) = found.graph.kernels
    for counts in some_counts(kernel, sizes, random, most):
        if is_legal(kernel, counts, sizes):
            mu = MuGraph(found.graph, tuple(sizes.items()), (tuple(counts.items()),))
            yield target.refusal(mu, "float32")


def dropped_graphs(program, sizes, target):
    everything = searched(program, sizes, target, without=("hardware",))
    kept = {g.id for g in searched(program, sizes, target).graphs}
    return [g for g in everything.graphs if g.id not in kept]


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("function", "least"),
    [
        (programs.matmul, 0),
        (programs.softmax_matmul, 20),
        (programs.rmsnorm_paper, 20),
        (programs.swiglu, 10),
    ],
)
def test_what_is_dropped_is_refused_at_all_counts(function, least, name):
    program, target, random = programs.trace(function), TARGETS[name], Random(1)
    sizes = dict.fromkeys(program.size_names, 1024)
    dropped = dropped_graphs(program, sizes, target)
    assert len(dropped) >= least
    for found in random.sample(dropped, min(25, len(dropped))):
        reasons = list(refusals(found, bind_sizes(program, sizes), target, random))
        assert reasons
        assert all(reason is not None and " MB" in reason for reason in reasons), found.id


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("block", range(4))
def test_nor_is_anything_else_dropped_of_generated_programs(block, name):
    for seed in range(block * 8, block * 8 + 8):
        random = Random(seed)
        program, target = random_program(seed, random.randint(2, 4)), TARGETS[name]
        sizes = {d: random.choice((3, 64, 1024, 1500)) for d in program.size_names}
        dropped = dropped_graphs(program, sizes, target)
        for found in random.sample(dropped, min(8, len(dropped))):
            assert None not in refusals(found, bind_sizes(program, sizes), target, random)


@pytest.mark.parametrize("mode", ["count", "tune"])
def test_drops_are_counted_and_the_nearest_is_named(mode):
    program, target = programs.trace(programs.residual), TARGETS["cpu"]
    sizes = dict.fromkeys(program.size_names, 2048)
    # no grid at all: everything is whole in the one block
    result = searched(program, sizes, target, mode=mode, grid_dims=0)
    count = result.counters["pruners"]["hardware"]
    assert count["seen"] > count["dropped"] > 0
    assert count["seconds"] >= 0
    assert "its tiles take at least" in count["example"]
    assert target.device().name in result.nearest["hardware"]
    without = searched(program, sizes, target, mode=mode, grid_dims=0, without=("hardware",))
    assert "hardware" not in without.counters["pruners"]
    assert len(without.graphs) > len(result.graphs)


@pytest.mark.parametrize("missing", ["sizes", "device", "workspace_bytes"])
def test_what_is_not_known_drops_nothing(missing):
    program, target = programs.trace(programs.residual), TARGETS["cpu"]
    sizes = dict.fromkeys(program.size_names, 2048)
    device = replace(target.device(), workspace_bytes=LIMIT)
    changed = {
        "sizes": {"sizes": None},
        "device": {"device": None},
        "workspace_bytes": {"device": replace(device, workspace_bytes=0)},
    }
    result = searched(program, sizes, target, grid_dims=0, **changed[missing])
    assert result.counters["pruners"]["hardware"]["seen"] == 0


def test_what_a_bound_is_least_at_is_a_corner():
    """Many blocks hold more together than one, and less each."""
    tiles, gpu = [_Tile(1 << 22, frozenset((0,)))], TARGETS["sm_90"].device()
    own = gpu.l1_bytes + REGISTER_BYTES
    assert _needed(tiles, [1], gpu) == 4 * (1 << 22) - own
    assert _needed(tiles, [4], gpu) == 4 * (1 << 22) - 4 * own
    assert _needed([_Tile(1 << 22, frozenset())], [4], gpu) == 4 * (1 << 22) - own
    for count in range(1, 5):
        assert _needed(tiles, [4], gpu) <= _together(tiles, [count], own)
    cpu = replace(TARGETS["cpu"].device(), threads=3)
    assert _needed(tiles, [4], cpu) == 3 * (4 * (1 << 20) - REGISTER_BYTES)
