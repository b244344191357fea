"""Refuses a grid whose cells a command would refuse: before anything runs, not cell by cell."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from prism.errors import UsageError
from prism.sweep.grid import Grid
from prism.sweep.settings import command_lines


def require_right_options(grid: Grid, path: Path) -> None:
    """Read the cells' command lines as the commands will; nothing of them is run.

    Each setting is read once with each of its values, in the first cell that has it.

    Raises:
        UsageError: names the cell and the option.
    """
    seen: set[str] = set()
    for cell in grid.cells:
        fresh = {f"{cell.settings['do']} {name} {value}" for name, value in cell.settings.items()}
        if fresh <= seen:
            continue
        seen |= fresh
        for name, *arguments in command_lines(cell.settings, grid.base):
            try:
                command = importlib.import_module(f"prism.cli.{name}").command
                command.make_context(name, arguments)
            except ImportError:  # the command itself says which package is missing
                return
            except click.UsageError as error:
                which = ", ".join(f"{axis} {label}" for axis, label in cell.labels.items())
                raise UsageError(
                    f"{path}: cell {cell.index + 1} ({which}): {error.format_message()}"
                ) from error
