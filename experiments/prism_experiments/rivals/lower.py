"""From named dimensions to axes: a program as the calls of a library that knows positions only.

`lower` walks a program (some of its nodes replaced by composites) and tells a `Writer` what to
write: torch source or an ONNX graph. A value is a name and the dimensions of its axes, in order.
Axes are moved and added where operands differ, which costs those libraries nothing or little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from prism.ir import (
    OPS,
    Apply,
    Const,
    DataDim,
    Definition,
    Input,
    OpKind,
    Output,
    Program,
    SizeOf,
    TensorId,
)
from prism_experiments.rivals.composites import (
    Attention,
    Composite,
    Mean,
    Norm,
    Softmax,
    same_nodes,
    scalar,
)
from prism_experiments.rivals.meanings import NOWHERE, Axis, write_meaning
from prism_experiments.rivals.writer import Name, Writer


@dataclass(frozen=True, slots=True)
class Placed:
    """A value and the dimensions of its axes; a number has none."""

    name: Name
    dims: tuple[DataDim, ...] = ()


def lower(
    program: Program,
    sizes: Mapping[DataDim, int],
    composites: Mapping[TensorId, Composite],
    writer: Writer,
) -> tuple[str, ...]:
    """Write a program; the names of its outputs in the axes that the caller gets."""
    lowering = _Lowering(program, sizes, composites, writer, same_nodes(program))
    return tuple(lowering.output(output) for output in program.outputs)


@dataclass(slots=True)
class _Lowering:
    program: Program
    sizes: Mapping[DataDim, int]
    composites: Mapping[TensorId, Composite]
    writer: Writer
    same: tuple[TensorId, ...]
    values: dict[TensorId, Placed] = field(default_factory=dict)
    arranged: dict[tuple[object, ...], str] = field(default_factory=dict)

    def value(self, i: TensorId) -> Placed:
        """The value of a node, written when it is first asked for."""
        i = self.same[i]
        if i not in self.values:
            number = scalar(self.program, i, self.sizes, self._number)
            self.values[i] = self.written(i) if number is None else Placed(number)
        return self.values[i]

    def _number(self, i: TensorId) -> float | None:
        return scalar(self.program, i, self.sizes, self._number)

    def written(self, i: TensorId) -> Placed:
        if i in self.composites:
            return self.composite(self.composites[i])
        node = self.program.nodes[i]
        match node:
            case Input(argument=argument, dims=dims):
                return self.input(argument, dims)
            case Const() | SizeOf():
                raise AssertionError("a number is not written")
            case Apply(op=op, operands=operands, dim=dim):
                return self.apply(op, [self.value(j) for j in operands], dim)

    def input(self, argument: str, dims: tuple[DataDim, ...]) -> Placed:
        index = [a.name for a in self.program.arguments].index(argument)
        name = self.writer.argument(index)
        if None in self.program.arguments[index].axes:
            name = self.writer.reshape(name, self.shape(dims))
        return Placed(name, dims)

    def apply(self, op: str, operands: Sequence[Placed], dim: DataDim | None) -> Placed:
        spec = OPS[op]
        match spec.kind:
            case OpKind.CONTRACT:
                assert dim is not None
                return self.matmul(operands[0], operands[1], dim)
            case OpKind.REDUCE:
                assert dim is not None
                return self.reduce(op, operands[0], dim)
            case OpKind.ELEMENTWISE | OpKind.ALONG:
                dims = joined(operands)
                if spec.definition is not None:
                    return Placed(self.defined(spec.definition, operands, dims, dim), dims)
                names = [self.aligned(o, dims) for o in operands]
                return Placed(self.writer.elementwise(op, names), dims)
            case _:
                assert_never(spec.kind)

    # --- axes ----------------------------------------------------------------------------------

    def shape(self, dims: Sequence[DataDim]) -> tuple[int, ...]:
        return tuple(self.sizes[d] for d in dims)

    def in_order(self, value: Placed, dims: Sequence[DataDim]) -> str:
        """A value with its axes in the order of `dims`, which are its own."""
        assert isinstance(value.name, str)
        order = tuple(value.dims.index(d) for d in dims)
        if order == tuple(range(len(order))):
            return value.name
        key = ("permute", value.name, order)
        if key not in self.arranged:
            self.arranged[key] = self.writer.permute(value.name, order)
        return self.arranged[key]

    def aligned(self, value: Placed, dims: Sequence[DataDim], *, whole: bool = False) -> Name:
        """A value as it broadcasts against one of `dims`; `whole`: leading axes are there too."""
        if not isinstance(value.name, str):
            return value.name
        own = [d for d in dims if d in value.dims]
        name = self.in_order(value, own)
        start = 0 if whole or not own else dims.index(own[0])
        missing = tuple(i for i, d in enumerate(dims[start:]) if d not in own)
        if not missing or (not own and not whole):
            return name
        key = ("unsqueeze", name, missing)
        if key not in self.arranged:
            self.arranged[key] = self.writer.unsqueeze(name, missing)
        return self.arranged[key]

    def output(self, output: Output) -> str:
        """An output in the axes that the caller gets, repeated along those it lacks."""
        value = self.value(output.tensor)
        named = [d for d in output.axes if d is not None]
        if set(named) == set(value.dims) and isinstance(value.name, str):
            name = self.in_order(value, named)
        else:
            name = self.writer.expand(self.aligned(value, named), self.shape(named))
        unit = tuple(i for i, d in enumerate(output.axes) if d is None)
        return self.writer.unsqueeze(name, unit) if unit else name

    # --- operators -----------------------------------------------------------------------------

    def reduce(self, op: str, x: Placed, dim: DataDim) -> Placed:
        axis = x.dims.index(dim)
        assert isinstance(x.name, str)
        name = self.writer.reduce(op, x.name, axis)
        return Placed(name, x.dims[:axis] + x.dims[axis + 1 :])

    def matmul(self, left: Placed, right: Placed, dim: DataDim) -> Placed:
        """One product of matrices: rows and columns of several dims are made one."""
        batch = [d for d in left.dims if d in right.dims and d != dim]
        rows = [d for d in left.dims if d not in right.dims]
        columns = [d for d in right.dims if d not in left.dims]
        a = self.in_order(left, [*batch, *rows, dim])
        b = self.in_order(right, [*batch, dim, *columns])
        dims = (*batch, *rows, *columns)
        # a product of several rows with one matrix needs no reshaping: libraries do that
        flat_rows = len(rows) != 1 and (bool(batch) or not rows)
        flat_columns = len(columns) != 1
        extent = (math.prod(self.shape(rows)), math.prod(self.shape(columns)))
        if flat_rows:
            a = self.writer.reshape(a, (*self.shape(batch), extent[0], self.sizes[dim]))
        if flat_columns:
            b = self.writer.reshape(b, (*self.shape(batch), self.sizes[dim], extent[1]))
        name = self.writer.matmul(a, b)
        if flat_rows or flat_columns:
            name = self.writer.reshape(name, self.shape(dims))
        return Placed(name, dims)

    def composite(self, composite: Composite) -> Placed:
        match composite:
            case Softmax(x, dim):
                return self.softmax(self.value(x), dim)
            case Mean(logits, values, dim):
                weights = self.softmax(self.value(logits), dim)
                return self.matmul(weights, self.value(values), dim)
            case Norm():
                return self.norm(composite)
            case Attention():
                return self.attention(composite)
            case _:
                assert_never(composite)

    def softmax(self, x: Placed, dim: DataDim) -> Placed:
        assert isinstance(x.name, str)
        return Placed(self.writer.softmax(x.name, x.dims.index(dim)), x.dims)

    def norm(self, norm: Norm) -> Placed:
        x = self.value(norm.x)
        dims = (*(d for d in x.dims if d != norm.dim), norm.dim)
        factors = (self._factor(norm.weight), self._factor(norm.bias))
        name = self.writer.norm(self.in_order(x, dims), norm, self.sizes[norm.dim], factors)
        return Placed(name, dims)

    def _factor(self, i: TensorId | None) -> str | None:
        if i is None:
            return None
        value = self.value(i)
        return self.in_order(value, value.dims)

    def attention(self, found: Attention) -> Placed:
        q, k, v = (self.value(i) for i in (found.q, found.k, found.v))
        batch = [d for d in k.dims if d not in {found.inner, found.keys}]
        rows = [d for d in q.dims if d not in {*batch, found.inner}]
        (column,) = (d for d in v.dims if d not in {*batch, found.keys})
        heads = (1,) * max(0, 2 - len(batch)) + self.shape(batch)
        heads = (math.prod(heads[:-1]), heads[-1])

        def four(value: Placed, dims: Sequence[DataDim], ends: tuple[int, int]) -> str:
            """A value in four axes: batch, head and two ends."""
            name = self.in_order(value, dims)
            shape = (*heads, *ends)
            return name if self.shape(dims) == shape else self.writer.reshape(name, shape)

        row_count = math.prod(self.shape(rows))
        inner, keys, width = (self.sizes[d] for d in (found.inner, found.keys, column))
        name = self.writer.attention(
            (
                four(q, [*batch, *rows, found.inner], (row_count, inner)),
                four(k, [*batch, found.keys, found.inner], (keys, inner)),
                four(v, [*batch, found.keys, column], (keys, width)),
            ),
            found.scale,
            None if found.mask is None else self.mask(found, batch, rows, heads),
        )
        dims = (*batch, *rows, column)
        if self.shape(dims) != (*heads, row_count, width):
            name = self.writer.reshape(name, self.shape(dims))
        return Placed(name, dims)

    def mask(
        self,
        found: Attention,
        batch: Sequence[DataDim],
        rows: Sequence[DataDim],
        heads: tuple[int, int],
    ) -> str:
        """The mask over all heads: libraries differ in what they broadcast."""
        assert found.mask is not None
        mask = self.value(found.mask)
        dims = [*batch, *(rows if set(rows) & set(mask.dims) else ()), found.keys]
        whole = self.writer.expand(self.aligned(mask, dims), self.shape(dims))
        row_count = math.prod(self.shape(dims[len(batch) : -1]))
        return self.writer.reshape(whole, (*heads, row_count, self.sizes[found.keys]))

    # --- users' operators ----------------------------------------------------------------------

    def defined(
        self,
        definition: Definition,
        operands: Sequence[Placed],
        dims: tuple[DataDim, ...],
        dim: DataDim | None,
    ) -> str:
        """What an operator of a user computes, written out."""
        axis = NOWHERE
        if dim is not None:
            having = frozenset(i for i, o in enumerate(operands) if dim in o.dims)
            axis = Axis(dims.index(dim) - len(dims), self.sizes[dim], having)
        names = [self.aligned(o, dims, whole=dim is not None) for o in operands]
        name = write_meaning(definition.meaning, names, axis, self.writer)
        if isinstance(name, str) and dim is None:
            return name
        return self.writer.expand(name, self.shape(dims))


def joined(operands: Sequence[Placed]) -> tuple[DataDim, ...]:
    """The dimensions of all operands, in the order of the one that has most."""
    longest = max(operands, key=lambda o: len(o.dims))
    return tuple(dict.fromkeys((*longest.dims, *(d for o in operands for d in o.dims))))
