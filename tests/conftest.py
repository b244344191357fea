"""What every test may use: golden files, a seeded generator, the markers gpu and slow.

A worker gives memory back as soon as it has grown by much: brute force in one test takes 1.6 GB,
which the C library would keep for later, and several workers share a machine.
"""

from __future__ import annotations

import ctypes
import difflib
import gc
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from prism_kernels.cuda.gpu_api import gpu_problem

GOLDEN = Path(__file__).parent / "golden"

# No deadline: the first example of a jitted function pays for its compilation.
settings.register_profile("dev", max_examples=50, deadline=None, print_blob=True)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/*.txt")
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too")


def runs_slow(config):
    return config.getoption("--slow") or "slow" in config.getoption("-m")


SLOW_TIMEOUT_S = 1200
"""When a slow test is taken to hang; of the others pyproject.toml says it."""


def pytest_collection_modifyitems(config, items):
    skip_slow = pytest.mark.skip(reason="slow: needs --slow")
    run_slow = runs_slow(config)
    for item in items:
        if item.get_closest_marker("slow") and not run_slow:
            item.add_marker(skip_slow)
        elif item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
        if item.get_closest_marker("gpu") and (problem := gpu_problem()):
            item.add_marker(pytest.mark.skip(reason=f"gpu: {problem}"))


GROWTH_BYTES = 200 << 20
"""A worker may grow by this much before it is asked to give back what it does not use."""


class Memory:
    """What this process has grown by, and what makes it shrink (Linux with glibc)."""

    def __init__(self) -> None:
        self.last = self.resident()

    @staticmethod
    def resident() -> int:
        """Bytes in memory; 0 where nobody says."""
        try:
            pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def give_back(self) -> None:
        """Collect what is no longer used, and return free pages to the system."""
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
        self.last = self.resident()


MEMORY = Memory()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown():
    if MEMORY.resident() > MEMORY.last + GROWTH_BYTES:
        MEMORY.give_back()


class Golden:
    """Compares text with files in tests/golden, or rewrites them (--update-golden)."""

    def __init__(self, *, update: bool) -> None:
        self.update = update

    def __call__(self, name: str, text: str) -> None:
        """Holds `text` against tests/golden/`name`.txt; `name` may contain slashes."""
        path = GOLDEN / f"{name}.txt"
        actual = text if text.endswith("\n") else text + "\n"
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(actual, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {path}: run pytest --update-golden and review the file")
        expected = path.read_text(encoding="utf-8")
        if actual != expected:
            diff = difflib.unified_diff(
                expected.splitlines(keepends=True),
                actual.splitlines(keepends=True),
                fromfile=f"golden/{name}.txt",
                tofile="actual",
            )
            hint = "If the change is meant: pytest --update-golden, then review the diff."
            pytest.fail(f"{''.join(diff)}\n{hint}", pytrace=False)


@pytest.fixture(scope="session")
def thorough(request) -> bool:
    """Whether a test looks at everything, not at a sample: the slow tests are asked for."""
    return runs_slow(request.config)


@pytest.fixture
def golden(request) -> Golden:
    return Golden(update=request.config.getoption("--update-golden"))


@pytest.fixture
def rng(request) -> np.random.Generator:
    """A generator whose seed depends on the test's name alone: same numbers on every run."""
    return np.random.default_rng(zlib.crc32(request.node.nodeid.encode()))


@pytest.fixture
def operators():
    """What a test defines is forgotten after it: other tests compare the table with their lists."""
    from prism.egraph import axioms, signature  # noqa: PLC0415 - few tests need it
    from prism.ir import operators as defined  # noqa: PLC0415
    from prism.ir import ops  # noqa: PLC0415

    def forget():
        for name in [name for name in ops.OPS if ops.OPS[name].definition is not None]:
            del ops._TABLE[name]
        defined._SPELLED.clear()
        for cached in (
            axioms.make_axiom_set,
            axioms.passages,
            signature._tables,
            signature.template,
        ):
            cached.cache_clear()

    forget()
    yield
    forget()
