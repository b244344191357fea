"""One cell, run: its commands as processes, one after the other, and the line they make.

A job is all that another machine needs to run a cell; the function that runs it knows neither the
grid nor the file that lines go to.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prism.errors import PrismError, UsageError
from prism.record import digest, now
from prism.sweep.cell import Cell, CellOutcome
from prism.sweep.checking import families
from prism.sweep.grid import Grid, Planned
from prism.sweep.origin import SOURCE, machine, source_now, versions_for
from prism.sweep.settings import (
    ARTIFACT,
    AXIOMS,
    DO,
    KERNEL,
    PROOF,
    SAVED,
    TIMED,
    TIMEOUT_S,
    TRIALS,
    UNKEYED,
    WINNER,
    command_lines,
    files_of,
)

MAX_FILE = 2**20
"""Bytes of a file that go into a line."""
MAX_MESSAGE = 2000
MAX_GRAPHS = 50
"""Graphs of a search that a line describes, the best looking first."""

KEPT: Mapping[str, str] = {
    ARTIFACT: "artifact.json",
    KERNEL: "kernel.py",
    TRIALS: "trials.jsonl",
    f"{SAVED}/kernel.py": "kernel.py",
    f"{SAVED}/optimized.json": "optimized.json",
}
"""What commands leave -> its name in the line."""

OUTCOMES: Mapping[int, CellOutcome] = {0: "ok", 1: "negative", 3: "gave-up"}
"""Exit status of the last command -> outcome; every other one is a failure."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class StoppedError(Exception):
    """The sweep ends: what was running is no result."""


@dataclass(frozen=True, slots=True)
class Job:
    """A cell to run: the line as far as it is known, and where its paths lead from."""

    cell: Cell
    base: str

    @property
    def is_timed(self) -> bool:
        """Whether it times kernels, so that nothing else should run beside it."""
        return self.cell.do in TIMED

    @property
    def needs_gpu(self) -> bool:
        """Whether its kernels run on a GPU."""
        return self.is_timed and self.cell.settings.get("target") == "cuda"


def make_job(grid: Grid, planned: Planned) -> Job:
    """The job of a cell.

    Raises:
        UsageError: a file that the cell names cannot be read.
    """
    settings = dict(planned.settings)
    inputs = _inputs_of(settings, grid.base)
    found = versions_for(settings, grid.base)
    cell = Cell(
        key=key_of(settings, inputs, found),
        grid=grid.name,
        title=grid.title,
        index=planned.index,
        labels=planned.labels,
        settings=settings,
        outcome="failed",
        message="",
        results={},
        files={},
        commands=[["prism", *line] for line in command_lines(settings, grid.base)],
        versions=found,
        inputs=inputs,
        seed=int(settings.get("seed", 0)),
    )
    return Job(cell, str(grid.base))


def key_of(settings: Mapping[str, Any], inputs: Mapping[str, str], found: Mapping[str, str]) -> str:
    """What a cell is known by: all that its answer may depend on but the machine."""
    keyed = {name: value for name, value in settings.items() if name not in UNKEYED}
    return digest(json.dumps([keyed, inputs, found], sort_keys=True))


def _inputs_of(settings: Mapping[str, Any], base: Path) -> dict[str, str]:
    return {text: _digest_of(path) for text, path in files_of(settings, base)}


def _digest_of(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error}") from error


@dataclass(slots=True)
class Processes:
    """The processes of a sweep, so that they can be ended together."""

    _running: set[subprocess.Popen[bytes]] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_stopped: bool = False

    def start(self, line: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
        """Start `prism` with these words in a folder; what it prints goes to files there.

        Raises:
            StoppedError: the sweep ends.
        """
        with (
            (folder / ".stdout").open("wb") as out,
            (folder / ".stderr").open("wb") as err,
            self._lock,
        ):
            if self._is_stopped:
                raise StoppedError
            process = subprocess.Popen(
                # with -P the scratch folder shadows nothing; our path finds the same packages
                [sys.executable, "-P", "-m", "prism.sweep.watched", *line],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                start_new_session=True,  # an interrupt reaches the parent alone, which ends it
            )
            self._running.add(process)
            return process

    def wait(self, process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
        """Its exit status, or None after the time limit, which ends it.

        Raises:
            StoppedError: the sweep ends.
        """
        try:
            status: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
            with self._lock:
                self._running.discard(process)
        if self._is_stopped:
            raise StoppedError
        return status

    def stop(self) -> None:
        """End every process, and start none any more."""
        with self._lock:
            self._is_stopped = True
            for process in self._running:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process with its group; one that has ended has left nobody behind that we know."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def run_job(job: Job, processes: Processes | None = None) -> Cell:
    """Run a cell's commands; whatever happens to them, it is a line.

    Raises:
        StoppedError: the sweep ends.
    """
    started, begin = now(), time.monotonic()
    cell = replace(job.cell, started=started, device=machine(gpu=job.needs_gpu))
    with tempfile.TemporaryDirectory(prefix="prism-cell-") as scratch:
        folder = Path(scratch)
        try:
            _require_same_versions(cell, Path(job.base))
            cell = _as_it_is_now(cell, Path(job.base))
            _prepare(cell, folder)
            done = _run(cell, folder, Path(job.base), processes or Processes())
        except (PrismError, OSError) as error:
            done = replace(cell, outcome="failed", message=_clean(str(error)))
        files = _kept(folder)
    return replace(done, files=files, elapsed_s=round(time.monotonic() - begin, 3))


def _require_same_versions(cell: Cell, base: Path) -> None:
    """On another machine than the one that planned the cell there may be others.

    Raises:
        UsageError: says which.
    """
    here = versions_for(cell.settings, base)
    if here != cell.versions:
        names = sorted(set(here.items()) ^ set(cell.versions.items()))
        raise UsageError(
            f"{platform.node()} has other versions than where the sweep was started: "
            f"{', '.join(f'{name} {number}' for name, number in names)}; install the same on both"
        )


def _as_it_is_now(cell: Cell, base: Path) -> Cell:
    """Somebody may have edited Prism or a file of the grid since: the line says what it is of."""
    inputs, found = _inputs_of(cell.settings, base), dict(cell.versions)
    found[SOURCE] = source_now(cell.settings, base)
    if (inputs, found) == (cell.inputs, cell.versions):
        return cell
    key = key_of(cell.settings, inputs, found)
    return replace(cell, key=key, inputs=inputs, versions=found)


def _prepare(cell: Cell, folder: Path) -> None:
    """Write what is left of the axiom set `prism` where families are left out."""
    left_out = cell.settings.get("without_axioms", [])
    if not left_out:
        return
    (folder / AXIOMS).mkdir()
    for name, text in families().items():
        if Path(name).stem not in left_out:
            (folder / AXIOMS / name).write_text(text, encoding="utf-8")


def _run(cell: Cell, folder: Path, base: Path, processes: Processes) -> Cell:
    """The commands in turn, until one gives no positive answer."""
    results: dict[str, dict[str, Any]] = {}
    outcome: CellOutcome = "failed"
    message = ""
    deadline = time.monotonic() + float(cell.settings.get("timeout_s", TIMEOUT_S))
    asked = len(DO[cell.do])
    lines = command_lines(cell.settings, base)
    for line in lines[:asked]:
        status = _ended(line, folder, processes, deadline)
        message = _said(folder / ".stderr")
        if status is None:
            said = f"; it had said: {message}" if message else ""
            return replace(
                cell,
                outcome="timeout",
                results=results,
                message=f"prism {line[0]} reached the cell's time limit{said}",
            )
        outcome = OUTCOMES.get(status, "failed")
        if outcome != "failed":
            results[line[0]] = _answer(folder / ".stdout", line[0])
        elif not message:
            message = f"prism {line[0]} ended with status {status}"
        if outcome != "ok":
            break
    if outcome == "ok" and lines[asked:] and write_winner(folder, results):
        (proof,) = lines[asked:]
        # what is measured is there already: no answer here takes it away
        if _ended(proof, folder, processes, deadline) in OUTCOMES:
            with contextlib.suppress(UsageError):
                results[PROOF] = _answer(folder / ".stdout", PROOF)
    return replace(cell, outcome=outcome, results=results, message=message)


def _ended(line: Sequence[str], folder: Path, processes: Processes, deadline: float) -> int | None:
    """The exit status of a command, or None where the deadline ended it."""
    process = processes.start(line, folder)
    return processes.wait(process, max(0.1, deadline - time.monotonic()))


def write_winner(folder: Path, results: Mapping[str, Mapping[str, Any]]) -> bool:
    """Write the graph of the kernel that won, as the commands left it; whether there is one."""
    try:
        if (path := folder / SAVED / "optimized.json").is_file():
            text = json.loads(path.read_text(encoding="utf-8"))["winner"]["graph"]
        else:
            wanted = results["tune"]["best"]["graph"]
            graphs = json.loads((folder / ARTIFACT).read_text(encoding="utf-8"))["graphs"]
            text = next(graph["text"] for graph in graphs if graph["id"] == wanted)
    except (OSError, ValueError, LookupError, TypeError, StopIteration):
        return False  # no kernel won
    (folder / WINNER).write_text(text, encoding="utf-8")
    return True


def _kept(folder: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for name, kept in KEPT.items():
        path = folder / name
        if path.is_file() and path.stat().st_size <= MAX_FILE:
            files[kept] = path.read_text(encoding="utf-8", errors="replace")
    return files


def _answer(path: Path, command: str) -> dict[str, Any]:
    """The object that a command printed, fit for a line.

    Raises:
        UsageError: it printed something else.
    """
    try:
        answer = _printable(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise UsageError(f"prism {command} printed no JSON object: {error}") from error
    if not isinstance(answer, dict):
        raise UsageError(f"prism {command} printed no JSON object")
    return shortened(answer) if command == "search" else answer


def shortened(answer: dict[str, Any]) -> dict[str, Any]:
    """A search's answer without the tail of its lists: thousands of graphs would be megabytes.

    The cell says how many there were, besides the program itself, and a digest of all their ids.
    """
    graphs, rejected = answer.get("graphs", []), answer.get("rejected", [])
    ids = sorted(str(graph["id"]) for graph in graphs)
    return {
        **answer,
        "graphs": graphs[:MAX_GRAPHS],
        "graph_count": sum(not graph["is_fallback"] for graph in graphs),
        "graphs_sha256": digest(" ".join(ids)),
        "rejected": rejected[:MAX_GRAPHS],
        "rejected_count": len(rejected),
    }


def _printable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    match value:
        case str():
            return _CONTROL.sub("", value)
        case dict():
            return {_CONTROL.sub("", name): _printable(item) for name, item in value.items()}
        case list():
            return [_printable(item) for item in value]
        case _:
            return value


def _said(path: Path) -> str:
    return _clean(path.read_bytes()[-4 * MAX_MESSAGE :].decode(errors="replace"))


def _clean(text: str) -> str:
    """The end of what a command said, without control characters."""
    return _CONTROL.sub("", text.replace("\r\n", "\n")).strip()[-MAX_MESSAGE:]
