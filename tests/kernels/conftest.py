"""The CPU target, a fixture that compiles muGraphs with it, and what skips without numba-cuda."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import count

import pytest

from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cuda.toolchain import require_cuda


@pytest.fixture(scope="session")
def cpu():
    return CpuTarget()


@pytest.fixture(scope="session")
def compiled(cpu, tmp_path_factory):
    """`compiled(mu, dtype)`: the loaded kernel."""
    folder, number = tmp_path_factory.mktemp("kernels"), count()

    def compile_kernel(mu, dtype="float32"):
        source = cpu.emit(mu, dtype)
        path = folder / f"kernel_{next(number)}.py"
        path.write_text(source.text, encoding="utf-8")
        return cpu.load(path, source.meta)

    return compile_kernel


@pytest.fixture(scope="session")
def cuda_extra():
    """Skips where the cuda extra is not installed; one that is installed must work."""
    if find_spec("numba_cuda") is None:
        pytest.skip("the cuda extra is not installed (make cuda)")
    require_cuda()
