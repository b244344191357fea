"""Local lemmas: one operator over one parallel dim, proved once for all operands.

Along a parallel dim p a value v that is kept per block (or iteration) stands for a whole value w in
one of these ways, its *state*:

  d >= 0       v = Part(w, d, p): its tiles along data dim d are w
  REPLICATED   v = Repl(w, p): every block has w
  PARTIAL      Red(v, p) = w: the sum over the blocks is w
  PEAK         RedMax(v, p) = w: the largest over the blocks is w

A *step* claims for an operator f and the states of its operands that f(v1, v2, ..) stands for
f(w1, w2, ..) in the state of its result, whatever the operands are. Each step is a term over free
operands of which only the dims are known, and egglog judges it by the parallel rules alone
(`pairs`). Sizes in an operator (the divisor of a mean) are free scalars here.

An operand that is PARTIAL is any family of values, one per block. Every such family is
Sum(Part(u, k, p), k) for an array u with one more dim k that has an element for each block, so
proving the step for that term with u free, k of any size, is proving it for all families.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prism.egraph import AxiomSet, TermBank, TermId, operator_term
from prism.errors import GraphError
from prism.ir import OPS, DataDim
from prism.verify.pairs import PairJudge

REPLICATED, PARTIAL, PEAK = -1, -2, -3

State = int
"""A data dim's number (a tile along it) or one of the constants above."""

SAVE = "save"
"""The step of a saver, and of an accumulator that joins tiles: the blocks' values give back w."""


class Step(NamedTuple):
    """A claim; `dim` is the number of the reduced dim or -1, `masks` are the operands' dims."""

    op: str
    dim: int
    states: tuple[State, ...]
    masks: tuple[int, ...]
    result: State


class Lemmas:
    """What has been proved under one axiom set, for values over the dims of one program."""

    def __init__(self, dims: Sequence[DataDim], axioms: AxiomSet) -> None:
        self._axioms = axioms
        self._dims = tuple(dims)
        self._verdicts: dict[Step, bool] = {}
        self._terms: _StepTerms | None = None
        self._judge: PairJudge | None = None

    def __len__(self) -> int:
        """How many steps hold."""
        return sum(self._verdicts.values())

    def holds(self, steps: Iterable[Step]) -> dict[Step, bool]:
        """Whether each step was proved; those not asked before are judged now, together."""
        asked = tuple(dict.fromkeys(steps))
        new = [step for step in asked if step not in self._verdicts]
        if new:
            self._verdicts |= self._judged(new)
        return {step: self._verdicts[step] for step in asked}

    def _judged(self, steps: Sequence[Step]) -> dict[Step, bool]:
        try:
            terms = self._terms = self._terms or _StepTerms(self._dims)
        except GraphError:  # as many dims as the e-graph takes, and none left for k
            return dict.fromkeys(steps, False)
        sides: dict[Step, tuple[TermId, TermId]] = {}
        for step in steps:
            try:
                left, right = terms.sides(step)
            except GraphError:
                continue  # the values do not even fit together
            if terms.bank.type_of(left) == terms.bank.type_of(right):
                sides[step] = (left, right)
        self._judge = self._judge or PairJudge(terms.bank, self._axioms)
        return dict.fromkeys(steps, False) | self._judge.equal(sides)


class _StepTerms:
    """The two sides of each step as terms of one bank."""

    def __init__(self, dims: Sequence[DataDim]) -> None:
        self._free = _unused("k", dims)
        self.bank = TermBank((*dims, self._free))
        self._par = self.bank.par_id(0, 0, "p")
        self._size = self.bank.input("size", ())

    def sides(self, step: Step) -> tuple[TermId, TermId]:
        """What a step claims to be equal.

        Raises:
            GraphError: the operands do not fit together.
        """
        operands = [
            self._operand(j, state, mask)
            for j, (state, mask) in enumerate(zip(step.states, step.masks, strict=True))
        ]
        parts, wholes = [v for v, _ in operands], [w for _, w in operands]
        if step.op == SAVE:
            return self._saved(parts[0], step.result), wholes[0]
        # one size for all blocks
        size = self._replicated(self._size)
        per_block = operator_term(self.bank, step.op, parts, step.dim, lambda: size)
        whole = operator_term(self.bank, step.op, wholes, step.dim, lambda: self._size)
        match step.result:
            case _ if step.result == PARTIAL:
                return self._made("Red", per_block), whole
            case _ if step.result == PEAK:
                return self._made("RedMax", per_block), whole
            case _ if step.result == REPLICATED:
                return per_block, self._replicated(whole)
            case dim:
                return per_block, self._made("Part", whole, dim)

    def _operand(self, j: int, state: State, mask: int) -> tuple[TermId, TermId]:
        """A free operand: per block, and whole."""
        dims = [d for i, d in enumerate(self.bank.dims) if mask >> i & 1]
        if state in (PARTIAL, PEAK):
            k = self.bank.ids[self._free]
            within, over = ("Sum", "Red") if state == PARTIAL else ("MaxOver", "RedMax")
            array = self.bank.input(f"u{j} {mask:x}", (*dims, self._free))
            per_block = self.bank.make(within, (self._made("Part", array, k),), (k,))
            return per_block, self._made(over, per_block)
        whole = self.bank.input(f"w{j} {mask:x}", dims)
        if state == REPLICATED:
            return self._replicated(whole), whole
        return self._made("Part", whole, state), whole

    def _saved(self, per_block: TermId, state: State) -> TermId:
        if state == REPLICATED:
            return self._made("Pick", per_block)
        return self._made("Comb", per_block, state)

    def _replicated(self, term: TermId) -> TermId:
        return self._made("Repl", term)

    def _made(self, head: str, term: TermId, *dims: int) -> TermId:
        return self.bank.make(head, (term,), (*dims, self._par))


def _unused(name: str, taken: Sequence[DataDim]) -> DataDim:
    """A name that is not taken."""
    while name in taken:
        name += "'"
    return name


assert SAVE not in OPS
