"""What every command shares: `--json`, `--seed`, the clock, and progress on standard error."""

from __future__ import annotations

import contextlib
import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from prism.cli.answer import Answer, console, say, write
from prism.cli.params import seed_option


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command."""

    seed: int
    as_json: bool

    @contextmanager
    def progress(self) -> Iterator[Bar]:
        """A progress bar on standard error; silent when that is no terminal."""
        out = console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
        )
        with Progress(
            *columns, console=out, disable=not sys.stderr.isatty(), transient=True
        ) as bars:
            yield Bar(bars)


class Bar:
    """A progress bar whose length may change while it runs."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._task = bars.add_task("start", total=1)

    def __call__(self, done: float, total: float, what: str) -> None:
        """Show that `done` of `total` are behind us and `what` is going on."""
        self._bars.update(self._task, completed=done, total=max(total, 1), description=what)


def show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """A warning as people read it: without the place in our source."""
    say(f"warning: {message}")


def answering(name: str) -> Callable[[Callable[..., Answer]], Callable[..., None]]:
    """A decorator: the function's `Answer` is printed and becomes the exit status.

    Adds `--json` and `--seed`; the function gets them as `run`. `name` goes into the schema.
    """

    def decorate(function: Callable[..., Answer]) -> Callable[..., None]:
        @seed_option
        @click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
        @functools.wraps(function)
        def command(*, seed: int, as_json: bool, **options: Any) -> None:  # noqa: ANN401
            start = time.perf_counter()
            # user code may print when it is imported or traced: only the answer is for stdout
            with contextlib.redirect_stdout(sys.stderr), warnings.catch_warnings():
                warnings.showwarning = show_warning
                answer = function(run=Run(seed, as_json), **options)
            elapsed_s = time.perf_counter() - start
            write(answer, command=name, seed=seed, elapsed_s=elapsed_s, as_json=as_json)
            click.get_current_context().exit(answer.status)

        return command

    return decorate
