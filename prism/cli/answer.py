"""What a command gives back, and the two ways it is said: tables for people, JSON for programs.

With `--json` standard output carries exactly one JSON object and nothing else; after an error it
carries nothing. Progress, warnings and errors always go to standard error.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from importlib.metadata import version
from typing import Any

from rich.console import Console, RenderableType

PLAIN_WIDTH = 200
"""Columns for a pipe or a file: tables are as wide as their contents, up to this."""


class Status(IntEnum):
    """Exit statuses."""

    YES = 0
    NO = 1
    """A negative answer: not proved, unsound, nothing found."""
    BAD_INPUT = 2
    GAVE_UP = 3
    """A limit was reached before there was an answer."""
    INTERNAL = 70
    """A fault of ours (EX_SOFTWARE)."""
    INTERRUPTED = 130
    BROKEN_PIPE = 141
    """Whoever read our output went away: what a shell reports for SIGPIPE."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A command's result: JSON fields, the same for people, and the exit status."""

    fields: dict[str, Any]
    view: Sequence[RenderableType] = field(default=())
    status: Status = Status.YES


class PlainConsole(Console):
    """A console that leaves a broken pipe to its caller (rich would end the process)."""

    def on_broken_pipe(self) -> None:
        """Pass the error on: rich calls this while it handles it."""
        raise  # noqa: PLE0704 - see above


def console(*, stderr: bool = False) -> PlainConsole:
    """A console that prints text as it is: brackets and colons mean themselves (`m[X,r,x]`).

    Colours are off when the stream is no terminal or NO_COLOR is set.
    """
    stream = sys.stderr if stderr else sys.stdout
    is_plain = not stream.isatty() or bool(os.environ.get("NO_COLOR"))
    return PlainConsole(
        file=stream,
        color_system=None if is_plain else "auto",
        markup=False,
        emoji=False,
        highlight=False,
        width=None if stream.isatty() else PLAIN_WIDTH,
    )


def say(message: str) -> None:
    """Print one message on standard error, wrapped by nobody."""
    console(stderr=True).print(message, soft_wrap=True)


def envelope(command: str, seed: int, elapsed_s: float, fields: dict[str, Any]) -> dict[str, Any]:
    """The JSON object of a command: what all objects carry, then the command's own fields."""
    return {
        "schema": f"prism.cli.{command}/1",
        "prism_version": version("prism-superopt"),
        "seed": seed,
        "elapsed_s": elapsed_s,
        **fields,
    }


def write(answer: Answer, *, command: str, seed: int, elapsed_s: float, as_json: bool) -> None:
    """Put the answer on standard output."""
    if as_json:
        data = envelope(command, seed, elapsed_s, answer.fields)
        sys.stdout.write(json.dumps(plain(data), allow_nan=False) + "\n")
    else:
        out = console()
        for part in answer.view:
            if isinstance(part, str):
                out.file.write(f"{part}\n")  # as it is; rich takes 60 us for each of its lines
            else:
                out.print(part)
    sys.stdout.flush()


def plain(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """The value with numbers that JSON lacks (infinities, NaN) as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value
