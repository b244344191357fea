from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from driver.found import FAKE, SIZES, SMALL, UNKNOWN, Graph
from tune.graphs import MATMUL, matmul_graph

from prism import driver
from prism.driver import optimize, tune
from prism.errors import ParseError, PluginError, SizeError, UsageError
from prism.record import RecordFile
from prism.tune import Spending, estimates
from prism.verdict import Verdict


def test_tune_says_what_is_best_and_where_its_source_lies(tmp_path):
    result = tune(SMALL, SIZES, target=FAKE, output=tmp_path / "kernel.py")
    assert result.best.config.graph_id == "g0"
    assert result.best.path == tmp_path / "kernel.py"
    assert result.best.path.read_text() == result.best.source
    assert result.outcomes == {"ok": 3}
    assert result.space_size == 3


def test_tune_puts_the_source_into_the_cache_by_default(cache):
    result = tune(SMALL, SIZES, target=FAKE, trials=1)
    assert result.best.path.is_relative_to(cache)
    assert result.best.path.read_text() == result.best.source


def test_tune_tries_proved_graphs_only():
    unsure = [Graph(v.value, matmul_graph(), v) for v in Verdict if v is not Verdict.PROVED]
    result = tune(replace(SMALL, graphs=tuple(unsure)), SIZES, target=FAKE)
    assert result.best is None
    assert result.space_size == 0
    assert result.notes == ("no graph to tune",)
    assert result.outcomes == {}


def test_tune_appends_to_the_records_it_resumes_from(tmp_path):
    records = tmp_path / "trials.jsonl"
    tune(SMALL, SIZES, target=FAKE, trials=2, records=records)
    assert tune(SMALL, SIZES, target=FAKE, records=records).resumed == 2
    assert len(RecordFile(records).read()) == 3


BAD_TUNE = {
    "size missing": ({"sizes": {"n": 4, "d": 12}}, SizeError, "no size given for dimension 'h'"),
    "size unknown": ({"sizes": SIZES | {"z": 1}}, SizeError, "no dimension 'z'"),
    "size zero": ({"sizes": SIZES | {"n": 0}}, SizeError, "positive integer"),
    "dtype": ({"dtype": "int8"}, UsageError, "unknown dtype 'int8'"),
    "target": ({"target": "tpu"}, PluginError, "no target named 'tpu'; known: cpu"),
    "strategy": ({"strategy": "magic"}, PluginError, "named 'magic'; known: evolutionary, model"),
    "trials": ({"trials": 0}, UsageError, "at least 1"),
    "budget": ({"budget_s": -1.0}, UsageError, "positive number of seconds"),
    "endless budget": ({"budget_s": float("inf")}, UsageError, "positive number of seconds"),
    "artifact": ({"artifact": "/no/such.json"}, ParseError, "no/such.json"),
}


@pytest.mark.parametrize("case", BAD_TUNE)
def test_tune_refuses_what_it_cannot_use(case):
    change, error, message = BAD_TUNE[case]
    options = {"artifact": SMALL, "sizes": SIZES, "target": FAKE} | change
    with pytest.raises(error, match=message):
        tune(options.pop("artifact"), options.pop("sizes"), **options)


def test_a_dtype_that_the_target_does_not_take_names_the_targets_that_do(monkeypatch):
    narrow = FAKE.replace("FakeTarget", "NarrowTarget")
    known = {narrow: None, FAKE: None, UNKNOWN: None}
    monkeypatch.setattr(driver, "installed", lambda group: known)
    words = "NarrowTarget does not take bfloat16, only float32, float64; targets that do: .*Fake"
    with pytest.raises(UsageError, match=words):
        tune(SMALL, SIZES, target=narrow, dtype="bfloat16")
    with pytest.raises(UsageError, match=words):
        optimize(MATMUL, sizes=SIZES, target=narrow, dtype="bfloat16")


LARGER = {"n": 4, "d": 24, "h": 20}


def test_what_was_fast_at_other_sizes_is_tried_first(tmp_path):
    found = replace(SMALL, graphs=(Graph("g0", matmul_graph()),))
    records = tmp_path / "trials.jsonl"
    options = {"target": FAKE, "records": records, "strategy": "random"}
    tune(found, SIZES, trials=8, **options)
    first = min((t for t in RecordFile(records).read()), key=lambda t: t.median_s)
    result = tune(found, LARGER, trials=1, **options)
    assert any("fast at other sizes" in note for note in result.notes)
    tried = RecordFile(records).read()[-1]
    assert dict(tried.key.sizes) == LARGER
    assert tried.key.schedule == first.key.schedule
    assert dict(tried.key.par_sizes[0])["x"] == dict(first.key.par_sizes[0])["x"]


def test_ranking_leaves_most_of_the_budget_for_trials(monkeypatch):
    clock = iter(range(1000))
    spending = Spending(20, lambda: float(next(clock)))
    target = SimpleNamespace(estimate=lambda mu, dtype: 1.0)
    monkeypatch.setattr(estimates, "instantiate", lambda space, config: config)
    space = SimpleNamespace(graphs=(SimpleNamespace(graph_id="g"),))
    config = SimpleNamespace(graph_id="g")
    made = estimates.Estimates(space, target, "float32", spending.is_within(0.25))
    assert [made(config) for _ in range(5)] == [1.0, 1.0, 1.0, 1.0, math.inf]
    assert made.notes == ("the budget allowed 4 estimates, 1 more were wanted",)
    made.ranked()
    assert made(config) == 1.0
