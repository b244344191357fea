"""What `optimize` did, as JSON facts and as text for people.

Facts are plain JSON, so that a saved kernel carries its own report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prism.tune import TuneResult


def search_facts(graphs: Sequence[object], found: object, *, is_cached: bool) -> dict[str, Any]:
    """A search as JSON: its counters, as far as a result or artifact carries them."""
    return {
        "graphs": len(graphs),
        "complete": getattr(found, "complete", None),
        "search_s": getattr(found, "search_s", None),
        "counters": dict(getattr(found, "counters", {})),
        "is_cached": is_cached,
    }


def tune_facts(result: TuneResult) -> dict[str, Any]:
    """A tuning run as JSON."""
    best = result.best
    return {
        "best": None
        if best is None
        else {
            "graph": best.config.graph_id,
            "par_sizes": [dict(counts) for counts in best.config.par_sizes],
            "schedule": dict(best.config.schedule),
            "median_s": best.median_s,
            "min_s": best.min_s,
            "max_error": best.max_error,
        },
        "trials": dict(result.outcomes),
        "resumed": result.resumed,
        "space_size": result.space_size,
        "elapsed_s": result.elapsed_s,
        "stopped": result.stopped,
        "notes": list(result.notes),
    }


def render(
    program: str,
    sizes: Mapping[str, int],
    graph: str | None,
    path: Path | None,
    facts: Mapping[str, Any],
) -> str:
    """The report of a kernel, in sections."""
    sections = [
        ("Program", program),
        ("Sizes", ", ".join(f"{name} = {size}" for name, size in sizes.items())),
        ("Search", "\n".join(_search_lines(facts.get("search", {})))),
        ("Tuning", "\n".join(_tune_lines(facts.get("tune", {})))),
        ("Graph", graph or "none: NumPy evaluates the program itself, in float64"),
        ("Kernel", "none" if path is None else str(path)),
    ]
    return "\n\n".join(f"{title}\n{_indented(text)}" for title, text in sections) + "\n"


def _search_lines(facts: Mapping[str, Any]) -> list[str]:
    """The funnel: what each pruner saw and dropped, what was verified."""
    counters = facts.get("counters", {})
    origin = " (from the cache)" if facts.get("is_cached") else ""
    seconds = "" if facts.get("search_s") is None else f" in {facts['search_s']:.2f} s"
    lines = [f"{facts.get('graphs', 0)} verified graphs{seconds}{origin}"]
    for name, count in counters.get("pruners", {}).items():
        lines.append(f"pruner {name}: {count['dropped']} of {count['seen']} dropped")
    totals = ("dags", "candidates", "verified", "proved", "not_proved", "gave_up")
    lines += [f"{name}: {counters[name]}" for name in totals if name in counters]
    if facts.get("complete") is False:
        lines.append("cut short by a limit: there may be more graphs")
    return lines


def _tune_lines(facts: Mapping[str, Any]) -> list[str]:
    best = facts.get("best")
    trials = ", ".join(f"{count} {outcome}" for outcome, count in facts.get("trials", {}).items())
    lines = []
    if best is None:
        lines.append("no kernel passed")
    else:
        counts = [f"{name}={n}" for kernel in best["par_sizes"] for name, n in kernel.items()]
        counts += [f"{name}={n}" for name, n in best["schedule"].items()]
        lines += [
            f"graph {best['graph']}, {' '.join(counts) or 'no parameters'}",
            f"median {best['median_s'] * 1e3:.3f} ms, best {best['min_s'] * 1e3:.3f} ms",
            f"largest norm error against float64 {best['max_error']:.2g}",
        ]
    lines.append(f"trials: {trials or 'none'}; {facts.get('resumed', 0)} resumed")
    size, stopped = facts.get("space_size", 0), facts.get("stopped", "nothing")
    elapsed_s = facts.get("elapsed_s", 0.0)
    lines.append(f"space of {size} configs; stopped by {stopped} after {elapsed_s:.1f} s")
    return [*lines, *(f"note: {note}" for note in facts.get("notes", ()))]


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())
