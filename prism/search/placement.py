"""Where the parts of a value are, along one parallel dim: replicated, sharded or partial.

Along a grid dim or the loop a value is in one of the states

  d >= 0       sharded: its tiles put side by side along data dim d are the value
  REPLICATED   every block (iteration) holds all of it
  PARTIAL      its sum over the blocks (iterations) is the value
  PEAK         its maximum over the blocks (iterations) is the value
  AFTER        the loop only: computed when the loop has ended, whole

`transfer` is the one table of how operators carry states, read off `OPS` (kind and linearity).
Parallel dims act independently, so a state never depends on the others; a grid dim, the loop, and
every stage of the loop use the same table. The placement pruner drops what it does not allow:
a partial value into a nonlinear operator, a tile beside a whole of the same dim.

With the pruner off a value of the loop body may be in any state and is accumulated accordingly;
verification rejects what is wrong. It may prove what the table does not know, and what holds only
where all chunks are equally long (tiles added up over the loop and summed after it); those graphs
are not listed either, see `explain`.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism.ir import OPS, AccumulatorKind, Linearity, OpKind
from prism.search.pruning import Narrowed, Partial, Placed, Saved
from prism.search.wiring import dims_in

REPLICATED = -1
PARTIAL = -2
PEAK = -3
AFTER = -4

State = int
"""A data dim's number (sharded along it) or one of the constants above."""

_REDUCED = {"sum": PARTIAL, "mean": PARTIAL, "max": PEAK}
"""What a reduction over the sharded dim leaves in each block. A mean divides by the whole size."""


def transfer(
    op: str, dim: int, states: Sequence[State], operand_dims: Sequence[int]
) -> State | None:
    """The state of an operator's result, or None where the operands do not fit together.

    `dim` is the reduced dim's number, `operand_dims` the operands' dims as bit masks. No operand
    is AFTER.
    """
    distinct = set(states)
    if distinct == {REPLICATED}:
        return REPLICATED
    if PEAK in distinct:
        return PEAK if _keeps_peaks(op, states) else None
    if PARTIAL in distinct:
        return PARTIAL if _is_linear(op, states) else None
    sharded = max(states)
    for state, dims in zip(states, operand_dims, strict=True):
        # a whole operand beside a tile must not vary along the tiled dim
        if state != sharded and (state >= 0 or dims >> sharded & 1):
            return None
    if sharded != dim:
        return sharded
    # what acts along a dim needs the whole of it
    return PARTIAL if OPS[op].kind is OpKind.CONTRACT else _REDUCED.get(op)


def _is_linear(op: str, states: Sequence[State]) -> bool:
    """Whether the operator commutes with the sum over blocks in its partial operands."""
    spec = OPS[op]
    match spec.linearity:
        case Linearity.NONE:
            return False
        case Linearity.JOINT:
            return all(state == PARTIAL for state in states)
        case Linearity.EACH:
            partial = [i for i, state in enumerate(states) if state == PARTIAL]
            whole = sum(state == REPLICATED for state in states)
            return len(partial) == 1 == len(states) - whole and partial[0] in spec.linear_in


def _keeps_peaks(op: str, states: Sequence[State]) -> bool:
    """Whether the operator commutes with the maximum over blocks in its peaks."""
    match op:
        case "max":  # over another dim
            return True
        case "maximum":
            return all(state in (PEAK, REPLICATED) for state in states)
        case "add":
            return sorted(states) == [PEAK, REPLICATED]
        case "sub":
            return tuple(states) == (PEAK, REPLICATED)
        case _:
            return False


def accumulator_of(state: State) -> AccumulatorKind:
    """The accumulator that makes a value of the loop body whole."""
    match state:
        case _ if state == PARTIAL:
            return AccumulatorKind.SUM
        case _ if state == PEAK:
            return AccumulatorKind.MAX
        case _:
            assert state >= 0
            return AccumulatorKind.CONCAT


def possible_states(result_dims: int) -> tuple[State, ...]:
    """Every state a value of these dims could be in, were there no operators."""
    return (*dims_in(result_dims), PARTIAL, PEAK)


class PlacementPruner:
    """Drops operators and savers whose states do not follow from the operands'."""

    name = "placement"

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph cannot be completed, or None."""
        match partial:
            case Placed(op, dim, states, operand_dims, result):
                if transfer(op, dim, states, operand_dims) == result:
                    return None
                return f"{op} of values in states {states} does not give {result}"
            case Saved(state, mapped):
                if state == mapped:
                    return None
                return f"a value in state {state} cannot be saved as mapped to {mapped}"
            case Narrowed(par=par, matched=matched, placed=0) if matched:
                return f"no map of the inputs along {par} places every tensor"
            case _:
                return None
