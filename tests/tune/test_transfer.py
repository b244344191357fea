"""What won at other sizes is tried first."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
from tune.fake_target import FakeTarget
from tune.graphs import MATMUL, SQUARED, matmul_graph, nested_graph

from prism.record import Outcome, Trial
from prism.tune import (
    Budget,
    Known,
    SeededStrategy,
    Task,
    build_space,
    carried,
    distance,
    estimated_there,
    first_configs,
    hints,
    taught,
)
from prism.tune.strategies import ModelStrategy, RandomStrategy
from prism.tune.task import Identity
from prism.tune.transfer import MOST

SMALL = {"n": 8, "d": 256, "h": 512}
LARGE = {"n": 8, "d": 1024, "h": 2048}


def task(sizes, *, program=MATMUL, dtype="float32", name="fake"):
    graphs = (("g0", matmul_graph()), ("g1", matmul_graph(grid=2, loop=False)))
    target = FakeTarget()
    space = build_space(graphs, sizes, target)
    return Task(program, sizes, name, target, dtype, 0, space, Budget())


def counts(config):
    return dict(config.par_sizes[0])


def trial(order, config, seconds):
    key = Identity.of(order).key(config)
    outcome = Outcome.OK if seconds is not None else Outcome.WRONG
    return Trial(key, "matmul", config.graph_id, 0, outcome, seconds, seconds)


def config_like(order, graph, wanted):
    return next(c for c in order.space if c.graph_id == f"g{graph}" and counts(c) == wanted)


def test_grid_counts_and_loop_tiles_are_kept_then_all_counts_then_all_tiles():
    graph = task(LARGE).space.graphs[0]
    known = Known(graph, tuple(SMALL.items()), ((("x", 2), ("i", 4)),), (("delay_ms", 2),))
    assert [counts(c) for c in carried(known)] == [
        {"x": 2, "i": 16},
        {"x": 2, "i": 4},
        {"x": 8, "i": 16},
    ]
    assert all(dict(c.schedule) == {"fault": 0, "delay_ms": 2} for c in carried(known))


def test_a_loop_within_a_chunk_keeps_its_tile_too():
    space = build_space((("g0", nested_graph()),), {"n": 4096}, FakeTarget())
    known = Known(space.graphs[0], (("n", 1024),), ((("x", 2), ("i", 8)),), ())
    assert counts(carried(known)[0]) == {"x": 2, "i": 32}


@pytest.mark.parametrize("sizes", [{"n": 3, "d": 7, "h": 5}, {"n": 1, "d": 1, "h": 1}])
def test_what_is_carried_over_is_legal_at_sizes_that_divide_by_nothing(sizes):
    space = task(sizes).space
    known = Known(space.graphs[0], tuple(SMALL.items()), ((("x", 2), ("i", 4)),), ())
    assert set(carried(known)) <= set(space)


def test_the_best_at_the_nearest_sizes_come_first():
    here, near, far = task(LARGE), task(SMALL), task(SMALL | {"n": 1, "d": 8})
    best = config_like(near, 0, {"x": 2, "i": 4})
    slow = config_like(near, 1, {"x": 4, "y": 2})
    distant = config_like(far, 0, {"x": 8, "i": 1})
    trials = [trial(far, distant, 1e-6), trial(near, slow, 2e-3), trial(near, best, 1e-3)]
    first = first_configs(trials, here)
    assert [(c.graph_id, counts(c)["x"]) for c in first[:3]] == [("g0", 2), ("g1", 4), ("g0", 8)]
    assert len(set(first)) == len(first)
    assert set(first) <= set(here.space)


def test_a_hint_is_the_time_over_the_estimate_at_the_other_sizes():
    here, near = task(LARGE), task(SMALL)
    good, lost = (config_like(near, 0, {"x": x, "i": 4}) for x in (2, 4))
    trials = [trial(near, good, 3e-3), trial(near, lost, 1e-3)]
    estimates = {2: 2e-3, 4: math.inf}
    (hint,) = hints(trials, here, lambda known: estimates[counts(known.config)["x"]])
    assert counts(hint.config) == {"x": 2, "i": 16}
    assert hint.ratio == pytest.approx(1.5)
    there = estimated_there(here)(
        Known(here.space.graphs[0], near.space.graphs[0].sizes, good.par_sizes, good.schedule)
    )
    assert there == here.target.estimate(SimpleNamespace(schedule=good.schedule), "float32")


def test_a_strategy_begins_with_the_best_and_says_so():
    here, near = task(LARGE), task(SMALL)
    trials = [trial(near, config, 1e-3) for config in islice(near.space, 20)]
    for maker, most in ((RandomStrategy, MOST), (ModelStrategy, 1)):
        plain = maker(here.space, lambda _: 1e-3, 0)
        strategy, notes = taught(plain, trials, here, lambda _: 1e-3)
        asked = [strategy.ask() for _ in range(most)]
        assert asked == list(first_configs(trials, here)[:most])
        assert notes == ("began with what was fast at other sizes",)
        assert taught(plain, (), here, lambda _: 1e-3) == (plain, ())


@pytest.mark.parametrize(
    "other",
    [
        task(SMALL, program=SQUARED),
        task(SMALL, dtype="float64"),
        task(SMALL, name="another"),
        task(LARGE),
    ],
    ids=["program", "dtype", "target", "these sizes"],
)
def test_trials_of_another_situation_are_of_no_use(other):
    config = config_like(task(SMALL), 0, {"x": 2, "i": 4})
    assert first_configs([trial(other, config, 1e-3)], task(LARGE)) == ()


def test_failed_trials_and_unknown_graphs_are_of_no_use():
    near = task(SMALL)
    config = config_like(near, 0, {"x": 2, "i": 4})
    lost = trial(near, config, 1e-3)
    lost = replace(lost, key=replace(lost.key, graph="0" * 64))
    assert first_configs([trial(near, config, None), lost], task(LARGE)) == ()


def test_distance_is_in_doublings():
    assert distance({"n": 8, "d": 64}, {"n": 4, "d": 128}) == pytest.approx(2.0)
    assert distance({"n": 8}, {"m": 8}) == math.inf


def test_a_seeded_strategy_asks_the_first_then_all_others_once():
    space = task(SMALL).space
    first = [space.config(5), space.config(3), space.config(5)]
    strategy = SeededStrategy(first, RandomStrategy(space, lambda _: 0.0, 0))
    asked = []
    while (config := strategy.ask()) is not None:
        asked.append(config)
    assert asked[:2] == first[:2]
    assert len(asked) == len(set(asked)) == len(space)
