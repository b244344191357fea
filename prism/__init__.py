"""Prism: a symbolic superoptimizer for tensor programs.

`trace` turns a NumPy-style function into a program, `optimize` into the fastest kernel that
provably computes it; `exp`, `softmax`, `rms_norm` and the like are what such a function may call.
Everything is imported when it is first asked for, so that `import prism` costs next to nothing.
"""

from __future__ import annotations

import importlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from prism import errors
from prism.errors import PrismError

if TYPE_CHECKING:
    from prism.driver import optimize
    from prism.frontend import (
        Tensor,
        abs,  # noqa: A004 - NumPy's name
        add,
        divide,
        exp,
        expand_dims,
        gelu,
        layer_norm,
        log,
        log_softmax,
        logsumexp,
        matmul,
        max,  # noqa: A004 - NumPy's name
        maximum,
        mean,
        min,  # noqa: A004 - NumPy's name
        minimum,
        multiply,
        negative,
        permute_dims,
        power,
        reciprocal,
        relu,
        rms_norm,
        rsqrt,
        sigmoid,
        silu,
        softmax,
        sqrt,
        square,
        subtract,
        sum,  # noqa: A004 - NumPy's name
        swapaxes,
        tanh,
        transpose,
        var,
    )
    from prism.frontend.einsum import einsum
    from prism.frontend.trace import trace
    from prism.operators import load_operators
    from prism.optimized import Optimized
    from prism.optimized_shapes import OptimizedShapes

__version__ = version("prism-superopt")

__all__ = [
    "Optimized",
    "OptimizedShapes",
    "PrismError",
    "Tensor",
    "__version__",
    "abs",
    "add",
    "divide",
    "einsum",
    "errors",
    "exp",
    "expand_dims",
    "gelu",
    "layer_norm",
    "load_operators",
    "log",
    "log_softmax",
    "logsumexp",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "multiply",
    "negative",
    "ops",
    "optimize",
    "permute_dims",
    "power",
    "reciprocal",
    "relu",
    "rms_norm",
    "rsqrt",
    "sigmoid",
    "silu",
    "softmax",
    "sqrt",
    "square",
    "subtract",
    "sum",
    "swapaxes",
    "tanh",
    "trace",
    "transpose",
    "var",
]

_ELSEWHERE = {
    "Optimized": "prism.optimized",
    "OptimizedShapes": "prism.optimized_shapes",
    "load_operators": "prism.operators",
    "optimize": "prism.driver",
}
"""Public names that do not come from the front end, and their modules."""

_MODULES = ("ops", "search")
"""Modules that are reached by their names; `search`, which imports much, is not in `__all__`."""


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any public name
    """Import a public name when it is first used."""
    if name in _MODULES:
        return importlib.import_module(f"prism.{name}")
    if name not in __all__:
        from difflib import get_close_matches  # noqa: PLC0415 - slow, and seldom needed

        near = get_close_matches(name, __all__)
        hint = f"; near to it: {', '.join(near)}" if near else "; dir(prism) lists what there is"
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    value = getattr(importlib.import_module(_ELSEWHERE.get(name, "prism.frontend")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
