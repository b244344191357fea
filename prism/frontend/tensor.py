"""The symbolic tensor that a user's function is run on, spelled like a NumPy array.

What it cannot do (look at data, assign, reshape) raises a `TraceError` at the user's line that
says what to write instead. The rules for axes are in `operations.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from prism.frontend import operations as do
from prism.frontend.operations import Axis
from prism.frontend.site import trace_error

Scalar = float
Operand = Any
"""What an operator takes beside a tensor: a tensor or a number, anything else is an error."""

_NO_DATA = (
    "a traced tensor has no data, so Python cannot branch or loop on it; write the computation "
    "with array operators (for a choice: prism.maximum, prism.minimum, prism.relu)"
)
_NO_DTYPE = "a program has no dtype: it is chosen at tuning (dtype='float32'); leave it out here"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tensor(do.Traced):
    """A value of the program being traced."""

    def __repr__(self) -> str:
        return f"Tensor{do.describe_axes(self.axes)}"

    # --- shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.axes)

    @property
    def shape(self) -> tuple[Any, ...]:
        """A size per axis: an int where the program fixes it, else a symbolic scalar."""
        return do.sizes(self)

    @property
    def size(self) -> Any:  # noqa: ANN401 - an int or a tensor, as `shape`
        """The number of elements."""
        product: Any = 1
        for size in self.shape:
            product = size * product
        return product

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """All axes reversed."""
        return do.permuted(self, range(self.ndim)[::-1])

    @property
    def mT(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The last two axes interchanged."""
        return do.swapped(self, -1, -2)

    def transpose(self, *axes: Any) -> Tensor:  # noqa: ANN401 - integers, one tuple or nothing
        """The axes in another order; reversed when none is given."""
        order = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
        return do.permuted(self, order) if order else self.T

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Two axes interchanged."""
        return do.swapped(self, axis1, axis2)

    def __getitem__(self, key: object) -> Tensor:
        return do.indexed(self, key)

    # --- reductions

    def sum(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """The sum over `axis` (None: all axes)."""
        return do.reduction("sum", self, axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """The mean over `axis` (None: all axes)."""
        return do.reduction("mean", self, axis, keepdims=keepdims)

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """The largest along `axis` (None: all axes)."""
        return do.reduction("max", self, axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        """The smallest along `axis` (None: all axes)."""
        return -((-self).max(axis, keepdims=keepdims))

    # --- arithmetic

    def __add__(self, other: Operand) -> Tensor:
        return do.elementwise("add", self, self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return do.elementwise("add", self, other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return do.elementwise("sub", self, self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return do.elementwise("sub", self, other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return do.elementwise("mul", self, self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return do.elementwise("mul", self, other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return do.elementwise("div", self, self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return do.elementwise("div", self, other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return do.matmul(self, self, other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return do.matmul(self, other, self)

    def __pow__(self, exponent: Operand) -> Tensor:
        return do.power(self, exponent)

    def __neg__(self) -> Tensor:
        return do.elementwise("neg", self, self)

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return do.elementwise("abs", self, self)

    # --- NumPy's own functions, called on a tensor

    def __array_ufunc__(
        self, ufunc: Callable[..., Any], method: str, *args: Operand, **kwargs: Operand
    ) -> Tensor:
        from prism.frontend.numpy_calls import call_ufunc  # noqa: PLC0415 - it calls back

        return call_ufunc(ufunc, method, args, kwargs)

    def __array_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
    ) -> Tensor:
        from prism.frontend.numpy_calls import call_function  # noqa: PLC0415 - it calls back

        return call_function(func, args, kwargs)

    # --- what a symbolic tensor cannot do

    def _no_data(self, *_: object) -> NoReturn:
        raise trace_error(_NO_DATA)

    def _no_index(self) -> NoReturn:
        raise trace_error(
            "a symbolic size is not an integer (one program serves all sizes); it can be used in "
            'arithmetic only, or fix the size in the annotation, e.g. "n 64"'
        )

    def _no_float(self) -> NoReturn:
        raise trace_error(
            "a traced tensor is not a number yet; use the functions of prism instead of math "
            "(prism.sqrt, prism.exp, ...)"
        )

    def _no_operator(self, *_: object) -> NoReturn:
        raise trace_error(
            "unknown operator: tensors have + - * / @ ** and abs(); the rest are functions of prism"
        )

    def _no_array(self, *_: object, **__: object) -> NoReturn:
        raise trace_error("a traced tensor has no data and cannot become a NumPy array")

    def _no_assignment(self, *_: object) -> NoReturn:
        raise trace_error("a tensor cannot be assigned to; compute a new one")

    __bool__ = __iter__ = __len__ = __contains__ = _no_data
    __lt__ = __le__ = __gt__ = __ge__ = _no_data
    __eq__ = __ne__ = _no_data
    __hash__ = object.__hash__
    __index__ = __int__ = _no_index
    __float__ = __complex__ = _no_float
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = _no_operator
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _no_operator
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _no_operator
    __array__ = _no_array
    __setitem__ = __delitem__ = _no_assignment

    def __rpow__(self, base: Operand) -> NoReturn:
        raise trace_error(f"{base!r} ** x is not supported; write prism.exp(x * log(base))")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # protocols are probed for; an absent one is no mistake
        if name in {"dtype", "astype"}:
            raise trace_error(_NO_DTYPE)
        if name in {"reshape", "ravel", "flatten"}:
            raise trace_error(
                f".{name}: axes carry names and cannot be merged or split; annotate the argument "
                'with all its axes, e.g. "batch head n d"'
            )
        if name in {"item", "tolist", "any", "all", "nonzero"}:
            raise trace_error(_NO_DATA)
        raise trace_error(f"a traced tensor has no .{name}; see prism.frontend for what it has")
