"""`prism axioms list`: the families with their counts, and what a family says."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_checks import assert_refused

from prism.egraph import load_axioms


def test_families_are_listed_with_counts(prism, prism_json):
    data = prism_json("axioms", "list")
    families = {row["name"]: row for row in data["axioms"]}
    assert families.keys() >= {"prism/elementwise", "prism/matmul", "prism/exp_log", "prism/sizes"}
    assert data["rules"] == sum(row["rules"] for row in data["axioms"])
    assert data["directed_rules"] == sum(row["directed_rules"] for row in data["axioms"])
    assert data["directed_rules"] == len(load_axioms().rules) >= 110
    for row in data["axioms"]:
        assert row["rules"] == len(row["rule_names"]) <= row["directed_rules"]
    total = prism("axioms", "list").stdout.split("total")[1].split()
    assert total[:2] == [str(data["rules"]), str(data["directed_rules"])]


@pytest.mark.parametrize("name", ["sizes", "prism/sizes"])
def test_a_family_shows_its_rules_in_words(prism, name):
    shown = prism("axioms", "list", "--family", name).stdout
    assert "sum-single (algebra-verify)" in shown
    assert "The sum over a dimension of size one is the value." in shown
    assert "(Sum a k) -> a  if (single k)" in shown
    assert "mul-comm" not in shown


def test_an_unknown_family_names_the_known_ones(prism):
    assert_refused(prism("axioms", "list", "--family", "sines"), "'sines'", "prism/sizes")


EXAMPLES = Path(__file__).parents[2] / "experiments" / "examples"


def test_a_table_of_operators_is_listed_as_what_it_is(prism, prism_json):
    args = ("axioms", "list", "--axioms", EXAMPLES / "operators.egg")
    data = prism_json(*args)
    (table,) = data["operator_tables"]
    assert table["name"] == "operators.toml"
    assert {"gelu_quick", "rope"} <= set(table["operators"])
    assert all(row["rules"] for row in data["axioms"])
    assert "operators.toml defines the operators gelu_quick" in prism(*args).stdout
    refused = prism("axioms", "list", "--axioms", EXAMPLES / "operators.egg", "--family", "none")
    assert_refused(refused, "'none'", "operators")
    assert "operators.toml" not in refused.output
