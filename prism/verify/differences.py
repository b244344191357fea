"""Says where two computations differ on an instance, in float64 and without rounding.

A difference counts only where the reference is defined. Floats find differences fast; numbers
without rounding (`prism.egraph.exact`) have the last word on small instances, where every operator
has a meaning in them: they tell cancellation and overflow from a difference.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from prism.egraph import GraphTerms, build_program, new_bank
from prism.egraph.bank import GRID_SLOTS
from prism.egraph.exact import (
    ExactMeaning,
    Number,
    TooLargeError,
    exact,
    is_precise,
    is_rational,
)
from prism.egraph.meaning import Sizes
from prism.errors import GraphError, SizeError
from prism.ir import (
    MuGraph,
    Output,
    Program,
    SGraph,
    evaluate,  # noqa: TID251 - the function, not the module of that name
    evaluate_graph,
    sizes_of,
    stack_dims,
)
from prism.verify.instances import Array, Instance

SMALLER = 0.125
"""Keeps zeros and signs, and makes an overflow go away."""
MOST_PLACES = 1_024
"""Of all dimensions together, for numbers without rounding."""
_CLOSE = Fraction(1, 10**20)
_Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry of an output, and what both computations give there.

    `fault` says why the candidate has no value to compare, if it has none. `is_exact`: numbers
    without rounding say so.
    """

    output: int
    entry: tuple[int, ...]
    reference: float
    candidate: float
    fault: str = ""
    is_exact: bool = False

    @property
    def kind(self) -> tuple[bool, bool]:
        """Two values; or one that is undefined; or none to compare."""
        return bool(self.fault), math.isfinite(self.candidate)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What numbers without rounding say; not `is_known`: nothing.

    `is_out_of_range`: because a value is so large or small that floats may overflow or vanish.
    """

    is_known: bool
    difference: Difference | None = None
    is_out_of_range: bool = False


class Comparison:
    """Compares a candidate with a reference, instance by instance.

    Where `is_proved` and floats have the last word, only what cannot be an effect of float64
    counts: differences well above the rounding of ordinary values, and undefined values that stay
    so for smaller inputs (no overflow).
    """

    def __init__(
        self, reference: Program, candidate: Program | SGraph, *, is_proved: bool = False
    ) -> None:
        self._reference = reference
        self._candidate = candidate
        self._is_proved = is_proved
        self._exact: tuple[_Precise, _Precise] | None = None

    def in_floats(self, instance: Instance) -> Difference | None:
        """A difference that is larger than the rounding of float64 usually is."""
        named = _named(self._reference, instance.arrays)
        wanted = evaluate(self._reference, named)
        try:
            given = _run(self._candidate, instance)
        except (GraphError, SizeError) as error:
            return _fault(0, str(error))
        magnitude = 1.0 if self._is_proved else 0.0  # that of ordinary values counts beside a proof
        for index, (a, b) in enumerate(zip(wanted, given, strict=True)):
            if a.shape != b.shape:
                return _fault(index, f"out{index} has shape {b.shape}, not {a.shape}")
            entry = _float_entry(a, b, magnitude)
            if entry is not None:
                return Difference(index, entry, float(a[entry]), float(b[entry]))
        return None

    def may_be_rounding(self, instance: Instance, found: Difference, judged: Judgement) -> bool:
        """Whether floats alone cannot be trusted about a difference."""
        if not self._is_proved or found.fault or math.isfinite(found.candidate):
            return False
        if judged.is_out_of_range:  # an exponential may have become zero, and be divided by
            return True
        smaller = [np.asarray(array * SMALLER) for array in instance.arrays]
        return self.in_floats(instance.with_arrays(smaller)) is None

    def exactly(self, instance: Instance) -> Judgement:
        """What numbers without rounding say, where they can be had."""
        try:
            if self._exact is None:
                self._exact = _Precise(self._reference), _Precise(self._candidate)
            one, two = self._exact
            if not (one.is_known and two.is_known):
                return Judgement(is_known=False)
            wanted, given = one.outputs(instance), two.outputs(instance)
        except TooLargeError:
            return Judgement(is_known=False, is_out_of_range=True)
        except (GraphError, SizeError):
            return Judgement(is_known=False)
        is_fraction = one.is_fraction and two.is_fraction
        for index, (a, b) in enumerate(zip(wanted, given, strict=True)):
            if a.shape != b.shape:
                return Judgement(is_known=False)
            entry = _exact_entry(a, b, is_fraction=is_fraction)
            if entry is not None:
                values = _as_float(a[entry]), _as_float(b[entry])
                found = Difference(index, entry, *values, is_exact=True)
                return Judgement(is_known=True, difference=found)
        return Judgement(is_known=True)


class _Precise:
    """A computation on numbers without rounding: its terms, evaluated."""

    def __init__(self, side: Program | SGraph) -> None:
        self._side = side
        self._program = side.program if isinstance(side, SGraph) else side
        self._bank = new_bank(self._program)
        if isinstance(side, SGraph):
            self._terms = GraphTerms(self._bank, self._program).build(side.kernels)
        else:
            self._terms = build_program(self._bank, side)
        self.is_known = is_precise(self._bank.heads)
        self.is_fraction = is_rational(self._bank.heads)

    def outputs(self, instance: Instance) -> list[_Numbers]:
        """The outputs.

        Raises:
            TooLargeError: more numbers than are worth it.
        """
        program, bank = self._program, self._bank
        named = _named(program, instance.arrays)
        sizes = sizes_of(program, named)
        pars: dict[int, int] = {}
        if isinstance(self._side, SGraph):
            pars = self._bank_pars(self._side, instance)
            stacks = stack_dims(self._side)
            sizes |= {dim: instance.counts[maker][par] for dim, (maker, par) in stacks.items()}
        data = {i: sizes[dim] for dim, i in bank.ids.items()}
        if math.prod(data.values()) * math.prod(pars.values()) > MOST_PLACES:
            raise TooLargeError("an instance of so many places")
        inputs: dict[str, _Numbers] = {}
        meaning = ExactMeaning(bank, Sizes(data, pars), inputs)
        for node in program.inputs:
            ids = [bank.ids[d] for d in node.dims]
            squeezed = named[node.argument].reshape([data[i] for i in ids])
            in_order = squeezed.transpose(sorted(range(len(ids)), key=ids.__getitem__))
            kind = bank.type_of(bank.input(node.name, node.dims))
            inputs[node.name] = exact(in_order.reshape(meaning.shape(kind)))
        values = [meaning.value(term) for term in self._terms]
        return [
            self._shown(output, value, sizes)
            for output, value in zip(program.outputs, values, strict=True)
        ]

    def _bank_pars(self, graph: SGraph, instance: Instance) -> dict[int, int]:
        """The number of chunks of each parallel dimension by its id."""
        out: dict[int, int] = {}
        for k, (kernel, counts) in enumerate(zip(graph.kernels, instance.counts, strict=True)):
            slots = [*enumerate(kernel.grid), *enumerate(kernel.loops, GRID_SLOTS)]
            for slot, par in slots:
                out[self._bank.par_id(k, slot, par.name)] = counts[par.name]
        return out

    def _shown(self, output: Output, value: _Numbers, sizes: dict[str, int]) -> _Numbers:
        """A value in the axes in which the caller gets it."""
        axes = [self._bank.ids[d] for d in output.axes if d is not None]
        rest = [axis for axis in range(value.ndim) if axis not in axes]
        small = value.transpose([*axes, *rest]).reshape([value.shape[axis] for axis in axes])
        whole = np.broadcast_to(small, [sizes[d] for d in output.axes if d is not None])
        return whole.reshape([1 if d is None else sizes[d] for d in output.axes])


def _named(program: Program, arrays: Sequence[Array]) -> dict[str, Array]:
    return dict(zip((a.name for a in program.arguments), arrays, strict=True))


def _fault(index: int, why: str) -> Difference:
    return Difference(index, (), 0.0, math.nan, why)


def _run(candidate: Program | SGraph, instance: Instance) -> tuple[Array, ...]:
    """The candidate's outputs.

    Raises:
        GraphError: a graph whose blocks contradict each other.
        SizeError: it does not take these sizes.
    """
    program = candidate.program if isinstance(candidate, SGraph) else candidate
    named = _named(program, instance.arrays)
    if isinstance(candidate, Program):
        return evaluate(candidate, named)
    mu = MuGraph(
        candidate,
        tuple(sizes_of(program, named).items()),
        tuple(
            tuple((p.name, of_kernel[p.name]) for p in (*kernel.grid, *kernel.loops))
            for kernel, of_kernel in zip(candidate.kernels, instance.counts, strict=True)
        ),
    )
    return evaluate_graph(mu, named)


def _float_entry(wanted: Array, given: Array, magnitude: float) -> tuple[int, ...] | None:
    """Where the arrays differ by more than rounding, among the entries that are defined."""
    defined = np.isfinite(wanted)
    scale = float(np.abs(wanted[defined]).max(initial=magnitude))
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(wanted - given) <= 1e-4 * np.abs(wanted) + 1e-7 * scale
    return _first(defined & ~close)


def _exact_entry(wanted: _Numbers, given: _Numbers, *, is_fraction: bool) -> tuple[int, ...] | None:
    """Where numbers without rounding differ, among those that are defined."""
    pairs = zip(wanted.ravel().tolist(), given.ravel().tolist(), strict=True)
    wrong = [_is_wrong(a, b, is_fraction=is_fraction) for a, b in pairs]
    return _first(np.array(wrong, dtype=bool).reshape(wanted.shape))


def _is_wrong(wanted: Number, given: Number, *, is_fraction: bool) -> bool:
    a, b = wanted.value, given.value
    if not isinstance(a, Fraction):
        return False
    if not isinstance(b, Fraction):
        return True
    return abs(a - b) > (0 if is_fraction else _CLOSE * max(Fraction(1), abs(a)))


def _first(wrong: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[int, ...] | None:
    places = np.argwhere(wrong)
    return tuple(int(i) for i in places[0]) if len(places) else None


def _as_float(number: Number) -> float:
    if not isinstance(number.value, Fraction):
        return math.nan
    try:
        return float(number.value)
    except OverflowError:
        return math.inf if number.value > 0 else -math.inf
