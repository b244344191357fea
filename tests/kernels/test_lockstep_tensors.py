"""The simulator multiplies matrices in fragments, and finds copies that nobody waited for."""

from __future__ import annotations

import re

import numpy as np
import pytest
from kernels.lockstep_kernels import kernel, launch, line_of
from kernels.simulated import bits_of, numbers_of

from prism.errors import KernelError
from prism_kernels.cuda import tensor_dialect
from prism_kernels.lockstep import FaultKind, LockstepFault
from prism_kernels.lockstep.matrices import FUNCTIONS, WARP_STATEMENTS

IMPORT = f"from prism_kernels.cuda.tensor_cores import {', '.join(sorted(tensor_dialect.NAMES))}\n"
LANES = """
    g = u32(tid >> 2)
    q = u32(tid & 3)
"""


def tensor_kernel(body, parameters="x, w, out"):
    """A kernel file that may use tensor cores; `g` and `q` are there."""
    return kernel(LANES + body, parameters).replace("\n\n\ndef", f"\n{IMPORT}\n\ndef")


def product(dtype):
    """One product of 16 x 16 and 16 x 8 elements, fragments read as the dialect describes them."""
    return tensor_kernel(
        f"""
    left = cuda.local.array(4, u32)
    right = cuda.local.array(2, u32)
    totals = cuda.local.array(4, f32)
    for j in range(4):
        totals[j] = f32(1.0)
    for j in range(2):
        fetch1_{dtype}(left, u32(2 * j), x, u32(g * 16 + 2 * q + 8 * j))
        fetch1_{dtype}(left, u32(2 * j + 1), x, u32((g + 8) * 16 + 2 * q + 8 * j))
        low = load_{dtype}(w, u32((2 * q + 8 * j) * 8 + g))
        right[j] = pair_{dtype}(low, load_{dtype}(w, u32((2 * q + 8 * j + 1) * 8 + g)))
    mma_{dtype}(totals, u32(0), left, u32(0), right, u32(0))
    for j in range(4):
        at = u32((g + 8 * (j >> 1)) * 8 + 2 * q + (j & 1))
        store_{dtype}(out, at, totals[j])
    """
    )


TF32 = tensor_kernel(
    """
    left = cuda.local.array(4, f32)
    right = cuda.local.array(2, f32)
    totals = cuda.local.array(4, f32)
    for j in range(4):
        totals[j] = f32(0.0)
        left[j] = load_float32(x, u32((g + 8 * (j & 1)) * 8 + q + 4 * (j >> 1)))
    for j in range(2):
        right[j] = as_tf32(load_float32(w, u32((q + 4 * j) * 8 + g)))
    mma_tf32(totals, u32(0), left, u32(0), right, u32(0))
    for j in range(4):
        store_float32(out, u32((g + 8 * (j >> 1)) * 8 + 2 * q + (j & 1)), totals[j])
    """
)
STAGED = tensor_kernel(
    """
    left = cuda.local.array(4, u32)
    right = cuda.local.array(4, u32)
    totals = cuda.local.array(4, f32)
    for j in range(4):
        totals[j] = f32(0.0)
    cp_async_float16(shared, u32(tid * 4), x, u32(tid * 8), u32(8))
    cp_commit()
    if tid < 16:
        cp_async_float16(shared, u32(128 + tid * 4), w, u32(tid * 8), u32(8))
    cp_commit()
    cp_wait0()  # both
    cuda.syncthreads()  # first
    ldmatrix(left, u32(0), shared, u32((tid & 15) * 8 + (tid >> 4) * 4))
    ldmatrix_transposed(right, u32(0), shared, u32(128 + (tid & 15) * 4))
    mma_float16(totals, u32(0), left, u32(0), right, u32(0))
    cuda.syncthreads()  # second
    for j in range(4):
        shared[u32(tid * 4 + j)] = totals[j]
    cuda.syncthreads()  # third
    for j in range(4):
        at = u32(tid + 32 * j)
        place = u32(((at >> 3) & 7) * 4 + ((at & 7) >> 1))
        store_float16(out, at, shared[u32(place * 4 + (at >> 6) * 2 + (at & 1))])
    """
)


def halves(shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.integers(-16, 17, shape) / 8).astype(np.float16)


def run(text, x, w, shape=(16, 8), dtype="float16", **options):
    return launch(text, [x, w], shape, dtype=dtype, shared=512, **options)[0]


def fault(text, **options):
    with pytest.raises(LockstepFault) as caught:
        run(text, halves((16, 16)), halves((16, 8), 1), **options)
    return caught.value.fault


def test_every_name_of_the_dialect_has_a_meaning():
    assert set(FUNCTIONS) == set(tensor_dialect.CONVERSIONS)
    assert all(len(FUNCTIONS[n].operands) == k for n, k in tensor_dialect.CONVERSIONS.items())
    collectives = {*tensor_dialect.MULTIPLICATIONS, *tensor_dialect.MATRIX_LOADS}
    assert set(WARP_STATEMENTS) == collectives


def test_packed_products_are_those_of_numpy():
    x, w = halves((16, 16)), halves((16, 8), 1)
    expected = 1 + x.astype(float) @ w.astype(float)
    np.testing.assert_array_equal(run(product("float16"), x, w), expected)
    out = run(product("bfloat16"), bits_of(x), bits_of(w), dtype="bfloat16")
    np.testing.assert_allclose(numbers_of(out), expected, rtol=2**-8)


def test_tf32_products_read_eleven_significant_bits():
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(16, 8)).astype(np.float32), rng.normal(size=(8, 8)).astype(np.float32)
    out = run(TF32, x, w, dtype="float32")
    cut = (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    np.testing.assert_allclose(out, cut.astype(float) @ w, rtol=0, atol=8 * 2**-10)
    assert np.abs(out - x.astype(float) @ w).max() > 1e-5


def test_a_number_is_rounded_to_tf32_and_the_rest_is_what_it_lost():
    call = FUNCTIONS["as_tf32"].call
    for x in np.random.default_rng(3).normal(size=100).astype(np.float32):
        high = call(x)
        assert abs(float(high) - float(x)) <= abs(float(x)) * 2**-11
        assert int(high.view(np.uint32)) & 0x1FFF == 0
    assert np.isnan(call(np.float32(np.nan)))
    assert call(np.float32(-np.inf)) == -np.inf


def test_matrices_reach_fragments_through_shared_memory():
    x, w = halves((16, 16)), halves((16, 8), 1)
    for seed in range(3):
        out = run(STAGED, x, w, seed=seed)
        np.testing.assert_array_equal(out, x.astype(float) @ w.astype(float))


def test_a_copy_ends_with_zeros():
    text = STAGED.replace("w, u32(tid * 8), u32(8)", "w, u32(tid * 8), u32(3)")
    x, w = halves((16, 16)), halves((16, 8), 1)
    np.testing.assert_array_equal(run(text, x, w)[:, 3:], 0)


def test_words_are_two_elements_each():
    text = tensor_kernel(
        """
    words = cuda.local.array(8, u32)
    fetch4_float16(words, u32(0), x, u32(tid * 8))
    fetch2_float16(words, u32(4), x, u32(tid * 8))
    words[6] = low_halves(words[1], words[2])
    words[7] = high_halves(words[1], words[2])
    store_float16(out, u32(tid * 8), low_float16(words[5]))
    store_float16(out, u32(tid * 8 + 1), high_float16(words[5]))
    for j in range(2):
        store_float16(out, u32(tid * 8 + 2 + 2 * j), low_float16(words[u32(6 + j)]))
        store_float16(out, u32(tid * 8 + 3 + 2 * j), high_float16(words[u32(6 + j)]))
        store_float16(out, u32(tid * 8 + 6 + j), low_float16(words[u32(2 + j)]))
    """
    )
    x = np.arange(256).astype(np.float16)
    out = run(text, x, x, (32, 8))
    rest = out - 8 * np.arange(32)[:, None]
    np.testing.assert_array_equal(rest, np.tile([2, 3, 2, 4, 3, 5, 4, 6], (32, 1)))


# -- faults


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("left_out", "kinds"),
    [
        ("cp_wait0()  # both", {FaultKind.UNFINISHED_COPY}),
        ("cuda.syncthreads()  # first", {FaultKind.UNFINISHED_COPY, FaultKind.RACE}),
        ("cuda.syncthreads()  # second", {FaultKind.RACE, FaultKind.WRONG_TYPE}),
        (
            "cuda.syncthreads()  # third",
            {FaultKind.RACE, FaultKind.UNWRITTEN_READ, FaultKind.WRONG_TYPE},
        ),
    ],
)
def test_no_wait_and_no_barrier_can_be_left_out(left_out, kinds, seed):
    assert fault(STAGED.replace(left_out, "tid = tid"), seed=seed).kind in kinds


def test_a_wait_for_all_groups_but_the_last_leaves_that_one_under_way():
    found = fault(STAGED.replace("cp_wait0()", "cp_wait1()"))
    assert found.kind is FaultKind.UNFINISHED_COPY
    assert found.line == line_of(STAGED, "ldmatrix_transposed(")
    assert "a copy is under way" in found.message


def test_a_copy_that_nobody_waits_for_is_reported():
    text = tensor_kernel(
        """
    cp_async_float16(shared, u32(tid * 4), x, u32(tid * 8), u32(8))
    for j in range(4):
        store_float16(out, u32(tid * 4 + j), f32(0.0))
    """
    )
    assert "never waits" in fault(text).message


@pytest.mark.parametrize("statement", ["mma_float16(totals", "ldmatrix(left", "ldmatrix_tr"])
def test_lanes_that_miss_a_product_or_a_matrix_are_divergent(statement):
    text = re.sub(
        rf"^( +)({re.escape(statement)}.*)$",
        r"\1if tid != 5:\n\1    \2",
        STAGED,
        flags=re.MULTILINE,
    )
    assert text != STAGED
    kinds = {FaultKind.DIVERGENT_COLLECTIVE, FaultKind.UNWRITTEN_READ}
    assert {fault(text, seed=seed).kind for seed in range(4)} <= kinds


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("x, u32(tid * 8), u32(8)", "x, u32(tid * 7), u32(8)", FaultKind.MISALIGNED),
        ("x, u32(tid * 8), u32(8)", "x, u32(tid * 8 + 8), u32(8)", FaultKind.OUT_OF_BOUNDS),
        ("shared, u32(tid * 4), x", "shared, u32(tid * 5), x", FaultKind.MISALIGNED),
        ("u32(128 + tid * 4), w", "u32(508 + tid * 4), w", FaultKind.OUT_OF_BOUNDS),
        ("shared, u32(128 + (tid", "shared, u32(129 + (tid", FaultKind.MISALIGNED),
        ("shared, u32(128 + (tid", "shared, u32(400 + (tid", FaultKind.UNWRITTEN_READ),
        ("shared[u32(place * 4", "shared[u32(128 + place * 2", FaultKind.WRONG_TYPE),
        ("        totals[j] = f32(0.0)", "        totals[0] = f32(0.0)", FaultKind.UNWRITTEN_READ),
    ],
)  # fmt: skip
def test_wrong_indices_are_faults(old, new, kind):
    assert old in STAGED
    assert fault(STAGED.replace(old, new)).kind is kind


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mma_float16(totals, u32(0), left", "mma_float16(left, u32(0), left"),
        ("mma_float16(totals", "mma_tf32(totals"),
        ("ldmatrix(left, u32(0), shared", "ldmatrix(left, u32(0), x"),
        ("cp_async_float16(shared, u32(tid * 4), x", "cp_async_float16(shared, u32(tid * 4), out"),
        ("totals[j] = f32(0.0)", "left[j] = f32(0.0)"),
        ("cp_commit()", "cp_commit(1)"),
    ],
)
def test_operands_of_the_wrong_kind_are_refused(old, new):
    assert old in STAGED
    with pytest.raises(KernelError) as caught:
        run(STAGED.replace(old, new), halves((16, 16)), halves((16, 8)))
    assert not isinstance(caught.value, LockstepFault)


def test_a_wrong_fragment_gives_wrong_numbers():
    x, w = halves((16, 16)), halves((16, 8), 1)
    expected = x.astype(float) @ w.astype(float)
    for old, new in (
        ("(tid & 15) * 8 + (tid >> 4) * 4", "(tid & 15) * 8"),
        ("ldmatrix_transposed(right", "ldmatrix(right"),
        ("left, u32(0), right, u32(0))", "left, u32(0), right, u32(2))"),
    ):
        try:
            out = run(STAGED.replace(old, new), x, w)
        except LockstepFault:
            continue
        if "u32(2)" not in new:  # the fourth matrix is the second again
            assert np.abs(out - expected).max() > 0.1
