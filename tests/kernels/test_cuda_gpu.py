"""The GPU through numba-cuda: what is asked of it, and what is said where there is none."""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import pytest
from cuda_samples import DTYPES, arguments, reversed_rows, written
from kernels.fake_gpu import TORCH, TORCH_STREAM, CUfunction, FakeNumba, Tensor

from prism.dtypes import dtype_of
from prism.errors import DeviceLostError, KernelError
from prism.tune.timing import time_kernels
from prism_kernels.cuda import gpu_api, profile
from prism_kernels.cuda.gpu import GpuBackend, device_of
from prism_kernels.cuda.gpu_api import gpu_problem, load_api
from prism_kernels.cuda.kernel import load_cuda_kernel


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def load(tmp_path, backend, **sample):
    return load_cuda_kernel(*written(reversed_rows(**sample), tmp_path), backend)


def gpu_kernel(tmp_path, numba, **sample):
    backend = GpuBackend(numba.api)
    numba.log.clear()
    return load(tmp_path, backend, **sample), backend


def named(log, *kinds):
    return [entry for entry in log if entry[0] in kinds]


def test_a_kernel_is_compiled_with_its_signature_and_launch_bounds(tmp_path):
    numba = FakeNumba()
    kernel, _ = gpu_kernel(tmp_path, numba, dtype="float16", threads=64, staging="workspace")
    parameters = ["float16", "float16", "float16", "float32"]
    # the fake always spills: it is compiled once more, without regard to occupancy
    assert numba.log[:2] == [("jit", parameters, 64), ("jit", parameters, (64, 1))]
    assert (kernel.facts["registers"], kernel.facts["spills"]) == (40, 8)
    assert kernel.facts["shared_bytes"] == 16


@pytest.mark.parametrize("columns", [40, 12_000, 13_000])
def test_more_than_48_kilobytes_of_shared_memory_are_asked_for_before_a_launch(columns, tmp_path):
    numba = FakeNumba()
    kernel, _ = gpu_kernel(tmp_path, numba, rows=1, columns=columns)
    asked = named(numba.log, "kernel attribute")
    if columns * 4 <= 48 << 10:
        assert asked == []
    else:
        assert asked == [("kernel attribute", "dynamic shared bytes", 4 * columns, 77, 0)]
    assert kernel.facts["shared_bytes"] == 4 * columns + 16
    kernel(*arguments(rows=1, columns=columns))
    configuration = named(numba.log, "launch")[-1][2:6]
    assert configuration == (1, 32, 7, 4 * columns)


def test_an_older_numba_gives_a_function_instead_of_a_kernel(tmp_path):
    numba = FakeNumba(handle=CUfunction(55))
    gpu_kernel(tmp_path, numba, rows=1, columns=13_000)
    asked = named(numba.log, "function attribute")
    assert asked == [("function attribute", 55, "dynamic shared bytes", 52_000)]


def test_shared_memory_that_the_gpu_does_not_have_is_refused(tmp_path):
    with pytest.raises(KernelError, match="asks for 240000 bytes of shared memory, the GPU has"):
        gpu_kernel(tmp_path, FakeNumba(), rows=1, columns=60_000)
    numba = FakeNumba()
    numba.attribute_status = 1
    with pytest.raises(KernelError, match="bytes of shared memory are refused: 1"):
        gpu_kernel(tmp_path, numba, rows=1, columns=13_000)


def test_addresses_go_in_the_order_of_the_parameters(tmp_path):
    numba = FakeNumba()
    kernel, backend = gpu_kernel(tmp_path, numba, staging="workspace")
    places = []
    allocate = backend.allocate
    backend.allocate = lambda *given: places.append(allocate(*given)) or places[-1]
    kernel(*arguments())
    *_, addresses = named(numba.log, "launch")[-1]
    assert list(addresses) == [place.address for place in places]
    assert len(addresses) == 4
    copies = [entry[0] for entry in numba.log if "copy" in entry[0] or entry[0] == "launch"]
    assert copies[-4:] == ["copy in", "copy in", "launch", "copy out"]
    assert numba.log[-1] == ("synchronize", 7)


def test_a_timed_run_is_held_until_events_and_kernel_are_enqueued(tmp_path):
    numba = FakeNumba()
    kernel, backend = gpu_kernel(tmp_path, numba)
    bound = kernel.bind(arguments(), [np.empty((3, 40), np.float32)])
    numba.log.clear()
    seconds = bound.run_timed()
    assert seconds == pytest.approx(0.25e-3)
    assert [entry[:2] for entry in numba.log] == [
        ("launch", "hold"),
        ("record", "event 1"),
        ("launch", str(tmp_path / "kernel.py")),
        ("record", "event 2"),
        ("await event", "event 2"),
        ("elapsed", "event 1", "event 2")[:2],
    ]
    (rounds,) = numba.log[0][-1]
    assert rounds >= profile.HOLD_ROUNDS
    assert {entry[2] for entry in named(numba.log, "record")} == {backend.stream}


def test_the_l2_cache_is_flushed_before_each_timed_run_and_never_within(tmp_path):
    numba = FakeNumba()
    kernel, backend = gpu_kernel(tmp_path, numba)
    bound = kernel.bind(arguments(), [np.empty((3, 40), np.float32)])
    numba.log.clear()
    (timing,) = time_kernels([bound], backend.flush, 3)
    assert timing.median_s == pytest.approx(0.25e-3)
    kinds = [entry[0] for entry in numba.log]
    one = ["launch", "record", "launch", "record", "await event", "elapsed"]
    assert kinds == 2 * one + 3 * ["memset", *one]
    assert named(numba.log, "memset")[0] == ("memset", 2 * (60 << 20), backend.stream)


def test_what_a_launch_costs_is_measured_once_with_an_empty_kernel(tmp_path):
    numba = FakeNumba()
    kernel, backend = gpu_kernel(tmp_path, numba)
    assert kernel.facts["launch_overhead_s"] == pytest.approx(0.25e-3)
    assert 0 < kernel.facts["host_launch_s"] < 1e-3
    empties = [entry for entry in named(numba.log, "launch") if entry[1] == "empty"]
    assert len(empties) == profile.WARM_UPS + profile.REPEATS + profile.LAUNCHES
    numba.log.clear()
    load(tmp_path, backend)
    assert named(numba.log, "launch") == []


def test_a_slow_host_is_given_more_time_to_enqueue_a_timed_run(monkeypatch):
    now = iter(float(second) for second in range(100))
    monkeypatch.setattr(profile.time, "perf_counter", lambda: next(now))
    numba = FakeNumba()
    backend = GpuBackend(numba.api)
    assert backend.overheads()["host_launch_s"] == pytest.approx(1 / profile.LAUNCHES)
    numba.log.clear()
    backend.timed(lambda: None)
    assert numba.log[0][-1] == (profile.HOLD_LAUNCHES * 1_000_000 / profile.LAUNCHES,)


def test_a_launch_on_anothers_stream_is_configured_once(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", TORCH)
    numba = FakeNumba()
    kernel, _ = gpu_kernel(tmp_path, numba)
    numba.log.clear()
    for _ in range(2):
        kernel(*map(Tensor, arguments()))
    launches = named(numba.log, "launch")
    assert [entry[4] for entry in launches] == [TORCH_STREAM] * 2
    assert named(numba.log, "external stream") == [("external stream", TORCH_STREAM)]
    assert named(numba.log, "synchronize", "copy in", "copy out") == []


def test_streams_are_joined_by_an_event_without_time():
    numba = FakeNumba()
    backend = GpuBackend(numba.api)
    numba.log.clear()
    backend.await_stream(11, 22)
    assert named(numba.log, "record", "wait") == [
        ("record", "event 3 without time", 22),
        ("wait", "event 3 without time", 11),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_survive_the_way_to_the_gpu_and_back(dtype):
    backend = GpuBackend(FakeNumba().api)
    for array in (np.arange(6).reshape(2, 3).astype(dtype_of(dtype)), arguments(dtype)[1]):
        place = backend.allocate(array.shape, dtype)
        backend.copy_in(array, place, backend.stream)
        back = np.empty_like(array)
        backend.copy_out(place, back, backend.stream)
        assert back.tobytes() == array.tobytes()


def test_a_refused_launch_costs_its_kernel_a_broken_device_the_process(tmp_path):
    numba = FakeNumba()
    kernel, _ = gpu_kernel(tmp_path, numba)
    numba.fails = RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    with pytest.raises(KernelError, match="launch: RuntimeError: CUDA_ERROR_LAUNCH_OUT") as caught:
        kernel(*arguments())
    assert not isinstance(caught.value, DeviceLostError)
    numba.fails, numba.status = RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS"), 700
    with pytest.raises(DeviceLostError, match=r"broke the GPU for this process: .*ILLEGAL_ADD"):
        kernel(*arguments())


def test_the_gpu_at_hand_is_described_like_those_of_the_table():
    gpu = GpuBackend(FakeNumba().api).gpu()
    assert (gpu.name, gpu.arch, gpu.sms, gpu.l2_bytes) == ("NVIDIA H200", "sm_90", 132, 60 << 20)
    assert gpu.dram_gbps == pytest.approx(4917, rel=1e-3)
    assert gpu.clock_ghz == pytest.approx(1.98)
    device = device_of(gpu)
    assert (device.kind, device.arch, device.l2_bytes) == ("gpu", "sm_90", 60 << 20)
    assert device.text == "NVIDIA H200, sm_90"


def test_what_a_driver_no_longer_tells_comes_from_the_table():
    numba = FakeNumba(MEMORY_CLOCK_RATE=0, CLOCK_RATE=0)
    del numba.device.MAX_BLOCKS_PER_MULTIPROCESSOR
    gpu = GpuBackend(numba.api).gpu()
    assert min(gpu.dram_gbps, gpu.clock_ghz, gpu.blocks_sm) > 0


# --- where there is none


class FakeDriver:
    def __init__(self, status=0, count=1):
        self.status, self.count = status, count

    def cuInit(self, flags):  # noqa: N802 - the driver's
        return self.status

    def cuDeviceGetCount(self, pointer):  # noqa: N802 - the driver's
        pointer._obj.value = self.count
        return 0


def no_driver(name):
    raise OSError(name)


PROBLEMS = {
    "driver": (no_driver, {}, "no NVIDIA driver is installed here .*--target sm_90.*lockstep"),
    "device": (lambda _: FakeDriver(status=100), {}, r"no GPU that works \(CUDA error 100\)"),
    "count": (lambda _: FakeDriver(count=0), {}, "finds no GPU here: run on a machine with"),
    "disabled": (lambda _: FakeDriver(), {"NUMBA_DISABLE_CUDA": "1"}, "NUMBA_DISABLE_CUDA is set"),
    "extra": (lambda _: FakeDriver(), {}, "the extra is missing: pip install"),
}


@pytest.mark.parametrize("case", PROBLEMS)
def test_what_is_missing_for_a_gpu_is_said_in_one_line(case, monkeypatch):
    driver, environment, words = PROBLEMS[case]
    monkeypatch.setattr(ctypes, "CDLL", driver)
    monkeypatch.setattr(gpu_api, "missing", lambda: "the extra is missing: pip install it")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    gpu_problem.cache_clear()
    try:
        with pytest.raises(KernelError, match=words) as caught:
            load_api()
    finally:
        gpu_problem.cache_clear()
    assert "\n" not in str(caught.value)


def test_a_gpu_that_is_too_old_or_that_numba_cannot_use_is_refused(monkeypatch):
    monkeypatch.setattr(gpu_api, "gpu_problem", lambda: None)
    numba = FakeNumba(compute_capability=(7, 5))
    monkeypatch.setattr(gpu_api.importlib, "import_module", lambda name: numba)
    with pytest.raises(KernelError, match=r"compute capability 7\.5, kernels need 8\.0"):
        load_api()
    del numba.device.compute_capability
    with pytest.raises(KernelError, match="cannot be used by numba-cuda"):
        load_api()
