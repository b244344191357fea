"""Many CUDA kernels at once: the cache on disk, and the pool of workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from kernels.cuda_sources import COPY, COPY_META, meta

from prism.cache import CacheWarning
from prism_kernels.cuda import compile_cache
from prism_kernels.cuda.compile import Compiled
from prism_kernels.cuda.compile_pool import CompilePool, Failure, Job, compile_all


@pytest.fixture
def cache(monkeypatch, tmp_path, cuda_extra):
    """An empty cache folder; gives what finds the path of COPY's entry for sm_90."""
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path))
    return compile_cache.cache_path(COPY, COPY_META, "sm_90")


FAKE = Compiled("sm_90", "kernel", 12, 0, 0, 0, 0, 0.1, 0.2, b"\x7fELF cubin")


def test_an_entry_comes_back_as_it_was(cache):
    assert compile_cache.read(cache) is None
    compile_cache.write(cache, FAKE)
    assert compile_cache.read(cache) == FAKE


def test_a_kept_kernel_is_not_compiled_again(cache):
    compile_cache.write(cache, FAKE)
    assert compile_all([Job(COPY, COPY_META, "sm_90")], 1) == [FAKE]
    other = compile_all([Job(COPY, COPY_META, "sm_90")], 1, cache=False)[0]
    assert isinstance(other, Compiled)
    assert other != FAKE


def test_every_fact_that_matters_has_an_entry_of_its_own(cache):
    others = [
        compile_cache.cache_path(COPY + "#", COPY_META, "sm_90"),
        compile_cache.cache_path(COPY, COPY_META, "sm_80"),
        compile_cache.cache_path(COPY, {**COPY_META, "threads": 64}, "sm_90"),
        compile_cache.cache_path(COPY, {**COPY_META, "parameters": ["float32"]}, "sm_90"),
    ]
    assert len({cache, *others}) == 5
    assert compile_cache.cache_path(COPY, {**COPY_META, "blocks": 3}, "sm_90") == cache


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda _: "not JSON", "Expecting value"),
        (lambda _: "[" * 100_000, "recursion|not JSON"),
        (lambda _: "[1]", "not an entry of this version"),
        (lambda entry: {**entry, "registers": 1}, "not sealed by this user, or changed"),
        (lambda entry: {**entry, "cubin": "AAAA"}, "not sealed by this user, or changed"),
        (lambda entry: {**entry, "seal": None}, "not sealed by this user, or changed"),
        (lambda entry: {**entry, "schema": 99}, "not an entry of this version"),
        (lambda entry: {"schema": entry["schema"]}, "not sealed by this user, or changed"),
    ],
)
def test_a_spoilt_entry_is_a_miss_with_a_warning(cache, spoil, message):
    compile_cache.write(cache, FAKE)
    spoilt = spoil(json.loads(cache.read_text()))
    cache.write_text(spoilt if isinstance(spoilt, str) else json.dumps(spoilt))
    with pytest.warns(CacheWarning, match=message):
        assert compile_cache.read(cache) is None


def test_an_entry_cannot_stand_in_for_another(cache):
    other = compile_cache.cache_path(COPY, COPY_META, "sm_80")
    compile_cache.write(other, replace(FAKE, arch="sm_80"))
    other.rename(cache)
    with pytest.warns(CacheWarning, match="not sealed by this user"):
        assert compile_cache.read(cache) is None


def test_an_entry_that_is_too_large_is_not_read(cache, monkeypatch):
    compile_cache.write(cache, FAKE)
    monkeypatch.setattr(compile_cache, "MAX_BYTES", 100)
    with pytest.warns(CacheWarning, match="larger than"):
        assert compile_cache.read(cache) is None


CRASH = "import os\nos.kill(os.getpid(), 11)"
HANG = "import time\ntime.sleep(1000)"


@pytest.mark.usefixtures("cuda_extra")
def test_a_job_that_fails_or_crashes_costs_only_itself():
    jobs = [
        Job(COPY, COPY_META, "sm_90"),
        Job(CRASH, COPY_META, "sm_90"),
        Job("def kernel(x): x.y()", meta("float32"), "sm_90"),
        Job(COPY, {}, "sm_90"),
        Job(COPY, COPY_META, "sm_80"),
    ]
    with CompilePool(1, cache=False) as pool:
        first, crashed, wrong, no_meta, last = pool.compile_all(jobs)
        assert (first.arch, last.arch) == ("sm_90", "sm_80")
        assert crashed == Failure("crash", "status -11: nothing printed")
        assert (wrong.kind, no_meta.kind) == ("compile", "compile")
        assert "Unknown attribute" in wrong.message
        # the workers stay: another batch needs no start
        workers = list(pool._workers)
        assert isinstance(pool.compile_all(jobs[:1])[0], Compiled)
        assert pool._workers == workers
    assert pool._workers == []


@pytest.mark.usefixtures("cuda_extra")
def test_a_job_that_hangs_is_ended():
    with CompilePool(1, timeout_s=0.2, cache=False) as pool:
        hung = pool.compile_all([Job(HANG, COPY_META, "sm_90")])
        assert hung == [Failure("timeout", "not done within 0.2 s")]
        assert pool._workers == []


@pytest.mark.usefixtures("cuda_extra")
def test_a_script_needs_no_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from kernels.cuda_sources import COPY, COPY_META\n"
        "from prism_kernels.cuda.compile_pool import Job, compile_all\n"
        "results = compile_all([Job(COPY, COPY_META, 'sm_90')], 1, cache=False)\n"
        "print([result.registers > 0 for result in results])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    run = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env=environment
    )
    assert run.stdout == "[True]\n"


@pytest.mark.usefixtures("cuda_extra")
def test_an_idle_worker_that_died_is_replaced():
    with CompilePool(1, cache=False) as pool:
        pool.compile_all([Job(COPY, COPY_META, "sm_90")])
        process = pool._workers[0].child._process
        process.kill()
        process.wait()
        assert isinstance(pool.compile_all([Job(COPY, COPY_META, "sm_90")])[0], Compiled)


def test_no_jobs_start_no_worker(cuda_extra):
    with CompilePool() as pool:
        assert pool.compile_all([]) == []
        assert pool._workers == []
