"""`prism verify` and `prism axioms`."""

from __future__ import annotations

from functools import partial

import pytest
from cli_checks import assert_refused

from prism.cli.answer import Status
from prism.verify import VerifyLimits


def test_an_equal_program_is_proved(prism, prism_json, pairs):
    data = prism_json("verify", f"{pairs}:reference", f"{pairs}:swapped")
    assert data["verdict"] == "proved"
    assert data["axioms_used"] == ["mul-comm"]
    assert data["axioms_used_minimal"] is True
    assert "prism/elementwise.egg" in data["axiom_files"]
    assert data["counterexample"] is None
    text = prism("verify", f"{pairs}:reference", f"{pairs}:swapped").stdout
    assert "proved" in text
    assert "with mul-comm (none can be left out)" in text


def test_more_patience_means_larger_limits(prism_json, tmp_path, monkeypatch):
    monkeypatch.setattr("prism.cli.verify.VerifyLimits", partial(VerifyLimits, seconds=1000.0))
    file = tmp_path / "tanh.py"
    file.write_text(
        "import prism\n\ndef one(x: 'n'):\n    return prism.tanh(x)\n\n"
        "def two(x: 'n'):\n    return 1 - 2 / (prism.exp(2 * x) + 1)\n"
    )
    pair = (f"{file}:one", f"{file}:two")
    first = prism_json("verify", *pair, status=Status.GAVE_UP)
    more = prism_json("verify", *pair, "--patience", "2", status=Status.GAVE_UP)
    assert "limit of 100000 e-nodes was reached" in first["reason"]
    assert "limit of 12000 e-nodes was reached" in more["reason"]


def test_a_proof_is_explained_by_the_sentences_of_its_axioms(prism, pairs):
    text = prism("verify", f"{pairs}:reference", f"{pairs}:swapped", "--explain").stdout
    assert "  mul-comm: A product does not depend on the order of its factors." in text


def test_an_unequal_program_is_not_proved_and_has_a_counterexample(prism_json, pairs):
    data = prism_json("verify", f"{pairs}:reference", f"{pairs}:wrong", status=Status.NO)
    assert data["verdict"] == "not proved"
    shown = data["counterexample"]
    assert shown["sizes"] == {"n": 1, "d": 1, "h": 1}
    assert set(shown["inputs"]) == {"x", "y", "w"}
    x, y, w = (shown["inputs"][name][0][0] for name in "xyw")
    assert shown["reference"] == x * y * w
    assert shown["candidate"] == (x + y) * w
    assert shown["index"] == [0, 0]
    assert data["axioms_used"] is None


def test_a_counterexample_can_be_read_and_pasted(prism, pairs):
    text = prism("verify", f"{pairs}:reference", f"{pairs}:wrong").stdout
    assert "counterexample: at n=1, d=1, h=1, out0[0, 0] is " in text
    assert "  w = np.array([[1.]])" in text


def test_what_is_neither_proved_nor_refuted_says_what_would_help(prism, tmp_path):
    file = tmp_path / "open.py"
    file.write_text(
        "from prism import frontend as pr\n"
        'def tanh(x: "n"):\n    return pr.tanh(x)\n'
        'def spelled(x: "n"):\n    e = pr.exp(2 * x)\n    return 1 - 2 / (e + 1)\n'
    )
    result = prism("verify", f"{file}:tanh", f"{file}:spelled", "--axioms", "none")
    assert result.exit_code == Status.NO
    assert "show no difference" in result.stdout
    assert "--axioms FILE.egg" in result.stdout


def test_functions_of_one_name_are_told_apart(prism, tmp_path):
    for name, axes in (("one", "n d"), ("two", "n n")):
        (tmp_path / f"{name}.py").write_text(f'def fn(x: "{axes}"):\n    return x + x\n')
    result = prism("verify", tmp_path / "one.py:fn", tmp_path / "two.py:fn")
    assert result.exit_code == Status.NO
    assert "fn (candidate) needs sizes n and d of fn (reference) to be equal" in result.stdout


def test_axioms_list_counts_rules_by_direction(prism, prism_json):
    data = prism_json("axioms", "list")
    assert data["schema"] == "prism.cli.axioms/1"
    assert all(set(a) >= {"name", "source", "rules"} for a in data["axioms"])
    assert data["rules"] == sum(a["rules"] for a in data["axioms"])
    assert data["rules"] <= data["directed_rules"] <= 2 * data["rules"]
    assert all(a["name"] in prism("axioms", "list").stdout for a in data["axioms"])


def test_an_axiom_file_is_added_to_the_set_and_a_name_replaces_it(prism_json, tmp_path):
    mine = tmp_path / "mine.egg"
    mine.write_text(
        "; Twice a negation is nothing.\n"
        '(rewrite (Neg (Neg ?x)) ?x :ruleset algebra :name "neg-neg-mine")\n'.replace("?", "")
    )
    before = prism_json("axioms", "list")["rules"]
    assert prism_json("axioms", "list", "--axioms", mine)["rules"] == before + 1
    assert prism_json("axioms", "list", "--axioms", "none", "--axioms", mine)["rules"] == 1
    assert prism_json("axioms", "list", "--axioms", "prism")["rules"] == before


def test_an_axiom_file_that_runs_commands_is_refused(prism, tmp_path):
    bad = tmp_path / "bad.egg"
    bad.write_text('(include "/etc/passwd")\n')
    assert_refused(prism("axioms", "list", "--axioms", bad, "--json"), "bad.egg")


@pytest.mark.parametrize(
    ("args", "parts"),
    [(["verify", "matmul"], ["CAND"]), (["axioms", "chek"], ["'chek'"]), (["axioms"], ["axioms"])],
)
def test_verify_and_axioms_need_their_arguments(prism, args, parts):
    assert_refused(prism(*args), *parts)


def test_a_saved_graph_is_a_candidate(prism, prism_json, artifact, tmp_path, pairs):
    graph = prism_json("show", artifact)["graphs"][0]
    name = f"{artifact}:{graph['id']}"
    assert prism_json("verify", "matmul", name)["verdict"] == "proved"
    assert prism_json("verify", f"{pairs}:wrong", name, status=Status.NO)["verdict"] == "not proved"
    file = tmp_path / "one.sgraph"
    file.write_text(prism("show", artifact, "--graph", graph["id"]).stdout)
    assert prism_json("verify", "matmul", file)["verdict"] == "proved"


@pytest.mark.parametrize(
    ("candidate", "parts"),
    [
        ("nowhere.sgraph", ["nowhere.sgraph"]),
        ("nowhere.json:g", ["nowhere.json"]),
        ("{artifact}:nope", ["'nope'"]),
        ("{bad}", ["line 1"]),
    ],
)
def test_a_bad_candidate_is_one_message(prism, artifact, tmp_path, candidate, parts):
    bad = tmp_path / "bad.sgraph"
    bad.write_text("graph of mine\n")
    spec = candidate.format(artifact=artifact, bad=bad)
    assert_refused(prism("verify", "matmul", spec, "--json"), *parts)


def test_axioms_of_a_file_are_named_with_the_verdict(prism, prism_json, pairs, tmp_path):
    mine = tmp_path / "mine.egg"
    mine.write_text('(rewrite (Neg (Neg a)) a :ruleset algebra :name "neg-neg-mine")\n')
    args = ("verify", f"{pairs}:reference", f"{pairs}:swapped")
    assert "with the axioms of mine.egg" in prism(*args, "--axioms", mine).stdout
    assert "with the axioms" not in prism(*args).stdout
    assert prism_json(*args, "--axioms", mine)["own_axioms"] == ["mine.egg"]
    assert prism_json("axioms", "list", "--axioms", mine)["unsound"] == {}


def test_an_unsound_axiom_of_a_file_is_refused(prism, prism_json, pairs, tmp_path):
    mine = tmp_path / "wrong.egg"
    mine.write_text('(rewrite (Exp a) (Square a) :ruleset algebra :name "exp-square")\n')
    args = ("verify", f"{pairs}:reference", f"{pairs}:swapped")
    assert_refused(prism(*args, "--axioms", mine, "--json"), "wrong.egg:1: rule 'exp-square'")
    (rule,) = prism_json("axioms", "list", "--axioms", mine)["unsound"]
    assert "exp-square" in rule
    assert "is unsound" in prism("axioms", "list", "--axioms", mine).stdout
