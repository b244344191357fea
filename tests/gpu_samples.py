"""Loaded kernels and PyTorch's tensors, for the tests in `tests/gpu`."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_samples import reversed_rows, written

from prism.dtypes import TOLERANCES
from prism_kernels.cuda.gpu import gpu_backend
from prism_kernels.cuda.gpu_api import gpu_problem
from prism_kernels.cuda.kernel import load_cuda_kernel

ON_A_GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_problem() is not None, reason=f"gpu: {gpu_problem()}"),
]


def load(tmp_path, **sample):
    return load_cuda_kernel(*written(reversed_rows(**sample), tmp_path), gpu_backend())


def to_torch(torch, array):
    """On the GPU; PyTorch reads no bfloat16 from NumPy, but every float32 that is one."""
    tensor = torch.as_tensor(array.astype(np.float32), device="cuda")
    return tensor.to(getattr(torch, array.dtype.name))


def from_torch(tensor):
    return tensor.float().cpu().numpy()


def assert_close(out, reference, dtype):
    error = np.linalg.norm(out.astype(float) - reference)
    assert error <= TOLERANCES[dtype] * np.linalg.norm(reference)
