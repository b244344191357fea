"""The machine code of a CPU kernel goes with the kernel."""

from __future__ import annotations

import ctypes
import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import MATMUL, random_arguments
from numba import cfunc
from numba.core.registry import cpu_target

from prism.errors import KernelError
from prism_kernels.cpu.engine import own_engine
from prism_kernels.seal import seal

SIZES = {"n": 4, "d": 20, "h": 12}


def test_a_kernel_has_an_engine_of_its_own_and_takes_it_along(compiled, rng):
    kernels = [compiled(mugraph(MATMUL, SIZES)) for _ in range(2)]
    engines = [weakref.ref(kernel._module.block._library.codegen) for kernel in kernels]
    shared = cpu_target.target_context.codegen()
    assert len({id(shared), *(id(engine()) for engine in engines)}) == 3
    del kernels[0]
    gc.collect()
    assert engines[0]() is None
    x, w = random_arguments(MATMUL, SIZES, rng)
    np.testing.assert_allclose(kernels[0](x, w)[0], x @ w, rtol=1e-4, atol=1e-5)
    assert engines[1]() is not None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_kernels_that_are_dropped_leave_nothing_behind(compiled):
    """Numba's own engine keeps 0.7 MB of each."""

    def resident_mb(count):
        for _ in range(count):
            compiled(mugraph(MATMUL, SIZES))
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * 4096 / 2**20

    before = resident_mb(3)
    assert resident_mb(10) < before + 3.0


def test_a_file_that_does_not_compile_leaves_numba_its_engine(cpu, tmp_path):
    context = cpu_target.target_context
    shared, helpers = context.codegen(), context.cached_internal_func
    source = cpu.emit(mugraph(MATMUL, SIZES), "float32")
    text = source.text.replace("in_x = argument(arrays, 0)", "in_x = nonsense(arrays, 0)")
    assert text != source.text
    path = tmp_path / "kernel.py"
    path.write_text(text, encoding="utf-8")
    meta = {key: value for key, value in source.meta.items() if key != "seal"}
    with pytest.raises(KernelError, match="nonsense"):
        cpu.load(path, {**meta, "seal": seal(text, meta)})
    assert context.codegen() is shared
    assert context.cached_internal_func is helpers


def test_only_what_is_compiled_in_the_block_goes_elsewhere():
    def twice(value):
        return value + value

    make = cfunc("float64(float64)")
    with own_engine():
        inside = make(twice)
    outside = make(twice)
    assert inside._library.codegen is not outside._library.codegen
    assert outside._library.codegen is cpu_target.target_context.codegen()
    assert inside.ctypes(1.5) == outside.ctypes(1.5) == 3.0
