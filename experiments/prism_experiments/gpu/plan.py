"""What a GPU session measures: workloads at sizes in dtypes, the most important first, and limits.

A plan travels as `plan.json` in the bundle. `cells` is for a GPU; `rehearsal` holds the same
workloads at sizes that the simulator in place of the GPU, or the CPU, gets through in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prism.errors import ParseError, UsageError
from prism_experiments.gpu.vetting import Count, Each, Named, Number, Text, fields, read_vetted
from prism_experiments.sizes import SHAPES

SCHEMA = "prism.gpu-plan/1"
MAX_BYTES = 2**20

TARGETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "cuda": ("float16", "bfloat16", "float32"),
        "lockstep": ("float16", "bfloat16", "float32"),
        "cpu": ("float32",),
    }
)
"""Target -> the dtypes it is tried in, the most important first; all but cuda rehearse."""


ORDER: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("decode", ("float16", "bfloat16", "float32")),
    ("larger", ("float16",)),
    ("ragged", ("float16",)),
    ("larger", ("bfloat16", "float32")),
    ("ragged", ("bfloat16", "float32")),
)
"""Shapes and dtypes by importance, each for all workloads in turn."""

REHEARSED = "tiny"


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload at one size in one dtype."""

    workload: str
    shape: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str

    @property
    def name(self) -> str:
        """Short and unique in a plan."""
        return f"{self.workload} {self.shape} {self.dtype}"


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a stage may take at most; less where the session ends before.

    A cell is worth starting with `cell_least_s`; of its time `tune_share` goes to tuning.
    """

    environment_s: float = 60.0
    tests_s: float = 100.0
    start_s: float = 90.0
    """For a process to import what it needs."""
    cell_least_s: float = 30.0
    cell_most_s: float = 60.0
    overhead_s: float = 30.0
    tune_share: float = 0.45


REHEARSAL_LIMITS = Limits(
    environment_s=30.0,
    tests_s=40.0,
    start_s=60.0,
    cell_least_s=4.0,
    cell_most_s=20.0,
    overhead_s=20.0,
    tune_share=0.5,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """A session: where the artifact of each workload lies in the bundle, and what is measured."""

    prism_version: str
    seed: int
    artifacts: tuple[tuple[str, str], ...]
    cells: tuple[Cell, ...]
    rehearsal: tuple[Cell, ...]
    limits: Limits = Limits()
    rehearsal_limits: Limits = REHEARSAL_LIMITS

    def cells_for(self, target: str) -> tuple[Cell, ...]:
        """What is measured on a target, the most important first."""
        if target == "cuda":
            return self.cells
        return tuple(c for c in self.rehearsal if c.dtype in TARGETS[target])

    def limits_for(self, target: str) -> Limits:
        """The limits on a target."""
        return self.limits if target == "cuda" else self.rehearsal_limits

    def to_text(self) -> str:
        """As JSON."""
        data = asdict(self)
        for cell in (*data["cells"], *data["rehearsal"]):
            cell["sizes"] = dict(cell["sizes"])
        return json.dumps({"schema": SCHEMA, **data, "artifacts": dict(self.artifacts)}, indent=1)


def make_plan(
    workloads: Sequence[str], artifacts: Mapping[str, str], version: str, seed: int = 0
) -> Plan:
    """The plan for some workloads.

    Raises:
        UsageError: a workload has no sizes in `SHAPES`.
    """
    unknown = [name for name in workloads if name not in SHAPES]
    if unknown:
        raise UsageError(
            f"{', '.join(unknown)}: no sizes for the GPU session; add them to SHAPES of "
            "prism_experiments/sizes.py"
        )
    rehearsed = tuple(
        _cell(name, REHEARSED, dtype) for dtype in TARGETS["cuda"] for name in workloads
    )
    ordered = tuple(artifacts.items())
    return Plan(version, seed, ordered, tuple(_in_order(workloads)), rehearsed)


def _in_order(workloads: Sequence[str]) -> Iterator[Cell]:
    for shape, dtypes in ORDER:
        for dtype in dtypes:
            for name in workloads:
                yield _cell(name, shape, dtype)


def _cell(workload: str, shape: str, dtype: str) -> Cell:
    return Cell(workload, shape, tuple(SHAPES[workload][shape].items()), dtype)


_CELL = fields(workload=Text(), shape=Text(), sizes=Named(Count()), dtype=Text())
_LIMITS = fields(**{name: Number() for name in Limits.__dataclass_fields__})
_PLAN = fields(
    schema=Text(frozenset({SCHEMA})),
    prism_version=Text(),
    seed=Count(),
    artifacts=Named(Text()),
    cells=Each(_CELL),
    rehearsal=Each(_CELL),
    limits=_LIMITS,
    rehearsal_limits=_LIMITS,
)


def load_plan(path: Path) -> Plan:
    """Read and vet a plan.

    Raises:
        UsageError: there is none.
        ParseError: it is no plan of this version.
    """
    data = read_vetted(path, _PLAN, "the plan", MAX_BYTES)
    artifacts: dict[str, str] = data["artifacts"]
    _require_inside(artifacts, path)
    return Plan(
        prism_version=data["prism_version"],
        seed=data["seed"],
        artifacts=tuple(artifacts.items()),
        cells=_cells(data["cells"], artifacts, path),
        rehearsal=_cells(data["rehearsal"], artifacts, path),
        limits=Limits(**data["limits"]),
        rehearsal_limits=Limits(**data["rehearsal_limits"]),
    )


def cell_json(cell: Cell) -> dict[str, Any]:
    """A cell as JSON-able data."""
    return {**asdict(cell), "sizes": dict(cell.sizes)}


def cell_of(data: Mapping[str, Any]) -> Cell:
    """Back from `cell_json`, vetted before."""
    return Cell(data["workload"], data["shape"], tuple(data["sizes"].items()), data["dtype"])


def _cells(
    found: Sequence[Mapping[str, Any]], artifacts: Mapping[str, str], path: Path
) -> tuple[Cell, ...]:
    cells = tuple(cell_of(item) for item in found)
    for cell in cells:
        if cell.workload not in artifacts:
            raise ParseError(f"{path}: {cell.name} has no artifact")
    return cells


def _require_inside(artifacts: Mapping[str, str], path: Path) -> None:
    """Artifacts lie in the bundle, whatever the plan says."""
    for name in artifacts.values():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise ParseError(f"{path}: the artifact {name!r} is not in the bundle")
