"""CPU kernels on float16 and bfloat16 arrays: all workloads and every kind of code, end to end."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import ml_dtypes
import numpy as np
import pytest
from kernels.cases import CONTRACTIONS, RMSNORM_FORMS, contraction
from kernels.legal import mugraph, random_mugraph
from kernels.programs import (
    ATTENTION,
    LINEAR,
    MATMUL,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX,
    SOFTMAX_MATMUL,
    assert_computes,
    random_arguments,
    relative_error,
)
from kernels.several import mu_of
from kernels.test_cpu_library import FFN, of_the_library
from stacked import FLASH_DECODING, attention, graph

from prism import dlpack
from prism.dtypes import TOLERANCES, dtype_of
from prism.errors import KernelError, UsageError
from prism.frontend import load_program
from prism.ir import bind_sizes
from prism.optimized import Optimized, Winner
from prism.optimized import compiled as load_kernel
from prism.plugins import Group, installed
from prism.protocols import Device
from prism.record import Outcome
from prism.tune.cases import prepare
from prism.tune.check import check
from prism_kernels.cpu import device as device_module
from prism_kernels.cpu.target import CpuTarget

DTYPES = ["float16", "bfloat16"]
RAGGED = (3, 5, 7, 11, 13, 17, 19, 33)
WORKLOADS = sorted(n for n, p in installed(Group.WORKLOAD).items() if p.source.startswith("prism-"))

pytestmark = pytest.mark.parametrize("dtype", DTYPES)


def assert_right(kernel, program, sizes, rng, dtype):
    """The kernel computes the program on random numbers, and gives what it takes."""
    arguments = random_arguments(program, sizes, rng, dtype_of(dtype), 0.3)
    assert all(out.dtype == dtype_of(dtype) for out in kernel(*arguments))
    assert_computes(kernel, program, arguments, TOLERANCES[dtype])


def assert_checked(kernel, program, sizes, dtype, folder):
    """The kernel passes the check of the tuner."""
    result = check(kernel, prepare(program, dict(sizes), dtype, 0, folder))
    assert result.outcome is Outcome.OK, result.detail


def ragged(workload):
    """The program of a workload, and sizes that no vector divides."""
    _, program = load_program(workload)
    random = Random(workload)
    return program, bind_sizes(program, {d: random.choice(RAGGED) for d in program.size_names})


@pytest.mark.parametrize("workload", WORKLOADS)
def test_every_workload_passes_the_check_of_the_tuner(compiled, tmp_path, workload, dtype):
    program, sizes = ragged(workload)
    assert_checked(compiled(mugraph(program, sizes), dtype), program, sizes, dtype, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("workload", WORKLOADS)
def test_random_graphs_of_workloads_pass_it(compiled, tmp_path, workload, seed, dtype):
    program, sizes = ragged(workload)
    kernel = compiled(random_mugraph(program, sizes, seed), dtype)
    assert_checked(kernel, program, sizes, dtype, tmp_path)


@pytest.mark.parametrize("form", RMSNORM_FORMS)
def test_every_form_of_rmsnorm_assert_right(compiled, rng, form, dtype):
    program, grid, loop, in_body = RMSNORM_FORMS[form]
    sizes, counts = {"n": 7, "d": 333, "h": 203}, {"x": 3, "y": 4, "i": 3}
    mu = mugraph(program, sizes, grid, loop, counts, in_body=lambda i: in_body)
    assert_right(compiled(mu, dtype), program, sizes, rng, dtype)


@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_contractions_of_any_layout_are_right(compiled, rng, layout, dtype):
    program = contraction(layout)
    every = {"b": 3, "n": 9, "m": 21, "c": 18, "k": 50}
    sizes = {d: every[d] for d in program.size_names}
    assert_right(compiled(mugraph(program, sizes), dtype), program, sizes, rng, dtype)
    library = of_the_library(mugraph(program, sizes))
    assert_right(compiled(library, dtype), program, sizes, rng, dtype)


CODE = {
    "k-blocks": (RMSNORM_DIVIDED_LAST, (5, 600, 700), {"x": "h"}, "d", {"x": 2, "i": 3}),
    "many rows": (MATMUL, (40, 600, 300), {}, None, {}),
    "dot": (LINEAR, (9, 1030, 70), {"x": "h"}, None, {"x": 3}),
    "softmax": (SOFTMAX, (9, 1000), {"x": "n"}, "d", {"x": 2, "i": 3}),
    "online softmax": (SOFTMAX_MATMUL, (3, 130, 50), {}, "d", {"i": 4}),
    "attention": (ATTENTION, (2, 3, 67, 20, 33), {"x": "b"}, "l", {"x": 2, "i": 3}),
}


@pytest.mark.parametrize("kind", CODE)
def test_every_kind_of_code_is_right(compiled, rng, kind, dtype):
    program, extents, grid, loop, counts = CODE[kind]
    sizes = dict(zip(program.size_names, extents, strict=True))
    kernel = compiled(mugraph(program, sizes, grid, loop, counts), dtype)
    assert_right(kernel, program, sizes, rng, dtype)


def test_tensors_between_kernels_keep_float32(compiled, rng, dtype):
    mu = mu_of(FFN, {"n": 7, "d": 61, "h": 37, "f": 43}, {}, {"x": 3}, {})
    kernel = compiled(mu, dtype)
    assert {array.dtype for array in kernel._between} == {np.dtype(np.float32)}
    assert kernel._workspace.dtype == np.float32
    assert_right(kernel, FFN.program, dict(mu.sizes), rng, dtype)


def test_kernels_that_hand_on_parts_are_right(compiled, rng, dtype):
    sizes = {"q": 5, "k": 41, "e": 16, "f": 18}
    split = graph(attention, FLASH_DECODING)
    counts = [
        {p.name: 3 if p.name == "x" else 1 for p in (*k.grid, *k.loops)} for k in split.kernels
    ]
    mu = mu_of(split, sizes, *counts)
    assert_right(compiled(mu, dtype), split.program, sizes, rng, dtype)


# -- what is stored, and what is computed


def test_sums_are_accumulated_in_float32(compiled, dtype):
    sizes = {"n": 2, "d": 5000, "h": 40}
    x, w = (np.ones(s, dtype_of(dtype)) for s in ((2, 5000), (5000, 40)))
    (out,) = compiled(mugraph(MATMUL, sizes, {}, "d", {"i": 7}), dtype)(x, w)
    # in 16 bits the sum of ones stops growing: at 2048 in float16, at 256 in bfloat16
    assert (out.astype(np.float64) == float(dtype_of(dtype).type(5000))).all()


def test_a_step_may_leave_the_range_of_the_storage(compiled, dtype):
    sizes = {"n": 1, "d": 64, "h": 8}
    x = np.full((1, 64), 250, dtype_of(dtype))  # its sum of squares is 4e6
    g, w = np.ones(64, x.dtype), np.ones((64, 8), x.dtype)
    (out,) = compiled(mugraph(RMSNORM_DIVIDED_LAST, sizes, {}, "d", {"i": 2}), dtype)(x, g, w)
    np.testing.assert_array_equal(out.astype(np.float64), 64)


def test_results_too_large_for_the_storage_are_infinite_and_nan_stays(compiled, dtype):
    largest = float(np.float64(ml_dtypes.finfo(dtype_of(dtype)).max))
    x = np.array([[largest, 0], [-largest, 0], [np.nan, 0], [1, 1]], dtype_of(dtype))
    w = np.full((2, 5), 2, x.dtype)
    (out,) = compiled(mugraph(MATMUL, {"n": 4, "d": 2, "h": 5}), dtype)(x, w)
    expected = np.array([np.inf, -np.inf, np.nan, 4])[:, None] * np.ones(5)
    np.testing.assert_array_equal(out.astype(np.float64), expected)


def test_buffers_are_float32_and_arguments_are_read_as_they_lie(cpu, dtype):
    mu = mugraph(RMSNORM_DIVIDED_LAST, {"n": 8, "d": 4096, "h": 4096}, {"x": "h"}, "d", {"x": 2})
    text = cpu.emit(mu, dtype).text
    assert f"in_w = offset({dtype}_argument(arrays, 2)" in text
    assert set(re.findall(r"stack\(\d+, '(\w+)'\)", text)) == {"float32"}
    assert "from numpy import float32 as real" in text


def test_half_the_bytes_are_predicted_to_take_less_time(monkeypatch, dtype):
    device = Device("fixed", 2, 512, 32 << 10, 1 << 20, 32 << 20, 34.0)
    monkeypatch.setattr(device_module, "device", lambda: device)
    target = CpuTarget()
    mu = mugraph(MATMUL, {"n": 1, "d": 4096, "h": 4096}, {"x": "h"}, "d", {"x": 2, "i": 1})
    assert 1.5 < target.estimate(mu, "float32") / target.estimate(mu, dtype) <= 2.1


# -- where users meet it


SIZES = {"n": 5, "d": 37, "h": 19}


@pytest.fixture
def optimized(tmp_path, monkeypatch, dtype):
    """x w as a user has it, tuned to a graph that is given."""
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    mu = mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 2})
    mu = replace(mu, sizes=tuple(sorted(mu.sizes)))
    source = CpuTarget().emit(mu, dtype).text
    facts = {"search": {"graphs": 1}, "tune": {"trials": {"ok": 1}}}
    made = load_kernel(Optimized(MATMUL, SIZES, dtype, "cpu", Winner("g0", mu, source), facts))
    assert not made.is_fallback
    return made


@pytest.fixture
def arrays(rng, dtype):
    return random_arguments(MATMUL, SIZES, rng, dtype_of(dtype))


def assert_product(result, arrays):
    exact = arrays[0].astype(np.float64) @ arrays[1].astype(np.float64)
    assert result.dtype == arrays[0].dtype
    assert relative_error(result.astype(np.float64), exact) < TOLERANCES[result.dtype.name]


def test_arrays_of_any_strides_are_taken(optimized, arrays):
    assert_product(optimized(*arrays), arrays)
    assert_product(optimized(*(a.T.copy().T for a in arrays)), arrays)
    assert_product(optimized(*(np.repeat(a, 2, axis=1)[:, ::2] for a in arrays)), arrays)


def test_a_saved_kernel_runs_when_it_is_loaded_anew(optimized, arrays, tmp_path):
    optimized.save(tmp_path / "saved")
    again = Optimized.load(tmp_path / "saved")
    assert not again.is_fallback
    assert again.dtype == optimized.dtype
    np.testing.assert_array_equal(again(*arrays), optimized(*arrays))


@pytest.mark.parametrize("other", ["float64", "float32", "float16", "bfloat16", "uint16", "int16"])
def test_arrays_of_another_dtype_are_refused_with_a_way_out(optimized, arrays, other):
    if other == optimized.dtype:
        return
    kind = dtype_of(other) if other in TOLERANCES else np.dtype(other)
    with pytest.raises(UsageError, match=f"has dtype {other}, the kernel is made for") as raised:
        optimized(arrays[0].astype(kind), arrays[1])
    message = str(raised.value)
    assert ("or optimize with dtype=" in message) == (other in TOLERANCES)
    are_bits = other in {"uint16", "int16"} and optimized.dtype == "bfloat16"
    assert ("view(ml_dtypes.bfloat16)" in message) == are_bits


def test_a_kernel_refuses_arrays_of_its_bits(optimized, arrays):
    with pytest.raises(KernelError, match=f"must be a NumPy array of {optimized.dtype}"):
        optimized._kernel(*(a.view(np.uint16) for a in arrays))


class Tensor:
    """A tensor of a library that has bfloat16: NumPy cannot read it, DLPack can say it."""

    def __init__(self, array, device_type=dlpack.CPU):
        self.bits = array.view(np.uint16)
        self.device_type = device_type

    def __array__(self, dtype=None, copy=None):
        raise TypeError("Got unsupported ScalarType BFloat16")

    def __dlpack__(self):
        capsule = self.bits.__dlpack__()
        dlpack._DLTensor.from_address(dlpack._pointer_of(capsule, b"dltensor")).code = 4
        return capsule

    def __dlpack_device__(self):
        return (self.device_type, 0)


def test_a_bfloat16_tensor_of_another_library_is_read_in_place(dtype, arrays):
    if dtype == "float16":
        return  # NumPy reads it itself
    tensor = Tensor(arrays[0].T)
    bits = dlpack.bits_of(tensor)
    assert np.shares_memory(bits, arrays[0])
    np.testing.assert_array_equal(bits, tensor.bits)


def test_bfloat16_tensors_are_arguments(optimized, arrays, dtype):
    if dtype == "float16":
        return
    assert_product(optimized(*map(Tensor, arrays)), arrays)
    assert_product(optimized(Tensor(arrays[0].T.copy().T), arrays[1]), arrays)
    with pytest.raises(UsageError, match="cannot be read as a NumPy array: Got unsupported"):
        optimized(Tensor(arrays[0], device_type=dlpack.CUDA), arrays[1])


def test_tensors_of_pytorch_are_arguments(optimized, arrays, dtype):
    torch = pytest.importorskip("torch")
    kind = getattr(torch, dtype)
    given = [torch.from_numpy(a.view(np.int16)).view(kind) for a in arrays]
    assert_product(optimized(*given), arrays)
    assert_product(optimized(given[0].T.contiguous().T, given[1]), arrays)
    with pytest.raises(UsageError, match="detach"):
        optimized(given[0].clone().requires_grad_(), given[1])
