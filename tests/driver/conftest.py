"""A cache of its own for each test, and searches and tuning runs that are made once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from driver.found import FAKE, SIZES, SMALL

from prism import driver
from prism.driver import tune
from prism.plugins import Group, load


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

    monkeypatch.setattr(driver, "searched", search)
    monkeypatch.setattr(driver, "search_key", lambda program, options: {"options": repr(options)})
    return calls


@pytest.fixture(scope="session")
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
