"""Stage 4: what one call costs the host, at a size where the kernel itself takes next to nothing.

The same tiny program by our kernel and by torch's ways, called in batches without waiting in
between: `host_us` is the time until a call returns, `device_us` the time from one kernel to the
next on the GPU. Where the second is close to the first the host is what limits. Then products that
are left to the library, at several sizes (`products`), where `device_us` is what they take.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from prism.artifact import Artifact, load_artifact
from prism.bench import Task
from prism.bench.task import make_inputs
from prism.errors import one_line
from prism.files import write_atomically
from prism.ir import bind_sizes
from prism.plugins import Group, make
from prism.protocols import Kernel, Target
from prism.tune import build_space, instantiate
from prism_experiments.gpu.plan import Cell, cell_of
from prism_experiments.gpu.products import products
from prism_experiments.gpu.results import OURS
from prism_experiments.gpu.rivals import (
    Contestant,
    NoTorchError,
    as_tensor,
    open_torch,
    rivals_of,
)
from prism_experiments.rivals.torch_source import torch_forms

BATCH = 100
BATCHES = 7
MOST_SECONDS = 1.0
"""Calls are not repeated beyond this."""

LEAST_LEFT_S = 8.0
"""A compilation is begun only with this much time left."""


def run(request: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Rows of `results.OVERHEAD`, told as they come."""
    deadline = time.monotonic() + request["limit_s"] - LEAST_LEFT_S
    cell = cell_of(request["cell"])
    artifact = load_artifact(request["artifact"])
    target: Target = make(Group.TARGET, request["target"])
    kernel = plain_kernel(artifact, cell, target, Path(request["kernel"]))
    inputs = make_inputs(
        artifact.program,
        Task(cell.workload, cell.sizes, cell.dtype, 0, 1, "", request["target"]),
    )
    rows: list[dict[str, Any]] = []

    def add(row: dict[str, Any]) -> None:
        rows.append(row)
        tell({"overhead": list(rows)})

    is_gpu = request["target"] == "cuda"
    try:
        torch = open_torch(request["target"])
    except NoTorchError as error:
        if not is_gpu:
            add(measured(OURS, lambda: kernel(*inputs), None))
            _products(request, target, None, deadline, add)
        add({"name": "torch", "host_us": None, "device_us": None, "detail": str(error)})
        return {}
    tensors = [as_tensor(torch, array, "cuda" if is_gpu else "cpu") for array in inputs]
    arrays = tensors if is_gpu else inputs
    cuda = torch.cuda if is_gpu else None
    add(measured(OURS, lambda: kernel(*arrays), cuda))
    sizes = bind_sizes(artifact.program, dict(cell.sizes))
    forms = torch_forms(artifact.program, sizes, torch)
    for name, make_call in _rivals(request["target"], torch, forms, tensors, deadline):
        try:
            add(measured(name, make_call(), cuda))
        except Exception as error:  # whatever a compiler raises
            add({"name": name, "host_us": None, "device_us": None, "detail": one_line(error)})
    _products(request, target, torch, deadline, add)
    return {}


def _products(
    request: Mapping[str, Any],
    target: Target,
    torch: Any,  # noqa: ANN401 - the module, or None
    deadline: float,
    add: Callable[[dict[str, Any]], None],
) -> None:
    """Rows of the library's kernels, as many as there is time for."""
    cuda = torch.cuda if request["target"] == "cuda" else None
    for name, detail, call in products(target, torch, Path(request["kernel"])):
        if time.monotonic() > deadline:
            return
        row: dict[str, Any] = {"name": name, "host_us": None, "device_us": None, "detail": detail}
        if call is not None:
            try:
                row = {**measured(name, call, cuda), "detail": detail}
            except Exception as error:  # whatever a library raises
                row["detail"] = one_line(error)
        add(row)


def plain_kernel(artifact: Artifact, cell: Cell, target: Target, path: Path) -> Kernel:
    """The kernel of the program's own graph, in one block."""
    found = artifact.graphs[-1]
    bound = bind_sizes(artifact.program, dict(cell.sizes))
    (space,) = build_space(((found.id, found.graph),), bound, target).graphs
    source = target.emit(instantiate(space, space.config(0)), cell.dtype)
    write_atomically(path, source.text)
    return target.load(path, source.meta)


def _rivals(
    target: str,
    torch: Any,  # noqa: ANN401 - the module
    forms: Mapping[str, Callable[..., Any]],
    tensors: list[Any],
    deadline: float,
) -> Iterator[tuple[str, Callable[[], Callable[[], Any]]]]:
    for rival, found in rivals_of(
        target, torch, forms, tensors, lambda: deadline - time.monotonic()
    ):
        if not isinstance(found, Contestant):
            yield rival.name, found


def measured(name: str, call: Callable[[], Any], cuda: Any) -> dict[str, Any]:  # noqa: ANN401
    """Microseconds of a call for the host, and between kernels on the GPU where there is one."""
    call()
    start = time.perf_counter()
    host: list[float] = []
    device: list[float] = []
    while len(host) < BATCHES and (not host or time.perf_counter() - start < MOST_SECONDS):
        seconds, between = _batch(call, cuda)
        host.append(seconds)
        device += [] if between is None else [between]
    return {
        "name": name,
        "host_us": median(host) * 1e6,
        "device_us": median(device) * 1e6 if device else None,
        "detail": "",
    }


def _batch(call: Callable[[], Any], cuda: Any) -> tuple[float, float | None]:  # noqa: ANN401
    """Seconds per call of one batch, for the host and for the GPU."""
    if cuda is None:
        start = time.perf_counter()
        call()
        return time.perf_counter() - start, None
    first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    cuda.synchronize()
    start = time.perf_counter()
    first.record()
    for _ in range(BATCH):
        call()
    last.record()
    seconds = time.perf_counter() - start
    cuda.synchronize()
    return seconds / BATCH, first.elapsed_time(last) * 1e-3 / BATCH
