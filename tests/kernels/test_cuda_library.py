"""Kernels of a CUDA graph that a library runs: as text, in the simulator, through torch, predicted.

torch's GPU is a stand-in that multiplies host memory (`fake_torch`); where torch itself is
installed, the same code also runs on its CPU tensors.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from kernels.cases import CONTRACTIONS, GRAM, contraction
from kernels.fake_gpu import TORCH, TORCH_STREAM, FakeNumba, HostGpu, Tensor
from kernels.fake_torch import FakeTorch
from kernels.legal import mugraph
from kernels.programs import MATMUL, random_arguments, relative_error
from kernels.several import mu_of
from kernels.simulated import SHARED_LIMIT, assert_computes, launched
from kernels.test_cpu_library import FFN, of_the_library

from prism.dtypes import TOLERANCES, dtype_of
from prism.errors import KernelError
from prism.ir import evaluate
from prism.optimized import Optimized, Winner
from prism.report import resources_text
from prism_kernels.cuda import target as target_module
from prism_kernels.cuda import torch_library
from prism_kernels.cuda.devices import ARCHS, LIBRARY_MMA_SM
from prism_kernels.cuda.emit import emit
from prism_kernels.cuda.gpu import GpuBackend
from prism_kernels.cuda.kernel import load_cuda_kernel
from prism_kernels.cuda.product import read_product
from prism_kernels.cuda.target import CudaTarget, LockstepTarget, OfflineTarget
from prism_kernels.cuda.torch_library import (
    CHOICE,
    CudaDevice,
    TorchKernel,
    TorchLibrary,
    torch_problem,
)
from prism_kernels.lockstep import FaultKind, LockstepFault, simulate

DTYPES = ("float32", "float16", "bfloat16")
SIZES = {"n": 7, "d": 61, "h": 37, "f": 43}
ALL_SIZES = {"b": 3, "n": 9, "m": 21, "c": 18, "k": 50}


@pytest.fixture(autouse=True)
def fresh(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv(CHOICE, raising=False)
    torch_problem.cache_clear()
    yield
    torch_problem.cache_clear()


def product(layout):
    """The muGraph of a row of CONTRACTIONS, left to the library."""
    program = contraction(layout)
    return of_the_library(mugraph(program, {d: ALL_SIZES[d] for d in program.size_names}))


def ffn(dtype="float32", target="lockstep", **sizes):
    return emit(mu_of(FFN, {**SIZES, **sizes}, {}, {"x": 3}, {}), dtype, SHARED_LIMIT, target)


def given_for(mu, dtype, rng):
    program = mu.graph.program
    arguments = random_arguments(program, dict(mu.sizes), rng)
    return [np.ascontiguousarray(a, dtype_of(dtype)) for a in arguments]


def expected_of(mu, arguments):
    names = (a.name for a in mu.graph.program.arguments)
    wide = (np.asarray(a, np.float64) for a in arguments)
    return evaluate(mu.graph.program, dict(zip(names, wide, strict=True)))


# --- in the simulator


@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_products_of_any_layout_are_right_in_the_simulator(layout, rng):
    mu = product(layout)
    for dtype in DTYPES:
        assert_computes(mu, random_arguments(mu.graph.program, dict(mu.sizes), rng), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_library_kernels_and_ours_take_turns(dtype, rng):
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    assert_computes(mu, random_arguments(FFN.program, SIZES, rng), dtype)


def test_one_argument_may_be_both_operands(rng):
    mu = of_the_library(mugraph(GRAM, {"n": 5, "d": 7}))
    assert_computes(mu, random_arguments(GRAM, {"n": 5, "d": 7}, rng), "float16")


def test_what_lies_between_kernels_is_not_rounded_to_half():
    """300 rounds to 300.0 and 0.01 to something else, in bfloat16; their sum to 300."""
    mu = mu_of(FFN, {"n": 1, "d": 2, "f": 1, "h": 1}, {}, {"x": 1}, {})
    x, w = np.array([[1, 1]], np.float32), np.array([[300], [0.0625]], np.float32)
    u, down = np.array([[1], [0]], np.float32), np.array([[1]], np.float32)
    source = emit(mu, "bfloat16", SHARED_LIMIT, "lockstep")
    (out,) = launched(source.text, source.meta, (x, w, u, down))
    assert out.item() == 300  # rounded once, at the end
    (entry,) = [e for e in source.meta["launches"] if e["kernel"] == "kernel0"]
    assert entry["parameters"] == ["bfloat16", "bfloat16", "float32"]


def test_the_file_shows_the_call_and_reads_back():
    source = ffn("float16")
    assert "    # t0[n, f] = x[n, d] w[d, f], summed over d.\n    matmul(" in source.text
    assert "matrices(in_w, rows=[(61, 43)], columns=[(43, 1)])" in source.text
    assert ["library" in launch for launch in source.meta["launches"]] == [True, False, True]
    found = read_product(source.text, "kernel2")
    assert found.sizes == (1, 7, 37, 43)
    assert [m.parameter for m in found.operands] == [2, 0, 1]


def test_a_result_is_rounded_to_the_nearest_of_its_type():
    mu = of_the_library(mugraph(MATMUL, {"n": 1, "d": 2, "h": 1}))
    source = emit(mu, "bfloat16", SHARED_LIMIT, "lockstep")
    numbers = np.ones((1, 2), np.float32), np.array([[1], [0.75 / 128]], np.float32)
    (out,) = launched(source.text, source.meta, numbers)
    assert out.item() == 1 + 1 / 128


CHANGED = {
    "two calls": ("    )\n", "    )\n    matmul()\n", "one call of matmul"),
    "a computed axis": ("(61, 43)", "(60 + 1, 43)", "literal"),
    "a negative stride": ("(61, 43)", "(61, -43)", "an extent and a stride"),
    "depths that differ": ("(61, 43)", "(60, 43)", "do not make"),
    "an unknown array": ("matrices(in_w", "matrices(in_v", "PARAMETER"),
    "an unknown group": ("rows=[(61", "lines=[(61", "PARAMETER"),
    "another function": ("matmul(", "multiply(", "one call of matmul"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_call_that_was_changed_is_refused(change):
    old, new, words = CHANGED[change]
    source = ffn()
    assert old in source.text
    with pytest.raises(KernelError, match=words):
        read_product(source.text.replace(old, new, 1), "kernel0")


FAULTS = {
    "out of bounds": ("(61, 43)", "(61, 44)", FaultKind.OUT_OF_BOUNDS),
    "into an argument": ("out=matrices(mid_t0", "out=matrices(in_x", FaultKind.INPUT_WRITE),
    "twice into one": ("[(7, 43)], columns=[(43, 1)]", "[(7, 1)], columns=[(43, 1)]",
                       FaultKind.RACE),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_finds_what_a_product_does_wrong(fault, rng):
    old, new, kind = FAULTS[fault]
    source = ffn()
    assert old in source.text
    arguments = given_for(mu_of(FFN, SIZES, {}, {"x": 3}, {}), "float32", rng)
    with pytest.raises(LockstepFault) as caught:
        launched(source.text.replace(old, new, 1), source.meta, arguments)
    assert caught.value.fault.kind is kind
    assert "line " in str(caught.value)


def test_a_product_of_what_no_kernel_has_written_yet_is_a_fault(rng):
    source = ffn()
    first, second, third = source.meta["launches"]
    swapped = {**source.meta, "launches": [first, third, second]}
    arguments = given_for(mu_of(FFN, SIZES, {}, {"x": 3}, {}), "float32", rng)
    with pytest.raises(LockstepFault, match=r"reads mid_t1\[0\], which nobody has written"):
        launched(source.text, swapped, arguments)


def test_the_simulator_counts_what_a_product_touches(rng):
    mu = product("result transposed")
    source = emit(mu, "float32", SHARED_LIMIT, "lockstep")
    outputs = [np.empty(o["shape"], np.float32) for o in source.meta["outputs"]]
    counted = simulate(source.text, source.meta, given_for(mu, "float32", rng), outputs)
    assert counted.global_loads == {"in_p": 9 * 50, "in_q": 50 * 21, "out0": 0}
    assert counted.global_stores["out0"] == 9 * 21


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


def torch_module(**facts):
    """What is asked of torch before it is used."""
    cuda = SimpleNamespace(is_available=lambda: facts.get("gpu", True))
    return SimpleNamespace(version=SimpleNamespace(cuda=facts.get("cuda", "13.0")), cuda=cuda)


PROBLEMS = {
    "not installed": (None, "torch is not installed: pip install torch"),
    "without CUDA": (torch_module(cuda=None), "built without CUDA"),
    "without a GPU": (torch_module(gpu=False), "torch sees no GPU here"),
    "broken": (SimpleNamespace(), "cannot be imported"),
    "fine": (torch_module(), None),
}


def put(monkeypatch, module):
    """Torch is this module; None: it is not installed."""
    monkeypatch.setattr(torch_library, "_is_installed", lambda: module is not None)
    monkeypatch.setitem(sys.modules, "torch", module)
    torch_problem.cache_clear()


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


# --- predicted


def test_every_architecture_has_a_rate_for_the_library():
    assert set(LIBRARY_MMA_SM) == set(ARCHS)


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "h200"])
def test_the_library_is_predicted_to_win_where_rows_are_many_only(name):
    target = OfflineTarget(name)

    def seconds(rows, dtype, **counts):
        sizes = {"n": rows, "d": 4096, "h": 4096}
        ours = mugraph(MATMUL, sizes, {"x": "h", "y": "n"}, "d", counts)
        alone = of_the_library(mugraph(MATMUL, sizes))
        return target.estimate(ours, dtype), target.estimate(alone, dtype)

    ours, library = seconds(8, "float16", x=128, y=1, i=8)
    assert ours < 2 * library
    ours, library = seconds(4096, "float16", x=32, y=32, i=64)
    assert library < ours
    peak = 2 * 4096**3 / (2 * LIBRARY_MMA_SM[target._gpu.arch] * target._gpu.sms
                          * target._gpu.clock_ghz * 1e9)  # fmt: skip
    assert peak < library < 2 * peak
    _, in_float32 = seconds(4096, "float32", x=32, y=32, i=64)
    assert in_float32 > 4 * library


def test_copies_of_another_type_cost_time():
    target = OfflineTarget("sm_90")
    mu = mu_of(FFN, {"n": 2048, "d": 2048, "f": 2048, "h": 2048}, {}, {"x": 32}, {})
    first, _, last = (launch["work"] for launch in target.emit(mu, "float16").meta["launches"])
    assert (first["on_tensor_cores"], first["launches"]) == (True, 1)
    assert (last["on_tensor_cores"], last["launches"]) == (False, 3)


def test_a_library_alone_has_no_options_of_ours():
    target = OfflineTarget("sm_90")
    mu = product("result transposed")
    assert target.schedules(mu.graph, dict(mu.sizes)) == {}
    assert set(target.schedules(FFN, SIZES)) == {"T", "S", "C"}


@pytest.mark.usefixtures("cuda_extra")
def test_a_kernel_for_another_machine_is_predicted_with_its_library(tmp_path):
    target = OfflineTarget("sm_90")
    for mu in (mu_of(FFN, SIZES, {}, {"x": 3}, {}), product("result transposed")):
        source = target.emit(mu, "float16")
        path = tmp_path / "kernel.py"
        path.write_text(source.text, encoding="utf-8")
        kernel = target.load(path, source.meta)
        assert kernel.facts["library"] == "torch"
        assert kernel.predicted_s == pytest.approx(target.estimate(mu, "float16"), rel=0.5)
        assert ("registers" in kernel.facts) == (len(mu.graph.kernels) > 1)


def test_the_simulator_checks_a_graph_that_a_library_has_a_part_in(monkeypatch, rng):
    put(monkeypatch, torch_module())
    sizes = {"n": 512, "d": 1024, "f": 2048, "h": 512}
    found = OfflineTarget("sm_90").rehearsal(mu_of(FFN, sizes, {}, {"x": 64}, {}), "float16")
    assert [kernel.library for kernel in found.mu.graph.kernels] == [True, False, True]
    arguments = random_arguments(FFN.program, dict(found.mu.sizes), rng)
    assert_computes(found.mu, arguments, "float16")


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


def test_an_emitted_file_with_a_product_is_python():
    ast.parse(ffn().text)
