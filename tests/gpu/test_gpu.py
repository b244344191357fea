"""Kernels on a real GPU: numbers, shared memory, the clock, faults, a tuning run.

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
from cuda_samples import DTYPES, arguments, assert_right
from gpu_samples import ON_A_GPU, assert_close, load
from kernels.kernel_chains import CHAINS
from tune.graphs import MATMUL, matmul_graph

from prism.driver import tune
from prism.dtypes import dtype_of
from prism.ir import evaluate_graph
from prism.scope import Scope
from prism.tune.timing import time_kernels
from prism.verdict import Verdict
from prism_kernels import cuda as cuda_package
from prism_kernels.cuda.emit import emit
from prism_kernels.cuda.gpu import device_of, gpu_backend
from prism_kernels.cuda.kernel import load_cuda_kernel

TESTS = Path(__file__).parents[1]

pytestmark = ON_A_GPU


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
        assert_close(out, reference, dtype)


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
