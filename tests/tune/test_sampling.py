from __future__ import annotations

import math
from random import Random

import pytest
from tune.graphs import matmul_graph
from tune.test_strategies import Scheduled, rough_model

from prism.tune import build_space
from prism.tune.strategies.sampling import FIRST, POOL, estimated

GRAPHS = tuple((f"g{k}", matmul_graph()) for k in range(6))


@pytest.fixture(scope="module")
def large():
    return build_space(GRAPHS, {"n": 8, "d": 4096, "h": 4096}, Scheduled())


def bowl(config):
    """Best at one place of g3, worse the further from it in any count."""
    counts = dict(config.par_sizes[0])
    apart = abs(math.log2(counts["x"]) - 4) + abs(math.log2(counts["i"]) - 7)
    return dict(config.schedule)["delay_ms"] * (1 + apart) * (1 + (config.graph_id != "g3"))


@pytest.mark.parametrize("seed", range(3))
def test_steps_from_a_sample_find_the_best_estimate_of_a_large_space(large, seed):
    found = estimated(large, bowl, Random(seed))
    assert len(large) > 8 * POOL
    assert len(found) < 1.5 * POOL
    assert min(found.values()) == min(map(bowl, large))


def test_every_graph_is_seen_before_any_is_seen_more_often(large):
    asked = []

    def estimate(config):
        asked.append(config.graph_id)
        return math.inf if len(asked) > FIRST * len(GRAPHS) else bowl(config)

    found = estimated(large, estimate, Random(0))
    assert len(found) == FIRST * len(GRAPHS)
    assert {c.graph_id for c in found} == {name for name, _ in GRAPHS}


def test_a_small_space_is_estimated_whole():
    small = build_space(GRAPHS[:1], {"n": 8, "d": 16, "h": 16}, Scheduled())
    assert set(estimated(small, rough_model, Random(0))) == set(small)


def test_what_the_target_refuses_is_not_among_them(large):
    found = estimated(large, lambda c: math.inf if c.graph_id == "g3" else bowl(c), Random(0))
    assert found
    assert all(c.graph_id != "g3" for c in found)
