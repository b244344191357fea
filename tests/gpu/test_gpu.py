"""Kernels on a real GPU: numbers, shared memory, arrays of PyTorch and CuPy, the clock.

Runs wherever the package can be imported: `pytest tests/gpu`, with or without the project's
configuration around it.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))  # where pytest's configuration does not say so

from cuda_samples import (  # noqa: E402 - see above
    DTYPES,
    arguments,
    assert_right,
    expected,
    reversed_rows,
    written,
)
from kernels.cases import CONTRACTIONS, contraction  # noqa: E402
from kernels.kernel_chains import CHAINS  # noqa: E402
from kernels.legal import mugraph  # noqa: E402
from kernels.several import mu_of  # noqa: E402
from kernels.test_cpu_library import FFN, of_the_library  # noqa: E402
from tune.graphs import MATMUL, matmul_graph  # noqa: E402

from prism.driver import tune  # noqa: E402
from prism.dtypes import TOLERANCES, dtype_of  # noqa: E402
from prism.errors import SizeError, UsageError  # noqa: E402
from prism.ir import evaluate_graph  # noqa: E402
from prism.scope import Scope  # noqa: E402
from prism.tune.timing import time_kernels  # noqa: E402
from prism.verdict import Verdict  # noqa: E402
from prism_kernels import cuda as cuda_package  # noqa: E402
from prism_kernels.cuda.emit import emit  # noqa: E402
from prism_kernels.cuda.gpu import device_of, gpu_backend  # noqa: E402
from prism_kernels.cuda.gpu_api import gpu_problem  # noqa: E402
from prism_kernels.cuda.kernel import load_cuda_kernel  # noqa: E402
from prism_kernels.cuda.torch_library import library_on, torch_problem  # noqa: E402

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_problem() is not None, reason=f"gpu: {gpu_problem()}"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def load(tmp_path, **sample):
    return load_cuda_kernel(*written(reversed_rows(**sample), tmp_path), gpu_backend())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("staging", ["shared", "workspace"])
def test_numpy_arrays_go_to_the_gpu_and_back(dtype, staging, tmp_path):
    given = arguments(dtype, 7, 129)
    kernel = load(tmp_path, dtype=dtype, rows=7, columns=129, threads=96, staging=staging)
    (result,) = kernel(*given)
    assert result.dtype == dtype_of(dtype)
    assert_right(result, given)
    (again,) = kernel(*given)
    assert again.tobytes() == result.tobytes()


@pytest.mark.parametrize("share", [0.25, 1.0])
def test_a_block_may_have_as_much_shared_memory_as_the_gpu_gives(share, tmp_path):
    columns = int(share * gpu_backend().gpu().shared_bytes_block) // 4
    assert columns * 4 > 48 << 10
    given = arguments("float32", 3, columns)
    kernel = load(tmp_path, rows=3, columns=columns, threads=256)
    assert kernel.facts["shared_bytes"] == 4 * columns
    assert_right(kernel(*given)[0], given)


def test_a_loaded_kernel_knows_what_it_takes(tmp_path):
    facts = load(tmp_path).facts
    assert 8 <= facts["registers"] <= 255
    assert facts["spills"] == 0
    assert 1e-7 < facts["launch_overhead_s"] < 1e-4
    assert 1e-7 < facts["host_launch_s"] < 1e-3


def test_the_gpu_at_hand_is_described():
    gpu = gpu_backend().gpu()
    assert gpu.arch.startswith("sm_")
    assert 10 < gpu.sms < 1000
    assert 0.3 < gpu.clock_ghz < 5
    assert 100 < gpu.dram_gbps < 20_000
    assert gpu.l2_bytes > 1 << 20
    assert device_of(gpu).name == gpu.name


def timed(kernel, given, repeats=10):
    outputs = [np.full(given[0].shape, np.nan, given[0].dtype)]
    bound = kernel.bind(given, outputs)
    (timing,) = time_kernels([bound], gpu_backend().flush, repeats)
    bound.finish()
    assert_right(outputs[0], given)
    return timing.median_s


def test_the_clock_sees_the_kernel_and_not_python(tmp_path):
    small = timed(load(tmp_path, rows=1, columns=64), arguments(rows=1, columns=64))
    assert 1e-7 < small < 50e-6
    seconds = []
    for rows in (2048, 8192):
        given = arguments("float32", rows, 4096)
        kernel = load(tmp_path, rows=rows, columns=4096, threads=512)
        seconds.append(timed(kernel, given))
    moved = 2 * 8192 * 4096 * 4
    assert moved / seconds[1] < 1.3e9 * gpu_backend().gpu().dram_gbps
    assert 2.5 < seconds[1] / seconds[0] < 5.5


def test_copies_are_not_timed(tmp_path):
    given = arguments("float32", 8192, 4096)
    kernel = load(tmp_path, rows=8192, columns=4096, threads=512)
    over_the_bus_s = 2 * given[0].nbytes / 64e9  # no host link is faster both ways together
    assert timed(kernel, given, 3) < over_the_bus_s / 2


def test_the_flush_makes_the_next_run_read_from_memory(tmp_path):
    rows = gpu_backend().gpu().l2_bytes // 4 // (4096 * 4)
    given = arguments("float32", rows, 4096)
    kernel = load(tmp_path, rows=rows, columns=4096, threads=512)
    bound = kernel.bind(given, [np.empty_like(given[0])])
    (warm,) = time_kernels([bound], lambda: None, 20)
    (cold,) = time_kernels([bound], gpu_backend().flush, 20)
    assert cold.median_s > warm.median_s


# --- several kernels


@pytest.mark.parametrize(("name", "dtype"), list(zip(CHAINS, cycle(DTYPES), strict=False)))
def test_kernels_in_a_row_find_what_those_before_them_left(name, dtype, tmp_path):
    mu, rng = CHAINS[name], np.random.default_rng(0)
    program, sizes = mu.graph.program, dict(mu.sizes)
    shapes = ([sizes[d] for d in a.axes] for a in program.arguments)
    given = [rng.standard_normal(shape).astype(dtype_of(dtype)) for shape in shapes]
    arrays = {a.name: x.astype(float) for a, x in zip(program.arguments, given, strict=True)}
    path = tmp_path / "kernel.py"
    source = emit(mu, dtype, gpu_backend().gpu().shared_bytes_block, "cuda")
    path.write_text(source.text, encoding="utf-8")
    kernel = load_cuda_kernel(path, source.meta, gpu_backend())
    outputs = [np.full(out.shape, np.nan, out.dtype) for out in kernel(*given)]
    bound = kernel.bind(given, outputs)
    assert bound.run_timed() > 1e-6 * len(mu.graph.kernels)
    bound.finish()
    for out, reference in zip(outputs, evaluate_graph(mu, arrays), strict=True):
        error = np.linalg.norm(out.astype(float) - reference)
        assert error <= TOLERANCES[dtype] * np.linalg.norm(reference)


# --- PyTorch


@pytest.fixture
def torch():
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return module


def to_torch(torch, array):
    """On the GPU; PyTorch reads no bfloat16 from NumPy, but every float32 that is one."""
    tensor = torch.as_tensor(array.astype(np.float32), device="cuda")
    return tensor.to(getattr(torch, array.dtype.name))


def from_torch(tensor):
    return tensor.float().cpu().numpy()


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_give_torch_tensors(dtype, torch, tmp_path):
    given = arguments(dtype)
    x, s = (to_torch(torch, array) for array in given)
    kernel = load(tmp_path, dtype=dtype, staging="workspace")
    assert kernel.takes(x)
    (result,) = kernel(x, s)
    assert (result.dtype, result.device, result.shape) == (x.dtype, x.device, x.shape)
    assert_right(from_torch(result), given)
    np.testing.assert_array_equal(from_torch(x), given[0].astype(np.float32))


def test_torch_strides_gradients_and_numbers_are_taken(torch, tmp_path):
    given = arguments()
    kernel = load(tmp_path)
    x = to_torch(torch, given[0])
    for tensor in (x.t().contiguous().t(), x.clone().requires_grad_(), torch.nn.Parameter(x)):
        assert_right(from_torch(kernel(tensor, 1.5)[0]), given)


def test_a_call_goes_to_torchs_current_stream_and_does_not_wait(torch, tmp_path):
    given = arguments("float32", 64, 4096)
    kernel = load(tmp_path, rows=64, columns=4096, threads=256)
    fresh, s = (to_torch(torch, array) for array in given)
    wanted = to_torch(torch, expected(*given).astype(np.float32))
    x = torch.zeros_like(fresh)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kernel(x, s)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # the copy comes late: a launch elsewhere would read zeros
        x.copy_(fresh)
        (result,) = kernel(x, s)
        assert not side.query()
        assert torch.allclose(result, wanted, rtol=1e-6)


def test_torch_tensors_that_do_not_fit_are_one_clear_error(torch, tmp_path):
    x, s = (to_torch(torch, array) for array in arguments())
    kernel = load(tmp_path)
    with pytest.raises(UsageError, match="dtype float16"):
        kernel(x.half(), s)
    with pytest.raises(SizeError, match="shape"):
        kernel(x[:2], s)
    with pytest.raises(UsageError, match="in host memory"):
        kernel(x, s.cpu())


class OnlyDlpack:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_alone_will_do(dtype, torch, tmp_path):
    given = arguments(dtype)
    x, s = (OnlyDlpack(to_torch(torch, array)) for array in given)
    kernel = load(tmp_path, dtype=dtype)
    assert kernel.takes(x)
    (result,) = kernel(x, s)
    gpu_backend()._api.cuda.synchronize()
    pointer = result.__cuda_array_interface__["data"][0]
    assert pointer
    back = np.empty(given[0].shape, dtype_of(dtype))
    result.copy_to_host(back)
    assert_right(back, given)


# --- CuPy and Numba


@pytest.fixture
def cupy():
    module = pytest.importorskip("cupy")
    if not module.cuda.is_available():
        pytest.skip("this CuPy has no CUDA")
    return module


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_arrays_give_cupy_arrays(dtype, cupy, tmp_path):
    given = arguments(dtype)
    try:
        x, s = (cupy.asarray(array) for array in given)
    except (TypeError, ValueError):
        assert dtype == "bfloat16"
        pytest.skip("this CuPy has no bfloat16")
    kernel = load(tmp_path, dtype=dtype)
    for array in (x, cupy.asfortranarray(x)):
        (result,) = kernel(array, s)
        assert isinstance(result, cupy.ndarray)
        assert_right(cupy.asnumpy(result), given)
    with cupy.cuda.Stream() as stream:
        (result,) = kernel(x, s)
        stream.synchronize()
        assert_right(cupy.asnumpy(result), given)


def test_numba_arrays_give_numba_arrays(tmp_path):
    cuda = gpu_backend()._api.cuda
    given = arguments()
    (result,) = load(tmp_path)(*(cuda.to_device(array) for array in given))
    assert_right(result.copy_to_host(), given)


# --- faults, and the whole way

ASTRAY = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from cuda_samples import arguments, reversed_rows, written
from prism.errors import DeviceLostError, KernelError
from prism_kernels.cuda.gpu import gpu_backend
from prism_kernels.cuda.kernel import load_cuda_kernel

TEXT = '''
from numba import cuda
from prism_kernels.cuda.intrinsics import {{imports}}
def kernel(in_x, in_s, out0):
    tid = u32(cuda.threadIdx.x)
    store_{{dtype}}(out0, u32(u32(tid * 100000000) + 4000000000), f32(1.0))
'''
kernel = load_cuda_kernel(*written(reversed_rows(text=TEXT), Path({folder!r})), gpu_backend())
for _ in range(2):
    try:
        kernel(*arguments())
    except DeviceLostError as error:
        print("lost:", error)
"""


def test_an_illegal_access_is_told_from_a_refused_launch(tmp_path):
    code = ASTRAY.format(path=[*sys.path, str(TESTS)], folder=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.stdout.count("lost:") == 2, done.stderr


@dataclass(frozen=True)
class Graph:
    id: str
    graph: object
    verdict: Verdict = Verdict.PROVED


@dataclass(frozen=True)
class Found:
    program: object
    graphs: tuple
    scope: Scope = field(default_factory=Scope)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matmul_is_tuned_on_the_gpu(dtype, tmp_path):
    target = f"{Path(cuda_package.__file__).with_name('target.py')}:CudaTarget"
    found = Found(MATMUL, (Graph("g0", matmul_graph()),))
    sizes = {"n": 8, "d": 512, "h": 384}
    result = tune(found, sizes, target=target, dtype=dtype, trials=2, output=tmp_path / "k.py")
    assert result.outcomes == {"ok": 2}
    assert 1e-7 < result.best.median_s < 1e-3
    assert result.best.facts["registers"] > 0


# --- kernels that are left to torch


no_torch = None if gpu_problem() is not None else torch_problem()
needs_torch = pytest.mark.skipif(no_torch is not None, reason=str(no_torch))


def products(name, sizes):
    """The muGraph of a product alone, left to the library."""
    program = contraction(name)
    return of_the_library(mugraph(program, {d: sizes[d] for d in program.size_names}))


def run_library(mu, dtype, tmp_path, rng):
    """The loaded kernel, its arguments, and the float64 results."""
    program, sizes = mu.graph.program, dict(mu.sizes)
    shapes = ([sizes[d] for d in a.axes] for a in program.arguments)
    given = [rng.standard_normal(shape).astype(dtype_of(dtype)) for shape in shapes]
    arrays = {a.name: x.astype(float) for a, x in zip(program.arguments, given, strict=True)}
    source = emit(mu, dtype, gpu_backend().gpu().shared_bytes_block, "cuda")
    path = tmp_path / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    kernel = load_cuda_kernel(path, source.meta, gpu_backend())
    return kernel, given, evaluate_graph(mu, arrays)


def assert_close(out, reference, dtype):
    error = np.linalg.norm(out.astype(float) - reference)
    assert error <= TOLERANCES[dtype] * np.linalg.norm(reference)


@needs_torch
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_torch_multiplies_arrays_of_any_layout(layout, dtype, tmp_path):
    rng = np.random.default_rng(0)
    mu = products(layout, {"b": 3, "n": 65, "m": 33, "c": 18, "k": 130})
    kernel, given, (reference,) = run_library(mu, dtype, tmp_path, rng)
    assert kernel.facts["library"].startswith("torch ")
    for _ in range(2):
        assert_close(kernel(*given)[0], reference, dtype)


@needs_torch
@pytest.mark.parametrize("dtype", DTYPES)
def test_library_kernels_and_ours_take_turns_on_one_stream(dtype, torch, tmp_path):
    rng = np.random.default_rng(0)
    mu = mu_of(FFN, {"n": 129, "d": 256, "f": 320, "h": 192}, {}, {"x": 4}, {})
    kernel, given, (reference,) = run_library(mu, dtype, tmp_path, rng)
    assert_close(kernel(*given)[0], reference, dtype)
    outputs = [np.full(reference.shape, np.nan, dtype_of(dtype))]
    bound = kernel.bind(given, outputs)
    assert bound.run_timed() > 1e-6
    bound.finish()
    assert_close(outputs[0], reference, dtype)
    fresh = [to_torch(torch, array) for array in given]
    late = [torch.zeros_like(tensor) for tensor in fresh]
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # the copies come late: a launch elsewhere would read zeros
        for tensor, values in zip(late, fresh, strict=True):
            tensor.copy_(values)
        (result,) = kernel(*late)
        assert not side.query()
        assert_close(from_torch(result), reference, dtype)


@needs_torch
def test_half_types_are_multiplied_into_float32_on_the_gpu(torch):
    library = library_on(gpu_backend().device_id)
    full = torch.float32
    has_it = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 8)
    for name in ("float16", "bfloat16"):
        kind = getattr(torch, name)
        assert library.types(name, name, "float32") == ((kind, full) if has_it else (full, full))
