"""Local lemmas: what is proved about one operator over one parallel dim is true of numbers."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from prism.egraph import AxiomFile, load_axioms, make_axiom_set
from prism.egraph.session import OutOfTimeError, deadline
from prism.ir import OPS, OpKind
from prism.search import placement
from prism.verify import Lemmas, Step
from prism.verify.lemmas import PARTIAL, PEAK, REPLICATED, SAVE

SIZES = (7, 5)
CHUNKS = ((4, 3), (3, 2))
"""Dims 0 and 1, and how two blocks divide them: never equally."""

MASKS = {1: ((1,), (3,)), 2: ((3, 3), (3, 1), (1, 3), (1, 2), (3, 0))}
"""The dims of operands, by arity; 0b11 has both."""


def states_of(mask):
    return (REPLICATED, *(d for d in (0, 1) if mask >> d & 1), PARTIAL, PEAK)


def steps_of(op):
    """Every step of an operator over these dims, right or wrong."""
    spec = OPS[op]
    for masks in MASKS[spec.arity]:
        for dim in (-1,) if spec.kind is OpKind.ELEMENTWISE else (0, 1):
            if dim >= 0 and not all(mask >> dim & 1 for mask in masks):
                continue
            for states in product(*map(states_of, masks)):
                for result in (REPLICATED, 0, 1, PARTIAL, PEAK):
                    yield Step(op, dim, states, masks, result)


def apply(op, dim, arrays):
    """The operator on arrays with an axis for each of the two dims, of length one where absent."""
    if OPS[op].kind is OpKind.ELEMENTWISE:
        return OPS[op].numpy(*arrays)
    if op == "matmul":
        return (arrays[0] * arrays[1]).sum(axis=dim, keepdims=True)
    if op == "mean":
        return arrays[0].sum(axis=dim, keepdims=True) / SIZES[dim]
    return OPS[op].numpy(arrays[0], axis=dim, keepdims=True)


def combined(state, blocks):
    """What the values of two blocks stand for, or None where they are not of this state."""
    match state:
        case _ if state == REPLICATED:
            return blocks[0] if np.array_equal(*blocks) else None
        case _ if state == PARTIAL:
            return blocks[0] + blocks[1] if blocks[0].shape == blocks[1].shape else None
        case _ if state == PEAK:
            return np.maximum(*blocks) if blocks[0].shape == blocks[1].shape else None
        case dim:
            if tuple(b.shape[dim] for b in blocks) != CHUNKS[dim]:
                return None
            return np.concatenate(blocks, axis=dim)


def operand(rng, state, mask):
    """Two blocks' values in a state, and what they stand for."""
    shape = [size if mask >> d & 1 else 1 for d, size in enumerate(SIZES)]
    if state in (PARTIAL, PEAK):
        blocks = list(rng.uniform(0.5, 2.0, (2, *shape)))
        return blocks, combined(state, blocks)
    whole = rng.uniform(0.5, 2.0, shape)
    if state == REPLICATED:
        return [whole, whole], whole
    return np.split(whole, [CHUNKS[state][0]], axis=state), whole


def is_true(step, seed=0):
    """Whether the step holds for random operands in blocks of different lengths."""
    rng = np.random.default_rng(seed)
    operands = [operand(rng, s, m) for s, m in zip(step.states, step.masks, strict=True)]
    try:
        blocks = [apply(step.op, step.dim, [o[0][b] for o in operands]) for b in (0, 1)]
        given = combined(step.result, blocks)
    except ValueError:  # shapes that do not go together
        return False
    whole = apply(step.op, step.dim, [o[1] for o in operands])
    return given is not None and given.shape == whole.shape and np.allclose(given, whole)


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


@pytest.mark.parametrize("op", OPS)
def test_what_is_proved_is_true_and_what_placement_allows_is_proved(op, axioms):
    steps = list(steps_of(op))
    proved = Lemmas(("a", "b"), axioms).holds(steps)
    for step in steps:
        if proved[step]:
            assert is_true(step), step
        else:
            assert placement.transfer(step.op, step.dim, step.states, step.masks) != step.result
    assert 0 < sum(proved.values()) < len(steps)


def test_states_are_placements_own():
    assert (REPLICATED, PARTIAL, PEAK) == (
        placement.REPLICATED,
        placement.PARTIAL,
        placement.PEAK,
    )


@pytest.mark.parametrize(
    ("step", "is_right"),
    [
        (Step(SAVE, -1, (0,), (3,), 0), True),
        (Step(SAVE, -1, (REPLICATED,), (3,), REPLICATED), True),
        (Step(SAVE, -1, (0,), (3,), 1), False),
        (Step(SAVE, -1, (0,), (3,), REPLICATED), False),
        (Step(SAVE, -1, (REPLICATED,), (3,), 0), False),
        (Step(SAVE, -1, (PARTIAL,), (3,), REPLICATED), False),
        (Step("exp", -1, (2,), (3,), 2), False),  # a dim that nothing has
    ],
)
def test_savers_give_back_the_whole_value_only_as_it_is_distributed(step, is_right, axioms):
    assert Lemmas(("a", "b"), axioms).holds([step])[step] is is_right


def test_what_is_asked_together_or_before_changes_nothing(axioms):
    steps = [s for op in ("mul", "exp", "matmul", "max") for s in steps_of(op)][::7]
    together = Lemmas(("a", "b"), axioms)
    one_by_one = Lemmas(("a", "b"), axioms)
    found = together.holds(steps)
    assert found == {s: one_by_one.holds([s])[s] for s in steps[::-1]}
    assert len(together) == sum(found.values()) == len(one_by_one)


def test_what_was_asked_without_time_is_not_mixed_up_with_what_is_asked_next(axioms):
    steps = [s for op in ("mul", "exp", "sub", "matmul", "max") for s in steps_of(op)]
    found = Lemmas(("a", "b"), axioms).holds(steps)
    again = Lemmas(("a", "b"), axioms)
    with deadline(0.0), pytest.raises(OutOfTimeError):
        again.holds([step for step in steps if found[step]])
    assert again.holds(sorted(steps, key=found.__getitem__)) == found


def test_without_axioms_nothing_is_proved():
    steps = list(steps_of("exp"))
    assert not any(Lemmas(("a", "b"), make_axiom_set(())).holds(steps).values())


GROWING = '(rewrite (Exp x) (Exp (Abs x)) :ruleset parallel :name "exp-grows")'


def test_a_rule_that_grows_for_ever_ends_at_a_limit(axioms):
    growing = make_axiom_set((*axioms.files, AxiomFile("growing.egg", GROWING)))
    tile, partial = (Step("exp", -1, (s,), (3,), s) for s in (0, PARTIAL))
    assert Lemmas(("a", "b"), growing).holds([tile, partial]) == {tile: True, partial: False}


def test_a_program_of_as_many_dims_as_the_e_graph_takes_has_no_lemmas(axioms):
    step = Step("exp", -1, (0,), (1,), 0)
    many = [f"d{i}" for i in range(40)]
    assert Lemmas(many, axioms).holds([step]) == {step: False}
    assert Lemmas(many[:39], axioms).holds([step]) == {step: True}


def test_states_are_those_of_placement():
    """The search guesses states for the lemmas."""
    ours = (placement.REPLICATED, placement.PARTIAL, placement.PEAK)
    assert ours == (REPLICATED, PARTIAL, PEAK)
