"""Loading and launching CUDA kernels on arrays of NumPy, in the simulator, and of GPU libraries."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_samples import DTYPES, arguments, assert_right, reversed_rows, written
from kernels.fake_gpu import (
    CUPY,
    CUPY_STREAM,
    TORCH,
    TORCH_STREAM,
    CupyArray,
    Dlpack,
    HostGpu,
    HostTensor,
    Interface,
    Tensor,
    at,
)

from prism.errors import KernelError, SizeError, UsageError
from prism_kernels.cuda.kernel import load_cuda_kernel
from prism_kernels.cuda.simulated import SimulatedBackend
from prism_kernels.lockstep import LockstepFault


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def load(tmp_path, backend=None, **sample):
    return load_cuda_kernel(*written(reversed_rows(**sample), tmp_path), backend or simulated())


def simulated():
    return SimulatedBackend(seed=3)


# --- any backend


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("staging", ["shared", "workspace"])
def test_numpy_arrays_go_in_and_come_out(dtype, staging, tmp_path):
    given = arguments(dtype)
    (result,) = load(tmp_path, dtype=dtype, staging=staging)(*given)
    assert result.dtype == given[0].dtype
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
    text = reversed_rows().text.replace("    cuda.syncthreads()\n", "")
    kernel = load(tmp_path, text=text.replace("{", "{{"))  # braces: it is a template
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
    assert result.array.dtype == given[0].dtype
    assert_right(result.array, given)
    assert gpu.log == [("launch", stream)]
    np.testing.assert_array_equal(given[0], before)


def test_each_stream_has_a_workspace_of_its_own(gpu, libraries, tmp_path):
    kernel = load(tmp_path, gpu, staging="workspace")
    for wrap in (Tensor, CupyArray, Tensor):
        kernel(*map(wrap, arguments()))
    assert set(kernel._scratch) == {TORCH_STREAM, CUPY_STREAM}


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


def within(array):
    """The same values from the second element of a buffer on: no multiple of 16 bytes."""
    buffer = np.empty(array.size + 1, array.dtype)
    buffer[1:] = array.reshape(-1)
    return buffer[1:].reshape(array.shape)


@pytest.mark.parametrize("wrap", [Tensor, CupyArray])
def test_a_view_from_within_an_array_is_copied_by_the_library(wrap, gpu, libraries, tmp_path):
    x, s = arguments()
    (result,) = load(tmp_path, gpu)(wrap(within(x)), wrap(s))
    assert_right(result.array, (x, s))
    assert all(address % 16 == 0 for address in gpu.addresses)


@pytest.mark.parametrize("wrap", [Interface, Dlpack])
def test_a_view_from_within_an_array_of_an_unknown_library_is_refused(wrap, gpu, tmp_path):
    x, s = arguments()
    with pytest.raises(
        UsageError, match=r"'x' of reversed_rows does not start at a multiple of 16"
    ):
        load(tmp_path, gpu)(wrap(within(x)), wrap(s))


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
