"""The session: limits between iterations, egglog's failures, and what its two versions share."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from verify.table import PROGRAMS

from prism.egraph import (
    ALGEBRA,
    ALGEBRA_VERIFY,
    PAR_RULES,
    Limits,
    Session,
    TermBank,
    build_program,
    load_axioms,
    new_bank,
)
from prism.egraph.session import TooLargeError
from prism.errors import PrismError


def session(program="rmsnorm", rulesets=frozenset({ALGEBRA})):
    bank = new_bank(PROGRAMS[program])
    roots = build_program(bank, PROGRAMS[program])
    out = Session(load_axioms(), rulesets, bank.heads)
    out.insert(bank, list(enumerate(roots)))
    return bank, roots, out


def test_one_iteration_per_call():
    _, _, one = session()
    sizes = [one.node_count()]
    while one.iterate(ALGEBRA):
        sizes.append(one.node_count())
    assert sizes[0] < sizes[1] < sizes[2]
    assert not one.iterate(ALGEBRA)


def test_a_ruleset_that_is_not_asked_for_does_not_run():
    _, _, one = session(rulesets=frozenset({ALGEBRA, PAR_RULES}))
    before = one.node_count()
    one.iterate()
    assert one.node_count() == before


def test_equal_terms_have_equal_roots():
    bank, roots, one = session("matmul")
    x, w = (bank.input(i.name, i.dims) for i in PROGRAMS["matmul"].inputs)
    other = bank.make("Matmul", (w, x), (bank.ids["d"],))
    one.insert(bank, [(7, other)])
    assert one.roots()[0] != one.roots()[7]
    while one.iterate(ALGEBRA):
        pass
    assert one.roots()[0] == one.roots()[7]
    assert one.table().roots[0] == one.table().roots[7]
    assert roots[0] != other


def test_rules_that_cannot_fire_are_left_out():
    axioms = load_axioms()
    few = axioms.reachable({ALGEBRA}, {"Matmul", "Input"})
    names = {rule.name for rule in few}
    assert "matmul-sum" in names
    assert "mul-comm" in names
    assert not names & {"log-exp", "sqrt-recip", "softmax-shift"}
    assert len(few) < len(axioms.rules) / 4


def test_leaving_them_out_changes_nothing():
    bank, roots, few = session()
    every = Session(
        load_axioms(), frozenset({ALGEBRA}), bank.heads | {"Silu", "Exp", "Log", "Sub", "Neg"}
    )
    every.insert(bank, list(enumerate(roots)))
    for one in (few, every):
        while one.iterate(ALGEBRA):
            pass
    assert few.node_count() == every.node_count()


# --- how much an iteration would add ------------------------------------------------------------

EXPLOSION = """
; Orders and groupings of a product.
(rewrite (Maximum a b) (Maximum b a) :ruleset algebra :name "maximum-turned")
; As above.
(birewrite (Maximum (Maximum a b) c) (Maximum a (Maximum b c)) :ruleset algebra :name "regrouped")
"""


def growing(path, count):
    """An e-graph of the largest of so many inputs under `EXPLOSION`: 3^n of them are equal."""
    path.joinpath("explosion.egg").write_text(EXPLOSION)
    bank = TermBank(("a",))
    term, *others = (bank.input(f"x{i}", ("a",)) for i in range(count))
    for other in others:
        term = bank.make("Maximum", (term, other))
    out = Session(load_axioms((str(path / "explosion.egg"),)), {ALGEBRA}, bank.heads)
    out.insert(bank, [(0, term)])
    return out


def test_no_ruleset_adds_more_than_was_counted():
    _, _, one = session("stable_softmax_matmul", frozenset({ALGEBRA, ALGEBRA_VERIFY}))
    added = 0
    for _ in range(6):
        for ruleset in (ALGEBRA, ALGEBRA_VERIFY):
            before, bound = one.node_count(), one.nodes_to_come(ruleset)
            one.iterate(ruleset)
            assert one.node_count() - before <= bound
            added += max(0, one.node_count() - before)
    assert added > 40


def test_counting_changes_nothing(tmp_path):
    one, other = growing(tmp_path, 6), growing(tmp_path, 6)
    for _ in range(5):
        assert one.nodes_to_come(ALGEBRA) > 0
        assert one.iterate(ALGEBRA) == other.iterate(ALGEBRA)
        assert one.node_count() == other.node_count()
    assert one.settle(Limits(), ALGEBRA)
    assert one.nodes_to_come(ALGEBRA) > 0  # all, as the last runs were not counted
    assert not one.iterate(ALGEBRA)
    assert one.nodes_to_come(ALGEBRA) == 0


def test_what_would_grow_too_large_is_not_begun(tmp_path):
    free = growing(tmp_path, 10)
    while free.node_count() < 20_000:
        before = free.node_count()
        free.iterate(ALGEBRA)
    one = growing(tmp_path, 10)
    refused = None
    while refused is None:
        try:
            one.iterate(ALGEBRA, most=20_000)
        except TooLargeError as error:
            refused = error
    assert "might make" in str(refused)
    assert one.node_count() <= before < 20_000
    assert not one.settle(Limits(20_000, guarded=20_000), ALGEBRA)
    assert one.settle_in_time(Limits(20_000, guarded=20_000), ALGEBRA) == (0, False)


def test_a_small_e_graph_is_not_counted(tmp_path):
    assert growing(tmp_path, 4).settle(Limits(guarded=1), ALGEBRA)


# --- failures of egglog -------------------------------------------------------------------------


def test_a_panic_of_egglog_is_an_error_of_ours():
    class PanicException(BaseException):
        pass

    class Broken:
        def run_program(self, *commands):
            raise PanicException("index out of bounds")

    _, _, one = session("matmul")
    one._egraph = Broken()
    with pytest.raises(PrismError, match="egglog failed inside: index out of bounds"):
        one.iterate(ALGEBRA)


def test_an_interrupt_is_no_panic():
    class Broken:
        def run_program(self, *commands):
            raise KeyboardInterrupt

    _, _, one = session("matmul")
    one._egraph = Broken()
    with pytest.raises(KeyboardInterrupt):
        one.iterate(ALGEBRA)


def test_a_fixed_size_is_a_constant():
    from prism import frontend as pr  # noqa: PLC0415

    def fixed(x: "n 3"):
        return pr.sum(x, axis=-1) / 3

    def mean(x: "n 3"):
        return pr.mean(x, axis=-1)

    bank = new_bank(pr.trace(mean))
    roots = (*build_program(bank, pr.trace(mean)), *build_program(bank, pr.trace(fixed)))
    one = Session(load_axioms(), frozenset(), bank.heads)
    one.insert(bank, list(enumerate(roots)))
    one.iterate()
    assert one.roots()[0] == one.roots()[1]


FORKED = """
import os, sys
from prism.verify import verify_programs
from prism.egraph import load_axioms
from prism.frontend import load_program
from prism.errors import PrismError

program = load_program("matmul")[1]
verify_programs(program, program, load_axioms())
child = os.fork()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    verify_programs(program, program, load_axioms())
except PrismError as error:
    os._exit(7 if "spawn" in str(error) else 1)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_in_a_forked_child_an_e_graph_is_refused_not_waited_for():
    done = subprocess.run([sys.executable, "-c", FORKED], check=False, timeout=200)
    assert done.returncode == 7
