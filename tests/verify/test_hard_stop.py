"""What does not end is not waited for."""

from __future__ import annotations

import threading
import time
import weakref

import pytest
from program_texts import traced

from prism.egraph import ALGEBRA, Session, load_axioms
from prism.egraph.session import OutOfTimeError, deadline, seconds_left
from prism.errors import GraphError
from prism.verify import Verdict, verify_programs
from prism.verify.hard_stop import TooLongError, within


def test_what_ends_in_time_gives_its_result():
    assert within(60.0, lambda: 7) == 7


def test_what_fails_fails_where_it_is_waited_for():
    def fail():
        raise GraphError("no such value")

    with pytest.raises(GraphError, match="no such value"):
        within(60.0, fail)


def test_what_does_not_end_is_left():
    start, is_over = time.monotonic(), threading.Event()
    with pytest.raises(TooLongError):
        within(0.2, is_over.wait)
    assert time.monotonic() - start < 60.0
    is_over.set()


def test_deadlines_of_who_asks_hold():
    with deadline(time.monotonic() + 500.0):
        assert 0.0 < within(60.0, seconds_left) <= 500.0


def test_work_that_nobody_waits_for_begins_no_iteration():
    ended, may_go = threading.Event(), threading.Event()

    def work():
        may_go.wait()
        try:
            Session(load_axioms(), {ALGEBRA}, frozenset({"Input"})).iterate(ALGEBRA)
        except OutOfTimeError:
            ended.set()

    with pytest.raises(TooLongError):
        within(0.1, work)
    may_go.set()
    assert ended.wait(60.0)


def program(text):
    return traced(text, 'x: "n d"')


def test_an_answer_that_does_not_come_is_given_up(monkeypatch):
    is_over = threading.Event()
    monkeypatch.setattr("prism.verify.programs._prove", lambda *_: is_over.wait())
    given = program("x * x"), program("pr.square(x)")
    found = verify_programs(*given, load_axioms(), hard_stop_s=0.3)
    is_over.set()
    assert found.verdict is Verdict.GAVE_UP
    assert found.reason == "the e-graph had not answered after 0.3 s"


def test_an_error_of_the_work_holds_on_to_none_of_its_values():
    class Value:
        """Something whose end can be seen."""

    kept = []

    def work():
        value = Value()
        kept.append(weakref.ref(value))
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        within(60.0, work)
    assert kept[0]() is None
