"""Finding a program by name: a shipped workload's, or `path.py:function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prism.errors import UsageError
from prism.frontend.trace import trace
from prism.ir import Program
from prism.plugins import Group, load


def load_program(spec: str) -> tuple[Callable[..., Any], Program]:
    """The function that `spec` names, and the program it computes.

    Raises:
        PluginError: there is no such workload, file or function.
        UsageError: what `spec` names is no function.
        TraceError: the function cannot be traced.
    """
    fn = load(Group.WORKLOAD, spec)
    if not callable(fn):
        raise UsageError(f"{spec} is {type(fn).__name__}, not a function")
    return fn, trace(fn)
