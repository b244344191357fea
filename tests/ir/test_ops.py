"""The operator table: each row is sound on its own."""

from __future__ import annotations

import numpy as np
import pytest

from prism.ir import OPS, Linearity, OpKind, result_dims

A, B = (np.random.default_rng(s).uniform(0.5, 1.5, (3, 4)) for s in (1, 2))
OPERANDS = {1: (A,), 2: (A, B)}


def applied(spec, operands):
    if spec.kind is OpKind.REDUCE:
        return spec.numpy(*operands, axis=1)
    if spec.kind is OpKind.CONTRACT:
        return spec.numpy(*operands).sum(axis=1)
    return spec.numpy(*operands)


@pytest.mark.parametrize("spec", OPS.values(), ids=OPS)
def test_a_row_says_the_dims_that_numpy_gives(spec):
    dim = None if spec.kind is OpKind.ELEMENTWISE else "d"
    dims = result_dims(spec.name, dim, (frozenset({"n", "d"}),) * spec.arity)
    sizes = {"n": 3, "d": 4}
    expected = tuple(sizes[d] for d in ("n", "d") if d in dims)
    assert np.shape(applied(spec, OPERANDS[spec.arity])) == expected


@pytest.mark.parametrize("spec", OPS.values(), ids=OPS)
def test_a_row_says_whether_operands_commute(spec):
    if spec.arity == 2:
        same = np.allclose(applied(spec, (A, B)), applied(spec, (B, A)))
        assert same == spec.is_commutative


@pytest.mark.parametrize("spec", OPS.values(), ids=OPS)
def test_a_row_says_in_which_operands_it_is_linear(spec):
    """f(a + a') = f(a) + f(a') in each operand alone (EACH), or in all together (JOINT)."""
    operands = OPERANDS[spec.arity]
    for i in range(spec.arity):
        moved = tuple(o + (A if k == i else 0 * A) for k, o in enumerate(operands))
        apart = tuple(A if k == i else o for k, o in enumerate(operands))
        linear = np.allclose(applied(spec, moved), applied(spec, operands) + applied(spec, apart))
        if spec.linearity is Linearity.EACH:
            assert linear == (i in spec.linear_in)
    doubled = applied(spec, tuple(2 * o for o in operands))
    if spec.linearity is Linearity.JOINT:
        assert spec.linear_in == tuple(range(spec.arity))
        assert np.allclose(doubled, 2 * applied(spec, operands))


@pytest.mark.parametrize("spec", OPS.values(), ids=OPS)
def test_the_term_of_a_row_has_its_operands_and_its_dimension(spec):
    term = spec.term.format(*"ab"[: spec.arity], dim="7")
    words = term.replace("(", " ").replace(")", " ").split()
    assert all(operand in words for operand in "ab"[: spec.arity])
    assert ("7" in term) == (spec.kind is not OpKind.ELEMENTWISE)
    assert term.count("(") == term.count(")")


def test_sigmoid_and_its_kin_do_not_overflow():
    with np.errstate(over="raise"):
        for op, wanted in [("sigmoid", [0.0, 1.0]), ("silu", [0.0, 1000.0])]:
            assert np.allclose(OPS[op].numpy(np.array([-1000.0, 1000.0])), wanted)
