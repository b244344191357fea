"""`prism search`: what it reports, and what it refuses."""

from __future__ import annotations

import json

import pytest
from cli_checks import assert_refused

from prism.cli.answer import Status


def test_search_reports_graphs_and_counters(prism_json):
    data = prism_json("search", "matmul", "--grid-dims", "1", "--seed", "3")
    assert (data["schema"], data["program"], data["seed"]) == ("prism.cli.search/1", "matmul", 3)
    assert data["complete"] is True
    assert 0 < data["search_s"] <= data["elapsed_s"]
    for counts in data["counters"]["pruners"].values():
        assert set(counts) >= {"seen", "dropped", "seconds"}
        assert 0 <= counts["dropped"] <= counts["seen"]
    assert set(data["counters"]["encodings"]["boolean"]) == {
        "problems",
        "models",
        "assignments",
        "seconds",
    }
    counters = data["counters"]
    judged = counters["proved"] + counters["not_proved"] + counters["gave_up"]
    assert counters["verified"] == judged
    found = [g for g in data["graphs"] if not g["is_fallback"]]
    assert len(found) == counters["proved"] > 0
    assert len({g["id"] for g in data["graphs"]}) == len(data["graphs"])


def test_search_describes_each_kernel(prism_json):
    data = prism_json("search", "matmul", "--grid-dims", "1")
    looped = next(g for g in data["graphs"] if g["kernels"][0]["loops"])
    (kernel,) = looped["kernels"]
    ops = [(node["op"], node["stage"]) for node in kernel["operators"]]
    assert ("matmul", "body") in ops
    assert any(op.startswith("accumulate") and stage == "after" for op, stage in ops)
    assert set(kernel["imap"]) == set(kernel["fmap"]) == {"x", "w"}
    assert set(kernel["omap"]) == {"out0"}
    assert all(set(maps) == {"x"} for maps in kernel["imap"].values())
    assert all(set(maps) == {"i"} for maps in kernel["fmap"].values())
    assert {d for maps in kernel["omap"].values() for d in maps.values()} <= {"n", "h", None}


def test_search_describes_a_loop_inside_a_loop(prism_json):
    data = prism_json("search", "matmul", "--grid-dims", "1", "--loop-dims", "2")
    assert data["limits"]["loop_dims"] == 2
    assert data["complete"] is True
    nest = next(g for g in data["graphs"] if g["kernels"][0]["loops"] == ["i", "j"])
    (kernel,) = nest["kernels"]
    assert {"body", "between", "after"} <= {node["stage"] for node in kernel["operators"]}
    assert all(set(maps) == {"i", "j"} for maps in kernel["fmap"].values())


def test_search_prints_program_funnel_and_graphs(prism):
    text = prism("search", "matmul", "--grid-dims", "1").stdout
    for part in (
        "program matmul",
        "pruner",
        "dropped",
        "boolean",
        "proved",
        "complete",
        "m[w,h,x]",
    ):
        assert part in text


def test_what_user_code_prints_stays_off_standard_output(prism, prism_json, user_file):
    prism_json("search", f"{user_file}:doubled", "--grid-dims", "1", "--max-ops", "6")
    result = prism("list", "targets", "--json")
    assert json.loads(result.stdout)


def test_a_search_that_finds_nothing_is_a_negative_answer(prism, prism_json):
    data = prism_json("search", "matmul", "--max-ops", "1", status=Status.NO)
    assert [g["is_fallback"] for g in data["graphs"]] == [True]
    assert "no graph besides" in prism("search", "matmul", "--max-ops", "1").stdout


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--encoding", "bolean"], ["'bolean'", "boolean"]),
        (["--encoding", "nowhere.py:E"], ["nowhere.py"]),
        (["--axioms", "nowhere.egg"], ["nowhere.egg"]),
        (["--axioms", "euclid"], ["'euclid'", "prism"]),
        (["--without", "expresion"], ["'expresion'", "expression"]),
        (["--without", ""], ["--without"]),
        (["--mode", "fast"], ["'fast'", "count", "tune"]),
        (["--generator", "backward"], ["generator 'backward'", "cone, forward"]),
        (["--max-ops", "0"], ["--max-ops", "0"]),
        (["--max-kernels", "4"], ["--max-kernels", "4"]),
        (["--grid-dims", "4"], ["--grid-dims", "4"]),
        (["--loop-dims", "3"], ["--loop-dims", "3"]),
        (["--loop-dims", "2", "--mode", "tune"], ["mode tune searches one loop, not 2"]),
        (["--workers", "-1"], ["--workers", "auto", "'-1'"]),
        (["--workers", "many"], ["--workers", "auto", "'many'"]),
        (["--budget", "0"], ["--budget", "0"]),
        (["--budget", "soon"], ["--budget", "'soon'"]),
        (["--concrete", "imap"], ["--concrete imap needs --generator forward"]),
    ],
)
def test_a_bad_search_option_is_one_message(prism, options, parts):
    assert_refused(prism("search", "matmul", *options, "--json"), *parts)


@pytest.mark.parametrize("place", ["{folder}", "{folder}/file/below.json", "/proc/prism/out.json"])
def test_an_output_that_cannot_be_written_is_refused_before_the_search(
    prism, monkeypatch, tmp_path, place
):
    monkeypatch.setattr("prism.cli.search.search", lambda *_: pytest.fail("the search ran"))
    (tmp_path / "file").write_text("")
    path = place.format(folder=tmp_path)
    assert_refused(prism("search", "matmul", "-o", path), "cannot write", path)


@pytest.mark.parametrize("workers", ["2", "0", "auto"])
def test_workers_change_nothing(prism_json, workers):
    alone = prism_json("search", "matmul", "--grid-dims", "1")
    shared = prism_json("search", "matmul", "--grid-dims", "1", "--workers", workers)
    assert shared["graphs"] == alone["graphs"]


def test_the_forward_generator_reports_its_states(prism_json):
    base = ("search", "matmul", "--grid-dims", "1", "--generator", "forward")
    data = prism_json(*base)
    assert data["generator"] == "forward"
    concrete = prism_json(*base, "--concrete", "imap,omap")
    assert concrete["concrete"] == ["imap", "omap"]
    assert concrete["counters"]["states"] > data["counters"]["states"] > 0
    assert {g["id"] for g in concrete["graphs"]} == {g["id"] for g in data["graphs"]}


def test_an_optional_pruner_is_added_by_name(prism_json):
    data = prism_json("search", "matmul", "--also", "syntactic", "--without", "expression")
    usual = {"dimension", "placement", "hardware", "cost-bound"}
    assert set(data["counters"]["pruners"]) == {*usual, "syntactic"}
    assert data["also"] == ["syntactic"]


def test_a_search_that_finds_nothing_says_what_was_left_out(prism, prism_json):
    args = ("search", "rmsnorm", "--max-ops", "5")
    assert "beyond max_ops: the program itself: 7 block operators" in prism(*args).stdout
    data = prism_json(*args, status=Status.NO)
    assert data["nearest"] == {"max_ops": "the program itself: 7 block operators"}


def test_a_search_for_sizes_and_a_target_says_so(prism, prism_json, tmp_path):
    given = ("--sizes", "n=8,d=64,h=32", "--target", "cpu", "--grid-dims", "1")
    data = prism_json("search", "matmul", *given, "-o", str(tmp_path / "art.json"))
    assert data["sizes"] == {"n": 8, "d": 64, "h": 32}
    assert "threads" in data["device"]
    assert data["counters"]["pruners"]["hardware"]["seen"] > 0
    assert "searched at n=8,d=64,h=32, on " in prism("search", "matmul", *given).stdout
    refused = prism("tune", str(tmp_path / "art.json"), "--sizes", "n=9,d=64,h=32")
    assert_refused(refused, "was searched for n=8,d=64,h=32 alone, not for n=9", "search again")


def test_a_search_without_is_for_all(prism_json):
    data = prism_json("search", "matmul", "--grid-dims", "0")
    assert (data["sizes"], data["device"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--sizes", "n=8"], ["no size given for dimension 'd'"]),
        (["--sizes", "n=8,d=2,h=2,q=1"], ["no dimension 'q'"]),
        (["--sizes", "n"], ["--sizes", "DIM=SIZE"]),
        (["--target", "abacus"], ["no target named 'abacus'", "cpu"]),
    ],
)
def test_sizes_and_targets_that_are_not_there_are_refused(prism, options, parts):
    assert_refused(prism("search", "matmul", *options), *parts)


def test_axioms_are_found_for_as_many_graphs_as_were_asked_for(prism_json, prism, tmp_path):
    saved = tmp_path / "art.json"
    limits = ("--max-kernels", "1", "--max-ops", "6")
    answer = prism_json("search", "matmul", *limits, "--explain", "1", "-o", str(saved))
    first, *rest = [g for g in answer["graphs"] if not g["is_fallback"]]
    assert "matmul-unfold" in first["axioms_used"]
    assert first["axioms_used_minimal"] is True
    assert rest
    assert not any("axioms_used" in graph for graph in rest)
    shown = prism("show", str(saved), "--graph", first["id"])
    assert f"# proved with {', '.join(first['axioms_used'])} (none can be left out)" in shown.stdout
    assert "# proved" not in prism("show", str(saved), "--graph", rest[0]["id"]).stdout
