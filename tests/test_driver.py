from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tune.graphs import MATMUL, matmul_graph

import prism
from prism import driver, frontend
from prism.artifact import save_artifact
from prism.cache import CacheWarning
from prism.driver import optimize, tune
from prism.errors import ParseError, PluginError, SizeError, TraceError, UsageError
from prism.ir import SGraph
from prism.optimized import Optimized
from prism.optimized_shapes import OptimizedShapes
from prism.plugins import Group, load, make
from prism.record import RecordFile
from prism.scope import Scope
from prism.search import SearchOptions
from prism.tune import estimates
from prism.verdict import Verdict

FAKE = f"{Path(__file__).parent / 'tune' / 'fake_target.py'}:FakeTarget"
BROKEN = FAKE.replace("FakeTarget", "BrokenTarget")
UNSTARTABLE = FAKE.replace("FakeTarget", "UnstartableTarget")
UNKNOWN = FAKE.replace("FakeTarget", "NoSuchTarget")
SIZES = {"n": 4, "d": 12, "h": 10}


@dataclass(frozen=True)
class Graph:
    id: str
    graph: SGraph
    verdict: Verdict = Verdict.PROVED


@dataclass(frozen=True)
class Found:
    program: object
    graphs: tuple[Graph, ...]
    scope: Scope = field(default_factory=Scope)


SMALL = Found(MATMUL, (Graph("g0", matmul_graph(grid=0, loop=False)),))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def searched(monkeypatch):
    """`optimize` finds what this list's last entry holds; its length is the number of searches."""
    calls = [SMALL]

    def search(program, options, *, cache, progress):
        calls.append(calls[-1])
        return calls[-1], {"graphs": 1}

    monkeypatch.setattr(driver, "_search", search)
    monkeypatch.setattr(driver, "_search_key", lambda program, options: {"options": repr(options)})
    return calls


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory):
    """The result of one real tuning run on the fake target."""
    tmp = tmp_path_factory.mktemp("tuned")
    return tune(SMALL, SIZES, target=FAKE, trials=1, output=tmp / "kernel.py")


@pytest.fixture
def tuned(searched, tuned_once, monkeypatch):
    """Every `optimize` gets that result; as `searched` otherwise."""
    result = replace(tuned_once, stopped="strategy")

    def tune_as_before(found, sizes, *, target, dtype, **_):
        source = load(Group.TARGET, target)().emit(result.best.mu, dtype).text
        return replace(result, best=replace(result.best, source=source))

    monkeypatch.setattr(driver, "tune", tune_as_before)
    return searched


def call(made):
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(4, 12)
    w = np.linspace(2, -1, 120, dtype=np.float32).reshape(12, 10)
    np.testing.assert_allclose(made(x, w), x @ w, rtol=1e-5, atol=1e-5)


# --- tune


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


# --- optimize


def test_optimize_gives_a_callable_that_is_right(searched):
    made = optimize(MATMUL, sizes=SIZES, target=FAKE)
    assert not made.is_fallback
    call(made)
    assert made.facts["tune"]["best"]["schedule"] == {"fault": 0, "delay_ms": 1}
    assert "graph g0" in made.report()


def test_optimize_traces_a_function(searched):
    def product(x: "n d", w: "d h"):
        return x @ w

    with pytest.raises(SizeError, match="no dimension 'k'"):
        optimize(product, sizes={"k": 4}, target=FAKE)
    with pytest.raises(TraceError):
        optimize(np.linalg.inv, sizes={"n": 4}, target=FAKE, x="n n")
    with pytest.raises(UsageError, match="traced already"):
        optimize(MATMUL, sizes=SIZES, target=FAKE, x="n d")
    with pytest.raises(UsageError, match="a function or a traced program"):
        optimize("matmul", sizes=SIZES, target=FAKE)


@pytest.mark.parametrize("target", [BROKEN, UNSTARTABLE])
def test_when_no_kernel_passes_the_program_itself_is_the_answer(target, searched):
    made = optimize(MATMUL, sizes=SIZES, target=target)
    assert made.is_fallback
    call(made)
    assert "no kernel passed" in made.report()


def test_when_nothing_is_proved_the_program_itself_is_the_answer(searched):
    searched.append(replace(SMALL, graphs=()))
    made = optimize(MATMUL, sizes=SIZES, target=FAKE)
    assert made.is_fallback
    call(made)


def test_a_target_that_cannot_run_here_gives_its_kernel_and_says_predicted(searched, cache):
    offline = FAKE.replace("FakeTarget", "OfflineTarget")
    made = optimize(MATMUL, sizes=SIZES, target=offline)
    assert made.is_fallback
    call(made)
    best = made.facts["tune"]["best"]
    assert (best["predicted"], best["median_s"], best["spills"]) == (True, None, 0)
    report = made.report()
    assert "predicted 2.200 ms; compiled, neither checked nor run" in report
    assert "40 registers a thread, 1024 bytes of shared memory a block, 0 bytes" in report
    assert "note: compiled for fake_90, not run" in report
    assert "median" not in report
    assert optimize(MATMUL, sizes=SIZES, target=offline) == made
    assert len(searched) == 2


# --- several sizes


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


def test_sizes_in_a_list_give_a_program_for_all_of_them_and_others(searched, rng):
    made = optimize(MATMUL, sizes=[SIZES, LARGER], target=FAKE, budget=20.0)
    assert isinstance(made, OptimizedShapes)
    assert [shape.sizes for shape in made.shapes] == [SIZES, LARGER]
    assert not any(shape.is_fallback for shape in made.shapes)
    seeded = made.shapes[1].facts["tune"]
    assert any("fast at other sizes" in note for note in seeded["notes"])
    call(made)
    x, w = rng.standard_normal((2, 30)), rng.standard_normal((30, 7))
    x, w = x.astype(np.float32), w.astype(np.float32)
    with pytest.warns(UserWarning, match="not tuned for n=2,d=30,h=7: the kernel for"):
        np.testing.assert_allclose(made(x, w), x @ w, rtol=1e-4, atol=1e-5)
    again = optimize(MATMUL, sizes=[LARGER], target=FAKE, budget=20.0)
    assert again.shapes == made.shapes[1:]


@pytest.mark.parametrize("sizes", [[], [SIZES, dict(reversed(SIZES.items()))]])
def test_a_list_of_no_sizes_or_of_the_same_twice_is_refused(sizes, searched):
    with pytest.raises(UsageError, match="must hold some, each of them once"):
        optimize(MATMUL, sizes=sizes, target=FAKE)


def test_optimize_goes_on_where_a_smaller_budget_ended(searched, cache):
    optimize(MATMUL, sizes=SIZES, target=FAKE, budget=5.0)
    (entry,) = entries(cache)
    entry.unlink()
    again = optimize(MATMUL, sizes=SIZES, target=FAKE, budget=5.0)
    assert again.facts["tune"]["resumed"] == 3
    assert optimize(MATMUL, sizes=SIZES, target=FAKE, cache=False).facts["tune"]["resumed"] == 0


def test_trials_that_cannot_be_kept_cost_a_warning(searched, cache):
    cache.mkdir()
    (cache / "trials").write_text("a file where a folder should be")
    with pytest.warns(CacheWarning, match="trials are not cached"):
        call(optimize(MATMUL, sizes=SIZES, target=FAKE))


# --- the caches


def entries(cache):
    return sorted((cache / "tuned").glob("*.json"))


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
    optimize(MATMUL, **{"sizes": SIZES, "target": FAKE, "budget": 3.0} | change)
    assert len(entries(cache)) == 2


def test_a_larger_budget_looks_again_unless_nothing_was_left_to_try(tuned, cache):
    options = {"sizes": SIZES, "target": FAKE}
    optimize(MATMUL, **options, budget=5.0)
    optimize(MATMUL, **options, budget=50.0)
    assert len(tuned) == 2
    (entry,) = entries(cache)
    entry.write_text(json.dumps(json.loads(entry.read_text()) | {"stopped": "budget"}))
    optimize(MATMUL, **options, budget=50.0)
    assert len(tuned) == 3


def test_a_fallback_is_not_cached(searched, cache):
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


# --- what is imported when

WITHOUT_SEARCH = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"egglog", "ortools", "z3"}:
            raise ModuleNotFoundError(f"{name} is blocked in this test", name=name)

sys.meta_path.insert(0, Block())
from prism.driver import tune
result = tune(sys.argv[1], {"n": 4, "d": 12, "h": 10}, target=sys.argv[2])
print(sorted(result.outcomes.items()), result.best.config)
"""


def test_an_artifact_is_tuned_where_the_solvers_are_missing(tmp_path):
    artifact = saved_artifact(tmp_path)
    command = [sys.executable, "-c", WITHOUT_SEARCH, str(artifact), FAKE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.startswith("[('ok', 3)]")


def test_optimize_says_what_it_lacks_where_the_solvers_are_missing():
    code = (
        WITHOUT_SEARCH.partition("from prism.driver")[0]
        + """
import prism
try:
    prism.optimize(lambda x: x, sizes={"n": 4}, target=sys.argv[1], x="n")
except prism.PrismError as error:
    print(error)
"""
    )
    command = [sys.executable, "-c", code, FAKE]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "needs egglog" in done.stdout


def saved_artifact(folder: Path) -> Path:
    """SMALL as a search would have left it."""

    @dataclass(frozen=True)
    class Options:
        encoding: str = "boolean"
        seed: int = 0

    @dataclass(frozen=True)
    class Result:
        program: object
        graphs: tuple
        complete: bool = True
        cuts: tuple = ()
        search_s: float = 0.1
        counters: object = None
        options: Options = Options()
        fingerprint: str = "0" * 16
        scope: Scope = field(default_factory=Scope)

    @dataclass(frozen=True)
    class Full(Graph):
        op_count: int = 3
        accumulator_count: int = 0
        stages: tuple[str, ...] = ("once once once once",)
        is_fallback: bool = True

    graphs = (Full("program", SMALL.graphs[0].graph),)
    save_artifact(Result(MATMUL, graphs, counters={}), folder / "found.json")
    return folder / "found.json"


LIGHT = """
import sys
import prism
heavy = {"numpy", "numba", "egglog", "ortools", "z3", "rich", "click"} & set(sys.modules)
assert not heavy, heavy
assert not set(prism.__all__) - set(dir(prism))
for name in prism.__all__:
    getattr(prism, name)
assert not {"egglog", "ortools", "z3", "numba"} & set(sys.modules)
"""


def test_import_prism_is_light_and_every_public_name_is_there():
    subprocess.run([sys.executable, "-c", LIGHT], check=True)


def test_public_names_are_those_of_the_front_end_and_the_driver():
    ours = {"Optimized", "OptimizedShapes", "PrismError", "__version__", "errors"}
    ours |= {"load_operators", "ops", "optimize"}
    assert set(prism.__all__) == ours | set(frontend.__all__) - {"load_program"}
    assert prism.Optimized is Optimized
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        getattr(prism, "nonsense")  # noqa: B009 - the attribute is missing on purpose


def test_ranking_leaves_most_of_the_budget_for_trials(monkeypatch):
    clock = iter(range(1000))
    monkeypatch.setattr(estimates, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    target = SimpleNamespace(estimate=lambda mu, dtype: 1.0)
    monkeypatch.setattr(estimates, "instantiate", lambda space, config: config)
    space = SimpleNamespace(graphs=(SimpleNamespace(graph_id="g"),))
    config = SimpleNamespace(graph_id="g")
    made = estimates.Estimates(space, target, "float32", until=2.0)
    assert [made(config) for _ in range(5)] == [1.0, 1.0, 1.0, 1.0, math.inf]
    assert made.notes == ("the budget allowed 4 estimates, 1 more were wanted",)
    made.ranked()
    assert made(config) == 1.0


def test_optimize_searches_for_its_sizes_and_device(searched, monkeypatch):
    asked = []

    def search(program, options, *, cache, progress):
        asked.append(options)
        return SMALL, {"graphs": 1}

    monkeypatch.setattr(driver, "_search", search)
    given = {"sizes": SIZES, "target": FAKE, "budget": 20.0, "cache": False}
    optimize(MATMUL, **given)
    optimize(MATMUL, **given, search_options=SearchOptions(mode="count"))
    optimize(MATMUL, **given, search_options=SearchOptions(mode="tune", sizes=(("n", 4),)))
    assert [dict(o.sizes or ()) for o in asked] == [SIZES, {}, {"n": 4}]
    assert [o.device is not None for o in asked] == [True, False, False]


def test_a_search_is_kept_whatever_bandwidth_is_measured():
    device = make(Group.TARGET, FAKE).device()
    options = SearchOptions(mode="tune", sizes=tuple(SIZES.items()), device=device)
    key = driver._search_key(MATMUL, options)
    slower = replace(options, device=replace(device, stream_gbps=device.stream_gbps / 2))
    assert driver._search_key(MATMUL, slower) == key
    other = replace(options, device=replace(device, name="another"))
    for changed in (replace(options, device=None), replace(options, sizes=None), other):
        assert driver._search_key(MATMUL, changed) != key
