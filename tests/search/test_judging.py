"""How candidates are judged: what is proved, what is admitted, and when admission is believed."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import search_programs as programs

from prism import driver
from prism.errors import UsageError
from prism.identity import PROGRAM_ID, graph_id
from prism.search import SearchOptions, judging, search
from prism.verdict import Verdict
from prism.verify import Verifier

FULL = SearchOptions(max_ops=11, max_accumulators=3, budget_s=None)
SAMPLE = replace(FULL, verify="sample")

WORKLOADS = {f.__name__: f for f in (programs.softmax_matmul, programs.rmsnorm, programs.biased)}


def listed(result):
    return [g.id for g in result.graphs]


def by_verdict(result, verdict):
    return {g.id for g in result.graphs if g.verdict is verdict and not g.is_fallback}


SEARCH = sys.modules[search.__module__]
MANY = judging.FEW


@pytest.fixture(scope="module", autouse=True)
def _admit_even_few():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SEARCH, "FEW", 0)
        yield


@pytest.fixture(scope="module")
def results():
    """(full, sample) by program."""
    return {
        name: tuple(search(programs.trace(f), options) for options in (FULL, SAMPLE))
        for name, f in WORKLOADS.items()
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_sample_search_lists_the_graphs_of_a_full_one_in_the_same_order(name, results):
    full, sample = results[name]
    assert listed(full) == listed(sample)
    assert full.complete
    assert sample.complete
    assert [replace(g, verdict=Verdict.PROVED) for g in sample.graphs] == list(full.graphs)
    assert full.counters["proved"] == sample.counters["proved"] + sample.counters["admitted"]
    assert full.counters["verified"] == sample.counters["verified"] == len(full.graphs) - 1


@pytest.mark.parametrize("name", ["softmax_matmul", "rmsnorm"])
def test_the_counters_say_how_many_of_each(name, results):
    full, sample = results[name]
    for result in (full, sample):
        for verdict in (Verdict.PROVED, Verdict.ADMITTED):
            assert result.counters[verdict.value] == len(by_verdict(result, verdict))
    assert full.counters["admitted"] == 0
    assert sample.counters["proved"] == judging.SAMPLE
    assert sample.counters["admitted"] > judging.SAMPLE


def test_the_seed_draws_the_sample(results):
    program = programs.trace(programs.softmax_matmul)
    drawn = [by_verdict(search(program, replace(SAMPLE, seed=s)), Verdict.PROVED) for s in (0, 1)]
    assert drawn[0] == by_verdict(results["softmax_matmul"][1], Verdict.PROVED)
    assert drawn[0] != drawn[1]


def test_few_graphs_are_all_proved(monkeypatch):
    monkeypatch.setattr(SEARCH, "FEW", MANY)
    result = search(programs.trace(programs.softmax_matmul), SAMPLE)
    assert judging.SAMPLE < result.counters["proved"] == len(result.graphs) - 1 < MANY
    assert result.counters["admitted"] == 0


def doubting(monkeypatch, is_bad, verdict=Verdict.NOT_PROVED):
    """Full terms answer `verdict` about distributed graphs that are bad."""

    class Doubtful(Verifier):
        def judged(self, judge, graphs, terms):
            found = super().judged(judge, graphs, terms)
            return tuple(
                verdict if g.kernels[0].grid and is_bad(graph_id(g)) else v
                for g, v in zip(graphs, found, strict=True)
            )

    monkeypatch.setattr(SEARCH, "Verifier", Doubtful)


@pytest.mark.parametrize("verdict", [Verdict.NOT_PROVED, Verdict.GAVE_UP])
def test_if_one_of_the_sample_is_not_proved_no_admission_counts(verdict, results, monkeypatch):
    _, sample = results["softmax_matmul"]
    bad = {min(by_verdict(sample, Verdict.PROVED)), min(by_verdict(sample, Verdict.ADMITTED))}
    doubting(monkeypatch, bad.__contains__, verdict)
    result = search(programs.trace(programs.softmax_matmul), SAMPLE)
    assert listed(result) == [i for i in listed(sample) if i not in bad]
    assert by_verdict(result, Verdict.ADMITTED) == set()
    assert result.counters["admitted"] == 0
    assert result.counters[verdict.name.lower()] == len(bad) == len(result.rejected)
    assert result.counters["cut"]["admission"] > 0


def test_without_time_to_prove_them_distrusted_admissions_are_dropped(results, monkeypatch):
    _, sample = results["softmax_matmul"]
    proved = by_verdict(sample, Verdict.PROVED)
    bad = min(proved)
    doubting(monkeypatch, bad.__eq__)
    monkeypatch.setattr(judging, "FIRST_BATCH", 1_000)
    clock = iter([100.0] * 2)  # one batch, the sample, no more
    monkeypatch.setattr(SEARCH._Search, "seconds_left", lambda _self: next(clock, 0.0))
    result = search(programs.trace(programs.softmax_matmul), SAMPLE)
    assert set(listed(result)) == (proved - {bad}) | {PROGRAM_ID}
    assert result.counters["admitted"] == 0
    assert not result.complete


def test_without_time_for_the_sample_the_result_says_so(monkeypatch):
    clock = iter([100.0])
    monkeypatch.setattr(SEARCH._Search, "seconds_left", lambda _self: next(clock, 0.0))
    result = search(programs.trace(programs.softmax_matmul), SAMPLE)
    assert result.counters["proved"] == 0
    assert "time: no admitted graph was judged in full as well" in result.cuts


def test_nothing_that_is_only_admitted_is_tuned(results, monkeypatch):
    class StopError(Exception):
        pass

    given = []

    def space(graphs, *_):
        given.extend(name for name, _ in graphs)
        raise StopError

    monkeypatch.setattr(driver, "build_space", space)
    _, sample = results["rmsnorm"]
    with pytest.raises(StopError):
        driver.tune(sample, {"n": 4, "d": 8, "h": 8})
    assert set(given) == by_verdict(sample, Verdict.PROVED) | {PROGRAM_ID}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verify": "most"}, "no verify 'most'; there are full, sample"),
        ({"mode": "tune", "verify": "sample"}, "mode tune needs verify full"),
    ],
)
def test_a_way_to_verify_that_cannot_be_says_so(options, message):
    with pytest.raises(UsageError, match=message):
        search(programs.trace(programs.matmul), SearchOptions(**options))
