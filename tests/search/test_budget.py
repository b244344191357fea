"""A time budget holds although egglog cannot be interrupted.

What was spent is told by the processor time of the process, of all its threads: the wall's clock
says on a busy machine what others do. Without a budget none of these searches ends in minutes.
"""

from __future__ import annotations

import time

import pytest
import search_programs as programs

from prism import frontend as pr
from prism.egraph import ALGEBRA, Session, build_program, load_axioms, new_bank
from prism.egraph.session import OutOfTimeError, deadline
from prism.search import SearchOptions, search

GROWS = """(rewrite (Add x y) (Maximum (Add x y) (Add (Add x y) (Neg (Exp x))))
  :ruleset algebra :name "grows")"""
"""True, and with the other axioms every sum has ever more terms."""

TOLERANCE_S = 20.0
"""More than the one iteration that may end late, on a slow machine."""


@pytest.fixture
def axioms(tmp_path):
    file = tmp_path / "grows.egg"
    file.write_text(GROWS)
    return ("prism", str(file))


def summed(x: "n", y: "n"):
    return x + y


def layers(x: "n d", g: "d"):
    for _ in range(30):
        x = pr.relu(pr.rms_norm(x, g)) + x
    return x


@pytest.mark.parametrize("budget", [1.0, 3.0])
def test_axioms_that_grow_for_ever_keep_the_budget(axioms, budget):
    start = time.process_time()
    result = search(programs.trace(summed), SearchOptions(axioms=axioms, budget_s=budget))
    assert time.process_time() - start < budget + TOLERANCE_S
    assert not result.complete
    assert any(cut.startswith("saturation") for cut in result.cuts)


def test_a_program_of_many_layers_keeps_the_budget():
    start = time.process_time()
    result = search(programs.trace(layers), SearchOptions(budget_s=3.0))
    assert time.process_time() - start < 3.0 + TOLERANCE_S
    assert not result.complete


def test_an_iteration_that_would_end_late_is_not_begun(axioms):
    program = programs.trace(summed)
    bank = new_bank(program)
    roots = build_program(bank, program)
    session = Session(load_axioms(axioms), {ALGEBRA}, bank.heads)
    session.insert(bank, list(enumerate(roots)))
    start = time.process_time()
    with deadline(time.monotonic() + 1.0), pytest.raises(OutOfTimeError):
        all(session.iterate(ALGEBRA) for _ in range(40))
    assert time.process_time() - start < 1.0 + TOLERANCE_S
    size = session.node_count()
    with deadline(time.monotonic()), pytest.raises(OutOfTimeError):
        session.iterate(ALGEBRA)
    assert session.node_count() == size
