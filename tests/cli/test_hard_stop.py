"""The clock in what the command line says: a hard stop, and verdicts that it ended."""

from __future__ import annotations

import threading

from prism.cli.search import funnel


def test_verify_gives_up_on_what_does_not_answer(prism, pairs, monkeypatch):
    is_over = threading.Event()
    monkeypatch.setattr("prism.verify.programs._prove", lambda *_: is_over.wait())
    monkeypatch.setattr("prism.cli.verify.HARD_STOP_S", 0.3)
    result = prism("verify", f"{pairs}:reference", f"{pairs}:swapped")
    is_over.set()
    assert result.exit_code == 3
    assert "had not answered" in result.output


def test_search_says_what_the_clock_ended(prism_json):
    counters = prism_json("search", "matmul", "--grid-dims", "1")["counters"]
    assert (counters["late"], counters["hard_stops"]) == (0, 0)
    assert not any("another machine" in str(line) for line in funnel(counters))
    *_, late, stopped = funnel({**counters, "late": 3, "hard_stops": 1})
    assert late.startswith("3 gave up because the time of one candidate was over")
    assert stopped.startswith("1 gave up because an iteration of the e-graph did not end")
