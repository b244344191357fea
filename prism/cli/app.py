"""The `prism` command: finds the subcommand's module, runs it, and turns errors into statuses.

Only the module of the command that is called is imported. Every error meets the user here, as one
message on standard error: status 2 for what the user can mend, 70 for a fault of ours.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, TextIO

import click

from prism.cli.answer import Status, say
from prism.errors import PrismError, one_line

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "search": ("prism.cli.search", "Find and verify symbolic graphs of a program."),
        "tune": ("prism.cli.tune", "Find the fastest kernel of a search artifact for given sizes."),
        "optimize": ("prism.cli.optimize", "Search and tune in one go, cached."),
        "verify": ("prism.cli.verify", "Is one program equal to another, for all sizes?"),
        "bench": ("prism.cli.bench", "Time the tuned kernel beside other implementations."),
        "sweep": ("prism.cli.sweep", "Run a grid of experiments, resumable, one line per cell."),
        "report": ("prism.cli.report", "Runs as one page: tables, charts, drawn graphs."),
        "show": ("prism.cli.show", "Print a search artifact, or one of its graphs."),
        "list": ("prism.cli.listing", "List what is installed: workloads, encodings, ..."),
        "axioms": ("prism.cli.axioms", "The axiom files that verification uses."),
    }
)
"""Command -> (module whose `command` it is, one line of help)."""

SEARCH_HALF = ("egglog", "ortools", "z3")
"""Packages that a machine which only tunes may lack."""


class PrismGroup(click.Group):
    """Subcommands by name, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of a typical session."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's module.

        Raises:
            click.ClickException: a package that the command needs is not installed.
        """
        del ctx
        if cmd_name not in COMMANDS:
            return None
        try:
            module = importlib.import_module(COMMANDS[cmd_name][0])
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in SEARCH_HALF:
                raise
            raise click.ClickException(
                f"prism {cmd_name} needs {package}, which is not installed here; search where it "
                "is, and tune here from the artifact"
            ) from error
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 - as click declares it
        **extra: Any,  # noqa: ANN401 - as click declares it
    ) -> NoReturn:
        """Run the command line and exit with its status."""
        del complete_var, standalone_mode
        extra.pop("windows_expand_args", None)
        arguments = list(sys.argv[1:] if args is None else args)
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:  # closed by the shell (`>&-`)
                setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - for good
            # any text can be printed: a path need not be UTF-8, nor a terminal know more than ASCII
            if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        sys.exit(self._status(arguments, prog_name or "prism", extra))

    def _status(self, args: list[str], prog_name: str, extra: dict[str, Any]) -> int:
        try:
            with self.make_context(prog_name, args, **extra) as ctx:
                self.invoke(ctx)
        except click.exceptions.Exit as done:
            return done.exit_code
        except BaseException as error:
            if os.environ.get("PRISM_DEBUG") and is_ours(error):
                raise
            return report(error)
        return Status.YES


def status_of(error: BaseException) -> Status:
    """The exit status an error stands for."""
    match error:
        case BrokenPipeError():
            return Status.BROKEN_PIPE
        case click.Abort() | KeyboardInterrupt():
            return Status.INTERRUPTED
        case PrismError() | click.ClickException() | OSError() | MemoryError() | SystemExit():
            return Status.BAD_INPUT
        case _:
            return Status.INTERNAL


def report(error: BaseException) -> Status:
    """Say what went wrong, in one message, and give the exit status."""
    status = status_of(error)
    if status is Status.BROKEN_PIPE:
        _discard(sys.stdout)
        return status
    try:
        say(message_of(error))
    except OSError:  # nobody can be told: the status says it
        _discard(sys.stderr)
    return status


def _discard(stream: TextIO) -> None:
    """Nobody reads a stream: what is still buffered must not fail once more when Python exits."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def message_of(error: BaseException) -> str:
    """What to tell the user about an error."""
    if status_of(error) is Status.INTERRUPTED:
        notes = getattr(error, "__notes__", ())
        return f"interrupted; {'; '.join(notes) or 'nothing was saved'}"
    return f"{'internal error' if is_ours(error) else 'error'}: {_cause(error)}"


def is_ours(error: BaseException) -> bool:
    """Whether an error is a fault of Prism, not of its user."""
    return status_of(error) is Status.INTERNAL


def _cause(error: BaseException) -> str:
    match error:
        case click.UsageError():
            path = error.ctx.command_path if error.ctx is not None else "prism"
            return f"{error.format_message()} (see {path} --help)"
        case click.ClickException():
            return error.format_message()
        case PrismError():
            return str(error)
        case _:
            return _system_cause(error)


def _system_cause(error: BaseException) -> str:
    match error:
        case OSError():
            return f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
        case MemoryError():
            return "not enough memory for these sizes"
        case SystemExit():
            return "the user's code called sys.exit"
        case _:
            return f"{one_line(error)}; run with PRISM_DEBUG=1 for the traceback"


@click.group(
    cls=PrismGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(package_name="prism-superopt", prog_name="prism")
def main() -> None:
    """Prism: symbolic superoptimizer for tensor programs.

    Exit status: 0 yes, 1 a negative answer, 2 bad usage or input, 3 gave up at a limit,
    130 interrupted.
    """
