"""Rewrites exp so that no intermediate overflows where the result does not.

Algebra over the reals moves exp about freely; in floating point exp(100) is inf. So an exp(x) whose
value is summed over the axes r is computed as e = exp(x - m) with a *reference* m = max_r x of the
value's remaining dims. Values then carry references: the true value is v * exp(sum c m) for
{m: c}. The rules:

| operator                    | references of the result                | else materialise        |
|-----------------------------|------------------------------------------|-------------------------|
| mul, contract               | exponents add                            | m has the summed axis * |
| div                         | exponents subtract, equal ones cancel    | divisor not yet summed  |
| sum, max                    | kept                                     | m has the summed axis * |
| neg, abs, relu              | kept                                     |                         |
| square, sqrt                | 2 x, 1/2 x                               |                         |
| reciprocal, rsqrt           | -1 x, -1/2 x                             | operand not yet summed  |
| add, sub, maximum, minimum  | kept                                     | operands' are not equal |
| log                         | none: log v + sum c m                    | operand not yet summed  |
| stores between kernels      | stored beside the value                  | see below               |
| anything else, stores       |                                          | always                  |

A value is *summed* once its axes contain no r of its references: then it is of the size of 1 and
v * exp(sum c m) overflows only if the true value does. A value not yet summed is materialised by
computing it again from the plain exp(x).

In a loop over r the reference runs (`Running`), and accumulators are rescaled when it moves. This
is online softmax, obtained from any algebraic form of it. In a nest of loops a reference runs along
one of them: the innermost around x if that one cuts r; otherwise it is of one iteration, and runs
from the first accumulator on that it does not outlive.

A value that one kernel stores for another keeps its references: they are stored beside it, and
loaded with it. Where blocks along a grid dim have references of their own they are stacked along
that dim, as the value is; a value that is not stacked is materialised then, and so is one not yet
summed that a later kernel has to materialise. (*) A sum along which a loaded reference varies
rescales: with M the largest m along the axis, sum v exp(c m) = (sum v exp(c (m - M))) exp(c M).
This is how the parts of flash decoding are put together.

`forms` chooses the axes where there are several; what is left of exponentials that the program
does not take, `guards` refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import assert_never

from prism.ir import AccumulatorKind, DataDim
from prism_kernels.carried import Memory, References
from prism_kernels.sums import Sums
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
    prune,
)

_SCALED = {
    "neg": 1.0,
    "abs": 1.0,
    "relu": 1.0,
    "square": 2.0,
    "sqrt": 0.5,
    "reciprocal": -1.0,
    "rsqrt": -0.5,
}
_ALIKE = frozenset({"add", "sub", "maximum", "minimum"})
_POWERS: Mapping[float, tuple[str, ...]] = {0.5: ("sqrt",), 1.0: (), 2.0: ("square",)}
"""Exponents by which a sum rescales, and the operators that take a factor to that power."""

Exp = tuple[int, ValueId]
"""An exp of a graph: its kernel and its node."""


class RangeSafe:
    """One run of the pass over a program; `safe` and `twin` map old values to their new forms."""

    def __init__(
        self,
        kernel: int,
        program: TileProgram,
        chosen: Mapping[Exp, frozenset[DataDim]],
        sums: Sums,
        memory: Memory,
    ) -> None:
        self.kernel = kernel
        self.old = program
        self.chosen = chosen  # exp -> the axes of its reference, of several
        self.several: dict[Exp, frozenset[DataDim]] = {}  # exp -> the axes to choose from
        self.sums = sums
        self.new = memory.builder
        self.safe: list[ValueId] = []
        self.references: list[References] = []  # of the safe form of each old value
        self.twin: dict[ValueId, ValueId] = {}
        self.summed_axes = memory.summed_axes  # reference -> the axes it is a max over
        self.loaded: set[ValueId] = set()  # references from memory, and their maxima
        self.memory = memory

    def run(self) -> TileProgram:
        """The rewritten program."""
        for i, node in enumerate(self.old.nodes):
            value, references = self._rewrite(i, node)
            self.safe.append(value)
            self.references.append({m: c for m, c in references.items() if c})
        return prune(
            replace(
                self.old,
                nodes=tuple(self.new.nodes),
                axes=tuple(self.new.axes),
                stages=tuple(self.new.stages),
            )
        )

    def _rewrite(self, i: ValueId, node: TileNode) -> tuple[ValueId, References]:
        """The safe form of a node: its value, and the references that it carries."""
        references: References = {}
        match node:
            case Load():
                value = self.new.add(node, self.old.axes[i])
                references = self.memory.load(node, self.old.axes[i])
                self.loaded |= set(references)
            case Scalar():
                value = self.new.add(node)
            case Map():
                value, references = self._map(i, node)
            case Reduce(operand=operand):
                value, references = self._summed(node, self.references[operand])
            case Contract(left=left, right=right):
                value, references = self._summed(node, self._added(left, right, 1.0))
            case Accumulate():
                value, references = self._accumulate(node)
            case Store(operand=operand):
                is_carried = self.memory.store(node, self.references[operand])
                operand = self.safe[operand] if is_carried else self._plain(operand)
                value = self.new.add(replace(node, operand=operand), self.old.axes[i])
            case Running():
                raise AssertionError("the pass runs once")
            case _:
                assert_never(node)
        return value, references

    def _summed(
        self, node: Reduce | Contract, references: References
    ) -> tuple[ValueId, References]:
        """A reduction keeps the references, unless one of them varies along its axis."""
        values = [self.safe[j] for j in operands(node)]
        if self._depends_on(references, node.dim):
            moved = [self._rescaled(j, node.dim) for j in operands(node)]
            values = [value for value, _ in filter(None, moved)]
            if len(values) < len(moved):
                return self._of_plain(node), {}
            references = {}
            for _, of_operand in filter(None, moved):
                for m, c in of_operand.items():
                    references[m] = references.get(m, 0.0) + c
        if isinstance(node, Reduce):
            return self.new.add(replace(node, operand=values[0])), references
        return self.new.add(Contract(values[0], values[1], node.dim)), references

    def _rescaled(self, i: ValueId, dim: DataDim) -> tuple[ValueId, References] | None:
        """Old value i relative to references that do not vary along `dim`, if it can be had."""
        value, references = self.safe[i], dict(self.references[i])
        for m, c in self.references[i].items():
            if not self._depends_on((m,), dim):
                continue
            if m not in self.loaded or c not in _POWERS:
                return None
            top = self._largest(m, frozenset({dim}))
            self.loaded.add(top)
            value = self._times_power(value, m, top, c)
            del references[m]
            references[top] = references.get(top, 0.0) + c
        return value, references

    def _times_power(self, value: ValueId, m: ValueId, top: ValueId, c: float) -> ValueId:
        """A value relative to c m, relative to c top."""
        factor = self.new.add(Map("exp", (self.new.add(Map("sub", (m, top))),)))
        for op in _POWERS[c]:
            factor = self.new.add(Map(op, (factor,)))
        return self.new.add(Map("mul", (value, factor)))

    def _map(self, i: ValueId, node: Map) -> tuple[ValueId, References]:
        if node.op == "exp":
            return self._exp(i, node.operands[0])
        references = self._map_references(node)
        if references is None:
            return self._of_plain(node), {}
        value = self.new.add(Map(node.op, tuple(self.safe[j] for j in node.operands)))
        if node.op == "log" and references:
            return self.new.add(Map("add", (value, self._exponent(references)))), {}
        return value, references

    def _map_references(self, node: Map) -> References | None:
        """What the result carries when the operator works on safe forms; None if it cannot."""
        first, last = node.operands[0], node.operands[-1]
        references = self.references[first]
        match node.op:
            case "mul" | "div" if node.op == "mul" or self._is_summed(last):
                return self._added(first, last, 1.0 if node.op == "mul" else -1.0)
            case "neg" | "abs" | "relu" | "square" | "sqrt":
                return {m: c * _SCALED[node.op] for m, c in references.items()}
            case "reciprocal" | "rsqrt" if self._is_summed(first):
                return {m: c * _SCALED[node.op] for m, c in references.items()}
            case "log" if self._is_summed(first):
                return references
            case op if op in _ALIKE and references == self.references[last]:
                return references
            case _:
                return None if any(self.references[j] for j in node.operands) else {}

    def _exp(self, i: ValueId, operand: ValueId) -> tuple[ValueId, References]:
        x = self._plain(operand)
        here, later = self.sums.of(self.kernel, i)
        axes, exp = self.new.axes[x], (self.kernel, i)
        summed = here & {a.dim for a in axes}
        summed |= later & {a.dim for a in axes if not self.old.is_split(a)}
        over = frozenset(summed)
        if len(summed) > 1:
            self.several[exp] = over
            over = self.chosen.get(exp, over)
        if not over or self._is_never_positive(x):
            return self.new.add(Map("exp", (x,))), {}
        reference = self._largest(x, over)
        shifted = self.new.add(Map("sub", (x, reference)))
        return self.new.add(Map("exp", (shifted,))), {reference: 1.0}

    def _largest(self, x: ValueId, over: frozenset[DataDim]) -> ValueId:
        """The largest x along axes, as a reference: finite, running where the loop cuts one."""
        axes = sorted((a for a in self.new.axes[x] if a.dim in over), key=lambda a: a.dim)
        largest = x
        for axis in axes:
            largest = self.new.add(Reduce("max", largest, axis.dim))
        around = self.old.loop_at(self.new.stages[x])
        if any(a.looped and self.old.loop_of(a) == around for a in axes):
            reference = self.new.add(Running(largest))
        else:
            reference = self.new.add(Map("bound", (largest,)))
        self.summed_axes[reference] = over
        return reference

    def _is_never_positive(self, x: ValueId) -> bool:
        """Whether x is y - max y: such an exp is safe as it stands."""
        node = self.new.nodes[x]
        if not (isinstance(node, Map) and node.op == "sub"):
            return False
        left, top = node.operands
        while isinstance(largest := self.new.nodes[top], Reduce) and largest.op == "max":
            top = largest.operand
        return top == left != node.operands[1]

    def _accumulate(self, node: Accumulate) -> tuple[ValueId, References]:
        scales: list[tuple[ValueId, float]] = []
        after: References = {}
        value = self.safe[node.operand]
        for reached, c in self.references[node.operand].items():
            m, reference = reached, self._reference_after(reached, node)
            if reference is None and len(self.old.loops) > 1 and c in _POWERS:
                value, m = self._followed(value, reached, c)
                reference = self._reference_after(m, node)
            if reference is None:
                return self._of_plain(node), {}
            after[reference] = c
            if reference != m and isinstance(self.new.nodes[m], Running):
                scales.append((m, c))
        return self.new.add(Accumulate(node.kind, value, node.dim, tuple(scales))), after

    def _followed(self, value: ValueId, m: ValueId, c: float) -> tuple[ValueId, ValueId]:
        """A value relative to m, another one in each iteration, relative to a running reference."""
        running = self.new.add(Running(m))
        self.summed_axes[running] = self.summed_axes[m]
        if m in self.loaded:
            self.loaded.add(running)
        return self._times_power(value, m, running, c), running

    def _reference_after(self, m: ValueId, node: Accumulate) -> ValueId | None:
        """What reference m of the operand is for the accumulated value, if it can have one."""
        if self._is_fixed(m, node):
            return m
        if isinstance(self.new.nodes[m], Running):
            if node.kind is AccumulatorKind.MAX:
                return None
            after = self.new.add(Accumulate(AccumulatorKind.MAX, m))  # its last value
        elif node.kind is AccumulatorKind.CONCAT and self._depends_on((m,), node.dim):
            after = self.new.add(Accumulate(node.kind, m, node.dim))
        else:
            return None
        self.summed_axes[after] = self.summed_axes[m]
        if m in self.loaded:
            self.loaded.add(after)
        return after

    def _is_fixed(self, m: ValueId, node: Accumulate) -> bool:
        """Whether a reference is the same in all iterations of the loop that ends in `node`."""
        is_body = self.new.stages[self.safe[node.operand]] is Stage.BODY
        return self.new.stages[m] <= (Stage.OUTER if is_body else Stage.BEFORE)

    def _added(self, left: ValueId, right: ValueId, sign: float) -> References:
        """The references of a product (sign 1) or quotient (-1)."""
        out = dict(self.references[left])
        for m, c in self.references[right].items():
            out[m] = out.get(m, 0.0) + sign * c
        return {m: c for m, c in out.items() if c}

    def _depends_on(self, references: Iterable[ValueId], dim: DataDim | None) -> bool:
        return any(dim in {a.dim for a in self.new.axes[m]} for m in references)

    def _is_summed(self, i: ValueId) -> bool:
        """Whether old value i has no axis left over which one of its references is a max."""
        dims = {a.dim for a in self.new.axes[self.safe[i]]}
        return not any(self.summed_axes[m] & dims for m in self.references[i])

    def _exponent(self, references: References) -> ValueId:
        """The sum of c m."""
        total: ValueId | None = None
        for m, c in references.items():
            term = m if c == 1.0 else self.new.add(Map("mul", (m, self.new.add(Scalar(c)))))
            total = term if total is None else self.new.add(Map("add", (total, term)))
        assert total is not None  # callers pass at least one reference
        return total

    def _plain(self, i: ValueId) -> ValueId:
        """The new value equal to old value i, without references."""
        if not self.references[i]:
            return self.safe[i]
        if i not in self.twin:
            if self._is_summed(i):
                factor = self.new.add(Map("exp", (self._exponent(self.references[i]),)))
                self.twin[i] = self.new.add(Map("mul", (self.safe[i], factor)))
            elif isinstance(node := self.old.nodes[i], Load):
                self.twin[i] = self.safe[i]
                self.memory.require_plain(node.source)
            else:
                self.twin[i] = self._of_plain(node)
        return self.twin[i]

    def _of_plain(self, node: TileNode) -> ValueId:
        """The node computed from operands without references."""
        match node:
            case Map(operands=ids):
                return self.new.add(replace(node, operands=tuple(self._plain(j) for j in ids)))
            case Contract(left=left, right=right, dim=dim):
                return self.new.add(Contract(self._plain(left), self._plain(right), dim))
            case Reduce(operand=operand) | Accumulate(operand=operand):
                return self.new.add(replace(node, operand=self._plain(operand)))
            case Load() | Scalar() | Store() | Running():
                raise AssertionError("carries no reference")
        assert_never(node)
