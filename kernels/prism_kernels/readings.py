"""What the values of a tile program are, whatever way they are computed: `Readings`.

Values that depend on an exponential are compared by structure, up to accumulators, the order of
products and quotients, and common shifts of exponentials: exp(x - m) is exp(x), shifted by m. What
depends on no exponential is compared by what it is on a few numbers. Several kernels are read as
one program (`joined`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from prism.ir import OPS, AccumulatorKind, DataDim
from prism_kernels.tile import (
    Accumulate,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Stage,
    Store,
    TileNode,
    TileProgram,
    ValueId,
    operands,
)

Array = NDArray[np.float64]

Powers = tuple[tuple[bytes, float], ...]
"""A product, sorted: factor, exponent (not 0)."""

POWER = {"reciprocal": -1.0, "rsqrt": -0.5, "sqrt": 0.5, "square": 2.0}
LIKE_OPERAND = frozenset({"neg", "abs", "relu"})
ALIKE = frozenset({"add", "sub", "maximum", "minimum"})


@dataclass(frozen=True, slots=True)
class Reading:
    """A value: the product of `factors`, times exp of the sum of c m for (m, c) in `shift`."""

    factors: Powers
    shift: Powers = ()
    data: Array | None = None
    """Where it depends on no exponential: what it is, an axis for every dim of the program."""

    @property
    def term(self) -> bytes:
        """The value without its shift."""
        if len(self.factors) == 1 and self.factors[0][1] == 1:
            return self.factors[0][0]
        return _digest("product", self.factors)

    @property
    def identity(self) -> bytes:
        """Equal for equal values."""
        return _digest("shifted", self.term, self.shift) if self.shift else self.term


class Readings:
    """The reading of every node of a tile program."""

    def __init__(self, program: TileProgram) -> None:
        self._program = program
        self._readings: list[Reading] = []
        self._dims_of: dict[bytes, frozenset[DataDim]] = {}  # of what exponentials are shifted by
        self._axis = {dim: k for k, dim in enumerate(program.sizes)}
        for i, node in enumerate(program.nodes):
            self._readings.append(self._read(i, node))

    def __getitem__(self, i: ValueId) -> Reading:
        """The reading of node i."""
        return self._readings[i]

    def peak(self, i: ValueId) -> frozenset[DataDim]:
        """The axes over which value i is x - max x; none if it is not."""
        node = self._program.nodes[i]
        dims: set[DataDim] = set()
        if isinstance(node, Map) and node.op == "sub":
            base = self._readings[node.operands[0]].identity
            largest = self._program.nodes[self._passed_on(node.operands[1])]
            while isinstance(largest, Reduce) and largest.op == "max":
                dims.add(largest.dim)
                if self._readings[largest.operand].identity == base:
                    return frozenset(dims & {a.dim for a in self._program.axes[node.operands[0]]})
                largest = self._program.nodes[self._passed_on(largest.operand)]
        return frozenset()

    def references(self, i: ValueId) -> Powers | None:
        """The largest values of which i is a linear combination, if it is one."""
        match self._program.nodes[self._passed_on(i)]:
            case Reduce(op="max"):
                return self._shift(i, 1.0)
            case Map(op="add" | "sub" as op, operands=ids):
                left, right = (self.references(j) for j in ids)
                if left is None or right is None:
                    return None
                return _times(left, right if op == "add" else power_of(right, -1.0))
            case Map(op="mul", operands=(m, c)):
                of, factor = self.references(m), self._program.nodes[c]
                if of is None or not isinstance(factor, Scalar):
                    return None
                return power_of(of, factor.value)
            case _:
                return None

    def _read(self, i: ValueId, node: TileNode) -> Reading:
        read = [self._readings[j] for j in operands(node)]
        match node:
            case Load(source=source):
                out = _of_data(self._draw(source, [a.dim for a in self._program.axes[i]]))
            case Scalar(value=value):
                out = self._scalar(value)
            case Running() | Store() | Map(op="bound"):
                out = read[0]
            case Accumulate(kind=kind, operand=operand):
                out = self._accumulated(read[0], kind, self._program.stages[operand])
            case Map():
                out = self._mapped(node, read)
            case Reduce(op=op, dim=dim):
                out = self._reduced(op, read[0], dim)
            case Contract(left=left, right=right, dim=dim):
                out = self._reduced("sum", self._mapped(Map("mul", (left, right)), read), dim)
            case _:
                assert_never(node)
        return out

    def _scalar(self, value: float) -> Reading:
        return _of_data(np.full([1] * len(self._axis), value))

    def _draw(self, source: str, dims: Sequence[DataDim]) -> Array:
        """Two numbers along every dim; aliases of one argument read the same ones."""
        seed = self._program.inputs[source].position
        drawn = np.random.default_rng(seed).random([2] * len(dims)) + 0.5
        order = sorted(range(len(dims)), key=lambda k: self._axis[dims[k]])
        shape = [2 if dim in dims else 1 for dim in self._axis]
        return drawn.transpose(order).reshape(shape)

    def _accumulated(self, read: Reading, kind: AccumulatorKind, stage: Stage) -> Reading:
        """A sum of equal values is a multiple; otherwise a loop changes nothing."""
        loop = self._program.loop
        if kind is not AccumulatorKind.SUM or stage is not Stage.BEFORE or loop is None:
            return read
        if read.data is not None:
            return _of_data(read.data * loop.count)
        return Reading(_times(read.factors, self._scalar(loop.count).factors), read.shift)

    def _mapped(self, node: Map, read: list[Reading]) -> Reading:
        first, last, op = read[0], read[-1], node.op
        arrays = [r.data for r in read if r.data is not None]
        if op == "exp":
            return self._exponential(node.operands[0])
        if len(arrays) == len(read):
            with np.errstate(all="ignore"):
                return _of_data(OPS[op].numpy(*arrays), op, read)
        if op in {"mul", "div"}:
            sign = 1.0 if op == "mul" else -1.0
            factors = _times(first.factors, power_of(last.factors, sign))
            return Reading(factors, _times(first.shift, power_of(last.shift, sign)))
        if op in POWER:
            power = POWER[op]
            return Reading(power_of(first.factors, power), power_of(first.shift, power))
        keeps_shift = op in LIKE_OPERAND or (op in ALIKE and first.shift == last.shift)
        terms = [r.term if keeps_shift else r.identity for r in read]
        if OPS[op].is_commutative:
            terms.sort()
        return Reading(((_digest(op, *terms), 1.0),), first.shift if keeps_shift else ())

    def _reduced(self, op: str, read: Reading, dim: DataDim) -> Reading:
        if dim not in self._axis:  # a stack dim: partial values are read as wholes already
            return read
        if read.data is not None:
            data = OPS[op].numpy(read.data, axis=self._axis[dim], keepdims=True)
            return _of_data(data, op, [read], dim)
        if any(dim in self._dims_of[m] for m, _ in read.shift):
            return Reading(((_digest(op, dim, read.identity), 1.0),))
        return Reading(((_digest(op, dim, read.term), 1.0),), read.shift)

    def _exponential(self, operand: ValueId) -> Reading:
        """exp(x - m) is exp(x) shifted by m, exp of references a mere shift."""
        references = self.references(operand)
        if references is not None:
            return Reading((), references)
        node = self._program.nodes[operand]
        if isinstance(node, Map) and node.op == "sub":
            base, shift = node.operands
            exponential = ((_digest("exp", self._readings[base].identity), 1.0),)
            return Reading(exponential, self._shift(shift, -1.0))
        return Reading(((_digest("exp", self._readings[operand].identity), 1.0),))

    def _shift(self, m: ValueId, c: float) -> Powers:
        identity = self._readings[m].identity
        self._dims_of[identity] = frozenset(a.dim for a in self._program.axes[m])
        return ((identity, c),)

    def _passed_on(self, i: ValueId) -> ValueId:
        """The value that i is, through accumulators and the like."""
        match self._program.nodes[i]:
            case Accumulate(operand=operand) | Running(operand=operand):
                return self._passed_on(operand)
            case Map(op="bound", operands=(operand,)):
                return self._passed_on(operand)
            case _:
                return i


def _of_data(
    data: Array, op: str = "", read: Sequence[Reading] = (), dim: DataDim | None = None
) -> Reading:
    """A value known on a few numbers; where they leave its domain it is known by its operands."""
    if np.isfinite(data).all():
        text = " ".join(f"{x:.9e}" for x in (data + 0.0).ravel())
        term = _digest("data", data.shape, text)
    else:
        term = _digest(op, dim, *(r.term for r in read))
    return Reading(((term, 1.0),), data=np.asarray(data))


def _times(left: Powers, right: Powers) -> Powers:
    out = dict(left)
    for factor, power in right:
        out[factor] = out.get(factor, 0.0) + power
    return tuple(sorted((f, p) for f, p in out.items() if p))


def power_of(powers: Powers, exponent: float) -> Powers:
    """A product to the power of `exponent`."""
    return tuple((f, p * exponent) for f, p in powers)


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=12).digest()
