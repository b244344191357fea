"""Refuses a grid whose cells a command would refuse: before anything runs, not cell by cell."""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path

import click

from prism.errors import UsageError
from prism.sweep.checking import aspects_of
from prism.sweep.grid import Grid, Planned
from prism.sweep.settings import SEARCHING, command_lines

TOGETHER = ("mode", "generator", "concrete", "verify", "loop_dims")
"""Settings that a search refuses only together."""


def require_right_options(grid: Grid, path: Path) -> None:
    """Read the cells' command lines as the commands will; nothing of them is run.

    Each setting is read once with each of its values, in the first cell that has it.

    Raises:
        UsageError: names the cell and the option.
    """
    seen: set[str] = set()
    for cell in grid.cells:
        aspects = aspects_of(cell.settings)
        aspects.add(str([cell.settings.get(name) for name in TOGETHER]))
        if aspects <= seen:
            continue
        seen |= aspects
        try:
            _read(cell, grid.base)
        except ImportError:  # the command itself says which package is missing
            return
        except (click.UsageError, UsageError) as error:
            said = error.format_message() if isinstance(error, click.UsageError) else str(error)
            which = ", ".join(f"{axis} {label}" for axis, label in cell.labels.items())
            raise UsageError(f"{path}: cell {cell.index + 1} ({which}): {said}") from error


def _read(cell: Planned, base: Path) -> None:
    """Let click read the cell's commands, and a search check what it is asked."""
    for name, *arguments in command_lines(cell.settings, base):
        command = importlib.import_module(f"prism.cli.{name}").command
        given = command.make_context(name, arguments).params
        if name in SEARCHING:
            search = importlib.import_module("prism.cli.search")
            known = {f.name for f in fields(search.SearchOptions)} | {"budget"}
            if name == "optimize":
                given = importlib.import_module("prism.cli.optimize").with_defaults(given)
            else:
                given["verify"] = search.how_to_verify(
                    given["verify"], given["mode"], given["output"]
                )
            # the sizes are the program's to check, and the target is not made
            chosen = {k: v for k, v in given.items() if k in known - {"sizes"}}
            search.make_options(**chosen)
