"""What a term means in NumPy: values over named axes, every block and iteration side by side.

A value is an array with one axis for each data dimension and each parallel dimension of its bank
(size one where it has none). So Part is a reshape, Red a sum over an axis, and a whole graph with
all its blocks is a few array operations. Independent of egglog and of the axioms: it is what they
are tested against.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from prism.egraph.bank import TermBank, TermId, TermNode, TermType
from prism.egraph.signature import simple_operators
from prism.errors import SizeError
from prism.ir import OPS, Along, Definition, OpKind

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Global size of each data dimension by id, number of chunks of each parallel one."""

    data: Mapping[int, int]
    pars: Mapping[int, int]

    def local(self, kind: TermType, dim: int) -> int:
        """The size of one tile of `dim`.

        Raises:
            SizeError: the tiles would not be equal.
        """
        count = math.prod(self.pars[par] for par in kind.splits[dim])
        if self.data[dim] % count:
            raise SizeError(f"{self.data[dim]} places cannot be split in {count} equal tiles")
        return self.data[dim] // count


@dataclass(slots=True)
class Meaning:
    """Evaluates terms of a bank; `inputs` gives the arrays of leaves, on the axes of `shape`."""

    bank: TermBank
    sizes: Sizes
    inputs: Mapping[str, Array]
    _axes: Mapping[int, int] = field(init=False)
    _known: dict[TermId, Array] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._axes = {
            axis: i for i, axis in enumerate((*sorted(self.sizes.data), *sorted(self.sizes.pars)))
        }

    def shape(self, kind: TermType) -> tuple[int, ...]:
        """The shape of a value of a type: size one along every axis it lacks."""
        out = [1] * len(self._axes)
        for dim in kind.splits:
            out[self._axes[dim]] = self.sizes.local(kind, dim)
        for par in kind.pars:
            out[self._axes[par]] = self.sizes.pars[par]
        return tuple(out)

    def value(self, term: TermId) -> Array:
        """The array of a term.

        Raises:
            SizeError: tiles of the given sizes would not be equal.
        """
        if term not in self._known:
            node = self.bank.node(term)
            operands = [self.value(child) for child in node.children]
            with np.errstate(all="ignore"):  # undefined values are the caller's to judge
                self._known[term] = self._compute(node, operands)
        return self._known[term]

    def work(self) -> int:
        """How many numbers the values computed so far hold."""
        return sum(value.size for value in self._known.values())

    def _compute(self, node: TermNode, operands: list[Array]) -> Array:
        match node.head, node.attributes:
            case "Input", (str(name),):
                return self.inputs[name]
            case "Const", (str(text),):
                return self._scalar(float(text))
            case "Size", (int(dim),):
                return self._scalar(float(self.sizes.data[dim]))
            case head, (*_, int(par)) if head in _PARALLEL:
                axes = [self._axes[a] for a in node.attributes if isinstance(a, int)]
                return _PARALLEL[head](operands[0], self.sizes.pars[par], *axes)
            case _:
                return self._operator(node, operands)

    def _scalar(self, value: float | Fraction) -> Array:
        return np.full((1,) * len(self._axes), float(value))

    def _defined(self, node: TermNode, definition: Definition, operands: list[Array]) -> Array:
        """An operator of a user's, by its meaning."""
        along = None
        if node.attributes:
            (dim,) = node.attributes
            assert isinstance(dim, int)
            along = Along(self._axes[dim], self.sizes.data[dim])
        return np.asarray(definition.value(operands, along, self._scalar))

    def _operator(self, node: TermNode, operands: list[Array]) -> Array:
        spec = OPS[simple_operators()[node.head]]
        if spec.definition is not None:
            return self._defined(node, spec.definition, operands)
        if spec.kind is OpKind.ELEMENTWISE:
            return spec.numpy(*operands)
        (dim,) = node.attributes
        assert isinstance(dim, int)
        if spec.kind is OpKind.REDUCE:
            return self._reduce(node, spec.numpy, operands[0], self._axes[dim])
        return np.asarray(spec.numpy(*operands).sum(axis=self._axes[dim], keepdims=True))

    def _reduce(
        self, node: TermNode, reduce: Callable[..., Array], operand: Array, axis: int
    ) -> Array:
        """A reduction; a value that lacks the dimension is the same at each of its places."""
        (dim,) = node.attributes
        assert isinstance(dim, int)
        if dim not in self.bank.type_of(node.children[0]).splits:
            operand = np.repeat(operand, self.sizes.data[dim], axis)
        return np.asarray(reduce(operand, axis=axis, keepdims=True))


def _part(x: Array, count: int, dim: int, par: int) -> Array:
    if x.shape[dim] % count:
        raise SizeError(f"{x.shape[dim]} places cannot be split in {count} equal tiles")
    return np.concatenate(np.split(x, count, axis=dim), axis=par)


def _comb(x: Array, count: int, dim: int, par: int) -> Array:
    return np.concatenate(np.split(x, count, axis=par), axis=dim)


def _repl(x: Array, count: int, par: int) -> Array:
    return np.repeat(x, count, axis=par)


def _red(x: Array, _count: int, par: int) -> Array:
    return np.asarray(x.sum(axis=par, keepdims=True))


def _red_max(x: Array, _count: int, par: int) -> Array:
    return np.asarray(x.max(axis=par, keepdims=True))


def _pick(x: Array, _count: int, par: int) -> Array:
    return x.take([0], axis=par)


def _stack(x: Array, _count: int, dim: int, par: int) -> Array:
    return np.swapaxes(x, dim, par)


def _scale(x: Array, count: int, _par: int) -> Array:
    return x * count


def _unscale(x: Array, count: int, _par: int) -> Array:
    return x / count


_PARALLEL: Mapping[str, Callable[..., Array]] = MappingProxyType(
    {
        "Part": _part,
        "Comb": _comb,
        "Repl": _repl,
        "Red": _red,
        "RedMax": _red_max,
        "Pick": _pick,
        "Stack": _stack,
        "Scale": _scale,
        "Unscale": _unscale,
    }
)
