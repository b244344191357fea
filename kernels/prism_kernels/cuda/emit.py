"""From a muGraph to the source of its CUDA kernels, in one function that names the stages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prism.errors import KernelError
from prism.ir import MuGraph, Program
from prism.protocols import KernelSource
from prism_kernels.cuda.cost import Work, seconds, work_of
from prism_kernels.cuda.devices import MAX_BLOCKS, MAX_THREADS, Gpu
from prism_kernels.cuda.dialect import DTYPES, WARP
from prism_kernels.cuda.emit_file import emit_file, function_text
from prism_kernels.cuda.emit_kernel import emit_kernel
from prism_kernels.cuda.emit_product import PlannedProduct
from prism_kernels.cuda.memory import Schedule, schedule
from prism_kernels.cuda.places import THREADS, plan
from prism_kernels.cuda.plan import Plan
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.cuda.writer import Writer
from prism_kernels.describe import array_metadata, describe
from prism_kernels.library import library_call
from prism_kernels.lower import lower
from prism_kernels.seal import seal
from prism_kernels.tile import Intermediate, Load, Store, TileProgram

LARGEST_INDEX = 2**32 - 1
"""Element indices are unsigned 32-bit numbers."""
MEMORY_LIMIT_BYTES = 1 << 30
"""Of what kernels keep in global memory beside arguments and outputs."""


@dataclass(frozen=True, slots=True)
class PlannedKernel:
    """Everything decided about one kernel."""

    plan: Plan
    schedule: Schedule

    @property
    def blocks(self) -> int:
        """How many blocks a launch has."""
        return math.prod(g.count for g in self.plan.program.grid)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        return 4 * self.schedule.shared_elements

    @property
    def workspace_elements(self) -> int:
        """What all blocks keep in the workspace."""
        return self.schedule.workspace_elements * self.blocks

    def work(self) -> Work:
        """What a launch does."""
        return work_of(self.plan, self.schedule)

    def seconds(self, gpu: Gpu) -> float:
        """Predicted seconds of one launch."""
        return seconds(self.work(), gpu)


@dataclass(frozen=True, slots=True)
class Planned:
    """The kernels of a muGraph in launch order, and the tensors between them."""

    kernels: tuple[PlannedKernel | PlannedProduct, ...]
    between: tuple[Intermediate, ...]

    @property
    def ours(self) -> tuple[PlannedKernel, ...]:
        """The kernels that no library runs."""
        return tuple(kernel for kernel in self.kernels if isinstance(kernel, PlannedKernel))

    @property
    def workspace_elements(self) -> int:
        """The workspace: kernels run one after the other, so one serves them all."""
        return max(kernel.workspace_elements for kernel in self.kernels)


def plan_kernels(mu: MuGraph, dtype: str, shared_limit: int) -> Planned:
    """Everything decided about a muGraph's kernels; `shared_limit` in bytes per block.

    A library's kernel whose references ask for more than a contraction is run as ours.

    Raises:
        KernelError: the muGraph is refused; the message says why.
    """
    if dtype not in DTYPES:
        raise KernelError(f"CUDA targets run {', '.join(DTYPES)}, not {dtype}")
    threads = dict(mu.schedule).get("T", THREADS[0])
    if threads not in range(WARP, MAX_THREADS + 1) or threads & (threads - 1):
        raise KernelError(f"T = {threads}: a block has a power of two of 32 to 1024 threads")
    lowered = lower(mu, has_library=True)
    kernels: list[PlannedKernel | PlannedProduct] = []
    for op, program in zip(mu.graph.kernels, lowered.programs, strict=True):
        call = library_call(program) if op.library else None
        if call is not None:
            kernels.append(PlannedProduct(call, dtype))
            continue
        planned = plan(program, dtype, dict(mu.schedule))
        kernel = PlannedKernel(planned, schedule(planned, shared_limit))
        _check(kernel)
        kernels.append(kernel)
    _check_between(lowered.between)
    return Planned(tuple(kernels), lowered.between)


def emit(mu: MuGraph, dtype: str, shared_limit: int, target: str) -> KernelSource:
    """The kernels' source.

    Raises:
        KernelError: the muGraph is refused.
    """
    planned = plan_kernels(mu, dtype, shared_limit)
    program = mu.graph.program
    several = len(planned.kernels) > 1
    dtypes = _array_dtypes(program, planned, dtype)
    functions, launches = [], []
    for k, kernel in enumerate(planned.kernels):
        name = f"kernel{k}" if several else "kernel"
        if isinstance(kernel, PlannedProduct):
            functions.append(function_text(name, list(kernel.names.values()), kernel.lines()))
            launches.append(kernel.launch(name, dtypes))
            continue
        parameters = _parameters(kernel, dtypes, only_touched=several)
        writer = Writer(kernel.plan, kernel.schedule)
        emit_kernel(writer)
        functions.append(function_text(name, list(parameters.values()), writer.lines))
        launches.append(_launch(name, kernel, list(parameters), dtypes))
    what = "CUDA kernels, launched one after the other," if several else "CUDA kernel"
    text = emit_file(functions, f"{what} for {program.name}.", describe(mu, dtype))
    meta: dict[str, Any] = {
        "target": target,
        "runtime": runtime_digest(),
        **array_metadata(mu, dtype, planned.between),
        "workspace_elements": planned.workspace_elements,
        "launches": launches,
    }
    meta["seal"] = seal(text, meta)
    return KernelSource(text, meta)


def _array_dtypes(program: Program, planned: Planned, dtype: str) -> list[str]:
    """Of all arrays: arguments, outputs, what lies between the kernels, the workspace."""
    given = len(program.arguments) + len(program.outputs)
    return [dtype] * given + ["float32"] * (len(planned.between) + 1)


def _parameters(
    kernel: PlannedKernel, dtypes: Sequence[str], *, only_touched: bool
) -> dict[int, str]:
    """Which arrays the kernel takes, by position, and what it calls them.

    The only kernel of a file takes all arguments and outputs.
    """
    planned, program = kernel.plan, kernel.plan.program
    workspace = len(dtypes) - 1
    names = {t.position: planned.inputs[n].pointer for n, t in program.inputs.items()}
    names |= {t.position: planned.outputs[n].pointer for n, t in program.outputs.items()}
    taken = _touched(program) if only_touched else range(workspace)
    out = {k: names.get(k, f"unused_{k}") for k in sorted(taken)}
    if kernel.workspace_elements:
        out[workspace] = "workspace"
    return out


def _touched(program: TileProgram) -> set[int]:
    """The positions of the arrays that are read or written."""
    out = set()
    for node in program.nodes:
        match node:
            case Load(source=source):
                out.add(program.inputs[source].position)
            case Store(target=target):
                out.add(program.outputs[target].position)
            case _:
                continue
    return out


def _launch(
    name: str, kernel: PlannedKernel, takes: Sequence[int], dtypes: Sequence[str]
) -> dict[str, Any]:
    """What is needed to compile and launch one kernel of a file."""
    return {
        "kernel": name,
        "takes": takes,
        "parameters": [dtypes[k] for k in takes],
        "blocks": kernel.blocks,
        "threads": kernel.plan.threads,
        "shared_bytes": kernel.shared_bytes,
        "work": kernel.work().to_json(),
    }


def _check(kernel: PlannedKernel) -> None:
    program, blocks = kernel.plan.program, kernel.blocks
    if blocks > MAX_BLOCKS:
        raise KernelError(f"{blocks} blocks, more than a grid has: use larger tiles")
    workspace = 4 * kernel.workspace_elements
    if workspace > MEMORY_LIMIT_BYTES:
        raise KernelError(
            f"what the blocks cannot keep in shared memory takes {workspace >> 20} MB, more "
            f"than {MEMORY_LIMIT_BYTES >> 20} MB; use more blocks or loop iterations"
        )
    for tensor in (*program.inputs.values(), *program.outputs.values()):
        elements = math.prod(program.sizes[dim] for dim, _ in tensor.strides)
        if elements > LARGEST_INDEX:
            raise KernelError(f"{tensor.name} has {elements} elements: 32-bit indices overflow")


def _check_between(between: Sequence[Intermediate]) -> None:
    size = 4 * sum(math.prod(tensor.shape) for tensor in between)
    if size > MEMORY_LIMIT_BYTES:
        raise KernelError(
            f"the tensors between the kernels take {size >> 20} MB, more than "
            f"{MEMORY_LIMIT_BYTES >> 20} MB; use fewer blocks along the grid dims that stack"
        )
