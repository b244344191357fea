"""The CPU target's contract: what it refuses, calls, the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from importlib.metadata import entry_points

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import (
    LINEAR,
    MATMUL,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX,
    TOLERANCE,
    assert_computes,
    random_arguments,
)

from prism.errors import KernelError
from prism.protocols import Target
from prism_kernels import seal as seal_module
from prism_kernels.cpu import device as device_module
from prism_kernels.cpu.target import CpuTarget

SIZES = {"n": 4, "d": 20, "h": 12}


@pytest.fixture
def matmul(compiled):
    return compiled(mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 3}))


@pytest.fixture
def arguments(rng):
    return random_arguments(MATMUL, SIZES, rng)


# -- the plug-in and what it refuses


def test_the_target_is_installed_under_its_name(cpu):
    (entry,) = entry_points(group="prism.targets", name="cpu")
    assert entry.load() is CpuTarget
    assert all(hasattr(cpu, name) for name in vars(Target) if not name.startswith("_"))


@pytest.mark.parametrize("dtype", ["float8", "int32", "nonsense"])
def test_other_dtypes_are_refused_by_name(cpu, dtype):
    mu = mugraph(MATMUL, SIZES)
    assert f"float64, float32, float16, bfloat16, not {dtype}" in cpu.refusal(mu, dtype)
    with pytest.raises(KernelError, match=dtype):
        cpu.emit(mu, dtype)


def test_tiles_too_large_for_memory_are_refused(cpu):
    mu = mugraph(SOFTMAX, {"n": 1 << 16, "d": 1 << 16})
    assert "MB" in cpu.refusal(mu, "float32")
    assert cpu.refusal(mugraph(MATMUL, SIZES), "float32") is None


def test_arrays_past_64_bit_offsets_are_refused(cpu):
    mu = mugraph(MATMUL, {"n": 1 << 40, "d": 1 << 23, "h": 1}, {"x": "n"}, None, {"x": 1 << 40})
    assert "64-bit offsets overflow" in cpu.refusal(mu, "float32")


# -- calls


def test_results_are_fresh_arrays_on_cache_lines(matmul, arguments):
    (first,), (second,) = matmul(*arguments), matmul(*arguments)
    assert first.ctypes.data % 64 == 0
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w: (x,), "1 arguments given, the kernel has 2"),
        (lambda x, w: (x, w.T), "argument w has shape"),
        (lambda x, w: (x[:2], w), "argument x has shape"),
        (lambda x, w: (x.astype(np.float64), w), "argument x must be a NumPy array of float32"),
        (lambda x, w: (x.tolist(), w), "argument x must be a NumPy array of float32, not list"),
        (lambda x, w: (np.asfortranarray(x), w), "argument x must be C-contiguous"),
    ],
)
def test_arguments_that_do_not_fit_are_named(matmul, arguments, change, message):
    with pytest.raises(KernelError, match=message):
        matmul(*change(*arguments))


def test_outputs_that_overlap_or_cannot_be_written_are_refused(matmul, arguments):
    memory = np.zeros(200, np.float32)
    x = memory[:80].reshape(4, 20)
    with pytest.raises(KernelError, match="shares memory"):
        matmul.run_into((x, arguments[1]), [memory[60:108].reshape(4, 12)])
    locked = np.zeros((4, 12), np.float32)
    locked.flags.writeable = False
    with pytest.raises(KernelError, match="cannot be written"):
        matmul.run_into(arguments, [locked])


def test_calls_from_several_threads_do_not_disturb_each_other(compiled, rng):
    sizes = {"n": 8, "d": 300, "h": 2500}
    kernel = compiled(mugraph(RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": 4, "i": 3}))
    arguments = random_arguments(RMSNORM_DIVIDED_LAST, sizes, rng)
    (expected,) = kernel(*arguments)
    wrong = []

    def work():
        results = [kernel(*arguments)[0] for _ in range(20)]
        wrong.extend(r for r in results if not np.array_equal(r, expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_runs_kernels_and_flushes(cpu, matmul, arguments):
    (expected,) = matmul(*arguments)
    child = os.fork()
    if child == 0:
        cpu.flush()
        same = np.array_equal(matmul(*arguments)[0], expected)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- the machine


@pytest.mark.parametrize(("setting", "value"), [("NUMBA_NUM_THREADS", "0")])
def test_a_number_of_threads_that_cannot_be_is_a_message(setting, value):
    code = "from prism.plugins import Group, load; load(Group.TARGET, 'cpu')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, setting: value},
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("prism.errors.KernelError: Numba ")
    assert setting in last


def test_the_device_describes_this_machine(cpu):
    device = cpu.device()
    assert device.threads >= 1
    assert device.vector_bits in {128, 256, 512}
    assert 0 < device.l1_bytes <= device.l2_bytes
    assert 0.1 < device.stream_gbps < 10_000
    cpu.flush()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": "y"}', '{"x": null}', "\0"])
def test_a_broken_device_cache_is_measured_anew(tmp_path, monkeypatch, content):
    monkeypatch.setattr(device_module, "writable_folder", lambda: tmp_path)
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (12.5, True))
    (tmp_path / "device.json").write_text(content, encoding="utf-8")
    assert device_module._stream_gbps(3) == 12.5
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (99.0, True))
    assert device_module._stream_gbps(3) == 12.5


def test_the_key_and_the_bandwidth_follow_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (12.5, True))
    seal_module._key.__wrapped__()
    device_module._stream_gbps(3)
    kept = {path.name for path in (tmp_path / "cache").iterdir()}
    assert kept == {"kernel-seal.key", "device.json"}


def test_a_bandwidth_measured_on_a_busy_machine_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(device_module, "writable_folder", lambda: tmp_path)
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (3.0, False))
    assert device_module._stream_gbps(2) == 3.0
    assert not (tmp_path / "device.json").exists()


@pytest.mark.parametrize(("bits", "registers"), [(256, 16), (128, 32)])
@pytest.mark.parametrize("program", [RMSNORM_DIVIDED_LAST, LINEAR, MATMUL])
def test_code_for_machines_with_shorter_vectors_is_right(  # noqa: PLR0917 - fixtures
    compiled, rng, monkeypatch, bits, registers, program
):
    monkeypatch.setattr(device_module, "vector_bits", lambda: bits)
    monkeypatch.setattr(device_module, "vector_registers", lambda: registers)
    sizes = {"n": 13, "d": 75, "h": 203}
    mu = mugraph(program, sizes, {"x": "h"}, "d", {"x": 2, "i": 2})
    arguments = random_arguments(program, sizes, rng)
    assert_computes(compiled(mu), program, arguments, TOLERANCE["float32"])
