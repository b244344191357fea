"""The plug-in door: every alternative (encoding, pruner, target, workload, axiom set, grid, ...).

A plug-in is named by an entry point in a group below, ours included, or by `FILE.py:ATTRIBUTE`. A
name claimed by two distributions is an error that names both; an unknown name lists the known ones.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from enum import Enum
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from prism.errors import PluginError, PrismError, one_line


class Group(Enum):
    """The kinds of plug-in; the value is the entry-point group."""

    ENCODING = "prism.encodings"
    AXIOMS = "prism.axioms"
    CONTESTANT = "prism.contestants"
    GRID = "prism.grids"
    PRUNER = "prism.pruners"
    PUBLISHED = "prism.published"
    STRATEGY = "prism.strategies"
    TARGET = "prism.targets"
    PROVER = "prism.provers"
    WORKLOAD = "prism.workloads"


SHIPPED_AXIOMS = "prism"
"""The installed axiom set that is used unless another is asked for."""

_MADE = frozenset(
    {
        Group.CONTESTANT,
        Group.ENCODING,
        Group.PROVER,
        Group.PRUNER,
        Group.STRATEGY,
        Group.TARGET,
    }
)
"""Groups whose plug-ins are called to make what is used; of a workload its loader says the same."""


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
        except (PrismError, MemoryError):
            raise
        except Exception as error:
            raise PluginError(
                f"plug-in {self.name!r} ({self.source}) cannot be loaded: {one_line(error)}"
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
        PluginError: no such plug-in, file or attribute, or it cannot be called where the group's
            plug-ins are.
    """
    found = _find(group, name)
    if group in _MADE and not callable(found):
        raise PluginError(not_callable(f"{group.name.lower()} {name!r}", found))
    return found


def make(group: Group, name: str, *args: object) -> Any:  # noqa: ANN401 - see `load`
    """Load a plug-in and call it with the arguments, which makes what the group's protocol says.

    Raises:
        PluginError: it cannot be loaded, or fails to be made.
    """
    return made(f"{group.name.lower()} {name!r}", load(group, name), *args)


def made(what: str, factory: Any, *args: object) -> Any:  # noqa: ANN401 - see `load`
    """Call a plug-in's class or function; `what` names it in errors.

    Raises:
        PluginError: it cannot be called, or fails.
    """
    if not callable(factory):
        raise PluginError(not_callable(what, factory))
    try:
        return factory(*args)
    except (PrismError, MemoryError):
        raise
    except Exception as error:
        raise PluginError(f"{what} cannot be made: {one_line(error)}") from error


def not_callable(what: str, value: object) -> str:
    """The message for a plug-in that cannot be called."""
    kind = "None" if value is None else f"a value of type {type(value).__name__}"
    return f"{what} is {kind}, not a class: name the class itself"


def _find(group: Group, name: str) -> Any:  # noqa: ANN401 - see `load`
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


def file_of(group: Group, name: str, suffix: str) -> Path:
    """The file that an installed plug-in names, such as a grid; or the path itself, if it is one.

    Raises:
        PluginError: no such plug-in, or it names no file.
    """
    if name.endswith(suffix) or os.sep in name:
        return Path(name)
    known = installed(group)
    if name not in known:
        is_there = f"; the path of that file is .{os.sep}{name}" if Path(name).is_file() else ""
        raise PluginError(
            f"no {group.name.lower()} named {name!r}; known: {', '.join(known) or 'none'} "
            f"(or give a path that ends in {suffix}){is_there}"
        )
    found = known[name].load()
    if not isinstance(found, str | os.PathLike):
        raise PluginError(f"{group.name.lower()} {name!r} ({known[name].source}) names no file")
    return Path(found)


def load_attribute(spec: str) -> Any:  # noqa: ANN401 - whatever the user's file defines
    """Import `FILE.py` and return its attribute, from a spec `FILE.py:ATTRIBUTE`.

    Raises:
        PluginError: the file is missing, fails to run, or lacks the attribute.
    """
    file, _, attribute = spec.rpartition(":")
    path = _existing(file)
    if path is None:
        raise PluginError(f"{spec}: there is no file {file}")
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    module_name = f"prism_user_{path.stem}_{digest}"
    spec_ = importlib.util.spec_from_file_location(module_name, path)
    if spec_ is None or spec_.loader is None:
        raise PluginError(f"{spec}: {file} is not a Python file")
    module = importlib.util.module_from_spec(spec_)
    sys.modules[module_name] = module
    try:
        spec_.loader.exec_module(module)
    except BaseException as error:
        sys.modules.pop(module_name, None)
        if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
            raise
        raise PluginError(f"{spec}: {file} fails when imported: {one_line(error)}") from error
    if not hasattr(module, attribute):
        names = ", ".join(_defined_in(module)) or "nothing"
        raise PluginError(f"{spec}: {file} has no {attribute!r}; it defines {names}")
    return getattr(module, attribute)


def _existing(file: str) -> Path | None:
    try:
        path = Path(file).resolve()
        return path if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, a loop of links
        return None


def _defined_in(module: ModuleType) -> list[str]:
    """The public names that a module defines itself, what it imported left out."""
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", module.__name__) == module.__name__
        and not isinstance(value, ModuleType)
    )
