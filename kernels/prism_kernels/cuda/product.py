"""A product of matrices as an emitted CUDA file says it, for a library to run.

The function of such a kernel is one call, of which everything is known when it is written:

    def kernel0(in_x, in_w, mid_t0):
        # t0[n, f] = x[n, d] w[d, f], summed over d.
        matmul(
            matrices(in_x, rows=[(8, 64)], columns=[(64, 1)]),
            matrices(in_w, rows=[(64, 32)], columns=[(32, 1)]),
            out=matrices(mid_t0, rows=[(8, 32)], columns=[(32, 1)]),
        )

`matrices` reads an array as matrices: the batch, the rows and the columns each are axes, of an
extent and a stride in elements, the outer one first. So transposed and interleaved arrays need no
words of their own. The text is read on every target alike, by `read_product`, and never run.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from prism.errors import KernelError
from prism_kernels.library import LibraryCall
from prism_kernels.tile import Tensor

Axes = tuple[tuple[int, int], ...]
"""(extent, stride) each, the outer one first."""

GROUPS = ("batch", "rows", "columns")

NAMES = frozenset({"matmul", "matrices"})
"""What a file with such a kernel imports from here."""


@dataclass(frozen=True, slots=True)
class Matrices:
    """A parameter of the kernel, by its number, read as matrices."""

    parameter: int
    batch: Axes
    rows: Axes
    columns: Axes

    @property
    def _groups(self) -> tuple[Axes, ...]:
        return (*([self.batch] if self.batch else []), self.rows, self.columns)

    @property
    def axes(self) -> Axes:
        """All axes."""
        return (*self.batch, *self.rows, *self.columns)

    @property
    def shape(self) -> tuple[int, ...]:
        """As many matrices, rows and columns; no first number where there is one matrix."""
        return tuple(math.prod(extent for extent, _ in group) for group in self._groups)

    @property
    def is_strided(self) -> bool:
        """Whether a stride for each number of the shape says where everything is."""
        return all(len(group) <= 1 for group in self._groups)

    @property
    def strides(self) -> tuple[int, ...]:
        """Those strides; along one row or column that of the next one, if there were one."""
        assert self.is_strided
        beyond = max((extent * stride for extent, stride in self.axes), default=1)
        return tuple(group[0][1] if group else beyond for group in self._groups)

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(extent for extent, _ in self.axes)

    @property
    def last(self) -> int:
        """The index of its last element."""
        return sum((extent - 1) * stride for extent, stride in self.axes)


@dataclass(frozen=True, slots=True)
class Product:
    """`out` = `left` `right`, for each matrix of the batch."""

    left: Matrices
    right: Matrices
    out: Matrices

    @property
    def operands(self) -> tuple[Matrices, Matrices, Matrices]:
        """What it reads, and what it writes."""
        return self.left, self.right, self.out

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Matrices, rows, columns, and the depth that is summed over."""
        *batch, rows, columns = self.out.shape
        return math.prod(batch), rows, columns, self.left.shape[-1]


def product_of(call: LibraryCall, takes: Sequence[int]) -> Product:
    """The product of a library's kernel that takes the arrays at these positions."""
    batch, rows, columns = call.dims()
    depth = (call.depth,)

    def matrices(tensor: Tensor, *groups: Sequence[str]) -> Matrices:
        strides = dict(tensor.strides)
        axes = [_merged((call.program.sizes[d], strides[d]) for d in group) for group in groups]
        return Matrices(takes.index(tensor.position), *axes)

    return Product(
        matrices(call.left, batch, rows, depth),
        matrices(call.right, batch, depth, columns),
        matrices(call.result, batch, rows, columns),
    )


def _merged(axes: Iterable[tuple[int, int]]) -> Axes:
    """The fewest axes that say the same."""
    out: list[tuple[int, int]] = []
    for extent, stride in axes:
        if extent == 1:
            continue
        if out and out[-1][1] == extent * stride:
            out[-1] = (out[-1][0] * extent, stride)
        else:
            out.append((extent, stride))
    return tuple(out)


# -- as text


def product_lines(product: Product, names: Sequence[str], what: str) -> list[str]:
    """The body of the kernel; `names` are its parameters."""
    left, right, out = (_text(m, names) for m in product.operands)
    return [
        f"    # {what}",
        "    matmul(",
        *(f"        {text}," for text in (left, right, f"out={out}")),
        "    )",
    ]


def _text(value: Matrices, names: Sequence[str]) -> str:
    groups = zip(GROUPS, (value.batch, value.rows, value.columns), strict=True)
    shown = [f"{name}={list(axes)}" for name, axes in groups if axes or name != "batch"]
    return f"matrices({', '.join([names[value.parameter], *shown])})"


def matrices(
    parameter: int, *, batch: object = (), rows: object = (), columns: object = ()
) -> Matrices:
    """What an emitted file means by `matrices`.

    Raises:
        KernelError: axes are not pairs of positive numbers.
    """
    return Matrices(parameter, _axes(batch), _axes(rows), _axes(columns))


def matmul(left: Matrices, right: Matrices, *, out: Matrices) -> Product:
    """What an emitted file means by `matmul`.

    Raises:
        KernelError: the shapes do not fit.
    """
    *batch, rows, depth = left.shape
    *others, deep, columns = right.shape
    if not (batch == others and depth == deep and out.shape == (*batch, rows, columns)):
        raise KernelError(
            f"matmul: matrices of {left.shape} and {right.shape} do not make {out.shape}"
        )
    return Product(left, right, out)


def _axes(given: object) -> Axes:
    if not isinstance(given, (list, tuple)):
        raise KernelError(f"matrices: axes are a list of pairs, not {given!r}")
    for pair in given:
        if not (
            isinstance(pair, (list, tuple))
            and len(pair) == 2
            and all(type(n) is int and n > 0 for n in pair)
        ):
            raise KernelError(f"matrices: an axis is an extent and a stride, not {pair!r}")
    return tuple((extent, stride) for extent, stride in given)


def read_product(text: str, kernel: str) -> Product:
    """The product that a kernel of a file is; nothing of the file is run.

    Raises:
        KernelError: the file has no such kernel, or it is no product.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise KernelError(f"not a kernel file: {error}") from None
    found = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == kernel]
    if len(found) != 1:
        raise KernelError(f"not a kernel file: it must have one function `{kernel}`")
    return product_in(found[0])


def product_in(function: ast.FunctionDef) -> Product:
    """The product that a function is.

    Raises:
        KernelError: it is anything else than one call of `matmul`.
    """
    parameters = [argument.arg for argument in function.args.args]
    match function.body:
        case [
            ast.Expr(
                value=ast.Call(
                    func=ast.Name(id="matmul"),
                    args=[left, right],
                    keywords=[ast.keyword(arg="out", value=out)],
                )
            )
        ]:
            operands = [_matrices_in(node, parameters) for node in (left, right, out)]
            return matmul(operands[0], operands[1], out=operands[2])
        case _:
            raise KernelError(
                f"line {function.lineno}: {function.name} is a library's, so it must be one call "
                "of matmul"
            )


def _matrices_in(node: ast.expr, parameters: Sequence[str]) -> Matrices:
    match node:
        case ast.Call(
            func=ast.Name(id="matrices"), args=[ast.Name(id=name)], keywords=keywords
        ) if name in parameters:
            axes = dict(_literals(keywords))
            if axes.keys() <= set(GROUPS) and len(axes) == len(keywords) >= 2:
                return matrices(parameters.index(name), **axes)
    raise KernelError(
        f"line {node.lineno}: an operand of matmul must be matrices(PARAMETER, rows=.., columns=..)"
    )


def _literals(keywords: Sequence[ast.keyword]) -> Iterator[tuple[str, object]]:
    for keyword in keywords:
        try:
            yield keyword.arg or "", ast.literal_eval(keyword.value)
        except (ValueError, TypeError, MemoryError, RecursionError):
            raise KernelError(f"line {keyword.value.lineno}: axes are literal numbers") from None
