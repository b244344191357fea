"""The GPU session: its stages in order, within one time limit, results on disk after every step.

`python -m prism_experiments.gpu.session --bundle DIR --out FILE --work DIR`; run.py starts it once
the wheel is installed. A stage runs in a process of its own; what it costs at most is its limit.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prism.errors import PrismError
from prism.record import RecordFile, now
from prism_experiments.gpu.channel import die_with_parent
from prism_experiments.gpu.gputests import Places, Tally, run_tests
from prism_experiments.gpu.nvidia import SICK
from prism_experiments.gpu.plan import TARGETS, Cell, Plan, cell_json, load_plan
from prism_experiments.gpu.results import Status, new_results, write_results
from prism_experiments.gpu.schedule import Bounds, Clock, share
from prism_experiments.gpu.show import summary
from prism_experiments.gpu.trials import summarize
from prism_experiments.gpu.worker import Worker

UNDER_WAY = "under way"
"""What a stage or cell says whose end was never written down."""

END_S = 5.0
"""Kept back for the end of the session."""

CELL_GRACE_S = 15.0
"""A cell plans with its limit; a compilation that was begun within it may end this much later."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a session finds and leaves things."""

    bundle: Path
    work: Path
    out: Path
    target: str
    limit_s: float
    install: str = ""

    @property
    def log(self) -> Path:
        """What the processes print."""
        return self.out.with_suffix(".log")

    @property
    def trials(self) -> Path:
        """Every trial of every cell."""
        return self.out.with_suffix(".trials.jsonl")


class Session:
    """One run of all stages."""

    def __init__(self, setting: Setting, plan: Plan) -> None:
        self.setting = setting
        self.plan = plan
        self.limits = plan.limits_for(setting.target)
        self.clock = Clock(setting.limit_s, time.monotonic)
        self.results = new_results(plan.prism_version, setting.target, now(), setting.limit_s)
        self.results["install"] = setting.install
        self.worker = Worker(setting.target, setting.log, self.clock, self.limits.start_s)

    def run(self) -> None:
        """The stages, the important ones first where time is short."""
        try:
            self.environment()
            # it imports and compiles while the tests run, where nothing is timed
            self.worker.engage()
            self.tests()
            self.cells()
            self.overhead()
            self.results["finished"] = True
        finally:
            self.worker.retire()
            self.save()

    def save(self) -> None:
        """Write what is known."""
        self.results["elapsed_s"] = self.clock.elapsed_s
        write_results(self.setting.out, self.results)

    # --- stages ------------------------------------------------------------------------------

    def environment(self) -> None:
        """Stage 1."""
        with self.stage("environment", self.limits.environment_s) as stage:
            facts = self.results["environment"]
            request = {"stage": "environment"}
            for part in self.worker.ask(request, self.limits.environment_s, stage):
                facts.update(
                    {k: v for k, v in part.get("environment", {}).items() if v is not None}
                )
                self.save()

    def tests(self) -> None:
        """Stage 2."""
        with self.stage("tests", self.limits.tests_s) as stage:
            setting = self.setting
            deadline = self.clock.deadline(self.limits.tests_s)
            places = Places(setting.bundle / "tests", setting.work, setting.log)
            status, detail = run_tests(places, deadline, self.tell_tests)
            stage.update(status=status.value, detail=detail)

    def tell_tests(self, tally: Tally) -> None:
        """A test is over."""
        self.results["tests"] = tally.to_json()
        self.save()

    def cells(self) -> None:
        """Stage 3: as many cells as fit, in order; what is left out is named."""
        with self.stage("cells", self.clock.left_s(END_S)) as stage:
            left = list(self.plan.cells_for(self.setting.target))
            bounds = Bounds(self.limits.cell_least_s, self.limits.cell_most_s)
            reserve = self.limits.overhead_s + END_S
            while left:
                if not self.worker.employ(stage):
                    break
                seconds = share(len(left), self.clock.left_s(reserve), bounds)
                if seconds is None:
                    break
                self.cell(left.pop(0), seconds)
            for cell in left:
                self.add_cell(cell, "not begun", 0.0)
                self.results["truncated"].append(f"cell {cell.name}")
            counts = Counter(entry["status"] for entry in self.results["cells"])
            self.judge(stage, counts)

    def judge(self, stage: dict[str, Any], counts: Mapping[str, int]) -> None:
        """How the cells went as a whole."""
        outcome = ", ".join(f"{count} {status}" for status, count in counts.items()) or "no cell"
        if stage["detail"] == UNDER_WAY:
            is_bad = counts.keys() - {Status.OK.value, Status.TRUNCATED.value}
            is_short = Status.TRUNCATED.value in counts
            status = Status.FAILED if is_bad else Status.TRUNCATED if is_short else Status.OK
            stage.update(status=status.value, detail=outcome)
        else:  # no process for them
            stage["detail"] = f"{stage['detail']}; {outcome}"

    def overhead(self) -> None:
        """Stage 4, on the smallest size of the plan."""
        limit = min(self.limits.overhead_s, self.clock.left_s(END_S))
        with self.stage("overhead", limit) as stage:
            cells = self.plan.rehearsal
            if not cells or limit < self.limits.overhead_s / 2:
                stage.update(status=Status.TRUNCATED.value, detail="no time left")
                self.results["truncated"].append("overhead")
                return
            dtype = TARGETS[self.setting.target][-1]
            cell = next((c for c in cells if c.dtype == dtype), cells[0])
            request = {**self.request("overhead", cell), "limit_s": limit}
            for part in self.worker.ask(request, limit, stage):
                self.results["overhead"] = part.get("overhead", self.results["overhead"])
                self.save()

    # --- cells -------------------------------------------------------------------------------

    def cell(self, cell: Cell, limit_s: float) -> None:
        """Measure one."""
        entry = self.add_cell(cell, UNDER_WAY, limit_s)
        records = self.setting.work / "cell.jsonl"
        records.unlink(missing_ok=True)
        request = {**self.request("cell", cell), "limit_s": limit_s}
        started = self.clock.elapsed_s
        for part in self.worker.ask(request, limit_s + CELL_GRACE_S, entry, keep=True):
            entry.update(part)
            self.save()
        entry["seconds"] = self.clock.elapsed_s - started
        self.keep_trials(records, entry)
        add_fractions(entry, self.results["environment"])
        if is_sick(entry):
            self.worker.retire()
        self.save()

    def add_cell(self, cell: Cell, detail: str, limit_s: float) -> dict[str, Any]:
        """A cell's place in the results; until it is over there was no time for it."""
        entry = {
            **cell_json(cell),
            "status": Status.TRUNCATED.value,
            "detail": detail,
            "seconds": 0.0,
            "limit_s": limit_s,
            "bytes": None,
            "tune": None,
            "trials": None,
            "contestants": [],
        }
        self.results["cells"].append(entry)
        return entry

    def keep_trials(self, records: Path, entry: dict[str, Any]) -> None:
        """Move a cell's trials to the file of all; a cell that was lost is counted from them."""
        if not records.is_file():
            return
        content = records.read_bytes()
        with self.setting.trials.open("ab") as file:
            file.write(content if content.endswith(b"\n") else content + b"\n")
        self.results["trials_file"] = self.setting.trials.name
        if entry["trials"] is None:
            with contextlib.suppress(PrismError):
                entry["trials"] = summarize(RecordFile(records).read())

    def request(self, stage: str, cell: Cell) -> dict[str, Any]:
        """What a process needs to know about a cell."""
        artifact = self.setting.bundle / dict(self.plan.artifacts)[cell.workload]
        return {
            "stage": stage,
            "cell": cell_json(cell),
            "artifact": str(artifact),
            "records": str(self.setting.work / "cell.jsonl"),
            "kernel": str(self.setting.work / f"{stage}_kernel.py"),
            "seed": self.plan.seed,
            "tune_share": self.limits.tune_share,
        }

    @contextlib.contextmanager
    def stage(self, name: str, limit_s: float) -> Iterator[dict[str, Any]]:
        """A stage's place in the results; whatever goes wrong in it ends it alone."""
        entry = {
            "name": name,
            "status": Status.TRUNCATED.value,
            "detail": UNDER_WAY,
            "seconds": 0.0,
            "limit_s": limit_s,
        }
        self.results["stages"].append(entry)
        self.save()
        started = self.clock.elapsed_s
        try:
            yield entry
        except (PrismError, OSError) as error:
            entry.update(status=Status.FAILED.value, detail=str(error))
        if entry["detail"] == UNDER_WAY:
            entry.update(status=Status.OK.value, detail="")
        entry["seconds"] = self.clock.elapsed_s - started
        self.save()


def add_fractions(entry: dict[str, Any], environment: Mapping[str, Any]) -> None:
    """Bytes per median second over what the memory gives, for every contestant."""
    rate = environment.get("copy_gbps") or environment.get("device_stream_gbps")
    for contestant in entry["contestants"]:
        seconds = contestant["median_s"]
        if rate and seconds and entry["bytes"]:
            contestant["bandwidth_fraction"] = entry["bytes"] / seconds / (rate * 1e9)


def is_sick(entry: Mapping[str, Any]) -> bool:
    """Whether a CUDA error may have broken the process for what comes next."""
    details = [entry["detail"], *(contestant["detail"] for contestant in entry["contestants"])]
    return any(word in detail for detail in details for word in SICK)


def _seconds(text: str) -> float:
    """A positive number of seconds, for the parser."""
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(text)
    return seconds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a session; the exit status says whether every stage ended well."""
    parser = argparse.ArgumentParser(prog="session", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bundle", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--target", choices=tuple(TARGETS), default="cuda")
    parser.add_argument("--limit-s", type=_seconds, default=450.0)
    parser.add_argument("--install", default="")
    given = parser.parse_args(arguments)
    die_with_parent()
    setting = Setting(**vars(given))
    try:
        session = Session(setting, load_plan(setting.bundle / "plan.json"))
        session.run()
    except PrismError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {given.out}", file=sys.stderr)
        return 130
    print(summary(session.results))
    good = (Status.OK.value, Status.SKIPPED.value, Status.TRUNCATED.value)
    return 0 if all(stage["status"] in good for stage in session.results["stages"]) else 1


if __name__ == "__main__":
    sys.exit(main())
