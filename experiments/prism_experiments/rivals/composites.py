"""Finds in a program what other libraries have one function for: softmax, norms, attention.

A traced program is operators of the table alone, while a torch user writes `softmax(x, -1)`. Each
match says: this node is also that function of those nodes. It is found by structure, after equal
nodes were made one, so that it does not matter how the program was written:

  softmax     exp(x) / sum(exp(x)), with or without its maximum; also (exp(x) @ v) / sum(exp(x))
  RMSNorm     x / sqrt(mean(x^2) + eps), times a weight before or after the division
  LayerNorm   the RMSNorm of x - mean(x), times a weight, plus a bias
  attention   softmax(scale * q k^T + mask) v

The matches hold over the reals; what runs is held against the float64 reference all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from prism.ir import (
    OPS,
    Apply,
    Const,
    DataDim,
    Input,
    Node,
    OpKind,
    Program,
    SizeOf,
    TensorId,
)


@dataclass(frozen=True, slots=True)
class Softmax:
    """The softmax of `x` along `dim`."""

    x: TensorId
    dim: DataDim


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of the rows of `values` along `dim`, weighted by the softmax of `logits`."""

    logits: TensorId
    values: TensorId
    dim: DataDim


@dataclass(frozen=True, slots=True)
class Norm:
    """RMSNorm or LayerNorm of `x` along `dim`; weight and bias have that dimension alone."""

    x: TensorId
    dim: DataDim
    eps: float
    is_centred: bool = False
    weight: TensorId | None = None
    bias: TensorId | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """Softmax(scale * q k^T + mask) v: products along `inner`, a mean along `keys`."""

    q: TensorId
    k: TensorId
    v: TensorId
    inner: DataDim
    keys: DataDim
    scale: float
    mask: TensorId | None


Numbers = Callable[[TensorId], float | None]
"""The value of an earlier node that reads no input, or None."""

Composite = Softmax | Mean | Norm | Attention


def find_composites(program: Program, sizes: Mapping[DataDim, int]) -> dict[TensorId, Composite]:
    """What each node can be computed by instead, attention aside."""
    return _Finder(program, sizes).found()


def find_attention(program: Program, sizes: Mapping[DataDim, int]) -> dict[TensorId, Composite]:
    """The same with attention wherever a node is one; without any it is empty."""
    finder = _Finder(program, sizes)
    found = finder.found()
    means = {i: finder.mean(i, found) for i in range(len(program.nodes))}
    attentions = {i: finder.attention(m) for i, m in means.items() if m is not None}
    known = {i: a for i, a in attentions.items() if a is not None}
    return {**found, **known} if known else {}


def same_nodes(program: Program) -> tuple[TensorId, ...]:
    """For each node the first one that computes the same."""
    first: dict[Node, TensorId] = {}
    same: list[TensorId] = []
    for i, node in enumerate(program.nodes):
        if isinstance(node, Apply):
            operands = tuple(same[j] for j in node.operands)
            if OPS[node.op].is_commutative:
                operands = tuple(sorted(operands))
            node = replace(node, operands=operands)  # noqa: PLW2901 - the canonical one
        same.append(first.setdefault(node, i))
    return tuple(same)


@dataclass(slots=True)
class _Finder:
    program: Program
    sizes: Mapping[DataDim, int]
    same: tuple[TensorId, ...] = ()
    dims: tuple[frozenset[DataDim], ...] = ()
    numbers: dict[TensorId, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.same = same_nodes(self.program)
        self.dims = self.program.tensor_dims()

    def found(self) -> dict[TensorId, Composite]:
        """Softmaxes, means divided late, and norms; a later one may build on an earlier one."""
        known: dict[TensorId, Composite] = {}
        for i in range(len(self.program.nodes)):
            match = self.softmax(i) or self.norm(i) or self.scaled(i, known)
            late = None if match is not None or self.parts(i, "matmul") else self.mean(i, known)
            if found := match or late:
                known[i] = found
        return known

    # --- parts ---------------------------------------------------------------------------------

    def parts(self, i: TensorId, op: str) -> tuple[TensorId, ...]:
        """The operands of node i where it is that operator, else none."""
        node = self.program.nodes[i]
        if not isinstance(node, Apply) or node.op != op:
            return ()
        return tuple(self.same[j] for j in node.operands)

    def pairs(self, i: TensorId, op: str) -> Iterator[tuple[TensorId, TensorId]]:
        """Both orders of the operands of a commutative operator."""
        if operands := self.parts(i, op):
            yield operands[0], operands[1]
            yield operands[1], operands[0]

    def quotients(self, i: TensorId) -> Iterator[tuple[TensorId, TensorId]]:
        """Numerator and denominator, where node i is a quotient, however it is written."""
        if operands := self.parts(i, "div"):
            yield operands[0], operands[1]
        for left, right in self.pairs(i, "mul"):
            if inverse := self.parts(right, "reciprocal"):
                yield left, inverse[0]

    def reduced(self, i: TensorId, op: str) -> tuple[TensorId, DataDim] | None:
        """What node i is the sum, maximum or mean of, and along what."""
        node = self.program.nodes[i]
        if not isinstance(node, Apply) or node.op != op or node.dim is None:
            return None
        return self.same[node.operands[0]], node.dim

    def number(self, i: TensorId) -> float | None:
        """The value of a node that reads no input."""
        if i not in self.numbers:
            self.numbers[i] = scalar(self.program, i, self.sizes, self.number)
        return self.numbers[i]

    # --- softmax and attention -----------------------------------------------------------------

    def softmax(self, i: TensorId) -> Softmax | None:
        for above, below in self.quotients(i):
            total = self.reduced(below, "sum")
            if total is not None and total[0] == above:
                logits = self.exponent(*total)
                if logits is not None:
                    return Softmax(logits, total[1])
        return None

    def exponent(self, i: TensorId, dim: DataDim) -> TensorId | None:
        """X, where node i is exp(x) or exp(x - max x), with x varying along `dim`."""
        inside = self.parts(i, "exp")
        if not inside or dim not in self.dims[inside[0]]:
            return None
        shifted = self.parts(inside[0], "sub")
        if shifted and self.reduced(shifted[1], "max") == (shifted[0], dim):
            return shifted[0]
        return inside[0]

    def mean(self, i: TensorId, known: Mapping[TensorId, Composite]) -> Mean | None:
        """The weighted mean that node i is, its weights a softmax."""
        node = self.program.nodes[i]
        if isinstance(node, Apply) and node.op == "matmul" and node.dim is not None:
            for weights, values in self.pairs(i, "matmul"):
                match known.get(weights):
                    case Softmax(x, dim) if dim == node.dim:
                        return Mean(x, values, dim)
        for above, below in self.quotients(i):
            total, product = self.reduced(below, "sum"), self.program.nodes[above]
            if total is None or not isinstance(product, Apply) or product.dim != total[1]:
                continue
            for weights, values in self.pairs(above, "matmul"):
                logits = self.exponent(*total) if weights == total[0] else None
                if logits is not None:
                    return Mean(logits, values, total[1])
        return None

    def attention(self, mean: Mean) -> Attention | None:
        """The attention that a weighted mean is, where its logits are products of q and k."""
        logits, mask = mean.logits, None
        for scores, other in self.pairs(logits, "add"):
            if self.product(scores, mean.dim) is not None:
                logits, mask = scores, other
                break
        found = self.product(logits, mean.dim)
        if found is None:
            return None
        q, k, inner, scale = found
        batch = self.dims[k] - {inner, mean.dim}
        rows = self.dims[q] - batch - {inner}
        columns = self.dims[mean.values] - batch - {mean.dim}
        masked = frozenset() if mask is None else self.dims[mask]
        fits = (
            batch <= self.dims[q]
            and batch <= self.dims[mean.values]
            and len(columns) == 1
            and not columns & self.dims[q]
            and masked <= batch | rows | {mean.dim}
            and (not masked & rows or rows <= masked)
        )
        return Attention(q, k, mean.values, inner, mean.dim, scale, mask) if fits else None

    def product(
        self, i: TensorId, keys: DataDim
    ) -> tuple[TensorId, TensorId, DataDim, float] | None:
        """Q, k, the dimension they are multiplied along and the scale, of scores along `keys`."""
        scale = 1.0
        while (scaled := self.times_number(i)) is not None:
            i, scale = scaled[0], scale * scaled[1]
        node = self.program.nodes[i]
        if not isinstance(node, Apply) or node.dim is None:
            return None
        for q, k in self.pairs(i, "matmul"):
            if keys in self.dims[k] and keys not in self.dims[q]:
                return q, k, node.dim, scale
        return None

    def times_number(self, i: TensorId) -> tuple[TensorId, float] | None:
        """X and c where node i is x c or x / c."""
        for x, factor in self.pairs(i, "mul"):
            if (number := self.number(factor)) is not None:
                return x, number
        divided = self.parts(i, "div")
        if divided and (number := self.number(divided[1])):
            return divided[0], 1.0 / number
        return None

    # --- norms ---------------------------------------------------------------------------------

    def norm(self, i: TensorId) -> Norm | None:
        roots = [(x, below, "sqrt") for x, below in self.quotients(i)]
        factors = [(x, factor, "rsqrt") for x, factor in self.pairs(i, "mul")]
        for above, spread, op in (*roots, *factors):
            inside = self.parts(spread, op)
            square = self.mean_square(inside[0]) if inside else None
            if square is None:
                continue
            x, dim, eps = square
            if above == x:
                return self.centred(Norm(x, dim, eps))
            for value, weight in self.pairs(above, "mul"):
                if value == x and self.dims[weight] == {dim}:
                    return self.centred(Norm(x, dim, eps, weight=weight))
        return None

    def mean_square(self, i: TensorId) -> tuple[TensorId, DataDim, float] | None:
        """X, dim and eps, where node i is mean(x^2) + eps."""
        eps = 0.0
        for value, constant in self.pairs(i, "add"):
            if (number := self.number(constant)) is not None:
                i, eps = value, number
                break
        averaged = self.reduced(i, "mean") or self.mean_by_size(i)
        if averaged is None:
            return None
        square, dim = averaged
        same = self.parts(square, "square") or self.parts(square, "mul")
        return (same[0], dim, eps) if same and same[0] == same[-1] else None

    def mean_by_size(self, i: TensorId) -> tuple[TensorId, DataDim] | None:
        """What node i is the mean of, where it is a sum over its size."""
        scaled = self.times_number(i)
        total = None if scaled is None else self.reduced(scaled[0], "sum")
        if scaled is None or total is None:
            return None
        return total if np.isclose(scaled[1] * self.sizes[total[1]], 1.0, rtol=1e-12) else None

    def centred(self, norm: Norm) -> Norm:
        """A norm of x - mean(x) is LayerNorm of x."""
        shifted = self.parts(norm.x, "sub")
        if shifted:
            middle = self.reduced(shifted[1], "mean") or self.mean_by_size(shifted[1])
            if middle == (shifted[0], norm.dim):
                return replace(norm, x=shifted[0], is_centred=True)
        return norm

    def scaled(self, i: TensorId, known: Mapping[TensorId, Composite]) -> Norm | None:
        """A norm found before, times its weight or plus its bias."""
        for op in ("mul", "add"):
            for x, other in self.pairs(i, op):
                norm = known.get(x)
                if not isinstance(norm, Norm) or self.dims[other] != {norm.dim}:
                    continue
                if op == "mul" and norm.weight is None and norm.bias is None:
                    return replace(norm, weight=other)
                if op == "add" and norm.is_centred and norm.bias is None:
                    return replace(norm, bias=other)
        return None


def scalar(
    program: Program, i: TensorId, sizes: Mapping[DataDim, int], number: Numbers
) -> float | None:
    """The value of a node without inputs; `number` gives that of an earlier one."""
    node = program.nodes[i]
    match node:
        case Const(value=value):
            return float(value)
        case SizeOf(dim=dim):
            return float(sizes[dim])
        case Input():
            return None
        case Apply(op=op, operands=operands):
            if OPS[op].kind is not OpKind.ELEMENTWISE:
                return None
            values = [number(j) for j in operands]
            if any(value is None for value in values):
                return None
            with np.errstate(all="ignore"):
                return float(OPS[op].numpy(*map(np.float64, values)))
