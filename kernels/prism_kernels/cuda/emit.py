"""From a muGraph to the source of its CUDA kernel, in one function that names the stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prism.errors import KernelError
from prism.ir import DataDim, MuGraph, output_name
from prism.protocols import KernelSource
from prism_kernels.cuda.cost import work_of
from prism_kernels.cuda.devices import MAX_BLOCKS, MAX_THREADS
from prism_kernels.cuda.dialect import DTYPES, WARP
from prism_kernels.cuda.emit_file import emit_file
from prism_kernels.cuda.memory import Schedule, schedule
from prism_kernels.cuda.places import THREADS, plan
from prism_kernels.cuda.plan import Plan, input_pointers
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.cuda.writer import Writer
from prism_kernels.describe import describe
from prism_kernels.lower import lower
from prism_kernels.seal import seal

LARGEST_INDEX = 2**32 - 1
"""Element indices are unsigned 32-bit numbers."""
WORKSPACE_LIMIT_BYTES = 1 << 30


def plan_kernel(mu: MuGraph, dtype: str, shared_limit: int) -> tuple[Plan, Schedule]:
    """Everything decided about a muGraph's kernel; `shared_limit` in bytes per block.

    Raises:
        KernelError: the muGraph is refused; the message says why.
    """
    if dtype not in DTYPES:
        raise KernelError(f"CUDA targets run {', '.join(DTYPES)}, not {dtype}")
    threads = dict(mu.schedule).get("T", THREADS[0])
    if threads not in range(WARP, MAX_THREADS + 1) or threads & (threads - 1):
        raise KernelError(f"T = {threads}: a block has a power of two of 32 to 1024 threads")
    planned = plan(lower(mu), dtype, dict(mu.schedule))
    scheduled = schedule(planned, shared_limit)
    _check_indices(planned, scheduled)
    return planned, scheduled


def emit(mu: MuGraph, dtype: str, shared_limit: int, target: str) -> KernelSource:
    """The kernel's source.

    Raises:
        KernelError: the muGraph is refused.
    """
    planned, scheduled = plan_kernel(mu, dtype, shared_limit)
    program, sizes = mu.graph.program, dict(mu.sizes)
    workspace = scheduled.workspace_elements * blocks_of(planned)
    tensors = planned.program.inputs
    read = {tensors[n].position: p for n, p in input_pointers(planned.program).items()}
    names = [read.get(k, f"unused_{k}") for k in range(len(program.arguments))]
    names += [output_name(k) for k in range(len(program.outputs))]
    parameters = [dtype] * len(names)
    if workspace:
        names.append("workspace")
        parameters.append("float32")
    title = f"CUDA kernel for {program.name}."
    text = emit_file(Writer(planned, scheduled), names, title, describe(mu, dtype))

    def array(name: str, axes: Sequence[DataDim | None]) -> dict[str, Any]:
        return {"name": name, "shape": [1 if d is None else sizes[d] for d in axes]}

    meta: dict[str, Any] = {
        "target": target,
        "runtime": runtime_digest(),
        "program": program.name,
        "dtype": dtype,
        "arguments": [array(a.name, a.axes) for a in program.arguments],
        "outputs": [array(output_name(k), o.axes) for k, o in enumerate(program.outputs)],
        "parameters": parameters,
        "blocks": blocks_of(planned),
        "threads": planned.threads,
        "shared_bytes": 4 * scheduled.shared_elements,
        "workspace_elements": workspace,
        "work": work_of(planned, scheduled).to_json(),
    }
    meta["seal"] = seal(text, meta)
    return KernelSource(text, meta)


def blocks_of(planned: Plan) -> int:
    """How many blocks a launch has."""
    return math.prod(g.count for g in planned.program.grid)


def _check_indices(planned: Plan, scheduled: Schedule) -> None:
    program, blocks = planned.program, blocks_of(planned)
    if blocks > MAX_BLOCKS:
        raise KernelError(f"{blocks} blocks, more than a grid has: use larger tiles")
    workspace = blocks * scheduled.workspace_elements
    if 4 * workspace > WORKSPACE_LIMIT_BYTES:
        raise KernelError(
            f"what the blocks cannot keep in shared memory takes {4 * workspace >> 20} MB, more "
            f"than {WORKSPACE_LIMIT_BYTES >> 20} MB; use more blocks or loop iterations"
        )
    for tensor in (*program.inputs.values(), *program.outputs.values()):
        elements = math.prod(program.sizes[dim] for dim, _ in tensor.strides)
        if elements > LARGEST_INDEX:
            raise KernelError(f"{tensor.name} has {elements} elements: 32-bit indices overflow")
