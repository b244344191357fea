"""The table of `make bench` and its goals: ours beside every rival, and against the best of them.

A ratio is a rival's time over ours, paired by round, so above 1 we are faster. What is compared
with the goals is measured in the same run, the stream included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rich.console import Console

from prism.cli.render import percent, seconds, table, times

TORCH = frozenset({"torch", "torch-compile", "sdpa"})
"""The contestants that are torch's."""

BUSY = "the machine was busy"
"""How warnings begin that put times in doubt."""


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement: the workload and its shape, and what the file says of it."""

    case: tuple[str, str]
    data: dict[str, Any]

    @property
    def result(self) -> dict[str, Any] | None:
        """What `prism bench` said, if it did."""
        found: dict[str, Any] | None = self.data["result"]
        return found

    @property
    def rows(self) -> Mapping[str, dict[str, Any]]:
        """The contestants by name, ours first."""
        return {} if self.result is None else {r["name"]: r for r in self.result["contestants"]}

    @property
    def ours(self) -> dict[str, Any]:
        """Our row."""
        return next(iter(self.rows.values()), {})

    @property
    def rivals(self) -> dict[str, dict[str, Any]]:
        """The rows of the others."""
        return dict(list(self.rows.items())[1:])

    @property
    def is_busy(self) -> bool:
        """Whether something else took the machine meanwhile."""
        return self.result is not None and any(
            warning.startswith(BUSY) for warning in self.result["warnings"]
        )

    @property
    def is_fallback(self) -> bool:
        """Whether tuning found no kernel in its budget, so that NumPy stood in for one."""
        return self.result is not None and bool(self.result["is_fallback"])

    def best(self, names: frozenset[str] | None = None) -> tuple[str, float] | None:
        """The fastest rival (of some) and its ratio."""
        known = [
            (row["ratio"], name)
            for name, row in self.rivals.items()
            if row["ratio"] is not None and (names is None or name in names)
        ]
        ratio, name = min(known, default=(None, ""))
        return None if ratio is None else (name, ratio)


@dataclass(frozen=True, slots=True)
class Goal:
    """What has to be reached at the decode shape: a share of the stream, or a ratio."""

    workload: str
    what: str
    least: float

    def reached(self, line: Line) -> tuple[float | None, str]:
        """The value, and how it reads."""
        match self.what:
            case "stream":
                share = line.ours.get("bandwidth_fraction")
                return share, percent(share)
            case "torch":
                best = line.best(TORCH)
            case "onnxruntime":
                best = line.best(frozenset({"onnxruntime"}))
            case _:
                best = line.best()
        return (None, "-") if best is None else (best[1], f"{times(best[1])} {best[0]}")


MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "stream": "of stream bandwidth",
        "torch": "the best torch",
        "onnxruntime": "onnxruntime",
        "best": "the best of all rivals",
    }
)

LINEAR = ("rmsnorm", "layernorm_linear", "swiglu", "rmsnorm_mlp")

GOALS: tuple[Goal, ...] = (
    Goal("attention", "stream", 0.90),
    Goal("attention", "torch", 2.5),
    Goal("qk_attention", "torch", 8.0),
    *(
        goal
        for workload in LINEAR
        for goal in (
            Goal(workload, "stream", 0.85),
            Goal(workload, "torch", 2.3),
            Goal(workload, "onnxruntime", 1.0),
        )
    ),
)
"""Where the kernels must land on a CPU with two threads, in float32."""


def show(lines: Sequence[Line]) -> None:
    """The table, what is to be known of it, and the goals."""
    out = Console(markup=False, emoji=False, highlight=False)
    if not out.is_terminal:
        out.width = 200
    names = list(dict.fromkeys(name for line in lines for name in line.rivals))
    headings = ("workload", "shape", "sizes", ">ours", ">of stream", *(f">{n}" for n in names))
    rows = [_row(line, names) for line in lines]
    out.print(table((*headings, ">against the best"), rows))
    for note in _notes(lines):
        out.print(note)
    out.print(table(("goal (decode)", ">at least", ">measured", ""), list(_goals(lines))))


def _row(line: Line, names: Sequence[str]) -> tuple[str, ...]:
    key, ours = line.data["key"], line.ours
    place = (line.case[0] + (" *" if line.is_busy else ""), line.case[1], key["sizes"])
    if line.result is None:
        return (*place, "failed", "", *("" for _ in names), "")
    best = line.best()
    return (
        *place,
        seconds(ours["median_s"]) + (" (no kernel)" if line.is_fallback else ""),
        percent(ours["bandwidth_fraction"]),
        *(times(line.rivals[n]["ratio"]) if n in line.rivals else "-" for n in names),
        "-" if best is None else f"{times(best[1])} {best[0]}",
    )


def _notes(lines: Sequence[Line]) -> Iterator[str]:
    """Why a column is empty, each reason once; failures; what a star means."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        where = " ".join(line.case)
        if line.result is None:
            yield f"{where} failed: {line.data['failure'].splitlines()[-1]}"
        if line.is_fallback:
            yield (
                f"{where}: no kernel in {line.data['key']['budget']:.0f} s of tuning, so NumPy "
                "evaluates the program in float64; give more (--budget), on a machine that is idle"
            )
        for name, row in line.rivals.items():
            if row["failure"] is not None:
                reasons.setdefault((name, row["failure"]), []).append(where)
    for (name, reason), places in reasons.items():
        more = f" and {len(places) - 1} more" if len(places) > 1 else ""
        yield f"{name} is missing at {places[0]}{more}: {reason}"
    if any(line.is_busy for line in lines):
        yield "* the machine was busy; measure again when it is not (--again)"


def _goals(lines: Sequence[Line]) -> Iterator[tuple[str, ...]]:
    decode = {line.case[0]: line for line in lines if line.case[1] == "decode"}
    for goal in GOALS:
        what = f"{goal.workload}: {MEANINGS[goal.what]}"
        bound = percent(goal.least) if goal.what == "stream" else times(goal.least)
        line = decode.get(goal.workload)
        value, text = (None, "-") if line is None else goal.reached(line)
        yield what, bound, text, _judged(value, goal.least)
    for line in lines:
        value, text = Goal(line.case[0], "best", 1.0).reached(line)
        yield f"{' '.join(line.case)}: {MEANINGS['best']}", times(1.0), text, _judged(value, 1.0)


def _judged(value: float | None, least: float) -> str:
    if value is None:
        return "not measured"
    return "reached" if value >= least else "missed"
