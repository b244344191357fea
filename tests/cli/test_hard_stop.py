"""What does not end is not waited for."""

from __future__ import annotations

import threading
import time

import pytest

from prism.cli.hard_stop import TooLongError, within
from prism.egraph.session import deadline, seconds_left
from prism.errors import GraphError


def test_what_ends_in_time_gives_its_result():
    assert within(5.0, lambda: 7) == 7


def test_what_fails_fails_where_it_is_waited_for():
    def fail():
        raise GraphError("no such value")

    with pytest.raises(GraphError, match="no such value"):
        within(5.0, fail)


def test_what_does_not_end_is_left():
    start, is_over = time.monotonic(), threading.Event()
    with pytest.raises(TooLongError):
        within(0.2, is_over.wait)
    assert time.monotonic() - start < 5.0
    is_over.set()


def test_deadlines_of_who_asks_hold():
    with deadline(time.monotonic() + 50.0):
        assert 0.0 < within(5.0, seconds_left) <= 50.0


def test_verify_gives_up_on_what_does_not_answer(prism, pairs, monkeypatch):
    monkeypatch.setattr("prism.cli.verify.HARD_STOP_S", 0.2)
    is_over = threading.Event()
    monkeypatch.setattr("prism.cli.verify.verify_programs", lambda *_, **__: is_over.wait())
    result = prism("verify", f"{pairs}:reference", f"{pairs}:swapped")
    is_over.set()
    assert result.exit_code == 3
    assert "had not answered" in result.output
