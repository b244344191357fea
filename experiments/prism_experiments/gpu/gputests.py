"""Stage 2: all tests of `tests/gpu`, each with its outcome and message.

A test that hangs or takes its process along is named, and another process runs the rest. Where
pytest, or what the tests' conftest imports, is missing, `fallback` runs what it can.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prism.errors import ParseError
from prism_experiments.gpu.channel import TESTS_DONE
from prism_experiments.gpu.process import Child, Lost
from prism_experiments.gpu.results import TEST, Status
from prism_experiments.gpu.vetting import Each, Flag, Text, fields, vet

TEST_LIMIT_S = 40.0
"""A test that says nothing for longer hangs."""

COLLECT_LIMIT_S = 90.0
"""The same, while the tests are imported."""

MOST_PROCESSES = 6
"""Each restart imports everything once more."""

NEEDED = ("pytest", "hypothesis")
"""What tests/conftest.py imports beside what the project needs."""

ENVIRONMENT = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Plug-ins that happen to be installed import much, and may not be whole."""

_MESSAGE = fields(
    {
        "collected": Each(Text()),
        "started": Text(),
        "case": TEST,
        "sick": Flag(),
        "end": Flag(),
    }
)


@dataclass(slots=True)
class Tally:
    """What is known so far."""

    runner: str
    collected: list[str] = field(default_factory=list)
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)
    started: str | None = None

    def add(self, name: str, outcome: str, message: str, seconds: float = 0.0) -> None:
        """One test is over."""
        self.cases[name] = {
            "name": name,
            "outcome": outcome,
            "seconds": seconds,
            "message": message,
        }

    def to_json(self) -> dict[str, Any]:
        """As the results file has it: what was collected and not run is truncated."""
        cases = list(self.cases.values())
        counts = Counter(case["outcome"] for case in cases)
        return {"runner": self.runner, "counts": dict(counts), "cases": cases}


@dataclass(frozen=True, slots=True)
class Places:
    """The bundle's `tests`, a folder to write to, and where processes print."""

    tests: Path
    work: Path
    log: Path


Changed = Callable[[Tally], None]


def run_tests(places: Places, deadline: float, changed: Changed) -> tuple[Status, str]:
    """Run the tests below `tests/gpu` until `deadline` (monotonic clock)."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    run = Tally("fallback" if missing else "pytest")
    if not any((places.tests / "gpu").glob("test_*.py")):
        changed(run)
        return Status.SKIPPED, "the bundle holds no GPU tests"
    note = f"the fallback runner, without {', '.join(missing)}" if missing else ""
    _run_all(run, places, deadline, changed)
    if not run.collected and run.runner == "pytest":
        said = "; ".join(case["message"] for case in run.cases.values())
        note = f"the fallback runner, since pytest did not start: {said}"
        run = Tally("fallback")
        _run_all(run, places, deadline, changed)
    for name in run.collected:
        if name not in run.cases:
            run.add(name, "truncated", "not run")
    changed(run)
    return _judged(run), note


def _run_all(run: Tally, places: Places, deadline: float, changed: Changed) -> None:
    for _ in range(MOST_PROCESSES):
        if not _run_once(run, places, deadline, changed):
            break


def _judged(run: Tally) -> Status:
    counts = Counter(case["outcome"] for case in run.cases.values())
    if not run.cases or counts["failed"] or counts["crash"] or counts["timeout"]:
        return Status.FAILED
    return Status.TRUNCATED if counts["truncated"] else Status.OK


def _run_once(run: Tally, places: Places, deadline: float, changed: Changed) -> bool:
    """One process; whether another one has to run the rest."""
    tests, done = places.tests, places.work / "tests-done.json"
    done.write_text(json.dumps(list(run.cases)), encoding="utf-8")
    if run.runner == "pytest":
        arguments = ["-m", "pytest", str(tests / "gpu"), "-m", "gpu", "-q"]
        arguments += ["-p", "prism_experiments.gpu.reporter", "-p", "no:cacheprovider"]
        arguments += ["-c", str(tests / "pytest.ini"), "--rootdir", str(tests)]
    else:
        arguments = ["-m", "prism_experiments.gpu.fallback", str(tests)]
    run.started = None
    with Child(arguments, places.log, {**ENVIRONMENT, TESTS_DONE: str(done)}) as child:
        while True:
            try:
                message = child.receive(min(deadline, time.monotonic() + _patience_s(run)))
                vet(message, _MESSAGE, "a message of the test runner")
            except ParseError as error:
                return _lost(run, Lost(Status.GARBAGE, str(error)), deadline)
            except Lost as lost:
                return _lost(run, lost, deadline)
            if "end" in message or "sick" in message:
                return "sick" in message
            _take(run, message)
            changed(run)


def _patience_s(run: Tally) -> float:
    return COLLECT_LIMIT_S if run.started is None else TEST_LIMIT_S


def _take(run: Tally, message: dict[str, Any]) -> None:
    run.collected = message.get("collected", run.collected)
    run.started = message.get("started", run.started)
    if "case" in message:
        case = message["case"]
        run.cases[case["name"]] = case
        run.started = None


def _lost(run: Tally, lost: Lost, deadline: float) -> bool:
    """The process is gone: name the test that was under way, and go on behind it."""
    is_late = time.monotonic() >= deadline
    if run.started is None:
        run.add("(the test run)", _outcome(lost.status), lost.detail)
        return False
    if lost.status is Status.TIMEOUT and is_late:
        run.add(run.started, "truncated", "under way when the time of the tests was over")
    else:
        run.add(run.started, _outcome(lost.status), lost.detail)
    return not is_late


def _outcome(status: Status) -> str:
    return "timeout" if status is Status.TIMEOUT else "crash"
