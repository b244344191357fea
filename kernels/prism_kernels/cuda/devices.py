"""The GPUs that kernels are made for where none is at hand, and what fits on one of their SMs.

Sources. Limits of an SM: CUDA C++ Programming Guide, table "Technical Specifications per Compute
Capability". Allocation granularity and the shared memory reserved per block: the CUDA occupancy
calculator (`cuda_occupancy.h`). SMs, clock, L2 and bandwidth: NVIDIA's data sheets and architecture
white papers (A100, GA102, Ada, H100, H200); clocks are boost clocks, so peaks are upper bounds.
Tensor cores: dense peaks of the data sheets, of Hopper's 2048 the five eighths `mma.sync` gets.
What a launch costs is on no data sheet: two to three microseconds, as is generally reported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from prism.errors import UsageError
from prism_kernels.cuda.dialect import WARP

MAX_THREADS = 1024
"""Threads of a block."""
MAX_BLOCKS = 2**31 - 1
"""Blocks of a launch."""
MAX_REGISTERS = 255
"""Registers of a thread."""
SM_REGISTERS = 65536
SM_SCHEDULERS = 4
"""Each owns a quarter of an SM's registers and warps."""
REGISTER_UNIT = 256
"""Registers are given to a warp in these."""
SHARED_UNIT = 128
"""Bytes of shared memory are given to a block in these."""
SHARED_RESERVED = 1024
"""Bytes of shared memory of each block that the system takes."""
SHARED_DEFAULT = 48 << 10
"""Bytes of dynamic shared memory a kernel may have without asking for more."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; the facts that all of compute capability 8.0 to 9.0 share are constants above."""

    name: str
    arch: str
    sms: int
    shared_bytes_sm: int
    """Shared memory of an SM."""
    shared_bytes_block: int
    """The most that a block may ask for."""
    threads_sm: int
    """Threads resident on an SM."""
    blocks_sm: int
    """Blocks resident on an SM."""
    fma_sm: int
    """float32 multiply-adds of an SM per clock."""
    mma_sm: int
    """Of its tensor cores, of float16 into float32, by `mma.sync`."""
    clock_ghz: float
    l2_bytes: int
    dram_gbps: float
    launch_s: float
    """What each launch costs the GPU: an empty kernel, or the gap between two in a row."""

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability, such as (8, 6)."""
        digits = int(self.arch.removeprefix("sm_"))
        return divmod(digits, 10)

    @property
    def flops(self) -> float:
        """Peak float32 operations per second."""
        return 2e9 * self.sms * self.fma_sm * self.clock_ghz


_KB = 1 << 10
_MB = 1 << 20

_A100 = Gpu(
    name="NVIDIA A100 80GB SXM",
    arch="sm_80",
    sms=108,
    shared_bytes_sm=164 * _KB,
    shared_bytes_block=163 * _KB,
    threads_sm=2048,
    blocks_sm=32,
    fma_sm=64,
    mma_sm=1024,
    clock_ghz=1.41,
    l2_bytes=40 * _MB,
    dram_gbps=2039.0,
    launch_s=3.0e-6,
)
_RTX_3090 = Gpu(
    name="NVIDIA GeForce RTX 3090",
    arch="sm_86",
    sms=82,
    shared_bytes_sm=100 * _KB,
    shared_bytes_block=99 * _KB,
    threads_sm=1536,
    blocks_sm=16,
    fma_sm=128,
    mma_sm=256,
    clock_ghz=1.695,
    l2_bytes=6 * _MB,
    dram_gbps=936.0,
    launch_s=3.0e-6,
)
_L40S = Gpu(
    name="NVIDIA L40S",
    arch="sm_89",
    sms=142,
    shared_bytes_sm=100 * _KB,
    shared_bytes_block=99 * _KB,
    threads_sm=1536,
    blocks_sm=24,
    fma_sm=128,
    mma_sm=512,
    clock_ghz=2.52,
    l2_bytes=96 * _MB,
    dram_gbps=864.0,
    launch_s=2.5e-6,
)
_H100 = Gpu(
    name="NVIDIA H100 80GB SXM",
    arch="sm_90",
    sms=132,
    shared_bytes_sm=228 * _KB,
    shared_bytes_block=227 * _KB,
    threads_sm=2048,
    blocks_sm=32,
    fma_sm=128,
    mma_sm=1280,
    clock_ghz=1.98,
    l2_bytes=50 * _MB,
    dram_gbps=3352.0,
    launch_s=2.5e-6,
)
_H200 = Gpu(
    name="NVIDIA H200 SXM",
    arch="sm_90",
    sms=132,
    shared_bytes_sm=228 * _KB,
    shared_bytes_block=227 * _KB,
    threads_sm=2048,
    blocks_sm=32,
    fma_sm=128,
    mma_sm=1280,
    clock_ghz=1.98,
    l2_bytes=50 * _MB,
    dram_gbps=4800.0,
    launch_s=2.5e-6,
)

GPUS: Mapping[str, Gpu] = MappingProxyType(
    {"sm_80": _A100, "sm_86": _RTX_3090, "sm_89": _L40S, "sm_90": _H100, "h200": _H200}
)
"""Name -> GPU: an architecture stands for its best-known GPU."""

LIBRARY_MMA_SM: Mapping[str, int] = MappingProxyType(
    {"sm_80": 1024, "sm_86": 256, "sm_89": 512, "sm_90": 2048}
)
"""Architecture -> multiply-adds of an SM's tensor cores per clock, of float16 into float32, by the
instructions that a library uses: on Hopper `wgmma`, which gets all of the dense peak."""

ARCHS = tuple(sorted({gpu.arch for gpu in GPUS.values()}))


def gpu_named(name: str) -> Gpu:
    """The GPU of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in GPUS:
        raise UsageError(f"no GPU {name!r} is known; there are {', '.join(GPUS)}")
    return GPUS[name]


def occupancy(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> int:
    """How many such blocks are resident on one SM; 0 when not even one fits.

    `registers` are a thread's, `shared_bytes` a block's (static and dynamic).
    """
    warps = -(-threads // WARP)
    if threads > MAX_THREADS or registers > MAX_REGISTERS or shared_bytes > gpu.shared_bytes_block:
        return 0
    by_shared = gpu.shared_bytes_sm // _round_up(shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    limits = [gpu.blocks_sm, gpu.threads_sm // (warps * WARP), by_shared]
    if registers > 0:
        warp_registers = _round_up(registers * WARP, REGISTER_UNIT)
        # a block's warps are dealt to the schedulers, each with its own registers
        if warp_registers * _round_up(warps, SM_SCHEDULERS) > SM_REGISTERS:
            return 0
        scheduler_warps = SM_REGISTERS // SM_SCHEDULERS // warp_registers
        limits.append(scheduler_warps * SM_SCHEDULERS // warps)
    return min(limits)


def refusal(gpu: Gpu, threads: int, shared_bytes: int, registers: int | None = None) -> str | None:
    """Why not even one such block fits on the GPU, or None."""
    if not 0 < threads <= MAX_THREADS:
        return f"{threads} threads per block: a block has 1 to {MAX_THREADS}"
    if shared_bytes > gpu.shared_bytes_block:
        return (
            f"{shared_bytes} bytes of shared memory per block: {gpu.name} has "
            f"{gpu.shared_bytes_block}"
        )
    if registers is not None and occupancy(gpu, threads, registers, shared_bytes) == 0:
        return f"{threads} threads of {registers} registers: an SM has {SM_REGISTERS}"
    return None


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
