"""NumPy's own functions called on traced tensors: which of them Prism knows, by one table.

NumPy hands such calls over through `__array_ufunc__` and `__array_function__`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from prism.frontend import composites, functions
from prism.frontend.einsum import einsum
from prism.frontend.site import trace_error
from prism.frontend.tensor import Tensor

_KNOWN: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType(
    {
        np.add: functions.add,
        np.subtract: functions.subtract,
        np.multiply: functions.multiply,
        np.divide: functions.divide,
        np.matmul: functions.matmul,
        np.power: functions.power,
        np.float_power: functions.power,
        np.negative: functions.negative,
        np.reciprocal: functions.reciprocal,
        np.exp: functions.exp,
        np.log: functions.log,
        np.sqrt: functions.sqrt,
        np.square: functions.square,
        np.absolute: functions.abs,
        np.maximum: functions.maximum,
        np.minimum: functions.minimum,
        np.tanh: functions.tanh,
        np.sum: functions.sum,
        np.mean: functions.mean,
        np.max: functions.max,
        np.min: functions.min,
        np.amax: functions.max,
        np.amin: functions.min,
        np.var: composites.var,
        np.expand_dims: functions.expand_dims,
        np.swapaxes: functions.swapaxes,
        np.transpose: functions.transpose,
        np.einsum: einsum,
    }
)


def call_ufunc(
    ufunc: Callable[..., Any], method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Tensor:
    """A ufunc on tensors."""
    if method != "__call__":
        raise trace_error(f"np.{ufunc.__name__}.{method} is not supported on a traced tensor")
    return call_function(ufunc, args, kwargs)


def call_function(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Tensor:
    """A NumPy function on tensors.

    Raises:
        TraceError: Prism has no such function, or not with these arguments.
    """
    if func not in _KNOWN:
        known = ", ".join(sorted(f.__name__ for f in _KNOWN))
        raise trace_error(
            f"unknown function np.{func.__name__} on a traced tensor; supported are {known}, "
            "and the functions of prism"
        )
    ours = _KNOWN[func]
    try:
        bound = inspect.signature(ours).bind(*args, **kwargs)
    except TypeError as error:
        raise trace_error(
            f"np.{func.__name__}: {error}; supported arguments are {inspect.signature(ours)}"
        ) from error
    result: Tensor = ours(*bound.args, **bound.kwargs)
    return result
