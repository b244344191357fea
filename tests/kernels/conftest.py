"""The CPU target, a fixture that compiles muGraphs with it, and what skips without numba-cuda."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import count

import pytest

from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cuda.toolchain import require_cuda
from prism_kernels.cuda.torch_library import CHOICE, torch_problem


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


@pytest.fixture
def fresh_torch(tmp_path_factory, monkeypatch):
    """torch is asked anew whether it is there, and nothing is said about it."""
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))
    monkeypatch.delenv(CHOICE, raising=False)
    torch_problem.cache_clear()
    yield
    torch_problem.cache_clear()
