"""Blocks of graphs judged by several processes: the same verdicts, whatever happens to them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import search_programs as programs

from prism.egraph import load_axioms
from prism.egraph.session import OutOfTimeError, deadline
from prism.errors import SizeError
from prism.ir import SGraph
from prism.search import SearchOptions, search
from prism.verdict import Verdict
from prism.verify import ParallelVerifier, Verifier, VerifyLimits, parallel

LIMITS = VerifyLimits(batch=6, renew=12)
PROGRAM = programs.trace(programs.rmsnorm)


@pytest.fixture(scope="module")
def graphs():
    """Right and wrong graphs; every tenth lacks its mappings."""
    found = search(PROGRAM, SearchOptions(max_graphs=50, budget_s=None)).graphs
    graphs = [g.graph for g in found if not g.is_fallback]

    def unmapped(graph):
        kernel = graph.kernels[0]
        return SGraph(PROGRAM, (replace(kernel, mapping=type(kernel.mapping)(frozenset())),))

    return [unmapped(g) if i % 10 == 9 else g for i, g in enumerate(graphs)]


@pytest.fixture(scope="module")
def verdicts(graphs):
    """What one process says."""
    found = verifier().verify(graphs)
    assert set(found) == {Verdict.PROVED, Verdict.NOT_PROVED}
    return found


def verifier():
    return Verifier(PROGRAM, load_axioms(), LIMITS)


@pytest.fixture
def pool(monkeypatch):
    """Makes pools whose workers start at once, and closes them."""
    monkeypatch.setattr(parallel, "WORTH_S", 0.0)
    made = []

    def make(count):
        made.append(ParallelVerifier(verifier(), count))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """Lets the workers run a module of this text."""

    def run(text):
        (tmp_path / "another_worker.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(parallel, "WORKER", "another_worker")

    return run


def processes(pool):
    return [w.child for w in pool._workers]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_any_number_of_workers_gives_the_same_verdicts(count, pool, graphs, verdicts):
    used = pool(count)
    assert used.verify(graphs) == verdicts
    assert len(processes(used)) == count
    assert used.deaths == 0


def test_no_worker_starts_for_little_work(graphs, verdicts):
    used = ParallelVerifier(verifier(), 2)
    assert used.verify(graphs) == verdicts
    assert processes(used) == []


def test_a_worker_that_is_killed_costs_nothing(pool, graphs, verdicts):
    used = pool(1)
    first, second = graphs[:12], graphs[12:24]
    begun = used.begin(first)
    assert begun.next(6) == verdicts[:6]
    assert used.room(len(graphs)) > 1
    later = used.begin(second)
    processes(used)[0]._process.kill()
    out = begun.next(6)
    used.room(0)
    after = ()
    while len(after) < len(second):
        after += later.next(6)
    assert out + after == verdicts[6:24]
    assert used.deaths == 1


DYING = """
import os
from prism.verify import worker
from prism.verify.equivalence import Verifier

judged = Verifier.judged

def deadly(self, judge, graphs, terms):
    if any(len(graph.kernels[0].mapping.true) == 0 for graph in graphs):
        os._exit(3)
    return judged(self, judge, graphs, terms)

Verifier.judged = deadly
main = worker.main
"""


def test_a_graph_that_kills_two_workers_gave_up_and_no_other(worker, pool, graphs, verdicts):
    worker(DYING)
    used = pool(2)
    found = used.verify(graphs[:30])
    # the first block is judged here, where nothing dies
    in_workers = range(12, 30)
    wrong = [i for i in in_workers if not graphs[i].kernels[0].mapping.true]
    assert wrong
    assert used.deaths > len(wrong)
    assert found == tuple(
        Verdict.GAVE_UP if i in wrong else verdict for i, verdict in enumerate(verdicts[:30])
    )


def test_where_no_worker_can_start_all_is_judged_here(worker, pool, graphs, verdicts):
    worker("raise SystemExit(3)")
    assert pool(2).verify(graphs) == verdicts


def test_an_error_in_a_worker_is_raised_as_it_would_be_here(worker, pool, graphs):
    worker(DYING.replace("os._exit(3)", "raise RefusedError").replace("import os", ERROR))
    with pytest.raises(SizeError, match="refused"):
        pool(2).verify(graphs)


ERROR = """
from prism.errors import SizeError
RefusedError = SizeError("refused")
"""


def test_workers_are_killed_at_the_deadline_amid_a_graph(worker, pool, graphs):
    worker(DYING.replace("import os", "import time").replace("os._exit(3)", "time.sleep(600)"))
    used = pool(2)
    children = []
    room = used.room

    def remember(coming):
        out = room(coming)
        children.extend(c for c in processes(used) if c not in children)
        return out

    used.room = remember
    start = time.monotonic()
    with pytest.raises(OutOfTimeError), deadline(start + 3.0):
        used.verify(graphs)
    assert time.monotonic() - start < 100.0
    assert len(children) == 2
    assert not any(child.is_running for child in children)


@pytest.mark.slow
def test_a_graph_that_never_ends_costs_only_itself(worker, graphs, verdicts, monkeypatch):
    """Its worker is killed, as nothing can interrupt an iteration of the e-graph."""
    monkeypatch.setattr(parallel, "WORTH_S", 0.0)
    worker(DYING.replace("import os", "import time").replace("os._exit(3)", "time.sleep(600)"))
    used = ParallelVerifier(Verifier(PROGRAM, load_axioms(), replace(LIMITS, seconds=2.0)), 2)
    start = time.monotonic()
    try:
        found = used.verify(graphs[:36])
    finally:
        used.close()
    # the first block is judged here, where nothing sleeps
    wrong = [i for i in range(12, 36) if not graphs[i].kernels[0].mapping.true]
    assert wrong
    assert found == tuple(
        Verdict.GAVE_UP if i in wrong else verdict for i, verdict in enumerate(verdicts[:36])
    )
    assert used.hard_stops == used.deaths == 2 * len(wrong)
    assert time.monotonic() - start < 300.0
