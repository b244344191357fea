"""Where in the user's code an error happened: every `TraceError` starts with `file:line`."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, TracebackType

import numpy as np

from prism.errors import TraceError

_NOT_THE_USER = tuple(
    str(package) + os.sep for package in (Path(__file__).parent.parent, Path(np.__file__).parent)
)


def trace_error(message: str) -> TraceError:
    """An error at the line of the user's code that is running."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to walk up
    while frame is not None and not _is_users(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return TraceError(_on_one_line(message))
    return TraceError(_on_one_line(f"{frame.f_code.co_filename}:{frame.f_lineno}: {message}"))


def definition_error(fn: Callable[..., object], message: str) -> TraceError:
    """An error at the line where the user's function is defined."""
    code = getattr(_unwrapped(fn), "__code__", None)
    place = function_name(fn)
    if isinstance(code, CodeType):
        place = f"{code.co_filename}:{code.co_firstlineno}"
    return TraceError(_on_one_line(f"{place}: {message}"))


def raised_error(error: BaseException, message: str) -> TraceError:
    """An error at the innermost line of the user's code that `error` passed through."""
    place = ""
    step: TracebackType | None = error.__traceback__
    while step is not None:
        if _is_users(step.tb_frame.f_code):
            place = f"{step.tb_frame.f_code.co_filename}:{step.tb_lineno}: "
        step = step.tb_next
    return TraceError(_on_one_line(f"{place}{message}"))


def function_name(fn: Callable[..., object]) -> str:
    """What to call a function that may be a partial or another callable object."""
    inner = getattr(fn, "func", fn)
    return str(getattr(inner, "__name__", type(fn).__name__))


def _is_users(code: CodeType) -> bool:
    return not code.co_filename.startswith(_NOT_THE_USER)


def _unwrapped(fn: Callable[..., object]) -> object:
    try:
        return inspect.unwrap(fn)
    except ValueError:  # it wraps itself
        return fn


def _on_one_line(message: str) -> str:
    """What the user's code says may have several lines."""
    return " ".join(filter(None, (line.strip() for line in message.splitlines())))
