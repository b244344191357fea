"""Predicts what a library takes for a product, to order candidates; not a measurement.

The products of half types run on tensor cores, all others on the float32 units: float32 keeps its
precision (TF32 is off unless the user's torch says otherwise). Blocks of `TILE` x `TILE` results
are what the SMs are busy with, as in any such library; where there are fewer than SMs, the depth is
shared out as well. What is read and written overlaps with that, as `cost.OVERLAP` says.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from prism_kernels.cuda.cost import DRAM_SHARE, L2_ROOM, OVERLAP
from prism_kernels.cuda.devices import LIBRARY_MMA_SM, Gpu

TILE = 64
"""Rows and columns of results are rounded up to this: the smallest tiles that libraries use."""
LIBRARY_SHARE = 0.75
"""Of the peak on the data sheet what large products reach: assumed, not measured."""
DEFAULT_ARCH = "sm_90"


@dataclass(frozen=True, slots=True)
class ProductWork:
    """What a library's kernel does."""

    batch: int
    rows: int
    columns: int
    depth: int
    on_tensor_cores: bool
    dram_bytes: float
    """Arguments and outputs, each once."""
    kept_bytes: float
    """Tensors between kernels, which stay in the L2 cache where that has room."""
    converted_bytes: float = 0.0
    """Copies in float32 of operands and results that are of another type."""
    launches: int = 1
    """The product, and one for each copy."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def product_seconds(work: ProductWork, gpu: Gpu) -> float:
    """Predicted seconds of one launch from a cold L2 cache."""
    peak = gpu.fma_sm
    if work.on_tensor_cores:
        peak = LIBRARY_MMA_SM.get(gpu.arch, LIBRARY_MMA_SM[DEFAULT_ARCH])
    rows, columns = (-(-n // TILE) * TILE for n in (work.rows, work.columns))
    multiplications = float(work.batch) * rows * columns * work.depth
    compute = multiplications / (LIBRARY_SHARE * peak * gpu.sms * gpu.clock_ghz * 1e9)
    kept = work.kept_bytes + work.converted_bytes
    lost = max(0.0, 1.0 - L2_ROOM * gpu.l2_bytes / kept) if kept else 0.0
    moved = work.dram_bytes + lost * kept
    memory = moved / (gpu.dram_gbps * 1e9 * DRAM_SHARE)
    least, most = sorted((compute, memory))
    return work.launches * gpu.launch_s + most + OVERLAP * least
