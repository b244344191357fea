"""The GPU table, and occupancy against NVIDIA's calculator."""

from __future__ import annotations

import pytest

from prism.errors import UsageError
from prism_kernels.cuda.devices import ARCHS, GPUS, gpu_named, occupancy, refusal

# (arch, threads, registers, shared bytes) -> resident blocks, as `cuda_occupancy.h` of CUDA 13.0
# computes them (20,000 random blocks agreed)
KNOWN = [
    (("sm_80", 256, 32, 0), 8),  # threads: 2048
    (("sm_86", 256, 32, 0), 6),  # threads: 1536
    (("sm_90", 32, 16, 0), 32),  # blocks
    (("sm_86", 32, 16, 0), 16),
    (("sm_89", 32, 16, 0), 24),
    (("sm_80", 256, 64, 0), 4),  # registers: 65536 / (64 * 256)
    (("sm_80", 256, 65, 0), 3),  # 72 registers after rounding up to 256 per warp
    (("sm_80", 128, 255, 0), 2),
    (("sm_80", 1024, 64, 0), 1),
    (("sm_80", 1024, 65, 0), 0),  # does not launch
    (("sm_80", 96, 168, 0), 4),  # 3 warps per scheduler, 12 in all: a warp each of 4 blocks
    (("sm_80", 128, 32, 48 << 10), 3),  # shared: 3 * 49 KB of 164
    (("sm_80", 128, 32, 40 << 10), 4),  # 4 * 41 KB: exactly all of it
    (("sm_86", 128, 32, 48 << 10), 2),
    (("sm_86", 128, 32, 99 << 10), 1),
    (("sm_90", 128, 32, 227 << 10), 1),
    (("sm_90", 128, 32, (227 << 10) + 1), 0),
]


@pytest.mark.parametrize(("block", "expected"), KNOWN)
def test_occupancy_is_that_of_nvidias_calculator(block, expected):
    arch, threads, registers, shared_bytes = block
    assert occupancy(GPUS[arch], threads, registers, shared_bytes) == expected


@pytest.mark.parametrize(("block", "expected"), KNOWN)
def test_what_does_not_fit_at_all_is_refused_with_a_reason(block, expected):
    arch, threads, registers, shared_bytes = block
    reason = refusal(GPUS[arch], threads, shared_bytes, registers)
    assert (reason is None) == (expected > 0)


def test_refusals_name_the_limit():
    gpu = gpu_named("sm_86")
    assert refusal(gpu, 2048, 0) == "2048 threads per block: a block has 1 to 1024"
    assert refusal(gpu, 0, 0) == "0 threads per block: a block has 1 to 1024"
    assert refusal(gpu, 1024, 99 << 10, 64) is None
    assert refusal(gpu, 128, 200_000) == (
        "200000 bytes of shared memory per block: NVIDIA GeForce RTX 3090 has 101376"
    )
    assert refusal(gpu, 1024, 0, 80) == "1024 threads of 80 registers: an SM has 65536"


def test_peaks_are_those_of_the_data_sheets():
    teraflops = {name: round(gpu.flops / 1e12, 1) for name, gpu in GPUS.items()}
    assert teraflops == {"sm_80": 19.5, "sm_86": 35.6, "sm_89": 91.6, "sm_90": 66.9, "h200": 66.9}


def test_capability_is_the_architectures():
    assert [gpu.capability for gpu in GPUS.values()] == [(8, 0), (8, 6), (8, 9), (9, 0), (9, 0)]
    assert ARCHS == ("sm_80", "sm_86", "sm_89", "sm_90")


def test_a_block_leaves_room_for_what_the_system_reserves():
    for gpu in GPUS.values():
        assert gpu.shared_bytes_block + 1024 == gpu.shared_bytes_sm


def test_an_unknown_gpu_lists_the_known_ones():
    with pytest.raises(UsageError, match="no GPU 'sm_42' is known; there are sm_80, sm_86"):
        gpu_named("sm_42")
