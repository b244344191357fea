"""What a result comes from: the versions, the source and the machine that made it.

The source is a digest (`prism.sweep.source`), so a developer's run is never mixed with one of other
code.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from prism.plugins import Group
from prism.record import versions
from prism.sweep.settings import files_of
from prism.sweep.source import digest_of, groups_of

SOURCE = "prism source"
"""The digest's name among the versions."""

SOLVERS = ("egglog", "ortools", "z3-solver")
RIVALS = ("torch", "onnxruntime")


def versions_for(settings: Mapping[str, Any], base: Path) -> dict[str, str]:
    """The versions that a cell depends on, its source among them, as this process first saw it."""
    return {**_packages(settings["do"]), SOURCE: _first_seen(*_behind(settings, base))}


def source_now(settings: Mapping[str, Any], base: Path) -> str:
    """A digest of the source that a cell runs; `base` is where its files are."""
    return digest_of(*_behind(settings, base))


def _behind(settings: Mapping[str, Any], base: Path) -> tuple[frozenset[Group], tuple[Path, ...]]:
    programs = (path for _, path in files_of(settings, base) if path.suffix == ".py")
    return groups_of(settings), tuple(sorted(set(programs)))


_first_seen = cache(digest_of)


@cache
def _packages(do: str) -> dict[str, str]:
    found = dict(versions())
    if do in ("search", "verify"):
        found = {name: found[name] for name in ("python", "prism-superopt") if name in found}
    for name in (*SOLVERS, *(RIVALS if do == "bench" else ())):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine(*, gpu: bool) -> dict[str, Any]:
    """What this machine is."""
    found: dict[str, Any] = {
        "host": platform.node(),
        "system": platform.platform(),
        "cpu": _cpu_name(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }
    return {**found, "gpu": _gpu_name()} if gpu else found


def _cpu_name() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu_name() -> str | None:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return "; ".join(done.stdout.strip().splitlines()) or None
