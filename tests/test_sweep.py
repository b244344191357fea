"""Sweeps: lines that say everything, resuming without loss or repetition, whatever is killed."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sweep_grids import SMALL, VERIFY, InstantPool, cell_of, grid_of, swept, write_grid

from prism.errors import ParseError, UsageError
from prism.sweep import from_line, read_cells, shard_of
from prism.sweep.sweep import locked, repair


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


SWEEPER = """
import sys, time
from dataclasses import replace
from pathlib import Path
from prism.sweep import load_grid, origin, sweep

origin._first_seen = lambda *_: "one"  # whatever is edited meanwhile

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
        "time.sleep(60)\nlayer = 1\n",
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
