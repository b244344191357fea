from __future__ import annotations

import math
from itertools import islice
from typing import ClassVar

import numpy as np
import pytest
from tune.fake_target import FakeTarget
from tune.graphs import matmul_graph

from prism.plugins import Group, load
from prism.tune import Config, build_space
from prism.tune.strategies import (
    PATIENCE,
    Learner,
    ModelStrategy,
    RandomStrategy,
    evolutionary,
)
from prism.tune.strategies.features import Features
from prism.tune.strategies.model import MOST_PATIENCE, expected_improvement
from prism.tune.strategies.regression import Points, Regression
from prism.tune.strategies.steps import Steps

EVERY = ("random", "evolutionary", "model")


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


@pytest.mark.parametrize("strategy", EVERY)
def test_the_same_seed_asks_the_same_and_another_does_not(strategy, space):
    assert replay(strategy, space, seed=3) == replay(strategy, space, seed=3)
    assert replay(strategy, space, seed=3) != replay(strategy, space, seed=4)


def test_model_tries_the_other_options_of_its_best_before_it_stops(space):
    asked = replay("model", space)
    best = min(asked, key=recorded_time)
    alike = {c for c in space if (c.graph_id, c.par_sizes) == (best.graph_id, best.par_sizes)}
    assert len(alike) == 4
    assert alike <= set(asked)


@pytest.mark.parametrize("strategy", EVERY)
def test_no_config_is_asked_twice(strategy, space):
    asked = replay(strategy, space)
    assert len(set(asked)) == len(asked)


@pytest.mark.parametrize("strategy", EVERY)
def test_a_run_is_resumed_by_telling_what_was_told(strategy, space):
    once = replay(strategy, space, most=12)
    again = load(Group.STRATEGY, strategy)(space, rough_model, 0)
    for config in once[:11]:
        assert again.ask() == config
        again.tell(config, recorded_time(config))
    assert again.ask() == once[11]


@pytest.mark.parametrize("strategy", ["evolutionary", "model"])
def test_what_was_told_from_outside_is_not_asked(strategy, space):
    chosen = load(Group.STRATEGY, strategy)(space, rough_model, 0)
    given = chosen.ask()
    fresh = load(Group.STRATEGY, strategy)(space, rough_model, 0)
    fresh.tell(given, recorded_time(given))
    assert fresh.ask() not in {given, None}


@pytest.mark.parametrize("strategy", ["evolutionary", "model"])
def test_trials_are_learnt_from(strategy, space):
    """The model knows nothing; what the strategy asks next is better than chance all the same."""

    def mean(name):
        runs = [replay(name, space, estimate=lambda _: 1e-3, seed=s, most=40) for s in range(5)]
        return np.mean([recorded_time(c) for run in runs for c in run[20:]])

    assert mean(strategy) < 0.7 * mean("random")


def test_evolution_begins_with_the_best_estimates_of_every_graph_and_ends_when_stuck(space):
    asked = replay("evolutionary", space)
    first = asked[: evolutionary.POPULATION]
    assert {c.graph_id for c in first[:3]} == {"g0", "g1", "g2"}
    assert rough_model(first[0]) == min(map(rough_model, space))
    times = [recorded_time(c) for c in asked]
    assert min(times) <= 1.2 * min(map(recorded_time, space))
    assert len(asked) < len(space)


def test_hints_from_other_sizes_are_used_and_trials_overrule_them(space):
    def asked(*, hinted):
        strategy = ModelStrategy(space, lambda _: 1e-3, 0)
        for config in list(space)[::5]:
            if hinted:
                strategy.hint(config, 7.0 * recorded_time(config))
        out = []
        for _ in range(6):
            out.append(strategy.ask())
            strategy.tell(out[-1], recorded_time(out[-1]))
        return np.mean([recorded_time(c) for c in out[1:]])

    assert asked(hinted=True) < 0.7 * asked(hinted=False)


@pytest.mark.parametrize(("strategy", "learns"), [("model", True), ("random", False)])
def test_only_a_strategy_that_learns_is_given_hints(strategy, learns, space):
    assert isinstance(load(Group.STRATEGY, strategy)(space, rough_model, 0), Learner) == learns


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
    assert PATIENCE <= len(asked) - times.index(min(times)) - 1 <= MOST_PATIENCE
    assert min(times) <= 1.2 * min(map(recorded_time, space))


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


# --- what strategies are made of


def test_the_nearest_config_is_that_on_a_logarithmic_scale(space):
    steps = Steps(space.graphs[0])
    nearest = steps.nearest(((("x", 3), ("i", 9)),), {"delay_ms": 4, "fault": 77})
    assert dict(nearest.par_sizes[0])["i"] == 8
    assert dict(nearest.schedule) == {"fault": 0, "delay_ms": 4}
    for config in islice(space, 0, len(space.graphs[0]), 7):
        assert steps.nearest(config.par_sizes, dict(config.schedule)) == config


def test_steps_change_one_thing_and_reach_the_whole_graph(space):
    steps = Steps(space.graphs[0])
    reached, fresh = set(), {space.config(0)}
    while fresh:
        reached |= fresh
        fresh = {other for config in fresh for other in steps.around(config)} - reached
    assert reached == {c for c in space if c.graph_id == "g0"}


def test_features_say_the_same_of_the_same_tiles_at_other_sizes(space):
    def features(sizes, **counts):
        graphs = (("g0", matmul_graph()),)
        graph = build_space(graphs, sizes, Scheduled()).graphs[0]
        return Features(graph, 2, ("delay_ms",))(
            Config("g0", (tuple(counts.items()),), (("delay_ms", 3),))
        )

    blocks, idle, trips, piece, tile, result, kernels, between, option = features(
        {"n": 8, "d": 64, "h": 32}, x=1, i=4
    )
    assert (blocks, idle, trips) == (0.0, 1.0, 2.0)  # one block for two threads, four trips
    assert (piece, tile, result) == (9.0, 9.0, 8.0)  # 16 x 32 of w, all rows whole; 8 x 32
    assert (kernels, between) == (1.0, 0.0)
    assert option == pytest.approx(1 / 3)  # the third of four choices
    assert features({"n": 8, "d": 64, "h": 64}, x=2, i=4)[3] == 5.0  # rows of 32 of 64
    wider = features({"n": 8, "d": 128, "h": 64}, x=2, i=8)
    assert wider[4:6] == [9.0, 8.0]


def test_a_regression_learns_a_trend_and_knows_what_it_does_not_know():
    rng = np.random.default_rng(0)
    features, graphs = rng.standard_normal((40, 3)), np.repeat([0, 1], 20)
    points = Points(features, graphs, np.zeros((40, 0)))
    residuals = 0.4 * features[:, 0] + 0.5 * graphs
    known, unknown = np.arange(0, 40, 2), np.arange(1, 40, 2)
    fit = Regression.fit(points.at(known), residuals[known])
    mean, deviation = fit.predict(points.at(unknown))
    assert np.corrcoef(mean, residuals[unknown])[0, 1] > 0.95
    again = fit.predict(points.at(known))
    assert again[1].mean() < deviation.mean()
    far = Points(features[:1] + 30, np.array([7]), np.zeros((1, 0)))
    assert fit.predict(far)[1][0] > 2 * deviation.max()


def test_waiting_for_a_config_lowers_what_is_unknown_of_it_and_moves_nothing():
    rng = np.random.default_rng(1)
    points = Points(rng.standard_normal((12, 2)), np.zeros(12, int), np.zeros((12, 1)))
    residuals = rng.standard_normal(8)
    fit = Regression.fit(points.at(np.arange(8)), residuals)
    rest = points.at(np.arange(8, 12))
    waiting = fit.extended(points.at(np.array([9])), residuals)
    mean, deviation = fit.predict(rest)
    moved, smaller = waiting.predict(rest)
    np.testing.assert_allclose(moved, mean, atol=1e-6)
    assert smaller[1] < 0.8 * deviation[1]
    assert (smaller <= deviation + 1e-9).all()


def test_a_regression_without_trials_expects_nothing():
    none = Points(np.empty((0, 2)), np.empty(0, int), np.empty((0, 1)))
    fit = Regression.fit(none, np.empty(0))
    mean, deviation = fit.predict(Points(np.zeros((3, 2)), np.arange(3), np.zeros((3, 1))))
    assert (mean == 0).all()
    assert (deviation > 0).all()


def test_what_an_option_does_is_learnt_from_few_trials():
    rng = np.random.default_rng(3)
    options = np.array([[-1.0], [1.0]] * 4)
    features = np.hstack((rng.standard_normal((8, 4)), options))
    points = Points(features, np.zeros(8, int), options)
    residuals = 0.2 * options[:, 0]
    fit = Regression.fit(points.at(np.arange(6)), residuals[:6])
    mean, _ = fit.predict(points.at(np.array([6, 7])))
    assert mean[1] - mean[0] == pytest.approx(0.4, abs=0.1)


def test_the_expected_improvement_is_that_of_random_draws():
    mean, deviation = np.array([0.0, -0.2, 0.5]), np.array([0.3, 0.01, 0.4])
    draws = mean + deviation * np.random.default_rng(2).standard_normal((400_000, 3))
    measured = np.maximum(0.1 - draws, 0).mean(0)
    np.testing.assert_allclose(expected_improvement(mean, deviation, 0.1), measured, rtol=0.02)


def test_far_from_the_best_the_least_hopeless_is_chosen():
    gain = expected_improvement(np.array([50.0, 40.0, 60.0]), np.full(3, 0.1), 0.0)
    assert gain.argmax() == 1
