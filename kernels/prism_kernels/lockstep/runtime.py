"""All that a rewritten kernel can reach, besides its constants and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any, NoReturn, cast

import numpy as np

from prism_kernels.lockstep import matrices
from prism_kernels.lockstep.copies import Copies
from prism_kernels.lockstep.functions import FUNCTIONS, ROUND
from prism_kernels.lockstep.matrices import (
    NUMBERS,
    MisalignedError,
    not_number,
    packer,
    row_of,
)
from prism_kernels.lockstep.names import LOW


class OutsideError(Exception):
    """An index that is not below the size."""


class UnwrittenError(Exception):
    """A read of a local element that holds nothing."""


class EndlessError(Exception):
    """A loop with more iterations than the limit."""


def _raiser(error: type[Exception]) -> Callable[[int], NoReturn]:
    def fail(number: int) -> NoReturn:
        raise error(number)

    return fail


def _int64(value: int) -> int:
    """Wrapped as a signed 64-bit integer."""
    return ((value - LOW) & (2**64 - 1)) + LOW


def _is_number(value: object) -> bool:
    """Whether an element of shared memory is a float32 number, no packed word."""
    return type(value) is np.float32


GLOBALS: Mapping[str, Any] = MappingProxyType(
    {
        "len": len,
        "range": range,
        "_f32": np.float32,
        "_int64": _int64,
        "_outside": _raiser(OutsideError),
        "_unwritten": _raiser(UnwrittenError),
        "_endless": _raiser(EndlessError),
        "_copies_of": Copies,
        "_row": row_of,
        "_is_number": _is_number,
        "_not_number": not_number,
        "_misaligned": _raiser(MisalignedError),
        **{f"_packed_{dtype}": packer(dtype) for dtype in NUMBERS},
        **{name: function.call for name, function in FUNCTIONS.items()},
        **{name: function.call for name, function in matrices.FUNCTIONS.items()},
        **{f"_round_{dtype}": rounded for dtype, rounded in ROUND.items()},
    }
)
"""Name -> value; no builtins."""


def define(text: str, constants: Mapping[str, Any]) -> FunctionType:
    """The function `kernel` that a rewritten text defines."""
    namespace: dict[str, Any] = {"__builtins__": {}, **GLOBALS, **constants}
    exec(compile(text, "<lockstep>", "exec"), namespace)  # the text was written by us
    return cast("FunctionType", namespace["kernel"])
