"""Whether the exponentials of a tile program stay in range wherever those of its program do.

Algebra knows that softmax does not change when its logits are shifted, so a searched graph may take
a bare exp(x) where the program takes exp(x - max x), and `range_safe` cannot always put a reference
back. `look` says what in a tile program may overflow, or vanish and be divided by, although
nothing does in the program. Every value that depends on an exponential has a `Size`:

| size    | what is known                           | for example                            |
|---------|-----------------------------------------|----------------------------------------|
| ONE     | of the size of 1                        | sums of PEAKED values over their axes, |
|         |                                         | exp(m - m) of equal references         |
| PEAKED  | in [0, 1], 1 somewhere along some axes  | exp(x - max x)                         |
| BOUNDED | no larger than what it is computed from | sums and products of those and of data |
| LARGE   | nothing                                 | an exponential of the program          |
| FACTOR  | exp of references (see `range_safe`)    | exp(max x)                             |

What the rules do not allow is allowed where the program has that very value (`Reading.identity`):
sums of exponentials with two references, say, may vanish, and so may be divided by only where the
program does; a factor may restore only what the program has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from prism.ir import DataDim
from prism_kernels.readings import ALIKE, LIKE_OPERAND, POWER, Reading, Readings, power_of
from prism_kernels.tile import (
    Accumulate,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Store,
    TileNode,
    TileProgram,
    ValueId,
    operands,
)

_DIVIDING = frozenset({"div", "reciprocal", "rsqrt"})


class Size(Enum):
    """How large a value may be; see the table above. DATA depends on no exponential."""

    DATA = "data"
    ONE = "one"
    PEAKED = "peaked"
    BOUNDED = "bounded"
    LARGE = "large"
    FACTOR = "factor"


_TAME = frozenset({Size.DATA, Size.ONE, Size.PEAKED, Size.BOUNDED})


@dataclass(frozen=True, slots=True)
class _Extent:
    """The size of a value; `peak`: the axes along which, together, a PEAKED one is 1 somewhere."""

    size: Size
    peak: frozenset[DataDim] = frozenset()

    def summed(self, dim: DataDim) -> _Extent:
        """After a sum or maximum over an axis."""
        if self.size is Size.PEAKED and self.peak == {dim}:
            return _Extent(Size.ONE)
        return _Extent(self.size, self.peak - {dim})


_BOUNDED, _LARGE = _Extent(Size.BOUNDED), _Extent(Size.LARGE)


@dataclass(frozen=True, slots=True)
class OwnValues:
    """What a program itself computes: values and operands of exp by identity, divisors by term."""

    values: set[bytes] = field(default_factory=set)
    exponents: set[bytes] = field(default_factory=set)
    divisors: set[bytes] = field(default_factory=set)


def own_values(program: TileProgram) -> OwnValues:
    """The values of a program, given as one tile."""
    own, readings = OwnValues(), Readings(program)
    for i, node in enumerate(program.nodes):
        own.values.add(readings[i].identity)
        match node:
            case Map(op="exp", operands=(operand,)):
                own.exponents.add(readings[operand].identity)
            case Map(op="rsqrt", operands=(operand,)):
                root = Reading(power_of(readings[operand].factors, 0.5))
                own.divisors.update((readings[operand].term, root.term))
            case Map(op="div" | "reciprocal", operands=ids):
                own.divisors.add(readings[ids[-1]].term)
            case _:
                continue
    return own


@dataclass(frozen=True, slots=True)
class Guarded:
    """What may leave the range of floating point though the program does not (None: nothing).

    `bare`: how many exponentials may leave it because the program's own may.
    """

    fault: str | None
    bare: int


def look(program: TileProgram, own: OwnValues) -> Guarded:
    """Whether the exponentials of a tile program stay in range."""
    guards = _Guards(program, own)
    fault = guards.fault()
    return Guarded(fault, guards.bare())


class _Guards:
    """One look at a tile program."""

    def __init__(self, program: TileProgram, own: OwnValues) -> None:
        self._program = program
        self._own = own
        self._readings = Readings(program)
        self._extents: list[_Extent] = []

    def fault(self) -> str | None:
        """The first fault, or None."""
        for i, node in enumerate(self._program.nodes):
            extent = self._extent(i, node)
            if extent is None:
                if self._readings[i].identity not in self._own.values:
                    what = node.op if isinstance(node, Map) else type(node).__name__.lower()
                    return (
                        f"{what} works on an exponential that nothing keeps in range where the "
                        "program's own exponentials are: it is taken without its maximum"
                    )
                extent = _LARGE
            self._extents.append(extent)
        return None

    def bare(self) -> int:
        """How many exponentials may be of any size."""
        return sum(
            isinstance(node, Map) and node.op == "exp" and extent.size is Size.LARGE
            for node, extent in zip(self._program.nodes, self._extents, strict=False)
        )

    def _extent(self, i: ValueId, node: TileNode) -> _Extent | None:
        """The extent of a value; None where the rules do not allow it."""
        if self._readings[i].data is not None:
            return _Extent(Size.DATA)
        read = [self._extents[j] for j in operands(node)]
        found: _Extent | None = None
        match node:
            case Map(op="exp", operands=(operand,)):
                found = self._of_exp(operand)
            case Map(op="bound") | Accumulate() | Running():
                found = read[0]
            case _ if any(r.size is Size.FACTOR for r in read):
                found = None
            case Contract(left=left, right=right, dim=dim):
                product = self._of_product((left, right), read)
                found = product and product.summed(dim)
            case Reduce(dim=dim):
                found = read[0].summed(dim)
            case Map():
                found = self._of_map(node, read)
            case Store():
                found = read[0]
            case Load() | Scalar():
                raise AssertionError("depends on no exponential")
            case _:
                assert_never(node)
        return found

    def _of_map(self, node: Map, read: Sequence[_Extent]) -> _Extent | None:
        sizes = {r.size for r in read}
        match node.op:
            case "mul":
                return self._of_product(node.operands, read)
            case "div":
                return self._of_quotient(node.operands, read)
            case "add" | "maximum" | "minimum" if sizes == {Size.ONE}:
                return read[0]
            case op if op == "log" or op in POWER or op in LIKE_OPERAND:
                return self._of_unary(op, node.operands[0], read[0])
            case op if sizes <= _TAME or op not in ALIKE:
                return _BOUNDED if sizes <= _TAME else None
            case _:
                return _LARGE

    def _of_exp(self, operand: ValueId) -> _Extent | None:
        peak = self._readings.peak(operand)
        if peak:
            return _Extent(Size.PEAKED, peak)
        if self._readings[operand].identity in self._own.exponents:
            return _LARGE
        references = self._readings.references(operand)
        if references is None:
            return None
        return _Extent(Size.FACTOR if references else Size.ONE)

    def _of_product(self, ids: tuple[ValueId, ...], read: Sequence[_Extent]) -> _Extent | None:
        left, right = read
        if Size.LARGE in {left.size, right.size}:
            is_moderate = any(r.size in {Size.DATA, Size.ONE} for r in read)
            return _LARGE if is_moderate else None
        for one, other, j in ((left, right, ids[1]), (right, left, ids[0])):
            if one.size is not Size.DATA and (other.size is Size.ONE or self._is_positive(j)):
                return one
        if left.peak and self._readings[ids[0]].identity == self._readings[ids[1]].identity:
            return left
        return _BOUNDED

    def _of_quotient(self, ids: tuple[ValueId, ...], read: Sequence[_Extent]) -> _Extent | None:
        left, right = read
        if right.size is Size.ONE or self._is_positive(ids[1]):
            return _BOUNDED if left.size is Size.DATA else left
        if right.size is Size.DATA:
            return _BOUNDED if left.size in _TAME else _LARGE
        if right.peak and self._readings[ids[1]].shift:
            return None  # it is 1 somewhere, and may vanish elsewhere
        return _LARGE if self._readings[ids[1]].term in self._own.divisors else None

    def _of_unary(self, op: str, operand: ValueId, read: _Extent) -> _Extent | None:
        if read.size is Size.ONE:
            return _BOUNDED if op == "log" else read
        if op in _DIVIDING:
            return _LARGE if self._readings[operand].term in self._own.divisors else None
        if op == "log" or (op == "square" and read.size is Size.LARGE):
            return None
        return _BOUNDED if op == "neg" and read.peak else read

    def _is_positive(self, i: ValueId) -> bool:
        node = self._program.nodes[i]
        return isinstance(node, Scalar) and node.value > 0
