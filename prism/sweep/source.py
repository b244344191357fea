"""A digest of the source that a cell runs: Prism, and of plug-ins what such a cell may load.

Versions do not tell two states of a working tree apart, so the files themselves count, as they are
installed. What is not loaded does not: a search for every device is the same whatever emits
kernels. Of a program, the modules it imports are read off its import statements; of every other
plug-in all of its package counts, since what a package does at run time cannot be read off.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from prism.plugins import Group, installed
from prism.sweep.settings import TIMED

SEARCHED = (Group.AXIOMS, Group.ENCODING, Group.PROVER, Group.PRUNER, Group.WORKLOAD)
"""What every cell may load."""
MEASURED = (Group.STRATEGY, Group.TARGET)
"""What those with a target load as well."""

SUFFIXES: Mapping[Group, frozenset[str]] = MappingProxyType(
    {Group.AXIOMS: frozenset({".py", ".egg", ".toml"})}
)
"""Of a package's files, what is source; of other groups, Python alone."""
PYTHON = frozenset({".py"})

_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import\b|import[ \t]+([\w., \t]+))", re.MULTILINE
)


def groups_of(settings: Mapping[str, Any]) -> frozenset[Group]:
    """The kinds of plug-in that a cell may load."""
    groups = set(SEARCHED)
    if settings["do"] in TIMED or "target" in settings:
        groups |= set(MEASURED)
    if settings["do"] == "bench":
        groups.add(Group.CONTESTANT)
    return frozenset(groups)


def digest_of(groups: frozenset[Group], programs: Iterable[Path]) -> str:
    """A digest of Prism, of these plug-ins, and of what a user's programs import of any plug-in.

    Axiom files are source too; grids are not, since a cell is keyed by what it asks.
    """
    files = {f"prism/{name}": path for name, path in _tree("prism", PYTHON)}
    found = _Followed({_top(p.entry.module) for g in Group for p in installed(g).values()})
    for group in groups:
        for plugin in installed(group).values():
            module = plugin.entry.module
            if group is Group.WORKLOAD:
                found.module(module)
            else:
                found.package(_top(module), SUFFIXES.get(group, PYTHON))
    for path in programs:
        found.imports(path, "")
    digest = hashlib.sha256()
    for name, path in sorted({**files, **found.files}.items()):
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode(errors="surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:16]


class _Followed:
    """Files of plug-in packages, and of what these import of each other."""

    def __init__(self, packages: set[str]) -> None:
        self.files: dict[str, Path] = {}
        self._packages = packages - {"prism"}  # that counts as a whole anyway
        self._seen: set[str] = set()

    def package(self, name: str, suffixes: frozenset[str]) -> None:
        """All of a top-level package or module."""
        if name in self._packages:
            for file, path in _tree(name, suffixes):
                self._add(f"{name}/{file}", path)

    def module(self, name: str) -> None:
        """A module; of a package all modules, and of those around it what they run first."""
        top, *inner = name.split(".")
        if top not in self._packages or name in self._seen:
            return
        self._seen.add(name)
        for root in _roots(top):
            place, at = root, top
            for part in inner:
                self._add(f"{at}/__init__.py", place / "__init__.py")
                place, at = place / part, f"{at}/{part}"
            self._add(f"{at}.py", place.with_name(f"{place.name}.py"))
            for file, path in _below(place, PYTHON):
                self._add(f"{at}/{file}", path)
        if not inner and not _roots(top):
            self.package(top, PYTHON)  # one file

    def _add(self, name: str, path: Path) -> None:
        if name not in self.files and path.is_file():
            self.files[name] = path
            if path.suffix == ".py":
                self.imports(path, name.rpartition("/")[0].replace("/", "."))

    def imports(self, path: Path, package: str) -> None:
        """The modules that a file of a package names in its import statements."""
        for one, several in _IMPORT.findall(path.read_text(encoding="utf-8", errors="replace")):
            words = (word.split() for word in several.split(","))
            for name in [one] if one else [word[0] for word in words if word]:
                self.module(_absolute(name, package))


def _absolute(name: str, package: str) -> str:
    """`..sizes` in the package a.b -> a.sizes."""
    rest = name.lstrip(".")
    if not (dots := len(name) - len(rest)):
        return name
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - dots + 1], *([rest] if rest else [])])


def _top(module: str) -> str:
    return module.partition(".")[0]


def _roots(package: str) -> tuple[Path, ...]:
    """The folders of an installed package, which is not imported for it; none of a module."""
    spec = importlib.util.find_spec(package)
    places = None if spec is None else spec.submodule_search_locations
    return tuple(map(Path, places or ()))


def _tree(package: str, suffixes: frozenset[str]) -> Iterator[tuple[str, Path]]:
    """The files of an installed package or module, by name; none where it is not there."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None and Path(spec.origin).is_file():
            yield Path(spec.origin).name, Path(spec.origin)
        return
    for root in _roots(package):
        yield from _below(root, suffixes)


def _below(root: Path, suffixes: frozenset[str]) -> Iterator[tuple[str, Path]]:
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            if path.suffix in suffixes:
                yield path.relative_to(root).as_posix(), path
