"""Every error a user can meet, in one module: each says what is wrong, where, and what to do.

`PrismError` is the root; the command line turns it into one line and exit status 2. A limit that
was reached or a candidate that was not proved is a *value* (`Verdict`, `Enumeration.complete`),
never an exception.
"""

from __future__ import annotations

MAX_TEXT = 500
"""Characters of another's text that are shown."""


class PrismError(Exception):
    """Something the user gave (or the machine lacks) that stops the work."""


class UsageError(PrismError):
    """A command, option or argument that cannot be used as given."""


class TraceError(PrismError):
    """A program that Prism cannot trace; names the user's line."""


class GraphError(PrismError):
    """A program, sGraph or muGraph that breaks a rule of the IR.

    `kernel` and `node` are the indices of the place at fault, where there is one; a parser turns
    them into a line.
    """

    kernel: int | None = None
    node: int | None = None


class ParseError(PrismError):
    """Text (program, sGraph, artifact, record) that does not parse; names the place."""


class SizeError(PrismError):
    """Sizes or array shapes that do not fit the program."""


class AxiomError(PrismError):
    """An axiom file with a command or rule that is not allowed or not well formed."""


class PluginError(PrismError):
    """A plug-in that cannot be found loaded or made, or whose name is claimed twice."""


class KernelError(PrismError):
    """A kernel that cannot be emitted, compiled or launched for this target."""


class ClusterLostError(PrismError):
    """A cluster that went away, or has no machine left, while it was used."""


class DeviceLostError(KernelError):
    """A kernel broke its device for this process: nothing runs there until a new process does."""


def to_install(extra: str) -> str:
    """How an extra of pyproject.toml is installed, for messages."""
    return f"in Prism's checkout, pip install '.[{extra}]'"


def one_line(error: BaseException) -> str:
    """What an error of somebody else's code says, whatever that is: its type and text, in short."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # the text is the user's code too
        text = "(its text cannot be read)"
    text = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}..."
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
