"""Products that are left to torch, on a real GPU: layouts, streams, accumulation."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_samples import DTYPES
from gpu_samples import ON_A_GPU, assert_close, from_torch, to_torch
from kernels.cases import CONTRACTIONS, contraction
from kernels.legal import mugraph
from kernels.several import mu_of
from kernels.test_cpu_library import FFN, of_the_library

from prism.dtypes import dtype_of
from prism.ir import evaluate_graph
from prism_kernels.cuda.emit import emit
from prism_kernels.cuda.gpu import gpu_backend
from prism_kernels.cuda.gpu_api import gpu_problem
from prism_kernels.cuda.kernel import load_cuda_kernel
from prism_kernels.cuda.torch_library import library_on, torch_problem

pytestmark = ON_A_GPU

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
