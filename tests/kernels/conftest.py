"""The CPU target, and a fixture that compiles muGraphs with it."""

from __future__ import annotations

from itertools import count

import pytest

from prism_kernels.cpu.target import CpuTarget


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
