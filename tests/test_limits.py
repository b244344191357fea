"""Arguments from Python that cannot be used: refused with what to do before any work starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tune.graphs import MATMUL

from prism import driver
from prism.driver import optimize, tune
from prism.errors import SizeError, UsageError

FAKE = f"{Path(__file__).parent / 'tune' / 'fake_target.py'}:FakeTarget"
SIZES = {"n": 4, "d": 12, "h": 10}


class Found:
    program = MATMUL
    graphs = ()


@pytest.fixture
def searched(monkeypatch):
    """What was searched."""
    calls = []
    monkeypatch.setattr(driver, "searched", lambda *args, **_: calls.append(args))
    return calls


BAD_TUNE = {
    "text for a budget": ({"budget_s": "60"}, UsageError, "positive number of seconds"),
    "a list for sizes": ({"sizes": [4, 12, 10]}, UsageError, "sizes must be a mapping"),
    "large sizes": ({"sizes": dict.fromkeys(SIZES, 2**40)}, SizeError, "this machine has"),
    "endless sizes": ({"sizes": SIZES | {"n": 2**70}}, SizeError, "above 2.40"),
    "unprintable sizes": ({"sizes": SIZES | {"n": 10**5000}}, SizeError, "above 2.40"),
    "text for a size": ({"sizes": SIZES | {"n": "4"}}, SizeError, "positive integer"),
    "no target": ({"target": None}, UsageError, "target must be text"),
    "no dtype": ({"dtype": float}, UsageError, "dtype must be text"),
    "negative seed": ({"seed": -1}, UsageError, "seed must be at least 0"),
    "text for a seed": ({"seed": "0"}, UsageError, "seed must be an integer"),
    "text for trials": ({"trials": "3"}, UsageError, "trials must be an integer"),
}


@pytest.mark.parametrize("case", BAD_TUNE)
def test_tune_refuses_what_it_cannot_use(case):
    change, error, message = BAD_TUNE[case]
    options = {"sizes": SIZES, "target": FAKE} | change
    with pytest.raises(error, match=message):
        tune(Found(), options.pop("sizes"), **options)


BAD_OPTIMIZE = [
    ({"budget": "60"}, UsageError),
    ({"budget": float("nan")}, UsageError),
    ({"seed": -1}, UsageError),
    ({"target": 7}, UsageError),
    ({"sizes": None}, UsageError),
    ({"sizes": SIZES | {"n": 2**70}}, SizeError),
    ({"sizes": dict.fromkeys(SIZES, 2**40)}, SizeError),
]


@pytest.mark.parametrize(("change", "error"), BAD_OPTIMIZE)
def test_optimize_refuses_what_it_cannot_use(change, error, searched):
    with pytest.raises(error):
        optimize(MATMUL, **{"sizes": SIZES, "target": FAKE} | change)
    assert searched == []
