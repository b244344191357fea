"""What a result comes from: the versions, the source and the machine that made it.

Versions do not tell two states of a working tree apart, so the source itself counts: a digest of
the files of Prism and of every package that brings plug-ins, as they are installed. A developer's
run is thus never mixed with one of other code.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from prism.plugins import Group, installed
from prism.record import versions

SOURCE = "prism source"
"""The digest's name among the versions."""

SOLVERS = ("egglog", "ortools", "z3-solver")
RIVALS = ("torch", "onnxruntime")


def versions_for(do: str) -> dict[str, str]:
    """The versions that what a cell does depends on, its source among them."""
    return {**_packages(do), SOURCE: source()}


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


@cache
def source() -> str:
    """The digest of the source, as it was when this process first asked."""
    return source_now()


def source_now() -> str:
    """A digest of the source files of Prism and of the packages that bring plug-ins.

    Axiom files are source too; grids are not, since a cell is keyed by what it asks.
    """
    entries = [(group, p.entry.module) for group in Group for p in installed(group).values()]
    suffixes: dict[str, set[str]] = {"prism": {".py"}}
    for group, module in entries:
        own = {".py", ".egg", ".toml"} if group is Group.AXIOMS else {".py"}
        suffixes.setdefault(module.partition(".")[0], set()).update(own)
    digest = hashlib.sha256()
    for package, own in sorted(suffixes.items()):
        for name, path in _files(package, own):
            content = path.read_bytes()
            digest.update(f"{package}/{name}\0{len(content)}\0".encode(errors="surrogateescape"))
            digest.update(content)
    return digest.hexdigest()[:16]


def _files(package: str, suffixes: set[str]) -> Iterator[tuple[str, Path]]:
    """The files of an installed package or module, by name; none where it is not there."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None and Path(spec.origin).is_file():
            yield package, Path(spec.origin)
        return
    for root in map(Path, spec.submodule_search_locations):
        found = (
            Path(folder) / name
            for folder, _, names in os.walk(root)
            for name in names
            if Path(name).suffix in suffixes
        )
        yield from sorted((path.relative_to(root).as_posix(), path) for path in found)


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
