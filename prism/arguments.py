"""The arguments of a call: put in the program's order, and read as NumPy arrays that fit it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism import dlpack
from prism.dtypes import TOLERANCES, dtype_of
from prism.errors import SizeError, UsageError
from prism.ir import Argument, Program

Array = NDArray[np.generic]


def in_order(
    program: Program, given: Sequence[object], named: Mapping[str, object]
) -> tuple[object, ...]:
    """The arguments of a call in the program's order: those by position, then those by name.

    Raises:
        UsageError: a name is unknown or given twice, or the number is wrong.
    """
    names = [a.name for a in program.arguments]
    for name in named:
        if name not in names[len(given) :]:
            problem = "is given twice" if name in names else "is unknown"
            raise UsageError(
                f"argument {name!r} {problem}: {program.name} takes {', '.join(names)}"
            )
    every = (*given, *(named[name] for name in names[len(given) :] if name in named))
    if len(every) != len(names):
        raise UsageError(
            f"{program.name} takes {len(names)} arrays ({', '.join(names)}), not {len(every)}"
        )
    return every


def as_arrays(
    program: Program, sizes: Mapping[str, int], dtype: str, given: Sequence[object]
) -> list[Array]:
    """The arguments as C-contiguous NumPy arrays, copied only where they are not.

    Raises:
        UsageError: no array, or of another dtype.
        SizeError: a shape the program was not optimized for.
    """
    return [
        _as_array(program, argument, sizes, dtype_of(dtype), value)
        for argument, value in zip(program.arguments, given, strict=True)
    ]


def shape_given(value: object) -> tuple[int, ...]:
    """The shape of what is given for an argument, wherever its elements lie.

    Raises:
        UsageError: it is no array.
    """
    shape = getattr(value, "shape", None)
    if shape is None:
        return _read(value, "an argument", np.dtype(np.float64)).shape
    return tuple(int(extent) for extent in shape)


def shape_of(argument: Argument, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape an argument must have."""
    return tuple(1 if d is None else sizes[d] for d in argument.axes)


def _as_array(
    program: Program,
    argument: Argument,
    sizes: Mapping[str, int],
    dtype: np.dtype[Any],
    value: object,
) -> Array:
    what = f"argument {argument.name!r} of {program.name}"
    array = _read(value, what, dtype)
    if array.dtype != dtype:
        other = array.dtype.name
        instead = f" or optimize with dtype={other!r}" if other in TOLERANCES else ""
        if dtype.name == "bfloat16" and other in {"uint16", "int16"}:
            instead = "; if these are the bits of bfloat16 numbers, view(ml_dtypes.bfloat16)"
        raise UsageError(
            f"{what} has dtype {array.dtype}, the kernel is made for {dtype}: cast it "
            f"(array.astype({dtype.name!r})){instead}"
        )
    shape = shape_of(argument, sizes)
    if array.shape != shape:
        axes = ", ".join("1" if d is None else d for d in argument.axes)
        raise SizeError(
            f"{what} has shape {array.shape}, the kernel is made for {shape} ({axes}): "
            "optimize the program for these sizes as well"
        )
    array = np.asarray(array, order="C")
    return array if array.flags.aligned else array.copy()


def _read(value: object, what: str, dtype: np.dtype[Any]) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(f"{what} is a masked array: fill it first (array.filled(...))")
    if isinstance(value, bool | int | float | np.integer | np.floating):
        return _scalar(value, what, dtype)
    given: Any = value
    try:
        if hasattr(given, "__array__"):
            return np.asarray(given)
        if hasattr(given, "__dlpack__"):
            return np.from_dlpack(given)
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        bits = _bfloat16_bits(given)
        if bits is not None:
            return bits.view(dtype_of("bfloat16"))
        raise UsageError(f"{what} cannot be read as a NumPy array: {error}") from error
    raise UsageError(f"{what} must be an array, not {type(value).__name__}")


def _scalar(
    value: float | np.integer[Any] | np.floating[Any], what: str, dtype: np.dtype[Any]
) -> Array:
    """A number in the kernel's dtype."""
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    with np.errstate(over="ignore"):
        array = np.asarray(number).astype(dtype)
    if np.isinf(array) and not (isinstance(value, float | np.floating) and np.isinf(value)):
        raise UsageError(f"{what} is {value}, more than {dtype} holds")
    return array


def _bfloat16_bits(value: object) -> NDArray[np.uint16] | None:
    """What NumPy cannot read, if that is for its dtype: PyTorch has bfloat16, NumPy has not."""
    try:
        return dlpack.bits_of(value)
    except Exception:  # whatever the producer may raise: NumPy's own error is the one to show
        return None
