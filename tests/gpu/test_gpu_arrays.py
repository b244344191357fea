"""Arrays that lie on a GPU already: PyTorch's, CuPy's, Numba's, and whatever speaks DLPack."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_samples import DTYPES, arguments, assert_right, expected
from gpu_samples import ON_A_GPU, from_torch, load, to_torch

from prism.dtypes import dtype_of
from prism.errors import SizeError, UsageError
from prism_kernels.cuda.gpu import gpu_backend

pytestmark = ON_A_GPU


# --- PyTorch


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_tensors_give_torch_tensors(dtype, torch, tmp_path):
    given = arguments(dtype)
    x, s = (to_torch(torch, array) for array in given)
    kernel = load(tmp_path, dtype=dtype, staging="workspace")
    assert kernel.takes(x)
    (result,) = kernel(x, s)
    assert (result.dtype, result.device, result.shape) == (x.dtype, x.device, x.shape)
    assert_right(from_torch(result), given)
    np.testing.assert_array_equal(from_torch(x), given[0].astype(np.float32))


def test_torch_strides_gradients_and_numbers_are_taken(torch, tmp_path):
    given = arguments()
    kernel = load(tmp_path)
    x = to_torch(torch, given[0])
    for tensor in (x.t().contiguous().t(), x.clone().requires_grad_(), torch.nn.Parameter(x)):
        assert_right(from_torch(kernel(tensor, 1.5)[0]), given)


def test_a_call_goes_to_torchs_current_stream_and_does_not_wait(torch, tmp_path):
    given = arguments("float32", 64, 4096)
    kernel = load(tmp_path, rows=64, columns=4096, threads=256)
    fresh, s = (to_torch(torch, array) for array in given)
    wanted = to_torch(torch, expected(*given).astype(np.float32))
    x = torch.zeros_like(fresh)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        kernel(x, s)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)  # the copy comes late: a launch elsewhere would read zeros
        x.copy_(fresh)
        (result,) = kernel(x, s)
        assert not side.query()
        assert torch.allclose(result, wanted, rtol=1e-6)


def test_torch_tensors_that_do_not_fit_are_one_clear_error(torch, tmp_path):
    x, s = (to_torch(torch, array) for array in arguments())
    kernel = load(tmp_path)
    with pytest.raises(UsageError, match="dtype float16"):
        kernel(x.half(), s)
    with pytest.raises(SizeError, match="shape"):
        kernel(x[:2], s)
    with pytest.raises(UsageError, match="in host memory"):
        kernel(x, s.cpu())


class OnlyDlpack:
    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_alone_will_do(dtype, torch, tmp_path):
    given = arguments(dtype)
    x, s = (OnlyDlpack(to_torch(torch, array)) for array in given)
    kernel = load(tmp_path, dtype=dtype)
    assert kernel.takes(x)
    (result,) = kernel(x, s)
    gpu_backend()._api.cuda.synchronize()
    pointer = result.__cuda_array_interface__["data"][0]
    assert pointer
    back = np.empty(given[0].shape, dtype_of(dtype))
    result.copy_to_host(back)
    assert_right(back, given)


# --- CuPy and Numba


@pytest.fixture
def cupy():
    module = pytest.importorskip("cupy")
    if not module.cuda.is_available():
        pytest.skip("this CuPy has no CUDA")
    return module


@pytest.mark.parametrize("dtype", DTYPES)
def test_cupy_arrays_give_cupy_arrays(dtype, cupy, tmp_path):
    given = arguments(dtype)
    try:
        x, s = (cupy.asarray(array) for array in given)
    except (TypeError, ValueError):
        assert dtype == "bfloat16"
        pytest.skip("this CuPy has no bfloat16")
    kernel = load(tmp_path, dtype=dtype)
    for array in (x, cupy.asfortranarray(x)):
        (result,) = kernel(array, s)
        assert isinstance(result, cupy.ndarray)
        assert_right(cupy.asnumpy(result), given)
    with cupy.cuda.Stream() as stream:
        (result,) = kernel(x, s)
        stream.synchronize()
        assert_right(cupy.asnumpy(result), given)


def test_numba_arrays_give_numba_arrays(tmp_path):
    cuda = gpu_backend()._api.cuda
    given = arguments()
    (result,) = load(tmp_path)(*(cuda.to_device(array) for array in given))
    assert_right(result.copy_to_host(), given)
