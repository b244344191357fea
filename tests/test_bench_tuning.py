"""`make bench-tuning`: strategies replayed on records of exhaustive searches."""

from __future__ import annotations

import json
import math
from typing import ClassVar

import pytest
from click.testing import CliRunner
from tune.fake_target import FAULTS, FakeTarget
from tune.graphs import MATMUL, matmul_graph

from prism.errors import ParseError
from prism.tune import build_space
from prism.tune.strategies import RandomStrategy
from prism_experiments import bench_tuning
from prism_experiments.bench_tuning import DEFAULT, GOAL, RECORDS, REFERENCE, compared, trials_to
from prism_experiments.exhaustive import ExhaustiveRecord, like, measured, thinned

SIZES = {"n": 4, "d": 12, "h": 10}


class SomeFail(FakeTarget):
    options: ClassVar = {
        "fault": (0, FAULTS.index("nan"), FAULTS.index("refused")),
        "delay_ms": (1, 3),
    }

    def estimate(self, mu, dtype):
        self.emit(mu, dtype)
        return super().estimate(mu, dtype)


@pytest.fixture(scope="module")
def record():
    """A record of a few kernels of a fake target, one of three wrong and one of three refused."""
    target = SomeFail()
    space = thinned(build_space((("g0", matmul_graph()),), SIZES, target), 30, 0)
    return measured(MATMUL, space, target, "float32", rounds=2, step=lambda done, total: None)


@pytest.fixture(scope="module")
def stored():
    """The records that are shipped."""
    return [ExhaustiveRecord.load(path) for path in sorted(RECORDS.glob("*.json"))]


def test_a_record_holds_the_time_of_every_config(record):
    assert 20 <= len(record.trials) == len(record.space) <= 40
    for config, trial in record.trials.items():
        schedule = dict(config.schedule)
        if FAULTS[schedule["fault"]] == "none":
            assert trial.seconds == pytest.approx(schedule["delay_ms"] * 1e-3)
        else:
            assert trial.seconds is None
        assert math.isinf(trial.estimate) == (FAULTS[schedule["fault"]] == "refused")


def test_a_record_is_saved_and_loaded_to_the_nanosecond(record, tmp_path):
    record.save(tmp_path / "record.json")
    again = ExhaustiveRecord.load(tmp_path / "record.json")
    assert again.space == record.space
    assert (again.name, again.dtype, again.device) == (record.name, "float32", record.device)
    for config, trial in record.trials.items():
        assert again.trials[config].seconds == pytest.approx(trial.seconds, abs=1e-9)
    (tmp_path / "record.json").write_text('{"schema": "other"}')
    with pytest.raises(ParseError, match="not of schema"):
        ExhaustiveRecord.load(tmp_path / "record.json")


def test_a_thinned_space_has_a_share_of_every_graph():
    graphs = tuple((f"g{n}", matmul_graph(grid=n)) for n in range(3))
    space = build_space(graphs, {"n": 64, "d": 512, "h": 512}, FakeTarget())
    small = thinned(space, 60, 1)
    assert 40 <= len(small) <= 80
    assert set(small) <= set(space)
    for few, many in zip(small.graphs, space.graphs, strict=True):
        assert 1 <= len(few.counts) <= 2 + len(many.counts) * 60 / len(space)


def test_a_replay_tells_each_kernel_once_and_never_what_is_refused(record):
    strategy = RandomStrategy(record.space, record.estimate, 0)
    told = list(bench_tuning.replay(record, strategy))
    identities = [record.identity(config) for config, _ in told]
    assert len(set(identities)) == len(identities)
    assert not any(math.isinf(record.trials[config].estimate) for config, _ in told)
    assert min(s for _, s in told if s is not None) == record.best_s


def test_trials_are_counted_to_the_first_that_reaches_the_goal():
    assert trials_to([None, 3.0, 1.0, 0.9], 1.0) == 3
    assert trials_to([None, 3.0], 1.0) == math.inf


@pytest.mark.slow
def test_the_default_needs_a_quarter_of_the_trials_of_random(stored):
    """On most records; where the recorded cost model was wrong, it is no worse than random."""
    rows = []
    for record in stored:
        rows += compared(record, [DEFAULT], bench_tuning.SEEDS)
    mine = [row for row in rows if row.strategy == DEFAULT]
    assert len(mine) == len(stored) >= 5
    assert sum(row.share <= GOAL for row in mine) >= 3
    assert all(row.share <= 1.0 for row in mine)
    assert all(row.found <= 1 + bench_tuning.WITHIN for row in mine)
    random = [row for row in rows if row.strategy == REFERENCE]
    assert sum(r.median_trials for r in mine) <= GOAL * sum(r.median_trials for r in random)


def test_a_shape_after_another_is_near_the_best_at_once(stored):
    by_sizes = {r.sizes_text: r for r in stored if r.program.name == "rmsnorm"}
    here, other = by_sizes["n=8,d=1024,h=2048"], by_sizes["n=8,d=1024,h=1024"]
    rows = {row.strategy: row for row in compared(here, [DEFAULT], 5, [other])}
    after = rows[f"{DEFAULT} after {other.sizes_text}"]
    assert after.near_trials == 1 < rows[DEFAULT].near_trials < rows[REFERENCE].near_trials
    assert after.worst_trials <= rows[REFERENCE].median_trials


def test_the_table_has_a_row_for_each_strategy_and_json_too():
    result = CliRunner().invoke(bench_tuning.main, ["--smoke"])
    assert result.exit_code == 0, result.output
    for words in ("random", "evolutionary", "model", "100%", "of 1 records"):
        assert words in result.stdout
    result = CliRunner().invoke(bench_tuning.main, ["--smoke", "--json", "--strategies", "random"])
    (line,) = result.stdout.splitlines()
    assert json.loads(line)["strategy"] == "random"


def test_a_record_of_another_shape_has_the_configs_carried_over(record):
    sizes = {"n": 4, "d": 24, "h": 20}
    space = like(record, sizes, SomeFail())
    assert {graph.graph_id for graph in space.graphs} == {"g0"}
    assert 1 <= len(space.graphs[0].counts) <= len(record.space.graphs[0].counts)
    assert set(space) <= set(build_space((("g0", matmul_graph()),), sizes, SomeFail()))


def test_a_new_record_needs_sizes_and_a_place():
    options = ["--make", "matmul", "--configs", "2"]
    refused = CliRunner().invoke(bench_tuning.main, options)
    assert (refused.exit_code, "needs --sizes and --output" in refused.output) == (2, True)


@pytest.mark.slow
def test_a_new_record_is_measured_here(tmp_path):
    path = tmp_path / "record.json"
    options = ["--make", "matmul", "--sizes", "n=2,d=16,h=8", "--configs", "2", "-o", path]
    result = CliRunner().invoke(bench_tuning.main, [str(o) for o in options])
    assert result.exit_code == 0, result.output
    made = ExhaustiveRecord.load(path)
    assert made.name == "matmul n=2,d=16,h=8"
    assert made.best_s > 0
