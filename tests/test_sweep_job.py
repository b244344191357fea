"""A cell of a sweep: a process, its time limit, what its line says, which code it is of."""

from __future__ import annotations

import signal
import time
from dataclasses import replace

import pytest
from sweep_grids import VERIFY, grid_of, swept

from prism.sweep import LocalPool, from_line, make_job, run_job
from prism.sweep.job import Processes, StoppedError, shortened, write_winner


def test_a_cell_is_a_process_and_its_line_has_all_to_repeat_it(tmp_path):
    grid = grid_of(tmp_path, VERIFY)
    yes, no = (run_job(make_job(grid, cell)) for cell in grid.cells)
    assert (yes.outcome, no.outcome) == ("ok", "negative")
    assert yes.result("verify")["verdict"] == "proved"
    assert no.result("verify")["verdict"] == "not proved"
    assert yes.commands == [["prism", "verify", "--json", "matmul", "matmul"]]
    assert yes.device["cpus"] >= 1
    assert {"python", "prism-superopt", "egglog"} <= yes.versions.keys()
    assert yes.started.endswith("+00:00")
    assert from_line(yes.to_line()).results == yes.results


def test_a_line_describes_the_first_graphs_and_counts_all():
    graphs = [{"id": f"{i:03}", "is_fallback": i == 0} for i in range(200)]
    short = shortened({"graphs": graphs, "rejected": [], "search_s": 1.0})
    assert (len(short["graphs"]), short["graph_count"], short["search_s"]) == (50, 199, 1.0)
    other = shortened({"graphs": graphs[:-1], "rejected": []})
    again = shortened({"graphs": graphs[::-1], "rejected": []})
    assert short["graphs_sha256"] == again["graphs_sha256"] != other["graphs_sha256"]


def test_a_cell_that_fails_says_why_and_the_rest_go_on(tmp_path):
    (tmp_path / "mine.py").write_text("def layer(x: 'n d'):\n    return x @\n", encoding="utf-8")
    text = VERIFY.replace('["matmul", "lora"]', '["mine.py:layer", "matmul"]')
    result = swept(grid_of(tmp_path, text), tmp_path / "run.jsonl", LocalPool(2))
    assert [cell.outcome for cell in result.cells] == ["failed", "ok"]
    assert "mine.py fails when imported: SyntaxError" in result.cells[0].message


def test_a_cell_that_takes_too_long_is_ended(tmp_path):
    (tmp_path / "mine.py").write_text("import time\ntime.sleep(60)\nlayer = 1\n", encoding="utf-8")
    text = VERIFY.replace('["matmul", "lora"]', '["mine.py:layer"]')
    grid = grid_of(tmp_path, text.replace("[axes]", "timeout_s = 1\n[axes]"))
    start = time.monotonic()
    cell = run_job(make_job(grid, grid.cells[0]))
    assert cell.outcome == "timeout"
    assert "time limit" in cell.message
    assert time.monotonic() - start < 20


def test_stopping_ends_what_runs_and_starts_nothing_more(tmp_path):
    processes = Processes()
    (tmp_path / "s.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    process = processes.start(["verify", "matmul", "s.py:f"], tmp_path)
    processes.stop()
    with pytest.raises(StoppedError):
        processes.wait(process, 10)
    with pytest.raises(StoppedError):
        processes.start(["verify", "matmul", "matmul"], tmp_path)
    assert process.returncode == -signal.SIGKILL


def test_a_worker_with_other_versions_than_the_sweep_is_refused(tmp_path):
    grid = grid_of(tmp_path)
    job = make_job(grid, grid.cells[0])
    other = replace(job, cell=replace(job.cell, versions={**job.cell.versions, "egglog": "0.0"}))
    cell = run_job(other)
    assert cell.outcome == "failed"
    assert "egglog 0.0" in cell.message


def test_what_was_edited_since_is_in_the_line_and_no_other_code_has_its_key(tmp_path, monkeypatch):
    grid = grid_of(tmp_path, VERIFY)
    job = make_job(grid, grid.cells[0])
    monkeypatch.setattr("prism.sweep.job.source_now", lambda *_: "edited")
    cell = run_job(job)
    assert (cell.outcome, cell.versions["prism source"]) == ("ok", "edited")
    monkeypatch.setattr("prism.sweep.origin._first_seen", lambda *_: "edited")
    assert cell.key == make_job(grid, grid.cells[0]).cell.key != job.cell.key


def test_a_program_edited_while_the_sweep_runs_is_another_cell(tmp_path):
    program = tmp_path / "mine.py"
    program.write_text("def layer(x: 'n d'):\n    return x + x\n", encoding="utf-8")
    text = VERIFY.replace('["matmul", "lora"]', '["mine.py:layer"]').replace(
        '["matmul"]', '["mine.py:layer"]'
    )
    grid = grid_of(tmp_path, text)
    job = make_job(grid, grid.cells[0])
    program.write_text("def layer(x: 'n d'):\n    return x\n", encoding="utf-8")
    cell = run_job(job)
    assert cell.outcome == "ok"
    assert cell.key == make_job(grid, grid.cells[0]).cell.key != job.cell.key


@pytest.mark.slow
def test_the_graph_that_won_is_explained_after_all_was_measured(tmp_path):
    # Two operators in one kernel: whichever graph wins is a block graph, never the program itself.
    (tmp_path / "mine.py").write_text(
        "import prism as pr\n\ndef layer(x: 'n d', w: 'd h'):\n    return pr.relu(x @ w)\n",
        encoding="utf-8",
    )
    text = """
    [settings]
    program = "mine.py:layer"
    sizes = "n=4,d=8,h=4"
    max_kernels = 1
    max_graphs = 2
    budget = 5.0
    [[include]]
    label = "optimize"
    do = "optimize"
    [[include]]
    label = "tune"
    do = "tune"
    trials = 1
    """
    grid = grid_of(tmp_path, text)
    for planned in grid.cells:
        cell = run_job(make_job(grid, planned))
        assert cell.outcome == "ok", cell.message
        assert cell.result("verify")["verdict"] == "proved"
        assert cell.result("verify")["axioms_used"]
        assert cell.files["trials.jsonl"]


def test_without_a_kernel_there_is_nothing_to_explain(tmp_path):
    assert not write_winner(tmp_path, {})
    assert not write_winner(tmp_path, {"tune": {"best": None}})
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "optimized.json").write_text('{"winner": null}', encoding="utf-8")
    assert not write_winner(tmp_path, {})
    (tmp_path / "saved" / "optimized.json").write_text(
        '{"winner": {"graph": "sgraph"}}', encoding="utf-8"
    )
    assert write_winner(tmp_path, {})
    assert (tmp_path / "winner.sgraph").read_text() == "sgraph"
