"""Rules about operators along a dim are tested at sizes around the numbers in their meaning."""

from __future__ import annotations

import pytest

from prism.egraph.checking import Fault, check_axioms

TABLE = """
[window]
constructor = "Window"
operands = ["x"]
dim = "k"
numpy = "where(index(k) < 128, x, 0)"

[turned]
constructor = "Turned"
operands = ["x"]
dim = "k"
numpy = "roll(x, k, 60)"
"""


@pytest.mark.parametrize("head", ["Window", "Turned"])
def test_what_holds_at_small_sizes_alone_is_refuted(head, tmp_path, operators):
    (tmp_path / "mine.toml").write_text(TABLE)
    (tmp_path / "mine.egg").write_text(f'(rewrite ({head} x k) x :ruleset algebra :name "id")')
    report = check_axioms((str(tmp_path / "mine.egg"),), {}, ())
    assert [(f.rule, f.fault) for f in report.failures] == [("id", Fault.UNSOUND)]
