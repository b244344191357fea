"""How a program calls the operators that users define: by name, on tensors and on arrays."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any

import numpy as np

from prism.errors import UsageError
from prism.frontend import operations as do
from prism.frontend.functions import traced_among
from prism.frontend.site import trace_error
from prism.frontend.tensor import Tensor
from prism.ir import Along, Definition, evaluate_expression, spelled
from prism.operators import define_installed

Operator = Callable[..., Any]


class UnknownOperatorError(UsageError, AttributeError):
    """No table that was loaded defines this operator."""


def known() -> list[str]:
    """The operators that programs may call, by name."""
    define_installed()
    return sorted(spelled())


def operator(name: str) -> Operator:
    """The function that applies an operator.

    Raises:
        AttributeError: there is none of this name.
    """
    if name.startswith("__"):
        raise AttributeError(name)  # protocols are probed for
    if name not in spelled():
        define_installed()
    if name not in spelled():
        raise UnknownOperatorError(
            f"no operator {name!r} is defined; known: {', '.join(spelled()) or 'none'}. Name the "
            "file that defines it: --axioms FILE.egg, with FILE.toml beside it, on the command "
            'line, prism.load_operators("FILE.toml") in Python'
        )
    return _function(spelled()[name])


def _function(definition: Definition) -> Operator:
    def elementwise(*operands: Any) -> Any:  # noqa: ANN401 - tensors, arrays or numbers
        _check_count(definition, operands)
        tensor = traced_among(*operands)
        if tensor is not None:
            return do.elementwise(definition.name, tensor, *operands)
        return _computed(definition, operands, None)

    def along(*operands: Any, axis: int = -1) -> Any:  # noqa: ANN401 - as above
        _check_count(definition, operands)
        tensor = traced_among(*operands)
        if tensor is not None:
            return _along(definition, tensor, operands, axis)
        return _computed(definition, operands, axis)

    apply: Operator = elementwise if definition.dim is None else along
    apply.__name__ = apply.__qualname__ = definition.name
    apply.__doc__ = str(definition)
    apply.__signature__ = _signature(definition)  # type: ignore[attr-defined] # read by inspect
    return apply


def _signature(definition: Definition) -> Signature:
    parameters = [Parameter(name, Parameter.POSITIONAL_ONLY) for name in definition.operands]
    if definition.dim is not None:
        parameters.append(Parameter("axis", Parameter.KEYWORD_ONLY, default=-1))
    return Signature(parameters)


def _check_count(definition: Definition, operands: tuple[Any, ...]) -> None:
    if len(operands) != len(definition.operands):
        raise trace_error(
            f"{definition.name} takes {len(definition.operands)} operand(s) "
            f"({', '.join(definition.operands)}), not {len(operands)}"
        )


def _along(definition: Definition, tensor: Tensor, operands: tuple[Any, ...], axis: int) -> Tensor:
    first = operands[0]
    if not isinstance(first, Tensor):
        raise trace_error(f"{definition.name}: the first operand must be a tensor, not {first!r}")
    (place,) = do.normalized_axes(definition.name, first, axis)
    return do.along(definition.name, tensor, place - len(first.axes), *operands)


def _computed(definition: Definition, operands: tuple[Any, ...], axis: int | None) -> Any:  # noqa: ANN401
    """The value in NumPy, in the operands' own dtype."""
    dtype = np.result_type(*operands)
    with np.errstate(all="ignore"):
        if axis is None:
            result = evaluate_expression(definition.meaning, operands)
        else:
            rank = max(map(np.ndim, operands))
            place = axis - np.ndim(operands[0]) if axis >= 0 else axis
            shape = np.broadcast_shapes(*(np.shape(operand) for operand in operands))
            aligned = [np.broadcast_to(operand, shape) for operand in operands]
            along = Along(rank + place, shape[place])
            result = evaluate_expression(definition.meaning, aligned, along)
    if all(isinstance(x, (int, float)) for x in operands):
        return float(result)  # a NumPy scalar would widen the float32 array it meets next
    return np.asarray(result, dtype) if dtype.kind == "f" else np.asarray(result)
