"""The whole pipeline on the real CPU target."""

from __future__ import annotations

import numpy as np
import pytest
from found_graphs import Found, Graph
from tune.graphs import MATMUL, matmul_graph

import prism
from prism.driver import optimize, tune
from prism.record import RecordFile
from prism.report import resources_text


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))


def test_a_looped_matmul_is_tuned_at_ragged_sizes(tmp_path):
    found = Found(MATMUL, (Graph("g0", matmul_graph()),))
    sizes, records = {"n": 3, "d": 101, "h": 67}, tmp_path / "trials.jsonl"
    result = tune(found, sizes, trials=2, strategy="random", seed=1, records=records)
    assert result.outcomes == {"ok": 2}
    assert result.best.max_error < 1e-5
    assert "def block" in result.best.source
    overheads = [t.facts["launch_overhead_s"] for t in RecordFile(records).read()]
    assert all(1e-7 < seconds < 1.0 for seconds in overheads)  # other work may delay a launch
    assert "an empty kernel takes" in resources_text(result.best.facts)


def rms_linear(x: "n d", g: "d", w: "d h"):
    scale = prism.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6)
    return ((x * g) / scale) @ w


@pytest.fixture
def patient(monkeypatch):
    """However busy the machine is, what was begun is compiled and timed."""
    monkeypatch.setattr("prism.tune.spending.GRACE_S", 100.0)


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_a_function_is_optimized_end_to_end_cached_saved_and_loaded(tmp_path, rng):
    sizes = {"n": 5, "d": 96, "h": 70}
    made = optimize(rms_linear, sizes=sizes, budget=5.0)
    assert not made.is_fallback
    shapes = ((5, 96), (96,), (96, 70))
    x, g, w = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    expected = (x * g / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) @ w
    np.testing.assert_allclose(made(x, g, w), expected, rtol=1e-3, atol=1e-4)
    assert optimize(rms_linear, sizes=sizes, budget=5.0) == made
    made.save(tmp_path / "saved")
    again = prism.Optimized.load(tmp_path / "saved")
    np.testing.assert_array_equal(again(x, g, w), made(x, g, w))


@pytest.mark.slow
@pytest.mark.usefixtures("patient")
def test_exponentials_of_large_numbers_do_not_overflow(rng):
    def softmax_matmul(x: "n d", w: "d h"):
        e = prism.exp(x)
        return (e / e.sum(axis=-1, keepdims=True)) @ w

    made = optimize(softmax_matmul, sizes={"n": 4, "d": 60, "h": 33}, budget=5.0)
    x = (200 * rng.standard_normal((4, 60))).astype(np.float32)
    w = rng.standard_normal((60, 33)).astype(np.float32)
    weights = np.exp(x.astype(float) - x.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ w
    np.testing.assert_allclose(made(x, w), expected, rtol=1e-3, atol=1e-4)
    assert not made.is_fallback
