"""torch as what runs kernels of a CUDA graph, or is not there.

Its GPU is a stand-in that multiplies host memory (`fake_torch`); where torch itself is installed,
the same code also runs on its CPU tensors.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from kernels.cases import CONTRACTIONS
from kernels.fake_gpu import TORCH, TORCH_STREAM, FakeNumba, HostGpu, Tensor
from kernels.fake_torch import FakeTorch
from kernels.legal import mugraph
from kernels.library_products import (
    DTYPES,
    SIZES,
    expected_of,
    ffn,
    given_for,
    product,
    put,
    torch_module,
)
from kernels.programs import MATMUL, random_arguments, relative_error
from kernels.several import mu_of
from kernels.simulated import SHARED_LIMIT
from kernels.test_cpu_library import FFN

from prism.dtypes import TOLERANCES, dtype_of
from prism.errors import KernelError
from prism.optimized import Optimized, Winner
from prism.report import resources_text
from prism_kernels.cuda import target as target_module
from prism_kernels.cuda import torch_library
from prism_kernels.cuda.emit import emit
from prism_kernels.cuda.gpu import GpuBackend
from prism_kernels.cuda.kernel import load_cuda_kernel
from prism_kernels.cuda.product import read_product
from prism_kernels.cuda.target import CudaTarget, LockstepTarget, OfflineTarget
from prism_kernels.cuda.torch_library import CHOICE, CudaDevice, TorchKernel, TorchLibrary

pytestmark = pytest.mark.usefixtures("fresh_torch")


# --- on a GPU, whose torch multiplies host memory


def loaded(source, tmp_path, backend):
    path = tmp_path / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    return load_cuda_kernel(path, source.meta, backend)


def on_gpu(mu, dtype, tmp_path, numba=None):
    numba = numba or FakeNumba()
    kernel = loaded(emit(mu, dtype, SHARED_LIMIT, "cuda"), tmp_path, GpuBackend(numba.api))
    numba.log.clear()
    return kernel, numba


def multiplied(log):
    return [entry for entry in log if entry[0].startswith("torch ") and "empty" not in entry[0]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_torch_multiplies_arrays_of_any_layout(layout, dtype, rng, tmp_path):
    mu = product(layout)
    kernel, numba = on_gpu(mu, dtype, tmp_path)
    arguments = given_for(mu, dtype, rng)
    for _ in range(2):  # the tensors are kept, what they hold is not
        (out,), (reference,) = kernel(*arguments), expected_of(mu, arguments)
        assert relative_error(out.astype(np.float64), reference) <= TOLERANCES[dtype]
        arguments[0][...] = arguments[0][::-1].copy()
    name = "torch bmm" if "batch" in layout else "torch mm"
    assert {entry[:2] for entry in multiplied(numba.log)} == {(name, 7)}


def test_the_result_is_written_in_place_unless_no_strides_say_where(rng, tmp_path):
    for layout, is_in_place in (("result transposed", True), ("result interleaved", False)):
        mu = product(layout)
        kernel, numba = on_gpu(mu, "float16", tmp_path)
        kernel(*given_for(mu, "float16", rng))
        assert ("torch empty" not in {entry[0] for entry in numba.log}) == is_in_place


def test_all_kernels_go_to_one_stream_in_their_order(rng, tmp_path, monkeypatch):
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    kernel, numba = on_gpu(mu, "float16", tmp_path)
    arguments = given_for(mu, "float16", rng)
    kernel(*arguments)
    launches = [e for e in numba.log if e[0] == "launch" or "mm" in e[0] or "widened" in e[0]]
    assert [(e[0], e[4] if e[0] == "launch" else e[1]) for e in launches] == [
        ("torch widened", 7), ("launch", 7), ("torch mm", 7),
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "torch", TORCH)
    numba.log.clear()
    kernel(*map(Tensor, arguments))
    assert {entry[1] for entry in multiplied(numba.log)} == {TORCH_STREAM}
    assert [e[4] for e in numba.log if e[0] == "launch"] == [TORCH_STREAM]


def test_the_default_stream_is_torchs_own_and_not_one_of_its_pool(tmp_path):
    numba = FakeNumba()
    backend = GpuBackend(numba.api)
    source = emit(product("result transposed"), "float32", SHARED_LIMIT, "cuda")
    code = backend.load(tmp_path / "kernel.py", source.text, source.meta)
    shapes = [tuple(a["shape"]) for a in (*source.meta["arguments"], *source.meta["outputs"])]
    code.launch([backend.allocate(shape, "float32") for shape in shapes], 0)
    assert [entry[1] for entry in multiplied(numba.log)] == [0]


def test_half_types_are_multiplied_into_float32_or_else_float32_copies_are(rng, tmp_path):
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    for widening, first in ((True, "float16"), (False, "float32")):
        numba = FakeNumba()
        numba.torch = FakeTorch(numba.log, widening=widening)
        kernel, _ = on_gpu(mu, "float16", tmp_path, numba)
        kernel(*given_for(mu, "float16", rng))
        types = [entry[2:] for entry in multiplied(numba.log)]
        # t1 is float32 and down float16: what either says is kept
        assert types[-2:] == [(first, "float32"), ("float32", "float32")]


def test_a_kernel_file_with_a_product_runs_on_host_memory_as_on_a_gpu(rng, tmp_path):
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    kernel = loaded(ffn("float16", "cuda"), tmp_path, HostGpu())
    arguments = given_for(mu, "float16", rng)
    (out,) = kernel(*arguments)
    assert relative_error(out.astype(np.float64), expected_of(mu, arguments)[0]) < 2e-3


def test_a_loaded_kernel_names_its_library(tmp_path):
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    kernel, _ = on_gpu(mu, "float16", tmp_path)
    assert kernel.facts["library"] == "torch 2.99"
    assert kernel.facts["registers"] == 40
    assert "library kernels run by torch 2.99" in resources_text(kernel.facts)
    alone, _ = on_gpu(product("result transposed"), "float16", tmp_path)
    assert "registers" not in alone.facts
    simulated = loaded(ffn(), tmp_path, HostGpu.__bases__[0]())
    assert "NumPy" in simulated.facts["library"]


def test_what_torch_raises_is_one_clear_error(rng, tmp_path):
    mu = product("result transposed")
    kernel, numba = on_gpu(mu, "float32", tmp_path)
    numba.torch.mm = lambda *_, **__: (_ for _ in ()).throw(RuntimeError("CUBLAS_STATUS_BAD"))
    with pytest.raises(KernelError, match="launch: RuntimeError: CUBLAS_STATUS_BAD"):
        kernel(*given_for(mu, "float32", rng))


# --- where torch is not, or is told off


PROBLEMS = {
    "not installed": (None, "torch is not installed: pip install torch"),
    "without CUDA": (torch_module(cuda=None), "built without CUDA"),
    "without a GPU": (torch_module(gpu=False), "torch sees no GPU here"),
    "broken": (SimpleNamespace(), "cannot be imported"),
    "fine": (torch_module(), None),
}


@pytest.fixture
def cuda(monkeypatch):
    """The `cuda` target with a GPU that is a stand-in."""
    numba = FakeNumba()
    backend = GpuBackend(numba.api)
    monkeypatch.setattr(target_module, "gpu_backend", lambda: backend)
    numba.library = torch_library.library_on
    backend._api = numba.api
    return CudaTarget()


@pytest.mark.parametrize("case", PROBLEMS)
def test_why_torch_cannot_be_used_is_said(case, cuda, monkeypatch, tmp_path):
    module, words = PROBLEMS[case]
    put(monkeypatch, module)
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    reason = cuda.refusal(mu, "float16")
    assert (reason is None) == (words is None)
    if words is None:
        return
    assert words in reason
    source = cuda.emit(mu, "float16")  # the text is the same on every machine
    path = tmp_path / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    with pytest.raises(KernelError, match=words):
        cuda.load(path, source.meta)
    assert cuda.refusal(mugraph(MATMUL, SIZES), "float16") is None


def test_a_saved_kernel_says_that_torch_is_missing_and_goes_on_in_numpy(
    cuda, monkeypatch, rng, tmp_path
):
    mu = product("result transposed")
    source = cuda.emit(mu, "float32")
    sizes = {d: n for d, n in mu.sizes if d in mu.graph.program.size_names}
    made = Optimized(mu.graph.program, sizes, "float32", "cuda", Winner("g0", mu, source.text), {})
    made.save(tmp_path)
    arguments = given_for(mu, "float32", rng)
    put(monkeypatch, None)
    with pytest.warns(UserWarning, match="pip install torch.*NumPy evaluates"):
        fallback = Optimized.load(tmp_path)
    assert fallback.is_fallback
    (expected,) = expected_of(mu, arguments)
    np.testing.assert_allclose(fallback(*arguments), expected, rtol=1e-5, atol=1e-5)
    monkeypatch.delitem(sys.modules, "torch")
    cuda._backend._library = TorchLibrary(CudaDevice(FakeTorch([]), 0))
    there = Optimized.load(tmp_path)
    assert not there.is_fallback
    np.testing.assert_allclose(there(*arguments), expected, rtol=1e-5, atol=1e-5)


def test_a_target_for_another_machine_expects_torch_where_it_is_installed(monkeypatch):
    mu, target = mu_of(FFN, SIZES, {}, {"x": 3}, {}), OfflineTarget("sm_90")
    put(monkeypatch, torch_module())
    assert target.refusal(mu, "float16") is None
    put(monkeypatch, None)
    assert f"not expected there; {CHOICE}=torch" in target.refusal(mu, "float16")
    assert target.refusal(mugraph(MATMUL, SIZES), "float16") is None
    monkeypatch.setenv(CHOICE, "torch")
    assert target.refusal(mu, "float16") is None


def test_the_user_may_forbid_libraries_on_every_target(cuda, monkeypatch):
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    put(monkeypatch, torch_module())
    targets = (cuda, OfflineTarget("sm_80"), LockstepTarget())
    assert [target.refusal(mu, "float16") for target in targets] == [None] * 3
    monkeypatch.setenv(CHOICE, "none")
    assert all("none forbids it" in target.refusal(mu, "float16") for target in targets)
    monkeypatch.setenv(CHOICE, "cublas")
    assert all("torch or none" in target.refusal(mu, "float16") for target in targets)


# --- what torch does with arrays of several types


class CpuDevice:
    """Torch itself, on the CPU."""

    def __init__(self, torch):
        self.torch, self.place, self.streams = torch, torch.device("cpu"), []

    def tensor(self, address, elements, dtype):
        size = elements * dtype_of(dtype).itemsize
        data = (ctypes.c_uint8 * size).from_address(address)
        return self.torch.frombuffer(data, dtype=getattr(self.torch, dtype))

    def on(self, stream):
        self.streams.append(stream)
        return contextlib.nullcontext()


DEVICES = {
    "a stand-in": lambda: CudaDevice(FakeTorch([]), 0),
    "torch on the CPU": lambda: CpuDevice(pytest.importorskip("torch")),
}
STORED = [
    "float32 float32 float32",
    "float16 float16 float16",
    "bfloat16 bfloat16 bfloat16",
    "float16 float16 float32",
    "float32 float16 float16",
    "float32 float32 bfloat16",
]
"""Types of the operands and the result."""


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("device", DEVICES)
def test_operands_and_results_may_be_of_any_types(device, stored, rng):
    library, stored = TorchLibrary(DEVICES[device]()), stored.split()
    for layout in CONTRACTIONS:
        mu = product(layout)
        source = emit(mu, "float32", SHARED_LIMIT, "cuda")
        drawn = random_arguments(mu.graph.program, dict(mu.sizes), rng)
        given = [np.ascontiguousarray(a, dtype_of(s)) for a, s in zip(drawn, stored, strict=False)]
        out = np.full(source.meta["outputs"][0]["shape"], np.nan, dtype_of(stored[2]))
        arrays = [(array.size, kind) for array, kind in zip([*given, out], stored, strict=True)]
        kernel = TorchKernel(library, read_product(source.text, "kernel"), [0, 1, 2], arrays)
        launch = kernel.launcher(3)
        for _ in range(2):  # what was prepared is kept, what the arrays hold is not
            launch(*(array.ctypes.data for array in (*given, out)))
            (reference,) = expected_of(mu, given)
            tolerance = max(TOLERANCES[kind] for kind in stored)
            assert relative_error(out.astype(np.float64), reference) <= tolerance
            for array in given:
                array[...] = array[..., ::-1].copy()
            out[...] = np.nan
