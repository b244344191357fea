"""A pytest plug-in that tells the session how each test ended, at once.

A report file that is written at the end is lost when a kernel takes the process along or hangs, and
that is what these tests are about. Messages: `collected` (all names), `started`, `case`, `end`. A
CUDA error may leave the context of the process broken for every later test, so the run stops at one
and the session starts another process for the rest, which is told what was run.
"""

from __future__ import annotations

import pytest

from prism_experiments.gpu.channel import Channel, tests_done
from prism_experiments.gpu.nvidia import SICK


class Reporter:
    """One test run."""

    def __init__(self, channel: Channel, done: frozenset[str]) -> None:
        self._channel = channel
        self._done = done
        self._seconds = 0.0
        self._outcome = "passed"
        self._message = ""
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """The session can be told to stop."""
        self._session = session

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out what was run by an earlier process."""
        self._channel.send({"collected": [item.nodeid for item in items]})
        left = [item for item in items if item.nodeid not in self._done]
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid in self._done])
        items[:] = left

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a failure of that name."""
        if report.failed and report.nodeid not in self._done:
            self._case(report.nodeid, "failed", report.longreprtext)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._seconds, self._outcome, self._message = 0.0, "passed", ""
        self._channel.send({"started": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Set-up, call and tear-down each report; the worst is the outcome."""
        self._seconds += report.duration
        if report.failed:
            self._outcome, self._message = "failed", report.longreprtext
        elif report.skipped and self._outcome == "passed":
            reason = report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr
            self._outcome, self._message = "skipped", str(reason)
        if report.when == "teardown":
            self._case(report.nodeid, self._outcome, self._message)
            self._stop_if_sick()

    def pytest_sessionfinish(self) -> None:
        """The run is over."""
        self._channel.send({"end": True})

    def _stop_if_sick(self) -> None:
        if self._outcome == "failed" and any(word in self._message for word in SICK):
            self._channel.send({"sick": True})
            assert self._session is not None
            self._session.shouldstop = "a CUDA error may have broken the context"

    def _case(self, name: str, outcome: str, message: str) -> None:
        # the end of a traceback says what happened
        self._channel.send(
            {
                "case": {
                    "name": name,
                    "outcome": outcome,
                    "seconds": self._seconds,
                    "message": message[-1500:],
                }
            }
        )


def pytest_configure(config: pytest.Config) -> None:
    """Register the reporter."""
    config.pluginmanager.register(Reporter(Channel(), tests_done()), "prism-gpu-reporter")
