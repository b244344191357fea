"""What a search shall reach, and whether it does: goals, agreements, steps (`make bench-search`).

The goals are the project's own, for two cores; the paper's figures and those of the authors' code
are for comparison. A goal that a run has not measured is neither reached nor missed. Agreements are
checked anew in every run, on small workloads: `make bench-encodings`, `make bench-ablation` and the
tests check them on more.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from prism.cli.render import seconds
from prism.frontend import load_program
from prism.plugins import Group, installed
from prism.search import GENERATORS, SearchResult, search
from prism_experiments.bench_ablation import ABLATED, MAPS, REFERENCE

PUBLISHED_SEARCH = {
    "rmsnorm_paper": (0.3, 9),
    "swiglu_paper": (1.0, 12),
    "attention_paper": (41.0, 14),
    "qk_attention_paper": (42.0, 14),
    "rmsnorm_mlp_paper": (871.0, 23),
}
"""The paper's seconds, on 96 threads, and graphs."""

REFERENCE_GOALS = {
    "rmsnorm_paper": (0.1, 9),
    "swiglu_paper": (0.1, 12),
    "attention_paper": (0.2, 14),
    "qk_attention_paper": (0.3, 14),
    "rmsnorm_mlp_paper": (0.5, 24),
}
"""Seconds and graphs at the reference limits."""

TUNE_S, LARGEST_S, PEAK_MB = 1.0, 5.0, 500.0
"""Seconds of tune mode for most workloads, and for the largest; memory of any search."""

LARGEST = ("ffn", "qk_attention", "rmsnorm_mlp")
"""With a way down, or with heads, weights, scale and two normalizations."""

AGREEING = ("rmsnorm_paper", "swiglu_paper", "attention_paper")
"""Workloads on which encodings and generators are compared."""

COMPARED = 40
"""Graphs judged where encodings are compared: each leads to the same ones."""

BRUTE_FORCE = ("test_brute_force.py", "test_brute_force_kernels.py")
CHOSEN = "known_shape or 34 or 61"
"""Programs that brute force does in a moment."""

MAPS_S = 20.0
"""Seconds for each row of the ablation."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One search of one workload."""

    workload: str
    kind: str
    search_s: float
    peak_mb: float
    states: int
    dags: int
    graphs: int
    proved: int
    admitted: int
    plans: int
    candidates: int
    instantiable: int | None
    asked: int | None
    cuts: tuple[str, ...]
    seconds: dict[str, float]

    @property
    def is_judged_in_full(self) -> bool:
        """Whether no candidate was left unjudged."""
        return not any("were not judged" in cut for cut in self.cuts)

    @property
    def goal_s(self) -> float | None:
        """The seconds it shall take at most."""
        if self.kind == "reference" and self.workload in REFERENCE_GOALS:
            return REFERENCE_GOALS[self.workload][0]
        if self.kind == "tune":
            return LARGEST_S if self.workload in LARGEST else TUNE_S
        return None

    @property
    def is_over_goal(self) -> bool:
        """Whether it takes longer than it shall."""
        return self.goal_s is not None and self.search_s > self.goal_s


@dataclass(frozen=True, slots=True)
class Goal:
    """What shall be, whether it is (None: not run), and what was found.

    `is_due`: anything else is a fault of the search, and not a matter of the machine.
    """

    what: str
    is_reached: bool | None
    found: str
    is_due: bool = False


# --- goals --------------------------------------------------------------------------------------


def goals(rows: Sequence[Measured]) -> Iterator[Goal]:
    """Every goal of these searches."""
    by_name = {row.workload: row for row in rows if row.kind == "reference"}
    for name, (limit, graphs) in REFERENCE_GOALS.items():
        row = by_name.get(name)
        yield Goal(
            f"{name} at the reference limits: {seconds(limit)}, {graphs} graphs",
            None if row is None else row.search_s <= limit and row.graphs >= graphs,
            "" if row is None else f"{seconds(row.search_s)}, {row.graphs} graphs",
        )
    largest = max(rows, key=lambda row: row.peak_mb)
    yield Goal(
        f"peak memory of every search below {PEAK_MB:.0f} MB",
        largest.peak_mb < PEAK_MB,
        f"{largest.peak_mb:.0f} MB: {largest.workload}, {largest.kind}",
    )
    tuned = [row for row in rows if row.kind == "tune"]
    most = [row for row in tuned if row.workload not in LARGEST]
    yield _slowest(f"most workloads in tune mode: {seconds(TUNE_S)}", most, TUNE_S)
    rest = [row for row in tuned if row.workload in LARGEST]
    yield _slowest(f"{', '.join(LARGEST)} in tune mode: {seconds(LARGEST_S)}", rest, LARGEST_S)


def _slowest(what: str, rows: Sequence[Measured], limit: float) -> Goal:
    if not rows:
        return Goal(what, None, "")
    slowest = max(rows, key=lambda row: row.search_s)
    found = f"at most {seconds(slowest.search_s)}: {slowest.workload}"
    return Goal(what, slowest.search_s <= limit, found)


def profile(row: Measured) -> Iterator[str]:
    """Where the time of a search goes."""
    steps = ("saturate", "generate", "verify")
    yield from (f"{step} {seconds(row.seconds.get(step, 0.0))}" for step in steps)
    rest = row.search_s - sum(row.seconds.get(step, 0.0) for step in steps)
    yield f"rest {seconds(max(0.0, rest))}"


# --- agreements ---------------------------------------------------------------------------------


def agreements(only: str | None, say: Callable[[str], None]) -> list[Goal]:
    """What shall agree, on a few workloads or on `only` one; and the ablation of maps."""
    names = AGREEING if only is None else (only,)
    out = [_encodings(names, say), _generators(names, say)]
    tests = _tests_of_brute_force()
    if tests:
        say("brute force")
        out.append(brute_force(tests, "61" if only else CHOSEN))
    if only is None:
        out.append(_ablation(say))
    return out


def _ids(result: SearchResult) -> frozenset[str]:
    return frozenset(g.id for g in result.graphs)


def _encodings(names: Sequence[str], say: Callable[[str], None]) -> Goal:
    encodings = tuple(installed(Group.ENCODING))
    are_same = True
    for name in names:
        say(f"encodings: {name}")
        _, program = load_program(name)
        options = replace(REFERENCE, max_graphs=COMPARED)
        found = {_ids(search(program, replace(options, encoding=e))) for e in encodings}
        are_same = are_same and len(found) == 1
    return Goal(
        "the encodings lead to the same graphs",
        are_same,
        f"{', '.join(encodings)} on {', '.join(names)}, {COMPARED} graphs each",
        is_due=True,
    )


def _generators(names: Sequence[str], say: Callable[[str], None]) -> Goal:
    are_same, counts = True, []
    for name in names:
        say(f"generators: {name}")
        _, program = load_program(name)
        found = [_ids(search(program, replace(REFERENCE, generator=g))) for g in GENERATORS]
        are_same = are_same and len(set(found)) == 1
        counts.append(f"{name} {len(found[0]) - 1} graphs")
    return Goal(
        "the generators list the same graphs",
        are_same,
        f"{' and '.join(GENERATORS)}: {', '.join(counts)}",
        is_due=True,
    )


def _tests_of_brute_force() -> list[Path]:
    """They are in the source tree; an installed package has none."""
    folder = Path(__file__).parents[2] / "tests" / "search"
    return [path for name in BRUTE_FORCE if (path := folder / name).exists()]


def brute_force(tests: Sequence[Path], chosen: str) -> Goal:
    """The search beside brute force, for some programs of the tests."""
    root = tests[0].parents[2]
    options = ("-q", "-p", "no:cacheprovider", "-k", chosen)
    command = [sys.executable, "-m", "pytest", *options, *map(str, tests)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=root)
    passed = re.search(r"(\d+) passed", done.stdout)
    failed = re.search(r"(\d+) failed", done.stdout)
    return Goal(
        "nothing is lost or invented against brute force",
        done.returncode == 0,
        f"{passed[1] if passed else 0} tests passed, {failed[1] if failed else 0} failed; "
        "one and two kernels, small programs",
        is_due=True,
    )


def _ablation(say: Callable[[str], None]) -> Goal:
    """States with concrete maps over those with symbolic ones, for rmsnorm, the paper's pruners.

    All maps at once take much longer: `make bench-ablation` has the time. ARCHITECTURE.md says why
    our omap costs more than our fmap.
    """
    _, program = load_program(ABLATED)
    options = replace(REFERENCE, generator="forward", grid_dims=2, max_graphs=1)
    options = replace(options, without=("placement",), budget_s=MAPS_S)
    states = {}
    for kinds in MAPS:
        if len(kinds) < len(MAPS[-1]):
            say(f"maps: {', '.join(kinds) or 'none'}")
            result = search(program, replace(options, concrete=kinds))
            states[", ".join(kinds)] = int(result.counters["states"])
    least = states.pop("")
    ratios = ", ".join(f"{kind} {count / least:.0f}x" for kind, count in states.items())
    return Goal(
        "concrete maps cost more than symbolic ones: imap most, then fmap, then omap",
        least < states["omap"] < states["fmap"] < states["imap"],
        f"states for {ABLATED}, the paper's pruners: {ratios}; all three: make bench-ablation",
    )
