"""Sweeps: lines that say everything, resuming without loss or repetition, failures, time limits."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_checks import assert_refused
from click.testing import CliRunner
from sweep_grids import SMALL, InstantPool, cell_of, grid_of, write_grid

from prism.cli import main
from prism.errors import ParseError, UsageError
from prism.plugins import Group
from prism.sweep import LocalPool, from_line, make_job, read_cells, run_job, shard_of, sweep
from prism.sweep.job import Processes, StoppedError, shortened, write_winner
from prism.sweep.sweep import locked, repair

VERIFY = """
[settings]
do = "verify"
[axes]
candidate = ["matmul", "lora"]
program = ["matmul"]
"""


def swept(grid, output, pool, cells=None, **options):
    return sweep(grid, cells or grid.cells, output, pool, **options)


def answers(path):
    """What must not depend on how often a sweep was interrupted."""
    return [(c.index, dict(c.labels), c.outcome, c.results) for c in read_cells([path])]


def line_count(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_a_line_comes_back_as_the_cell_it_was(tmp_path):
    cell = cell_of(tmp_path, message="two\nlines", files={"kernel.py": "x = 1\n"}, elapsed_s=1.5)
    again = from_line(cell.to_line())
    assert again.to_line() == cell.to_line()
    assert (again.do, again.labels, again.files) == ("search", cell.labels, cell.files)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"schema": "other/1"}, "not a prism.sweep.cell/1 line"),
        ({"outcome": "splendid"}, "splendid"),
        ({"results": []}, "'results'"),
        ({"results": {"search": 3}}, "'results'"),
        ({"labels": {"a": 1}}, "'labels'"),
        ({"message": "\x1b[31m"}, "control character"),
        ({"elapsed_s": "long"}, "elapsed_s"),
    ],
)
def test_a_line_that_is_no_cell_is_refused(tmp_path, change, part):
    data = {**json.loads(cell_of(tmp_path).to_line()), **change}
    with pytest.raises(ParseError) as refused:
        from_line(json.dumps(data))
    assert part in str(refused.value)


@pytest.mark.parametrize("field", ["key", "settings", "device", "versions", "commands"])
def test_a_line_without_a_field_is_refused(tmp_path, field):
    data = json.loads(cell_of(tmp_path).to_line())
    del data[field]
    with pytest.raises(ParseError, match=field):
        from_line(json.dumps(data))


def test_every_cell_gets_a_line_and_none_is_run_twice(tmp_path):
    grid, output = grid_of(tmp_path), tmp_path / "run.jsonl"
    first = swept(grid, output, InstantPool())
    again = InstantPool()
    second = swept(grid, output, again)
    assert (first.run, first.before, second.run, second.before) == (8, 0, 0, 8)
    assert again.asked == []
    assert [cell.index for cell in second.cells] == list(range(8))
    assert line_count(output) == 8


def test_an_interrupted_sweep_says_what_is_done_and_goes_on_there(tmp_path):
    grid, output = grid_of(tmp_path), tmp_path / "run.jsonl"
    with pytest.raises(KeyboardInterrupt) as interrupted:
        swept(grid, output, InstantPool(stop_after=3))
    assert "3 of 8 cells are in" in interrupted.value.__notes__[0]
    rest = InstantPool()
    swept(grid, output, rest)
    assert rest.asked == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("cut", [1, 40, 10_000])
def test_a_line_that_a_kill_cut_off_is_taken_away_and_its_cell_run_again(tmp_path, cut):
    grid, output = grid_of(tmp_path), tmp_path / "run.jsonl"
    swept(grid, output, InstantPool())
    whole = output.read_bytes()
    lines = whole.splitlines(keepends=True)
    output.write_bytes(whole[: -min(cut, len(lines[-1]) - 1)])
    again = InstantPool()
    swept(grid, output, again)
    assert again.asked == [7]
    assert output.read_bytes() == whole


def test_repairing_a_whole_file_changes_nothing(tmp_path):
    path = tmp_path / "run.jsonl"
    for content in (b"", b"a\n", b"a\nb\n"):
        path.write_bytes(content)
        repair(path)
        assert path.read_bytes() == content


def test_what_failed_is_a_line_and_is_tried_again_on_request_only(tmp_path):
    grid, output = grid_of(tmp_path), tmp_path / "run.jsonl"
    swept(grid, output, InstantPool(outcome="failed"))
    idle, busy = InstantPool(), InstantPool()
    assert swept(grid, output, idle).run == 0
    result = swept(grid, output, busy, retry=True)
    assert (idle.asked, busy.asked) == ([], list(range(8)))
    assert result.run == 8
    assert all(cell.outcome == "ok" for cell in read_cells([output]))
    assert swept(grid, output, InstantPool(), retry=True).run == 0


def test_shards_in_files_of_their_own_are_read_as_one_sweep(tmp_path):
    grid = grid_of(tmp_path)
    paths = [tmp_path / f"{i}.jsonl" for i in (1, 2, 3)]
    whole = tmp_path / "all.jsonl"
    for i, path in enumerate(paths, start=1):
        swept(grid, path, InstantPool(), shard_of(grid.cells, i, 3))
    swept(grid, whole, InstantPool())
    joined = tmp_path / "joined.jsonl"
    joined.write_bytes(b"".join(path.read_bytes() for path in reversed(paths)))
    assert [c.key for c in read_cells(paths)] == [
        c.key for c in read_cells([tmp_path / "all.jsonl"])
    ]
    assert answers(joined) == answers(tmp_path / "all.jsonl")
    assert swept(grid, joined, InstantPool()).run == 0


def test_an_answer_counts_more_than_a_failure_and_a_later_answer_more_than_an_earlier(tmp_path):
    bad, old, new = tmp_path / "bad", tmp_path / "old", tmp_path / "new"
    cell = cell_of(tmp_path)
    bad.write_text(replace(cell, outcome="timeout").to_line() + "\n", encoding="utf-8")
    old.write_text(replace(cell, seed=1).to_line() + "\n", encoding="utf-8")
    new.write_text(replace(cell, seed=2).to_line() + "\n", encoding="utf-8")
    assert [c.outcome for c in read_cells([old, bad])] == ["ok"]
    assert [c.seed for c in read_cells([bad, old, new])] == [2]


def test_lines_that_are_none_are_skipped_with_one_warning(tmp_path):
    path = tmp_path / "run.jsonl"
    path.write_text(f"{{\n\n{cell_of(tmp_path).to_line()}\nnull\n", encoding="utf-8")
    with pytest.warns(UserWarning, match=r"skipped line 1 .* and 1 more"):
        assert len(read_cells([path])) == 1


def test_two_sweeps_do_not_write_one_file(tmp_path):
    output = tmp_path / "run.jsonl"
    with locked(output), pytest.raises(UsageError, match="another sweep is writing"):
        swept(grid_of(tmp_path), output, InstantPool())
    assert swept(grid_of(tmp_path), output, InstantPool()).run == 8


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
    (tmp_path / "mine.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
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
    monkeypatch.setattr("prism.sweep.job.source_now", lambda: "edited")
    cell = run_job(job)
    assert (cell.outcome, cell.versions["prism source"]) == ("ok", "edited")
    monkeypatch.setattr("prism.sweep.origin.source", lambda: "edited")
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


def test_the_source_is_that_of_ours_and_of_every_plug_in(tmp_path, monkeypatch):
    from prism.sweep import origin  # noqa: PLC0415 - this test's alone

    package = tmp_path / "acme_axioms"
    package.mkdir()
    for name in ("__init__.py", "mine.egg", "notes.txt"):
        (package / name).write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry = SimpleNamespace(entry=SimpleNamespace(module="acme_axioms"))
    there = dict(origin.installed(Group.AXIOMS))
    found = {Group.AXIOMS: {**there, "acme": entry}}
    monkeypatch.setattr(origin, "installed", lambda group: found.get(group, {}))
    seen = [origin.source_now()]
    for name in ("__init__.py", "mine.egg"):
        (package / name).write_text("; edited", encoding="utf-8")
        seen.append(origin.source_now())
    assert len(set(seen)) == 3
    (package / "notes.txt").write_text("edited", encoding="utf-8")
    assert origin.source_now() == seen[-1]


@pytest.mark.slow
def test_the_graph_that_won_is_explained_after_all_was_measured(tmp_path):
    text = """
    [settings]
    program = "matmul"
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
        assert "matmul-unfold" in cell.result("verify")["axioms_used"]
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


SWEEPER = """
import sys, time
from dataclasses import replace
from pathlib import Path
from prism.sweep import load_grid, sweep

class Slow:
    width = 1
    def run(self, jobs):
        for job in jobs:
            time.sleep(0.03)
            print(flush=True)
            yield replace(job.cell, outcome="ok", results={"search": {"n": job.cell.index}})

grid = load_grid(Path(sys.argv[1]))
sweep(grid, grid.cells, Path(sys.argv[2]), Slow())
"""


def killed_sweep(command, after_lines):
    """Start a sweep, and kill it after that many lines of its output; -1: let it end."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if after_lines >= 0:
            for _ in range(after_lines):
                process.stdout.readline()
            process.kill()
        process.stdout.read()
    return process.returncode


def test_a_sweep_killed_five_times_ends_with_the_table_of_an_undisturbed_one(tmp_path):
    rng = random.Random(7)
    grid = write_grid(tmp_path, SMALL.replace("[0, 1]", "[0, 1, 2, 3, 4]"))
    killed, calm = tmp_path / "killed.jsonl", tmp_path / "calm.jsonl"
    command = [sys.executable, "-c", SWEEPER, str(grid)]
    for _ in range(5):
        assert killed_sweep([*command, str(killed)], rng.randint(1, 4)) == -signal.SIGKILL
        with killed.open("ab") as file:  # what a kill in the middle of a write leaves
            file.write(b'{"schema": "prism.sweep.cell/1", "key": "ab')
    assert 5 <= line_count(killed) < 20
    assert killed_sweep([*command, str(killed)], -1) == 0
    assert killed_sweep([*command, str(calm)], -1) == 0
    assert answers(killed) == answers(calm)
    assert line_count(killed) == line_count(calm) == 20


@pytest.mark.slow
def test_the_command_killed_five_times_ends_with_the_table_of_an_undisturbed_one(tmp_path):
    rng = random.Random(11)
    grid = write_grid(
        tmp_path, VERIFY.replace('["matmul"]', '["matmul", "lora", "softmax_matmul"]')
    )
    killed, calm = tmp_path / "killed.jsonl", tmp_path / "calm.jsonl"
    command = [sys.executable, "-m", "prism", "sweep", str(grid), "-o"]
    for _ in range(5):
        with subprocess.Popen([*command, str(killed)], start_new_session=True) as process:
            time.sleep(rng.uniform(1.0, 6.0))
            process.kill()
    for path in (killed, calm):
        subprocess.run([*command, str(path)], check=True)
    verdicts = [
        [(c.labels, c.outcome, c.result("verify")["verdict"]) for c in read_cells([path])]
        for path in (killed, calm)
    ]
    assert verdicts[0] == verdicts[1]
    assert line_count(killed) == line_count(calm) == 6


def test_no_cell_outlives_a_killed_sweep(tmp_path):
    mark = tmp_path / "pid"
    (tmp_path / "mine.py").write_text(
        f"import os, pathlib, time\npathlib.Path({str(mark)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )
    grid = write_grid(tmp_path, VERIFY.replace('["matmul", "lora"]', '["mine.py:layer"]'))
    command = [sys.executable, "-m", "prism", "sweep", str(grid), "-o", str(tmp_path / "r.jsonl")]
    with subprocess.Popen(command) as process:
        wait_until(lambda: mark.exists() and mark.read_text())
        process.kill()
    wait_until(lambda: not is_alive(int(mark.read_text())))


def is_alive(pid):
    """Whether a process runs (one that nobody has waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(holds, limit_s=60.0):
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_the_command_counts_outcomes_and_fails_where_a_cell_failed(tmp_path, monkeypatch):
    monkeypatch.setattr("prism.cli.sweep.LocalPool", lambda _: InstantPool(outcome="failed"))
    output = tmp_path / "run.jsonl"
    args = ["sweep", str(write_grid(tmp_path)), "-o", str(output), "--shard", "2/4"]
    result = CliRunner().invoke(main, [*args, "--json"])
    answer = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (answer["planned"], answer["run"], answer["outcomes"]) == (2, 2, {"failed": 2})
    assert [failure["index"] for failure in answer["failures"]] == [1, 5]
    again = CliRunner().invoke(main, args)
    assert "0 cells run, 2 were there: 2 failed" in again.stdout
    assert "--retry" in again.stdout


def test_the_command_lists_cells_and_runs_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["sweep", str(write_grid(tmp_path)), "--list"])
    assert "small: 8 cells" in result.stdout
    assert not Path("records").exists()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ("max_ops = -4", "cell 1 (program matmul, encoding boolean, seed 0): Invalid value"),
        ('mode = "dance"', "'--mode': 'dance' is not available"),
        ('sizes = "n=x"', "the size of 'n' must be an integer"),
    ],
)
def test_what_a_command_would_refuse_is_refused_before_anything_runs(tmp_path, change, part):
    grid = write_grid(tmp_path, SMALL.replace("max_ops = 6", change))
    output = tmp_path / "run.jsonl"
    result = CliRunner().invoke(main, ["sweep", str(grid), "-o", str(output)])
    assert_refused(result, part)
    assert not output.exists()


def test_a_shipped_grid_goes_by_its_name():
    answer = CliRunner().invoke(main, ["sweep", "table2", "--smoke", "--list", "--json"])
    assert json.loads(answer.stdout)["grid"] == "table2"


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none_is_refused(tmp_path, shard):
    result = CliRunner().invoke(main, ["sweep", str(write_grid(tmp_path)), "--shard", shard])
    assert_refused(result, "i/n")


def test_a_grid_that_is_not_there_is_refused():
    assert_refused(CliRunner().invoke(main, ["sweep", "nowhere.toml"]), "cannot read the grid")


def test_ray_that_is_not_installed_is_said_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    output = tmp_path / "run.jsonl"
    args = ["sweep", str(write_grid(tmp_path)), "-o", str(output), "--ray", "auto"]
    assert_refused(CliRunner().invoke(main, args), "prism-superopt[ray]")
    assert not output.exists()
