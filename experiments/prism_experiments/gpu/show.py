"""The results of a GPU session for people: `python -m prism_experiments.gpu.show RESULTS.json`.

Plain text, since it is printed where rich may be missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prism.errors import PrismError
from prism_experiments.gpu.results import OURS, read_results

FACTS = (
    "gpu",
    "multiprocessors",
    "driver",
    "cuda_driver",
    "copy_gbps",
    "read_gbps",
    "python",
    "numpy",
    "numba",
    "numba-cuda",
    "torch",
)
"""Of the environment, what stands in the summary."""


def summary(results: Mapping[str, Any]) -> str:
    """The tables, as text."""
    return "\n".join(_lines(results))


def _lines(results: Mapping[str, Any]) -> Iterator[str]:
    end = "" if results["finished"] else ", not finished"
    yield (
        f"prism {results['prism_version']} on {results['target']}, {results['started_at']}: "
        f"{results['elapsed_s']:.0f} of {results['limit_s']:.0f} s{end}"
    )
    facts = results["environment"]
    known = [f"{name} {_fact(facts[name])}" for name in FACTS if facts.get(name) is not None]
    yield ", ".join(known) or "nothing is known about the machine"
    if results["target"] != "cuda":
        yield "a rehearsal: its times say nothing"
    yield ""
    yield from _stages(results)
    yield from _tests(results["tests"])
    yield from _cells(results["cells"])
    yield from _overhead(results["overhead"])
    if results["truncated"]:
        yield f"no time for: {', '.join(results['truncated'])}"


def _stages(results: Mapping[str, Any]) -> Iterator[str]:
    rows = [
        (stage["name"], stage["status"], f"{stage['seconds']:.1f}", stage["detail"])
        for stage in results["stages"]
    ]
    yield from text_table(("stage", "status", ">seconds", "detail"), rows)


def _tests(tests: Mapping[str, Any] | None) -> Iterator[str]:
    if tests is None:
        return
    counts = ", ".join(f"{count} {outcome}" for outcome, count in tests["counts"].items())
    yield f"tests ({tests['runner']}): {counts or 'none'}"
    for case in tests["cases"]:
        if case["outcome"] not in {"passed", "skipped", "truncated"}:
            message = case["message"].strip().splitlines()
            yield f"  {case['outcome']} {case['name']}: {message[-1] if message else ''}"
    yield ""


def _cells(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    rows = []
    for cell in cells:
        if cell["status"] == "truncated" and not cell["contestants"]:
            continue
        rows.append(_cell_row(cell))
    if not rows:
        return
    headings = ("workload", "sizes", "dtype", "status", ">ours", ">of copy", ">regs", ">spills")
    yield from text_table((*headings, ">trials", "theirs over ours"), rows)
    for cell in cells:
        yield from _complaints(cell)
    yield ""


def _cell_row(cell: Mapping[str, Any]) -> tuple[str, ...]:
    sizes = ",".join(f"{name}={size}" for name, size in cell["sizes"].items())
    best = (cell["tune"] or {}).get("best") or {}
    ours: Mapping[str, Any] = next((c for c in cell["contestants"] if c["name"] == OURS), {})
    trials = (cell["trials"] or {}).get("outcomes", {})
    rivals = [
        f"{c['name']} {'-' if c['ratio'] is None else format(c['ratio'], '.2f') + 'x'}"
        for c in cell["contestants"]
        if c["name"] != OURS and c["status"] not in {"skipped", "truncated"}
    ]
    return (
        cell["workload"],
        sizes,
        cell["dtype"],
        cell["status"],
        _microseconds(ours.get("median_s") or best.get("median_s")),
        _percent(ours.get("bandwidth_fraction")),
        _number(best.get("registers")),
        _number(best.get("spills")),
        f"{trials.get('ok', 0)}/{sum(trials.values())}",
        ", ".join(rivals),
    )


def _complaints(cell: Mapping[str, Any]) -> Iterator[str]:
    name = f"{cell['workload']} {cell['shape']} {cell['dtype']}"
    if cell["status"] not in {"ok", "truncated"}:
        yield f"  {name}: {cell['status']}: {cell['detail']}"
    for outcome, detail in (cell["trials"] or {}).get("first_details", {}).items():
        if outcome != "refused":
            yield f"  {name}: first {outcome} trial: {detail}"
    for contestant in cell["contestants"]:
        if contestant["detail"] and contestant["status"] != "skipped":
            yield f"  {name}: {contestant['name']}: {contestant['detail']}"


def _overhead(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    table = [(r["name"], _number(r["host_us"]), _number(r["device_us"]), r["detail"]) for r in rows]
    headings = ("one call", ">host us", ">between kernels us", "detail")
    yield from text_table(headings, table)


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Columns as wide as their contents; those whose heading starts with `>` are right-aligned."""
    names = [heading.removeprefix(">") for heading in headings]
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.rjust(width) if heading.startswith(">") else cell.ljust(width)
            for cell, width, heading in zip(cells, widths, headings, strict=True)
        )
        return "  ".join(aligned).rstrip()

    yield line(names)
    yield "  ".join("-" * width for width in widths)
    yield from map(line, rows)
    yield ""


def _fact(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _microseconds(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e6:.1f} us"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the summary of a results file."""
    parser = argparse.ArgumentParser(prog="show", description="Print a GPU session's results.")
    parser.add_argument("results", type=Path)
    given = parser.parse_args(arguments)
    try:
        print(summary(read_results(given.results)))
    except PrismError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
