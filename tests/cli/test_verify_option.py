"""`prism search --verify`: counting graphs admits them, saving graphs proves them."""

from __future__ import annotations

import json

import pytest
from cli_checks import assert_refused

SMALL = ("search", "attention_paper", "--max-ops", "9", "--grid-dims", "3", "--budget", "300")


def verdicts(data):
    return [g["verdict"] for g in data["graphs"] if not g["is_fallback"]]


def test_a_count_admits_graphs_and_proves_a_sample(prism_json):
    data = prism_json(*SMALL)
    counters = data["counters"]
    assert data["verify"] == "sample"
    assert verdicts(data).count("proved") == counters["proved"] > 0
    assert verdicts(data).count("admitted") == counters["admitted"] > counters["proved"]
    assert counters["verified"] == counters["proved"] + counters["admitted"]


def test_full_proves_what_a_sample_admits(prism_json):
    sample, full = prism_json(*SMALL), prism_json(*SMALL, "--verify", "full")
    assert [g["id"] for g in sample["graphs"]] == [g["id"] for g in full["graphs"]]
    assert set(verdicts(full)) == {"proved"}
    assert full["counters"]["admitted"] == 0


def test_what_is_saved_is_proved(prism_json, tmp_path):
    file = tmp_path / "art.json"
    assert prism_json(*SMALL, "-o", file)["verify"] == "full"
    assert {g["verdict"] for g in json.loads(file.read_text())["graphs"]} == {"proved"}


def test_tune_mode_proves(prism_json):
    data = prism_json("search", "matmul", "--mode", "tune")
    assert data["verify"] == "full"
    assert set(verdicts(data)) == {"proved"}


def test_the_table_shows_both_numbers(prism):
    text = prism(*SMALL).stdout
    assert "admitted" in text
    assert "24 proved" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--verify", "sample", "-o", "art.json"), "leave out --verify sample"),
        (("--verify", "sample", "--mode", "tune"), "mode tune needs verify full"),
        (("--verify", "none"), "available: full, sample"),
    ],
)
def test_what_would_be_run_unproved_is_refused(prism, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_refused(prism(*SMALL, *options), message)
    assert not list(tmp_path.glob("art*"))
