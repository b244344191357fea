"""The plug-in door: every alternative (encoding, pruner, strategy, target, workload, axiom set).

A plug-in is named by an entry point in a group below, ours included, or by `FILE.py:ATTRIBUTE`. A
name claimed by two distributions is an error that names both; an unknown name lists the known ones.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from prism.errors import PluginError


class Group(Enum):
    """The kinds of plug-in; the value is the entry-point group."""

    ENCODING = "prism.encodings"
    AXIOMS = "prism.axioms"
    PRUNER = "prism.pruners"
    STRATEGY = "prism.strategies"
    TARGET = "prism.targets"
    WORKLOAD = "prism.workloads"


@dataclass(frozen=True, slots=True)
class Plugin:
    """A named plug-in: where it comes from, loaded on demand."""

    name: str
    source: str
    entry: EntryPoint

    def load(self) -> Any:  # noqa: ANN401 - the group's protocol says what it is
        """Import the plug-in.

        Raises:
            PluginError: the import fails.
        """
        try:
            return self.entry.load()
        except (ImportError, AttributeError) as error:
            raise PluginError(
                f"plug-in {self.name!r} ({self.source}) cannot be loaded: {error}"
            ) from error


@cache
def installed(group: Group) -> dict[str, Plugin]:
    """All installed plug-ins of a group by name, sorted.

    Raises:
        PluginError: two distributions claim one name.
    """
    found: dict[str, Plugin] = {}
    for entry in sorted(entry_points(group=group.value), key=lambda e: e.name):
        owner = entry.dist.name if entry.dist is not None else "unknown distribution"
        source = f"{owner}: {entry.value}"
        other = found.get(entry.name)
        if other is not None and other.source != source:
            raise PluginError(
                f"{group.value}: the name {entry.name!r} is claimed twice, by {other.source} and "
                f"by {source}; uninstall one or give the path FILE.py:NAME"
            )
        found[entry.name] = Plugin(entry.name, source, entry)
    return found


def load(group: Group, name: str) -> Any:  # noqa: ANN401 - the group's protocol says what it is
    """Load the plug-in called `name`, or the attribute `FILE.py:ATTRIBUTE`.

    Raises:
        PluginError: no such plug-in, file or attribute.
    """
    if ".py:" in name:
        return load_attribute(name)
    if name.endswith(".py"):
        raise PluginError(f"{name} is a file: say what in it, {name}:NAME")
    known = installed(group)
    if name not in known:
        raise PluginError(
            f"no {group.name.lower()} named {name!r}; known: {', '.join(known) or 'none'} "
            "(or give FILE.py:NAME)"
        )
    return known[name].load()


def load_attribute(spec: str) -> Any:  # noqa: ANN401 - whatever the user's file defines
    """Import `FILE.py` and return its attribute, from a spec `FILE.py:ATTRIBUTE`.

    Raises:
        PluginError: the file is missing, fails to run, or lacks the attribute.
    """
    file, _, attribute = spec.rpartition(":")
    path = Path(file).resolve()
    if not path.is_file():
        raise PluginError(f"{spec}: there is no file {file}")
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    module_name = f"prism_user_{path.stem}_{digest}"
    spec_ = importlib.util.spec_from_file_location(module_name, path)
    if spec_ is None or spec_.loader is None:
        raise PluginError(f"{spec}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec_)
    sys.modules[module_name] = module
    try:
        spec_.loader.exec_module(module)
    except Exception as error:
        del sys.modules[module_name]
        raise PluginError(
            f"{spec}: {file} fails when imported: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, attribute):
        names = ", ".join(_defined_in(module)) or "nothing"
        raise PluginError(f"{spec}: {file} has no {attribute!r}; it defines {names}")
    return getattr(module, attribute)


def _defined_in(module: ModuleType) -> list[str]:
    """The public names that a module defines itself, what it imported left out."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", module.__name__) == module.__name__
        and not isinstance(value, ModuleType)
    )
