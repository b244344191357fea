from __future__ import annotations

import json

import pytest
from driver.found import BROKEN, FAKE, SIZES, call
from tune.graphs import MATMUL

from prism.cache import CacheWarning
from prism.driver import NoKernelWarning, optimize
from prism.search import SearchOptions


def entries(cache):
    return sorted((cache / "tuned").glob("*.json"))


def test_optimize_goes_on_where_a_smaller_budget_ended(searched, cache):
    optimize(MATMUL, sizes=SIZES, target=FAKE, budget=60.0)
    (entry,) = entries(cache)
    entry.unlink()
    again = optimize(MATMUL, sizes=SIZES, target=FAKE, budget=60.0)
    assert again.facts["tune"]["resumed"] == 3
    assert optimize(MATMUL, sizes=SIZES, target=FAKE, cache=False).facts["tune"]["resumed"] == 0


def test_trials_that_cannot_be_kept_cost_a_warning(searched, cache):
    cache.mkdir()
    (cache / "trials").write_text("a file where a folder should be")
    with pytest.warns(CacheWarning, match="trials are not cached"):
        call(optimize(MATMUL, sizes=SIZES, target=FAKE))


def test_a_second_optimize_takes_the_kernel_from_the_cache(tuned, cache):
    first = optimize(MATMUL, sizes=SIZES, target=FAKE)
    second = optimize(MATMUL, sizes=SIZES, target=FAKE)
    assert second == first
    assert len(tuned) == 2
    call(second)
    optimize(MATMUL, sizes=SIZES, target=FAKE, cache=False)
    assert len(tuned) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": SIZES | {"n": 5}},
        {"dtype": "float64"},
        {"search_options": SearchOptions(mode="tune", max_graphs=1)},
        {"target": FAKE.replace("FakeTarget", "SameTarget")},
    ],
)
def test_another_situation_is_another_entry(change, tuned, cache):
    optimize(MATMUL, sizes=SIZES, target=FAKE)
    optimize(MATMUL, **{"sizes": SIZES, "target": FAKE, "budget": 60.0} | change)
    assert len(entries(cache)) == 2


def test_a_larger_budget_looks_again_unless_nothing_was_left_to_try(tuned, cache):
    options = {"sizes": SIZES, "target": FAKE}
    optimize(MATMUL, **options, budget=60.0)
    optimize(MATMUL, **options, budget=600.0)
    assert len(tuned) == 2
    (entry,) = entries(cache)
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"stopped": "budget"}))
    optimize(MATMUL, **options, budget=600.0)
    assert len(tuned) == 3


def test_a_fallback_is_not_cached(searched, cache):
    with pytest.warns(NoKernelWarning, match=r"none of those tried passed \(1 wrong\)"):
        optimize(MATMUL, sizes=SIZES, target=BROKEN)
    assert entries(cache) == []


def with_facts(text, facts):
    entry = json.loads(text)
    made = json.loads(entry["optimized"]) | {"facts": facts}
    return json.dumps(entry | {"optimized": json.dumps(made)})


SPOILT = {
    "truncated": lambda text: text[:-50],
    "empty": lambda _: "",
    "foreign": lambda _: '{"schema": "other"}',
    "a list": lambda _: "[]",
    "kernel modified": lambda text: json.dumps(json.loads(text) | {"kernel": "import os"}),
    "not text": lambda text: json.dumps(json.loads(text) | {"optimized": 7}),
    "kernel null": lambda text: json.dumps(json.loads(text) | {"kernel": None}),
    "kernel a number": lambda text: json.dumps(json.loads(text) | {"kernel": 7}),
    "kernel a surrogate": lambda text: json.dumps(json.loads(text) | {"kernel": "\ud800"}),
    "nested deep": lambda _: "[" * 100_000,
    "best is empty": lambda text: with_facts(text, {"tune": {"best": {}}}),
    "escape codes": lambda text: with_facts(text, {"tune": {"stopped": "\x1b[2J"}}),
    "no budget": lambda text: json.dumps(json.loads(text) | {"budget_s": None}),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_entry_is_a_miss_with_a_warning_and_is_replaced(case, tuned, cache):
    optimize(MATMUL, sizes=SIZES, target=FAKE)
    (entry,) = entries(cache)
    good = entry.read_text()
    entry.write_text(SPOILT[case](good))
    with pytest.warns(CacheWarning, match="is not used"):
        call(optimize(MATMUL, sizes=SIZES, target=FAKE))
    assert json.loads(entry.read_text())["kernel"] == json.loads(good)["kernel"]


def test_an_entry_of_another_program_is_a_miss(tuned, cache):
    optimize(MATMUL, sizes=SIZES, target=FAKE)
    (first,) = entries(cache)
    optimize(MATMUL, sizes=SIZES | {"n": 5}, target=FAKE)
    (second,) = set(entries(cache)) - {first}
    second.write_text(first.read_text())
    with pytest.warns(CacheWarning, match="another program, size, dtype or target"):
        made = optimize(MATMUL, sizes=SIZES | {"n": 5}, target=FAKE)
    assert made.sizes["n"] == 5


def test_without_a_cache_optimize_says_so_first_and_works(searched, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.warns(CacheWarning, match="cannot be written"):
        call(optimize(MATMUL, sizes=SIZES, target=FAKE))


def test_a_cache_that_cannot_be_written_costs_a_warning(tuned, cache):
    cache.mkdir()
    (cache / "tuned").write_text("a file where a folder should be")
    with pytest.warns(CacheWarning) as caught:
        call(optimize(MATMUL, sizes=SIZES, target=FAKE))
    assert any("is not cached" in str(warning.message) for warning in caught)
