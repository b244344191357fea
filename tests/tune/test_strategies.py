from __future__ import annotations

import math
from typing import ClassVar

import pytest
from tune.fake_target import FakeTarget
from tune.graphs import matmul_graph

from prism.plugins import Group, load
from prism.tune import build_space
from prism.tune.strategies import PATIENCE, ModelStrategy, RandomStrategy


class Scheduled(FakeTarget):
    options: ClassVar = {"fault": (0,), "delay_ms": (1, 2, 3, 4)}


@pytest.fixture
def space():
    graphs = (("g0", matmul_graph()), ("g1", matmul_graph(loop=False)), ("g2", matmul_graph()))
    return build_space(graphs, {"n": 8, "d": 64, "h": 60}, Scheduled())


def recorded_time(config):
    """A table of times: a bowl over grid and loop counts, g1 slower, delays added."""
    counts = dict(config.par_sizes[0])
    bowl = abs(math.log2(counts["x"]) - 1) + 0.5 * abs(math.log2(counts.get("i", 1)) - 3)
    return (1 + bowl + (config.graph_id == "g1")) * dict(config.schedule)["delay_ms"] * 1e-3


def rough_model(config):
    """Right about the grid, ignorant of the loop."""
    counts = dict(config.par_sizes[0])
    return (2 + abs(math.log2(counts["x"]) - 1)) * dict(config.schedule)["delay_ms"] * 1e-3


def replay(strategy, space, *, estimate=rough_model, seed=0, most=10_000):
    """Asks and tells from the table of times until the strategy stops."""
    chosen = load(Group.STRATEGY, strategy)(space, estimate, seed)
    asked = []
    while len(asked) < most and (config := chosen.ask()) is not None:
        asked.append(config)
        chosen.tell(config, recorded_time(config))
    return asked


@pytest.mark.parametrize("strategy", ["random", "model"])
def test_the_same_seed_asks_the_same_and_another_does_not(strategy, space):
    assert replay(strategy, space, seed=3) == replay(strategy, space, seed=3)
    assert replay(strategy, space, seed=3) != replay(strategy, space, seed=4)


@pytest.mark.parametrize("strategy", ["random", "model"])
def test_no_config_is_asked_twice(strategy, space):
    asked = replay(strategy, space)
    assert len(set(asked)) == len(asked)


def test_random_covers_the_whole_space(space):
    assert set(replay("random", space)) == set(space)


def test_random_is_uniform_over_configs(space):
    firsts = [RandomStrategy(space, rough_model, seed).ask() for seed in range(2000)]
    share = sum(c.graph_id == "g1" for c in firsts) / len(firsts)
    expected = len(space.graphs[1]) / len(space)
    assert share == pytest.approx(expected, abs=4 * math.sqrt(expected / len(firsts)))


def test_model_starts_with_its_best_estimate_and_tries_several_graphs_early(space):
    asked = replay("model", space, most=10)
    assert rough_model(asked[0]) == min(map(rough_model, space))
    assert {c.graph_id for c in asked} == {"g0", "g1", "g2"}


def test_model_stops_when_trials_bring_nothing_and_is_near_the_best(space):
    asked = replay("model", space)
    assert len(asked) < len(space) / 2
    times = [recorded_time(c) for c in asked]
    assert len(asked) - times.index(min(times)) - 1 == PATIENCE
    assert min(times) <= 1.5 * min(map(recorded_time, space))


def test_what_the_model_rejects_is_asked_at_random_only(space):
    def estimate(config):
        return math.inf if config.graph_id == "g0" else rough_model(config)

    strategy = ModelStrategy(space, estimate, 0)
    asked = [strategy.ask() for _ in range(50)]
    assert 0 < sum(c.graph_id == "g0" for c in asked) < 20


def test_failures_before_the_first_success_do_not_end_the_run(space):
    strategy = ModelStrategy(space, rough_model, 0)
    for _ in range(3 * PATIENCE):
        config = strategy.ask()
        assert config is not None
        strategy.tell(config, None)
