"""Stage 1: the machine, the versions of what runs on it, and how fast its memory is."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from statistics import median
from typing import Any

from prism.errors import PrismError
from prism.plugins import Group, make
from prism_experiments.gpu.nvidia import cuda_version, smi_facts
from prism_experiments.gpu.rivals import NoTorchError, open_torch

PACKAGES = (
    "prism-superopt",
    "numpy",
    "numba",
    "numba-cuda",
    "llvmlite",
    "cuda-bindings",
    "cuda-core",
    "ml-dtypes",
    "torch",
    "triton",
    "pytest",
)

COPY_BYTES = 2**31
"""Copied to measure the bandwidth: far more than any cache."""

MEMORY_SHARE = 8
"""Each of the two buffers takes no more than this part of the GPU's memory."""

REPEATS = 7


def run(request: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Facts by name, told as they come; a fact that cannot be had is not there."""
    tell({"environment": _host()})
    tell({"environment": {**smi_facts(), "cuda_driver": cuda_version()}})
    tell({"environment": _device(request["target"])})
    try:
        torch = open_torch(request["target"])
    except NoTorchError as error:
        return {"environment": {"torch": str(error)}}
    tell({"environment": {"torch_cuda": torch.version.cuda}})
    if request["target"] != "cuda":
        return {"environment": {}}
    return {"environment": {**_gpu(torch), **bandwidths(torch)}}


def _device(target: str) -> dict[str, Any]:
    """The machine as the target sees it."""
    try:
        device = make(Group.TARGET, target).device()
    except PrismError as error:
        return {"device_name": f"unknown: {error}"}
    return {f"device_{name}": value for name, value in asdict(device).items()}


def _host() -> dict[str, Any]:
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
    }
    for name in PACKAGES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = None
    return facts


def _gpu(torch: Any) -> dict[str, Any]:  # noqa: ANN401 - the module
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "memory_bytes": properties.total_memory,
    }


def bandwidths(torch: Any) -> dict[str, float]:  # noqa: ANN401 - the module
    """GB/s of a copy (bytes read and written) and of reading alone, medians."""
    memory = torch.cuda.get_device_properties(0).total_memory
    count = min(COPY_BYTES, memory // MEMORY_SHARE) // 4
    source = torch.ones(count, dtype=torch.float32, device="cuda")
    copy = torch.empty_like(source)
    byte_count = 4 * count
    return {
        "copy_gbps": 2 * byte_count / _seconds(torch, lambda: copy.copy_(source)) / 1e9,
        "read_gbps": byte_count / _seconds(torch, source.sum) / 1e9,
    }


def _seconds(torch: Any, call: Callable[[], object]) -> float:  # noqa: ANN401 - the module
    call()
    torch.cuda.synchronize()
    out = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        out.append(time.perf_counter() - start)
    return median(out)
