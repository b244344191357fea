"""The CUDA targets (`prism.protocols.Target`): one emitter, three places where its kernels go.

| target                      | emits for          | kernels                                        |
|-----------------------------|--------------------|------------------------------------------------|
| `cuda`                      | the GPU at hand    | run and are timed on it                        |
| `sm_80` ... `sm_90`, `h200` | a GPU of the table | are compiled; times are predicted              |
| `lockstep`                  | any                | run in the simulator: right or wrong, not fast |
"""

from __future__ import annotations

from prism.errors import KernelError
from prism.ir import OPS, Apply, MuGraph, OpKind, SGraph
from prism.protocols import Device, KernelSource
from prism_kernels.cuda import cost, devices
from prism_kernels.cuda.devices import Gpu
from prism_kernels.cuda.emit import emit, plan_kernel

THREADS = (128, 256, 64, 512)
"""Schedule option `T`: threads of a block."""
STAGING = (0, 1)
"""Schedule option `S`: 0 stages operands as the costs say, 1 never, 2 wherever possible."""


class GpuTarget:
    """What the targets have in common: kernels for one GPU."""

    measures = False

    def __init__(self, name: str, gpu: Gpu) -> None:
        self.name = name
        self._gpu = gpu

    def device(self) -> Device:
        """The GPU that kernels are made for."""
        return gpu_device(self._gpu)

    def schedules(self, graph: SGraph, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """The emitter's own options for this graph: name -> choices, the default first."""
        del sizes
        nodes = [node for kernel in graph.kernels for node in kernel.block.nodes]
        contracts = any(isinstance(n, Apply) and OPS[n.op].kind is OpKind.CONTRACT for n in nodes)
        return {"T": THREADS, **({"S": STAGING} if contracts else {})}

    def estimate(self, mu: MuGraph, dtype: str) -> float:
        """Predicted seconds of one run from a cold L2 cache.

        Raises:
            KernelError: the muGraph is refused.
        """
        planned, scheduled = plan_kernel(mu, dtype, self._gpu.shared_bytes_block)
        return cost.seconds(cost.work_of(planned, scheduled), self._gpu)

    def refusal(self, mu: MuGraph, dtype: str) -> str | None:
        """Why this muGraph cannot run there, or None."""
        try:
            planned, scheduled = plan_kernel(mu, dtype, self._gpu.shared_bytes_block)
        except KernelError as error:
            return str(error)
        return devices.refusal(self._gpu, planned.threads, 4 * scheduled.shared_elements)

    def emit(self, mu: MuGraph, dtype: str) -> KernelSource:
        """Emit the kernel's source.

        Raises:
            KernelError: the muGraph is refused.
        """
        return emit(mu, dtype, self._gpu.shared_bytes_block, self.name)


def gpu_device(gpu: Gpu) -> Device:
    """A GPU of the table as the tuner sees it."""
    return Device(
        name=gpu.name,
        threads=gpu.sms,
        vector_bits=32 * 32,
        l1_bytes=gpu.shared_bytes_sm,
        l2_bytes=gpu.l2_bytes,
        l3_bytes=0,
        stream_gbps=gpu.dram_gbps,
        kind="gpu",
        arch=gpu.arch,
    )
