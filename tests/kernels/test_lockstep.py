"""The lockstep simulator computes what a kernel says, bit for bit where that is defined."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from kernels.lockstep_kernels import kernel, launch, metadata, numbers

from prism_kernels.cuda import dialect
from prism_kernels.lockstep import simulate
from prism_kernels.lockstep.functions import FUNCTIONS, ROUND
from prism_kernels.lockstep.kernel_file import IMPORTS
from prism_kernels.lockstep.warp import COLLECTIVES

TILED_MATMUL = kernel(
    """
    acc = cuda.local.array(16, f32)
    n = u32(tid & 31)
    m0 = u32(tid >> 5)
    row = u32((block >> 1) * 32)
    col = u32((block & 1) * 32)
    for j in range(16):
        acc[j] = f32(0.0)
    for it in range(2):
        for j in range(16):
            e = u32(tid + j * 64)
            shared[e] = load_float32(x, u32((row + (e >> 5)) * 64 + it * 32 + (e & 31)))
            at = u32((it * 32 + (e >> 5)) * 64 + col + (e & 31))
            shared[u32(1024 + e)] = load_float32(w, at)
        cuda.syncthreads()
        for q in range(32):
            b = shared[u32(1024 + q * 32 + n)]
            for j in range(16):
                acc[j] += shared[u32((m0 + j * 2) * 32 + q)] * b
        cuda.syncthreads()
    for j in range(16):
        store_float32(out, u32((row + m0 + j * 2) * 64 + col + n), acc[j])
    """,
    "x, w, out",
)


def test_tiled_matmul_equals_numpy_and_counts_what_it_did():
    x, w = numbers((64, 64)), numbers((64, 64), 1)
    out, did = launch(TILED_MATMUL, [x, w], (64, 64), threads=64, blocks=4, shared=2048)
    np.testing.assert_allclose(out, x @ w, rtol=0, atol=1e-5)
    threads = 4 * 64
    assert did.barriers == 4 * 4
    assert did.collectives == 0
    assert did.shared_stores == threads * 2 * 16 * 2
    assert did.shared_loads == threads * 2 * 32 * (1 + 16)
    assert did.steps == threads * (16 + 2 + 2 * 16 + 2 * 32 + 2 * 32 * 16 + 16)
    assert did.global_loads == {"x": threads * 32, "w": threads * 32, "out": 0}
    assert did.global_stores == {"x": 0, "w": 0, "out": threads * 16}


def test_shuffles_reduce_over_a_warp():
    text = kernel(
        """
        r = load_float32(x, tid)
        for step in range(3):
            r = r + cuda.shfl_xor_sync(0xFFFFFFFF, r, u32(step + 1)) * f32(0.0)
        r = r + cuda.shfl_xor_sync(0xffffffff, r, 1)
        r = r + cuda.shfl_xor_sync(0xffffffff, r, 2)
        r = r + cuda.shfl_xor_sync(0xffffffff, r, 4)
        r = r + cuda.shfl_xor_sync(0xffffffff, r, 8)
        r = r + cuda.shfl_xor_sync(0xffffffff, r, 16)
        store_float32(out, tid, r)
        """
    )
    x = numbers(64)
    out, did = launch(text, [x], 64, threads=64)
    np.testing.assert_allclose(out, np.repeat(x.reshape(2, 32).sum(axis=1), 32), rtol=1e-5)
    assert did.collectives == 2 * 8


@pytest.mark.parametrize(
    ("shuffle", "source"),
    [
        ("shfl_down_sync(0xffffffff, r, 3)", [*range(3, 32), 29, 30, 31]),
        ("shfl_up_sync(0xffffffff, r, 2)", [0, 1, *range(30)]),
        ("shfl_xor_sync(0xffffffff, r, 5)", [i ^ 5 for i in range(32)]),
        ("shfl_sync(0xffffffff, r, 9)", [9] * 32),
        ("shfl_sync(0xffffffff, r, u32(tid + 40))", [(i + 8) % 32 for i in range(32)]),
        ("shfl_sync(0xffffffff, r, smaller(tid, 4))", [min(i, 4) for i in range(32)]),
    ],
)
def test_shuffle_moves_values_as_on_the_gpu(shuffle, source):
    text = kernel(f"r = load_float32(x, tid)\nstore_float32(out, tid, cuda.{shuffle})")
    x = numbers(32)
    out, _ = launch(text, [x])
    np.testing.assert_array_equal(out, x[source])


def test_votes_count_the_lanes_of_each_warp():
    text = kernel(
        """
        odd = (tid & 1) == 1
        r = f32(cuda.ballot_sync(0xffffffff, odd and tid < 32))
        if cuda.any_sync(0xffffffff, tid == 40):
            r = r + f32(0.5)
        if cuda.all_sync(0xffffffff, tid < 32):
            r = -r
        store_float32(out, tid, r)
        """,
        "out",
    )
    out, _ = launch(text, shape=64, threads=64)
    np.testing.assert_array_equal(out, np.repeat(np.float32([-0xAAAAAAAA, 0.5]), 32))


def test_block_reduction_through_shared_memory_sums_every_warp():
    text = kernel(
        """
        lane = u32(tid & 31)
        warp = u32(tid >> 5)
        r = f32(0.0)
        for i in range(u32(block * 500 + tid), u32(block * 500 + 500), 128):
            r = r + load_float32(x, u32(i))
        r = r + cuda.shfl_down_sync(0xffffffff, r, 16)
        r = r + cuda.shfl_down_sync(0xffffffff, r, 8)
        r = r + cuda.shfl_down_sync(0xffffffff, r, 4)
        r = r + cuda.shfl_down_sync(0xffffffff, r, 2)
        r = r + cuda.shfl_down_sync(0xffffffff, r, 1)
        if lane == 0:
            shared[warp] = r
        cuda.syncthreads()
        if tid == 0:
            total = f32(0.0)
            for w in range(4):
                total += shared[w]
            store_float32(out, block, total)
        """
    )
    x = numbers(1500)
    out, did = launch(text, [x], 3, threads=128, blocks=3, shared=4)
    np.testing.assert_allclose(out, x.reshape(3, 500).sum(axis=1), rtol=1e-5)
    assert did.barriers == 3


def test_atomic_additions_of_a_block_do_not_race():
    text = kernel(
        """
        at = u32(block * 4 + (tid & 3))
        if tid < 4:
            store_float32(workspace, at, f32(0.0))
        cuda.syncthreads()
        atomic_add_float32(workspace, at, load_float32(x, tid))
        cuda.syncthreads()
        if tid < 4:
            store_float32(out, at, load_float32(workspace, at))
        """,
        "x, out, workspace",
    )
    x = np.arange(32, dtype=np.float32)
    out, did = launch(text, [x], 8, blocks=2, workspace=8)
    np.testing.assert_array_equal(out, np.tile(x.reshape(8, 4).sum(axis=0), 2))
    assert did.global_stores["workspace"] == 2 * (4 + 32)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_storage_rounds_to_nearest_even(dtype):
    text = kernel(
        f"""
        for i in range(tid, 4096, 32):
            store_{dtype}(out, u32(i), load_{dtype}(x, u32(i)) * load_{dtype}(x, u32(4095 - i)))
        """
    )
    rng = np.random.default_rng(3)
    bits = rng.integers(0, 2**16, 4096, dtype=np.uint16)
    if dtype == "float16":
        x = bits.view(np.float16)
        wide = x.astype(np.float32)
    else:
        x = bits
        wide = (bits.astype(np.uint32) << 16).view(np.float32)
    out, _ = launch(text, [x], 4096, dtype=dtype)
    with np.errstate(all="ignore"):
        exact = wide * wide[::-1]
        if dtype == "float16":
            np.testing.assert_array_equal(out, exact.astype(np.float16))
            return
    got = (out.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(exact))
    number = ~np.isnan(exact)
    bits = exact[number].view(np.uint32).astype(np.uint64)
    expected = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    np.testing.assert_array_equal(out[number], expected)


def test_values_read_back_from_half_storage_are_rounded():
    text = kernel(
        """
        store_float16(out, tid, f32(1.0003))
        if load_float16(out, tid) == f32(1.0):
            store_float16(out, tid, f32(2.0))
        """,
        "out",
    )
    out, _ = launch(text, dtype="float16")
    assert (out == 2).all()


def test_an_array_of_an_extension_dtype_named_bfloat16_is_taken_by_its_bits():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    text = kernel("store_bfloat16(out, tid, load_bfloat16(x, tid))")
    x = numbers(32).astype(ml_dtypes.bfloat16)
    out = np.zeros(32, ml_dtypes.bfloat16)
    simulate(text, metadata(dtype="bfloat16"), [x], [out])
    np.testing.assert_array_equal(out, x)


def test_arithmetic_is_float32():
    text = kernel(
        """
        big = f32(16777216.0)
        store_float32(out, u32(tid * 4), big + f32(1.0))
        store_float32(out, u32(tid * 4 + 1), f32(0.1) * f32(0.1))
        store_float32(out, u32(tid * 4 + 2), f32(3.0e38) * f32(10.0) - INF)
        store_float32(out, u32(tid * 4 + 3), f32(1.0) / f32(3.0))
        """,
        "out",
    )
    out, _ = launch(text, shape=(32, 4))
    one, tenth = np.float32(1), np.float32(0.1)
    np.testing.assert_array_equal(out[5], [2**24, tenth * tenth, np.nan, one / np.float32(3)])


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("u32(tid - 5 + 4294967301)", lambda t: t),
        ("u32(u32(0 - tid) + 31)", lambda t: 31 - t),
        ("u32((u32(tid * 65536) * 65536 + tid) & 31)", lambda t: t),
        ("u32(quotient(tid, 4) * 4 + remainder(tid, 4))", lambda t: t),
        ("u32(tid ^ 21)", lambda t: t ^ 21),
        ("u32((tid << 1) % 31 if tid < 31 else 31)", lambda t: 2 * t % 31 if t < 31 else 31),
        ("u32((31 | tid) - tid)", lambda t: 31 - t),
        ("smaller(u32(tid * 2), u32(63 - tid * 2))", lambda t: min(2 * t, 63 - 2 * t)),
    ],
)
def test_index_arithmetic_wraps_at_32_bits(index, expected):
    text = kernel(f"store_float32(out, {index}, f32(tid))", "out")
    out, _ = launch(text)
    for t in range(32):
        assert out[expected(t)] == t


def test_integer_variables_wrap_at_64_bits():
    text = kernel(
        """
        n = 1
        for i in range(70):
            n *= 3
        store_float32(out, tid, f32(n))
        """,
        "out",
    )
    out, _ = launch(text)
    wrapped = (3**70 + 2**63) % 2**64 - 2**63
    assert out[0] == np.float32(wrapped)


def test_branches_of_expressions_read_only_what_they_take():
    text = kernel(
        """
        inside = tid < 20 and load_float32(x, tid) > f32(0.0)
        value = load_float32(x, tid) if tid < 20 else f32(-1.0)
        if not inside or tid < 3:
            value = -value
        elif tid == 4 or tid == 5:
            value = value + f32(100.0)
        else:
            pass
        store_float32(out, tid, value)
        """
    )
    x = numbers(20)
    out, did = launch(text, [x])
    padded = np.concatenate([x, np.full(12, -1, np.float32)])
    t = np.arange(32)
    inside = (t < 20) & (padded > 0)
    expected = np.where(~inside | (t < 3), -padded, padded)
    expected[[4, 5]] += np.where(inside[[4, 5]], 100, 0)
    np.testing.assert_array_equal(out, expected)
    assert did.global_loads["x"] == 40


def test_local_arrays_belong_to_one_thread():
    text = kernel(
        """
        h = cuda.local.array(4, f32)
        for i in range(4):
            h[i] = f32(tid * 10 + i)
        k = remainder(tid, 4)
        h[k] *= f32(2.0)
        store_float32(out, tid, h[k] - h[u32((tid + 1) & 3)])
        """,
        "out",
    )
    out, _ = launch(text)
    for t in range(32):
        h = [10 * t + i for i in range(4)]
        h[t % 4] *= 2
        assert out[t] == h[t % 4] - h[(t + 1) % 4]


def test_syncwarp_orders_what_the_lanes_of_a_warp_do():
    text = kernel(
        """
        shared[tid] = load_float32(x, tid)
        cuda.syncwarp()
        r = shared[u32(tid ^ 1)]
        cuda.syncwarp()
        shared[tid] = r + f32(1.0)
        cuda.syncwarp()
        store_float32(out, tid, shared[u32(tid ^ 2)])
        """
    )
    x = numbers(64)
    out, _ = launch(text, [x], 64, threads=64)
    np.testing.assert_array_equal(out, x[np.arange(64) ^ 3] + np.float32(1))


def test_a_long_sum_is_no_deeper_than_python_allows():
    text = kernel(f"store_float32(out, tid, {' + '.join(['f32(tid)'] * 250)})", "out")
    out, _ = launch(text)
    assert out[3] == 750


def test_every_name_of_the_dialect_has_a_meaning():
    memory = {f"{verb}_{dtype}" for verb in ("load", "store") for dtype in ROUND}
    assert {*FUNCTIONS, *memory, "atomic_add_float32"} == set(dialect.FUNCTIONS)
    assert set(ROUND) == set(dialect.DTYPES)
    assert {*COLLECTIVES, "syncthreads", "syncwarp"} == set(dialect.COLLECTIVES)
    assert all(len(f.operands) == dialect.FUNCTIONS[name] for name, f in FUNCTIONS.items())
    for name, collective in COLLECTIVES.items():
        assert 1 + len(collective.operands) == dialect.COLLECTIVES[name]


def test_no_numba_is_imported():
    code = (
        "import sys, prism_kernels.lockstep; "
        "sys.exit(any(m.split('.')[0] in {'numba', 'llvmlite'} for m in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_intrinsics_that_a_kernel_may_import_are_those_of_the_dialect():
    names = {*dialect.FUNCTIONS, "u32", "f32", "INF", "NAN", "LOWEST"}
    assert IMPORTS["prism_kernels.cuda.intrinsics"] == names
