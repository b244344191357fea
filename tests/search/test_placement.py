"""The transfer table against NumPy: split values over two blocks, apply, put together again."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from prism.ir import OPS, OpKind
from prism.ir.evaluate import Value, apply_op
from prism.search.placement import (
    PARTIAL,
    PEAK,
    REPLICATED,
    PlacementPruner,
    possible_states,
    transfer,
)
from prism.search.pruning import Placed, Saved

DIMS = ("n", "d", "h")
SIZES = {"n": 4, "d": 6, "h": 2}
BLOCKS = 2


def mask(dims):
    return sum(1 << DIMS.index(d) for d in dims)


def value(dims, rng):
    return Value(tuple(dims), rng.uniform(0.5, 1.5, [SIZES[d] for d in dims]))


def split(whole, state, rng):
    """The value as each block holds it."""
    if state == REPLICATED:
        return [whole] * BLOCKS
    noise = rng.uniform(0.1, 1.0, whole.array.shape)
    if state == PARTIAL:
        return [Value(whole.dims, noise), Value(whole.dims, whole.array - noise)]
    if state == PEAK:
        first = rng.random(whole.array.shape) < 0.5
        low = whole.array - noise
        return [
            Value(whole.dims, np.where(first, whole.array, low)),
            Value(whole.dims, np.where(first, low, whole.array)),
        ]
    axis = whole.dims.index(DIMS[state])
    return [Value(whole.dims, part) for part in np.split(whole.array, BLOCKS, axis)]


def together(parts, state):
    arrays = [part.array for part in parts]
    if state == PARTIAL:
        return sum(arrays)
    if state == PEAK:
        return np.maximum(*arrays)
    if state == REPLICATED:
        return arrays[0] if np.allclose(*arrays) else None
    return np.concatenate(arrays, parts[0].dims.index(DIMS[state]))


def questions():
    """Every operator over some operands, in every combination of states."""
    shapes = {
        (OpKind.ELEMENTWISE, 1): [("nd",)],
        (OpKind.ELEMENTWISE, 2): [("nd", "nd"), ("nd", "d"), ("n", "nd")],
        (OpKind.REDUCE, 1): [("nd",)],
        (OpKind.CONTRACT, 2): [("nd", "dh"), ("nd", "nd")],
    }
    for op, spec in OPS.items():
        for operands in shapes[spec.kind, spec.arity]:
            states = product(*((REPLICATED, *possible_states(mask(o))) for o in operands))
            for state in states:
                yield pytest.param(op, operands, state, id=f"{op}-{'-'.join(operands)}-{state}")


def right_states(op, operands, states, rng):
    """The states in which putting the blocks' results together gives the operator's result."""
    dim = None if OPS[op].kind is OpKind.ELEMENTWISE else "d"
    right = None
    for _ in range(2):
        with np.errstate(all="ignore"):
            wholes = [value(o, rng) for o in operands]
            wanted = apply_op(op, dim, wholes, SIZES)
            parts = [split(w, s, rng) for w, s in zip(wholes, states, strict=True)]
            try:
                results = [
                    apply_op(op, dim, list(block), SIZES) for block in zip(*parts, strict=True)
                ]
            except Exception:
                return set()
            found = {
                s
                for s in (REPLICATED, *possible_states(mask(wanted.dims)))
                if (got := together(results, s)) is not None
                and got.shape == wanted.array.shape
                and np.allclose(got, wanted.array)
            }
        right = found if right is None else right & found
    return right


@pytest.mark.parametrize(("op", "operands", "states"), list(questions()))
def test_the_transfer_table_is_what_numpy_says(op, operands, states, rng):
    dim = -1 if OPS[op].kind is OpKind.ELEMENTWISE else DIMS.index("d")
    answer = transfer(op, dim, states, [mask(o) for o in operands])
    right = right_states(op, operands, states, rng)
    if answer is not None:
        assert answer in right
    elif PEAK not in states:
        # of maxima the table knows one use only: the maximum over another dim
        assert right == set()


def test_a_maximum_of_maxima_stays_one():
    assert transfer("max", 1, (PEAK,), [mask("nd")]) == PEAK
    assert transfer("exp", -1, (PEAK,), [mask("nd")]) is None


def test_the_pruner_gives_readable_reasons():
    pruner = PlacementPruner()
    wrong = Placed("silu", -1, (PARTIAL,), (mask("nd"),), PARTIAL)
    assert "silu" in pruner.judge(wrong)
    assert pruner.judge(Placed("neg", -1, (PARTIAL,), (mask("nd"),), PARTIAL)) is None
    assert pruner.judge(Saved(0, 0)) is None
    assert "cannot be saved" in pruner.judge(Saved(PARTIAL, REPLICATED))
