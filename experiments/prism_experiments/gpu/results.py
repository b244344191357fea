"""The results file of a GPU session: its shape, how it is filled, written and read back.

One JSON object of schema `prism.gpu-results/1` (README.md beside run.py explains every field). It
is written whole after every step, so that the file on disk is always a sound one; `truncated` is a
status like any other: it says that there was no time, never that something failed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from prism.files import write_atomically
from prism_experiments.gpu.vetting import (
    Count,
    Each,
    Flag,
    Maybe,
    Named,
    Number,
    Scalar,
    Shape,
    Text,
    fields,
    read_vetted,
    vet,
)

SCHEMA = "prism.gpu-results/1"
MAX_BYTES = 64 * 2**20
MAX_TEXT = 2000
"""Characters kept of what a test or a compiler says."""


OURS = "prism"
"""The contestant the others are compared with."""


class Status(Enum):
    """How a stage, a cell or a contestant ended."""

    OK = "ok"
    FAILED = "failed"
    """It said why."""
    TIMEOUT = "timeout"
    """It was ended at its own limit."""
    CRASH = "crash"
    """Its process died."""
    GARBAGE = "garbage"
    """It answered with something that is no answer."""
    SKIPPED = "skipped"
    """It does not apply here."""
    TRUNCATED = "truncated"
    """There was no time for it."""


STATUS = Text(frozenset(status.value for status in Status))

STAGE = fields(name=Text(), status=STATUS, detail=Text(), seconds=Number(), limit_s=Number())

TEST = fields(
    name=Text(),
    outcome=Text(frozenset({"passed", "failed", "skipped", "crash", "timeout", "truncated"})),
    seconds=Number(),
    message=Text(),
)
TESTS = fields(runner=Text(), counts=Named(Count()), cases=Each(TEST))

CONFIG: Mapping[str, Shape] = {
    "graph": Text(),
    "par_sizes": Each(Named(Count())),
    "schedule": Named(Count()),
    "median_s": Maybe(Number()),
    "min_s": Maybe(Number()),
    "predicted_s": Maybe(Number()),
}
BEST = fields(
    **CONFIG,
    max_error=Maybe(Number()),
    registers=Maybe(Number()),
    shared_bytes=Maybe(Number()),
    spills=Maybe(Number()),
    facts=Named(Scalar()),
)
TUNED = fields(
    best=Maybe(BEST),
    space_size=Count(),
    stopped=Text(),
    elapsed_s=Number(),
    notes=Each(Text()),
)
TRIALS = fields(
    outcomes=Named(Count()),
    first_details=Named(Text()),
    timed=Each(fields(**CONFIG)),
)
CONTESTANT = fields(
    name=Text(),
    status=STATUS,
    detail=Text(),
    prepare_s=Maybe(Number()),
    error=Maybe(Number()),
    rounds=Count(),
    median_s=Maybe(Number()),
    min_s=Maybe(Number()),
    ratio=Maybe(Number()),
    bandwidth_fraction=Maybe(Number()),
)
CELL = fields(
    workload=Text(),
    shape=Text(),
    sizes=Named(Count()),
    dtype=Text(),
    status=STATUS,
    detail=Text(),
    seconds=Number(),
    limit_s=Number(),
    bytes=Maybe(Count()),
    tune=Maybe(TUNED),
    trials=Maybe(TRIALS),
    contestants=Each(CONTESTANT),
)
OVERHEAD = Each(
    fields(name=Text(), host_us=Maybe(Number()), device_us=Maybe(Number()), detail=Text())
)
RESULTS = fields(
    schema=Text(frozenset({SCHEMA})),
    prism_version=Text(),
    target=Text(),
    started_at=Text(),
    limit_s=Number(),
    elapsed_s=Number(),
    finished=Flag(),
    install=Text(),
    stages=Each(STAGE),
    environment=Named(Scalar()),
    tests=Maybe(TESTS),
    cells=Each(CELL),
    overhead=OVERHEAD,
    truncated=Each(Text()),
    trials_file=Maybe(Text()),
)


def new_results(version: str, target: str, started_at: str, limit_s: float) -> dict[str, Any]:
    """A session that has not begun."""
    return {
        "schema": SCHEMA,
        "prism_version": version,
        "target": target,
        "started_at": started_at,
        "limit_s": limit_s,
        "elapsed_s": 0.0,
        "finished": False,
        "install": "",
        "stages": [],
        "environment": {},
        "tests": None,
        "cells": [],
        "overhead": [],
        "truncated": [],
        "trials_file": None,
    }


def write_results(path: Path, results: Mapping[str, Any]) -> None:
    """Write the file whole or not at all, what is no JSON or no text for a terminal left out.

    Raises:
        ParseError: the results are not of the schema (a fault of the session).
        UsageError: the file cannot be written.
    """
    cleaned = clean(results)
    vet(cleaned, RESULTS)
    write_atomically(path, json.dumps(cleaned, indent=1, allow_nan=False) + "\n")


def read_results(path: Path) -> dict[str, Any]:
    """Read and vet a results file, as from a stranger.

    Raises:
        UsageError: it cannot be read.
        ParseError: it is no results file of this schema.
    """
    return read_vetted(path, RESULTS, "the results", MAX_BYTES)


_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def clean(value: Any) -> Any:  # noqa: ANN401 - JSON in, JSON out
    """JSON without what a results file must not hold: colours, control characters, NaN, infinity.

    Compilers and test runners write for terminals; a time that is infinite was not measured.
    """
    match value:
        case str():
            text = _UNPRINTABLE.sub("?", _ESCAPE.sub("", value))
            return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {clean(str(name)): clean(item) for name, item in value.items()}
        case list() | tuple():
            return [clean(item) for item in value]
        case _:
            return value
