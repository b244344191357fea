"""`prism report` and `prism show --svg`: files written, mistakes refused."""

from __future__ import annotations

import sys
from xml.etree import ElementTree as ET

import pytest
from cli_checks import assert_refused
from report_cells import SEARCH, cell, write_lines


@pytest.fixture
def run_file(tmp_path):
    lines = [cell(0, {"encoding": "old"}), cell(1, {"encoding": "new"}), SEARCH, "garbage"]
    return write_lines(tmp_path / "run.jsonl", *lines)


def test_report_writes_a_page_and_tables(prism_json, prism, run_file, tmp_path):
    page, folder = tmp_path / "out" / "report.html", tmp_path / "csv"
    data = prism_json("report", run_file, "-o", page, "--csv", folder)
    assert data["cell_count"] == 3
    assert data["grids"] == ["grid", "prism search"]
    assert [line.split(": ")[1] for line in data["skipped"]] == ["not JSON"]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert sorted(data["files"]) == sorted(map(str, folder.iterdir()))
    said = prism("report", run_file, "-o", page)
    assert said.stdout == f"{page}: 3 cells of 2 grids\n"
    assert "warning: left out" in said.stderr
    assert "run.jsonl:4: not JSON" in said.stderr


def test_report_refuses_before_it_writes(prism, tmp_path, monkeypatch):
    run_file, page = write_lines(tmp_path / "run.jsonl", cell()), tmp_path / "report.html"
    output = ("-o", page)
    assert_refused(prism("report", tmp_path / "none.jsonl", *output), "cannot read the run file")
    assert_refused(
        prism("report", run_file, *output, "--baseline", "x=y"), "no cell has the baseline"
    )
    assert_refused(prism("report", run_file, "-o", tmp_path), "it is a folder")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    figures = ("--figures", tmp_path / "figures")
    assert_refused(prism("report", run_file, *output, *figures), "need matplotlib")
    assert not page.exists()


def test_show_draws_one_graph(prism, prism_json, artifact, tmp_path):
    picture = tmp_path / "graph.svg"
    graph = prism_json("show", artifact)["graphs"][0]["id"]
    assert prism("show", artifact, "--graph", graph, "--svg", picture).exit_code == 0
    texts = [element.text for element in ET.parse(picture).iter() if element.text]
    assert f"sGraph {graph}" in texts
    assert_refused(prism("show", artifact, "--svg", picture), "draws one graph")
