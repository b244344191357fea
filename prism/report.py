"""What `optimize` did, as JSON facts and as text for people.

Facts are plain JSON, so that a saved kernel carries its own report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prism.errors import ParseError
from prism.files import require_printable
from prism.tune import TuneResult

Vet = Callable[[object], bool]


def _is(*kinds: type) -> Vet:
    return lambda value: type(value) in kinds


def _number(value: object) -> bool:
    return isinstance(value, int | float) and _is(int, float)(value) and 0 <= value < math.inf


def _count(value: object) -> bool:
    return isinstance(value, int) and _is(int)(value) and 0 <= value < 2**63


def _fact(value: object) -> bool:
    """Something a kernel says about itself."""
    return _number(value) or _is(str)(value)


def _or_null(vet: Vet) -> Vet:
    return lambda value: value is None or vet(value)


def _each(vet: Vet) -> Vet:
    return lambda value: isinstance(value, list) and all(map(vet, value))


def _named(vet: Vet) -> Vet:
    return lambda value: isinstance(value, dict) and all(map(vet, value.values()))


def _anything(value: object) -> bool:
    del value
    return True


def _object(fields: Mapping[str, Vet], *, required: bool = False, others: Vet | None = None) -> Vet:
    """An object of these fields; all of them if `required`, others as well if `others` agrees."""

    def vet(value: object) -> bool:
        return (
            isinstance(value, dict)
            and (others is not None or value.keys() <= fields.keys())
            and not (required and fields.keys() - value.keys())
            and all(fields.get(name, others or _anything)(item) for name, item in value.items())
        )

    return vet


def _both(one: Vet, other: Vet) -> Vet:
    return lambda value: one(value) and other(value)


def _is_timed(best: object) -> bool:
    """Measured, or predicted and said to be."""
    assert isinstance(best, dict)
    measured = (best["median_s"] is not None, best["min_s"] is not None)
    if best["predicted"]:
        return measured == (False, False) and best["predicted_s"] is not None
    return measured == (True, True)


_TOTALS = ("dags", "candidates", "verified", "proved", "not_proved", "gave_up")

_FACTS: Mapping[str, Mapping[str, Vet]] = {
    "search": {
        "graphs": _count,
        "complete": _or_null(_is(bool)),
        "search_s": _or_null(_number),
        "is_cached": _is(bool),
        "counters": _object(
            {
                "pruners": _named(
                    _object({"seen": _count, "dropped": _count}, required=True, others=_anything)
                ),
                **dict.fromkeys(_TOTALS, _count),
            },
            others=_anything,
        ),
    },
    "tune": {
        "best": _or_null(
            _both(
                _object(
                    {
                        "graph": _is(str),
                        "par_sizes": _each(_named(_count)),
                        "schedule": _named(_count),
                        "predicted": _is(bool),
                        "predicted_s": _or_null(_number),
                        "median_s": _or_null(_number),
                        "min_s": _or_null(_number),
                        "max_error": _or_null(_number),
                    },
                    required=True,
                    others=_fact,
                ),
                _is_timed,
            )
        ),
        "trials": _named(_count),
        "resumed": _count,
        "space_size": _count,
        "elapsed_s": _number,
        "stopped": _is(str),
        "notes": _each(_is(str)),
    },
}
"""What facts from a file may be: everything that the report and the command line print."""


def vet_facts(facts: object) -> None:
    """Refuse facts that could not be printed.

    Raises:
        ParseError: names the field.
    """
    require_printable(facts, "facts")
    if not isinstance(facts, dict) or not facts.keys() <= _FACTS.keys():
        raise ParseError("facts: an object of search and tune was expected")
    for part, fields in facts.items():
        if not isinstance(fields, dict):
            raise ParseError(f"facts.{part}: an object was expected")
        for name, value in fields.items():
            vet = _FACTS[part].get(name)
            if vet is None or not vet(value):
                raise ParseError(f"facts.{part}.{name}: unknown, or of another type")


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
            **best.facts,
            "graph": best.config.graph_id,
            "par_sizes": [dict(counts) for counts in best.config.par_sizes],
            "schedule": dict(best.config.schedule),
            "predicted": best.median_s is None,
            "predicted_s": best.predicted_s,
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
    kernel: str,
    facts: Mapping[str, Any],
) -> str:
    """The report of a kernel, in sections; `kernel` says where it lies."""
    sections = [
        ("Program", program),
        ("Sizes", ", ".join(f"{name} = {size}" for name, size in sizes.items())),
        ("Search", "\n".join(_search_lines(facts.get("search", {})))),
        ("Tuning", "\n".join(_tune_lines(facts.get("tune", {})))),
        ("Graph", graph or "none: NumPy evaluates the program itself, in float64"),
        ("Kernel", kernel),
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
    lines += [f"{name}: {counters[name]}" for name in _TOTALS if name in counters]
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
        lines.append(f"graph {best['graph']}, {' '.join(counts) or 'no parameters'}")
        lines += _time_lines(best)
        if resources := resources_text(best):
            lines.append(resources)
    lines.append(f"trials: {trials or 'none'}; {facts.get('resumed', 0)} resumed")
    size, stopped = facts.get("space_size", 0), facts.get("stopped", "nothing")
    elapsed_s = facts.get("elapsed_s", 0.0)
    lines.append(f"space of {size} configs; stopped by {stopped} after {elapsed_s:.1f} s")
    return [*lines, *(f"note: {note}" for note in facts.get("notes", ()))]


def _time_lines(best: Mapping[str, Any]) -> list[str]:
    """How fast and how right; a prediction is never called a measurement."""
    if best["predicted"]:
        return [f"predicted {best['predicted_s'] * 1e3:.3f} ms; {not_run_text(best)}"]
    clock = f" ({best['clock']})" if "clock" in best else ""
    return [
        f"median {best['median_s'] * 1e3:.3f} ms, best {best['min_s'] * 1e3:.3f} ms{clock}",
        f"largest norm error against float64 {best['max_error'] or 0.0:.2g}",
    ]


def not_run_text(best: Mapping[str, Any]) -> str:
    """What is known of a kernel that was compiled for a machine that is not here."""
    if best["max_error"] is None:
        return "compiled, neither checked nor run"
    return f"compiled, not run; norm error {best['max_error']:.2g} where its like was simulated"


def resources_text(best: Mapping[str, Any]) -> str:
    """What a kernel takes of the machine, in one line; empty where it does not say."""
    words = {
        "registers": "{} registers a thread",
        "shared_bytes": "{} bytes of shared memory a block",
        "spills": "{} bytes a thread spilt",
        "library": "library kernels run by {}",
    }
    known = [text.format(best[name]) for name, text in words.items() if name in best]
    times = {
        "launch_overhead_s": "an empty kernel takes",
        "host_launch_s": "a launch costs the host",
    }
    for name, text in times.items():
        if isinstance(seconds := best.get(name), int | float):
            known.append(f"{text} {seconds * 1e6:.1f} us")
    return ", ".join(known)


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())
