"""What a report says of times, and which facts from a file it refuses."""

from __future__ import annotations

import pytest

from prism.errors import ParseError
from prism.report import render, vet_facts

MEASURED = {
    "graph": "g7",
    "par_sizes": [{"x": 4}],
    "schedule": {"T": 128},
    "predicted": False,
    "predicted_s": None,
    "median_s": 2e-3,
    "min_s": 1e-3,
    "max_error": 1e-6,
}
PREDICTED = MEASURED | {
    "predicted": True, "predicted_s": 3e-6, "median_s": None, "min_s": None, "max_error": None,
}  # fmt: skip


def report(best):
    facts = {"tune": {"best": best, "trials": {"ok": 1}}}
    vet_facts(facts)
    return render("program", {"n": 4}, "graph", "kernel.py", facts)


def test_measured_times_are_called_so():
    text = report(MEASURED)
    assert "median 2.000 ms, best 1.000 ms" in text
    assert "largest norm error against float64 1e-06" in text
    assert "predicted" not in text


def test_predicted_times_are_called_so():
    text = report(PREDICTED | {"registers": 64, "spills": 0})
    assert "predicted 0.003 ms; compiled, neither checked nor run" in text
    assert "64 registers a thread, 0 bytes a thread spilt" in text
    assert not any(word in text for word in ("median", "best", "error"))


def test_another_clock_than_the_gpus_is_named():
    text = report(MEASURED | {"clock": "wall seconds of the lockstep simulator"})
    assert "best 1.000 ms (wall seconds of the lockstep simulator)" in text


def test_what_a_launch_costs_stands_beside_the_time():
    text = report(MEASURED | {"launch_overhead_s": 2.5e-6, "host_launch_s": 1.2e-5})
    assert "an empty kernel takes 2.5 us, a launch costs the host 12.0 us" in text


@pytest.mark.parametrize(
    "best",
    [
        MEASURED | {"median_s": None},
        MEASURED | {"min_s": None},
        MEASURED | {"predicted": True},
        PREDICTED | {"predicted_s": None},
        PREDICTED | {"predicted": False},
        PREDICTED | {"registers": [64]},
        PREDICTED | {"registers": float("nan")},
        {k: v for k, v in MEASURED.items() if k != "predicted"},
    ],
)
def test_facts_that_contradict_themselves_are_refused(best):
    with pytest.raises(ParseError, match=r"facts\.tune\.best"):
        report(best)
