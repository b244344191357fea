"""Loading and launching CUDA kernels: on the lockstep simulator, and on stand-ins for a GPU."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_samples import arguments, expected, reversed_rows, written
from kernels.fake_gpu import (
    CUPY,
    CUPY_STREAM,
    TORCH,
    TORCH_STREAM,
    CUfunction,
    CupyArray,
    Dlpack,
    FakeNumba,
    HostGpu,
    HostTensor,
    Interface,
    Tensor,
    at,
)

from prism.dtypes import HALF, dtype_of
from prism.errors import DeviceLostError, KernelError, SizeError, UsageError
from prism.tune import device_text
from prism.tune.timing import time_kernels
from prism_kernels.cuda import gpu_api, profile
from prism_kernels.cuda.gpu import GpuBackend, device_of
from prism_kernels.cuda.gpu_api import gpu_problem, load_api
from prism_kernels.cuda.kernel import load_cuda_kernel
from prism_kernels.cuda.simulated import SimulatedBackend
from prism_kernels.lockstep import LockstepFault

DTYPES = ("float32", *sorted(HALF))
EXACT = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def load(tmp_path, backend=None, **sample):
    return load_cuda_kernel(*written(reversed_rows(**sample), tmp_path), backend or simulated())


def simulated():
    return SimulatedBackend(seed=3)


def assert_right(result, given):
    wanted = expected(*given)
    assert result.shape == wanted.shape
    assert result.dtype == given[0].dtype
    tolerance = EXACT[given[0].dtype.name]
    np.testing.assert_allclose(result.astype(float), wanted, rtol=tolerance, atol=1e-12)


# --- any backend


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("staging", ["shared", "workspace"])
def test_numpy_arrays_go_in_and_come_out(dtype, staging, tmp_path):
    given = arguments(dtype)
    (result,) = load(tmp_path, dtype=dtype, staging=staging)(*given)
    assert_right(result, given)


def test_a_bound_kernel_runs_again_and_brings_its_outputs_back_at_the_end(tmp_path):
    given, outputs = arguments(), [np.full((3, 40), np.nan, np.float32)]
    bound = load(tmp_path).bind(given, outputs)
    assert bound.run_timed() > 0
    assert np.isnan(outputs[0]).all()
    bound.run_timed()
    bound.finish()
    assert_right(outputs[0], given)


class CarelessGpu(HostGpu):
    """Runs a kernel that leaves the last column unwritten and writes into an argument."""

    def load(self, path, text, meta):
        def launch(memories, stream):
            x, s, out = (
                at(memory.address, shape, "float32")
                for memory, shape in zip(memories, ((3, 40), (), (3, 40)), strict=True)
            )
            out[:, :-1] = x[:, :-1]
            s[...] = 3

        return SimpleNamespace(facts={}, launch=launch)


def test_what_a_kernel_leaves_unwritten_or_does_to_its_arguments_shows(tmp_path):
    given, outputs = arguments(), [np.full((3, 40), np.nan, np.float32)]
    load(tmp_path, CarelessGpu()).run_into(given, outputs)
    assert np.isnan(outputs[0][:, -1]).all()
    np.testing.assert_array_equal(outputs[0][:, :-1], given[0][:, :-1])
    assert given[1] == 3


def test_arguments_the_kernel_was_not_made_for_are_refused(tmp_path):
    kernel = load(tmp_path)
    x, s = arguments()
    with pytest.raises(KernelError, match="1 arguments given, the kernel has 2"):
        kernel(x)
    with pytest.raises(KernelError, match="must be a NumPy array of float32, not float64"):
        kernel(x.astype(float), s)
    with pytest.raises(KernelError, match=r"has shape \(3, 39\)"):
        kernel(x[:, 1:], s)
    with pytest.raises(KernelError, match="shares memory"):
        kernel.run_into((x, s), (x,))


def test_files_of_others_are_not_loaded(tmp_path):
    path, meta = written(reversed_rows(), tmp_path)
    path.write_text(path.read_text() + "\nimport os\n")
    with pytest.raises(KernelError, match="not a file this user's Prism wrote"):
        load_cuda_kernel(path, meta, simulated())
    with pytest.raises(KernelError, match="not a file"):
        load_cuda_kernel(path, {**meta, "blocks": 4}, simulated())


def test_the_simulator_says_that_its_time_is_no_gpus(tmp_path):
    kernel = load(tmp_path)
    assert kernel.facts["clock"] == "wall seconds of the lockstep simulator"
    assert kernel.facts["shared_bytes"] == 160
    assert not kernel.takes(Interface(arguments()[0]))


def test_a_fault_in_the_simulator_is_a_kernel_error_that_names_it(tmp_path):
    without_barrier = written(reversed_rows(), tmp_path)[0].read_text().replace("{", "{{")
    text = without_barrier.replace("    cuda.syncthreads()\n", "")
    kernel = load(tmp_path, columns=40, text=text)
    with pytest.raises(LockstepFault):
        kernel(*arguments())


# --- arrays on a GPU


@pytest.fixture
def gpu():
    return HostGpu()


@pytest.fixture
def libraries(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", TORCH)
    monkeypatch.setitem(sys.modules, "cupy", CUPY)


KINDS = {
    "torch": (Tensor, Tensor, TORCH_STREAM),
    "cupy": (CupyArray, CupyArray, CUPY_STREAM),
    "interface": (Interface, Interface, 0),
    "interface with a stream": (lambda a: Interface(a, stream=33), Interface, 33),
    "dlpack": (Dlpack, Interface, 0),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_results_are_of_the_library_of_the_arguments_on_its_stream(
    kind, dtype, gpu, libraries, tmp_path
):
    wrap, result_type, stream = KINDS[kind]
    given = arguments(dtype)
    kernel = load(tmp_path, gpu, dtype=dtype, staging="workspace")
    wrapped = [wrap(array) for array in given]
    assert all(map(kernel.takes, wrapped))
    before = given[0].copy()
    (result,) = kernel(*wrapped)
    assert type(result) is result_type
    assert_right(result.array, given)
    assert gpu.log == [("launch", stream)]
    np.testing.assert_array_equal(given[0], before)


def test_each_stream_has_a_workspace_of_its_own(gpu, libraries, tmp_path):
    kernel = load(tmp_path, gpu, staging="workspace")
    for wrap in (Tensor, CupyArray, Tensor):
        kernel(*map(wrap, arguments()))
    assert set(kernel._workspaces) == {TORCH_STREAM, CUPY_STREAM}


@pytest.mark.parametrize("wrap", [Tensor, CupyArray])
def test_strides_are_made_good_by_the_library(wrap, gpu, libraries, tmp_path):
    x, s = arguments()
    kernel = load(tmp_path, gpu)
    (result,) = kernel(wrap(np.ascontiguousarray(x.T).T), wrap(s))
    assert_right(result.array, (x, s))


@pytest.mark.parametrize("wrap", [Interface, Dlpack])
def test_strides_of_an_unknown_library_are_refused(wrap, gpu, tmp_path):
    x, s = arguments()
    with pytest.raises(UsageError, match=r"'x' of reversed_rows is not C-contiguous.*copy it"):
        load(tmp_path, gpu)(wrap(np.asfortranarray(x)), wrap(s))


def test_strides_of_dims_of_one_element_mean_nothing(gpu, tmp_path):
    x, s = arguments(rows=1)
    odd = np.lib.stride_tricks.as_strided(x, x.shape, (8, 4))
    interface = Interface(odd, strides=(8, 4))
    (result,) = load(tmp_path, gpu, rows=1)(interface, Interface(s))
    assert_right(result.array, (x, s))


def test_an_offset_into_a_dlpack_buffer_counts(gpu, tmp_path):
    given = arguments()
    (result,) = load(tmp_path, gpu)(Dlpack(given[0], offset=64), Dlpack(given[1]))
    assert_right(result.array, given)


def test_a_dlpack_producer_is_told_the_stream(gpu, tmp_path):
    given = arguments()
    producer = Dlpack(given[0])
    load(tmp_path, gpu)(producer, Interface(given[1], stream=33))
    assert producer.streams[0] == 33
    alone = Dlpack(given[0])
    load(tmp_path, gpu)(alone, Dlpack(given[1]))
    assert alone.streams[0] == 1


def test_a_plain_number_serves_for_a_scalar(gpu, libraries, tmp_path):
    x, _ = arguments()
    kernel = load(tmp_path, gpu)
    for number in (1.5, 2, 1.5, True, np.float64(0.25)):
        (result,) = kernel(Tensor(x), number)
        assert_right(result.array, (x, np.float32(number)))
    assert len(kernel._numbers) == 4


def test_arguments_of_several_streams_are_joined(gpu, libraries, tmp_path):
    x, s = arguments()
    (result,) = load(tmp_path, gpu)(CupyArray(x), Tensor(s))
    assert type(result) is CupyArray
    assert gpu.log == [("await", CUPY_STREAM, TORCH_STREAM), ("launch", CUPY_STREAM)]


BAD = {
    "dtype": (
        lambda x, s: (Tensor(x.astype(float)), Tensor(s)),
        UsageError,
        "'x' of reversed_rows has dtype float64, .* float32: cast it, or optimize with dtype='flo",
    ),
    "odd dtype": (lambda x, s: (Tensor(x.astype(int)), s), UsageError, "dtype int64, .* cast it$"),
    "shape": (lambda x, s: (Tensor(x[:2]), Tensor(s)), SizeError, r"\(2, 40\), .* \(3, 40\)"),
    "scalar": (lambda x, s: (2.0, Tensor(s)), SizeError, r"'x' .* shape \(\)"),
    "GPU": (lambda x, s: (Tensor(x, 1), Tensor(s, 1)), UsageError, "is on GPU 1, the kernel on GP"),
    "NumPy": (lambda x, s: (Tensor(x), s), UsageError, "'s' .* in host memory .* one place"),
    "host tensor": (lambda x, s: (HostTensor(x), Tensor(s)), UsageError, "'x' .* in host memory"),
    "list": (lambda x, s: (Tensor(x), [1.5]), UsageError, "in host memory"),
    "number of arrays": (lambda x, s: (Tensor(x),), UsageError, "takes 2 arrays, not 1"),
    "sparse": (lambda x, s: (sparse(x), Tensor(s)), UsageError, "layout coo: make it dense"),
    "masked": (lambda x, s: (Interface(x, mask=s), Tensor(s)), UsageError, "masked"),
    "no capsule": (lambda x, s: (NoCapsule(x), Tensor(s)), UsageError, "through DLPack"),
}


def sparse(array):
    tensor = Tensor(array)
    tensor.layout = "coo"
    return tensor


class NoCapsule(Dlpack):
    def __dlpack__(self, *, stream=None):
        return 7


@pytest.mark.parametrize("case", BAD)
def test_gpu_arrays_that_do_not_fit_are_one_clear_error(case, gpu, libraries, tmp_path):
    spoil, error, message = BAD[case]
    kernel = load(tmp_path, gpu)
    with pytest.raises(error, match=message):
        kernel(*spoil(*arguments()))
    assert ("launch", TORCH_STREAM) not in gpu.log


@pytest.mark.parametrize("value", [1.0, "x", None, np.ones(2), HostTensor(np.ones(2)), Interface])
def test_what_is_not_on_a_gpu_is_not_taken(value, gpu, libraries, tmp_path):
    assert not load(tmp_path, gpu).takes(value)


def test_a_dlpack_array_in_host_memory_is_not_taken(gpu, tmp_path):
    assert not load(tmp_path, gpu).takes(Dlpack(arguments()[0], device_type=1))


# --- the GPU through numba-cuda


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
    assert numba.log[0] == ("jit", parameters, 64)
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


def test_a_launch_on_anothers_stream_is_configured_once(libraries, tmp_path):
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
    assert device_text(device) == "NVIDIA H200, sm_90"


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
