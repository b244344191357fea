"""What a kernel is charged for: sectors, warps' accesses, the workspace, launches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernels.legal import mugraph
from kernels.programs import MATMUL, RMSNORM_DIVIDED_LAST, STABLE_SOFTMAX
from kernels.test_cuda_vectors import array, tile_program

from prism_kernels.cuda import cost
from prism_kernels.cuda.devices import GPUS
from prism_kernels.cuda.emit import plan_kernels
from prism_kernels.cuda.layout import Layout
from prism_kernels.cuda.traffic import tile_sectors, warp_sectors
from prism_kernels.tile import Axis, GridDim

LIMIT = 99 << 10
SIZES = {"n": 8, "d": 1024}
H100 = GPUS["sm_90"]


def works(mu, dtype="float16", limit=LIMIT, **schedule):
    mu = replace(mu, schedule=tuple(schedule.items()))
    return [kernel.work() for kernel in plan_kernels(mu, dtype, limit).kernels]


@pytest.mark.parametrize(
    ("blocks", "sectors"),
    [
        (1, 8 * 1024 * 2 / 32),  # all of it
        (16, 8 * 64 * 2 / 32),  # rows of 128 bytes
        (64, 8),  # rows of 32 bytes
        (256, 8 * (8 + 30) / 32),  # 8 bytes, which may lie across a boundary
        (1024, 8),  # 2 bytes, for which a sector is moved
    ],
)
def test_a_tile_is_moved_in_whole_sectors(blocks, sectors):
    program = tile_program(SIZES, (GridDim("x", blocks, "d", 1024 // blocks),))
    axes = [Axis("n"), Axis("d", "x")]
    assert tile_sectors(program, axes, array(SIZES)) == pytest.approx(sectors)


def test_rows_that_follow_each_other_are_one_run():
    sizes = {"n": 64, "d": 3}
    program = tile_program(sizes, (GridDim("x", 4, "n", 16),))
    assert tile_sectors(program, [Axis("n", "x"), Axis("d")], array(sizes)) == 3


@pytest.mark.parametrize(
    ("threads", "width", "sectors"),
    [
        ([("d", 32)], 1, 2),  # 32 halves in a row
        ([("d", 32)], 8, 16),  # 16 bytes each
        ([("n", 8), ("d", 4)], 1, 8),  # 8 rows
        ([("d", 4), ("n", 8)], 8, 16),  # 64 bytes of each of 8 rows
        ([("n", 32)], 1, 8),  # there are 8 rows only
        ([("k", 32)], 1, 1),  # all lanes read one element
    ],
)
def test_lanes_that_lie_apart_touch_sectors_of_their_own(threads, width, sectors):
    layout = Layout.of(threads).widened("d", width)
    axes, chunks = [Axis("n"), Axis("d")], {**SIZES, "k": 32}
    assert warp_sectors(array(SIZES), axes, layout, chunks) == sectors


def test_reading_along_columns_is_predicted_to_cost():
    def seconds(loop, x):
        mu = mugraph(MATMUL, {"n": 8, "d": 4096, "h": 4096}, {"x": "h"}, loop, {"x": x, "i": 8})
        return sum(cost.seconds(work, H100) for work in works(mu, T=128, C=1, S=1))

    assert seconds("d", 2048) > seconds("d", 128)  # columns of 4 bytes


def test_what_lies_in_the_workspace_is_charged():
    mu = mugraph(STABLE_SOFTMAX, {"n": 4, "d": 4096}, {"x": "n"}, None, {"x": 2})
    (inside,), (outside,) = works(mu, "float32"), works(mu, "float32", limit=1024)
    assert inside.kept_bytes_total == inside.kept_footprint == 0
    # each block writes its 2 x 4096 numbers and reads them again, at least
    assert outside.l2_bytes - inside.l2_bytes >= 2 * 4 * 2 * 4096
    assert outside.kept_bytes_total >= 1.99 * outside.kept_footprint
    assert cost.seconds(outside, H100) > cost.seconds(inside, H100)


def test_what_the_cache_cannot_keep_goes_to_memory():
    (work,) = works(mugraph(RMSNORM_DIVIDED_LAST, {"n": 8, "d": 1024, "h": 1024}, {"x": "h"}, "d",
                            {"x": 64, "i": 4}))  # fmt: skip
    small = replace(work, kept_bytes_total=1e6, kept_footprint=1e6)
    large = replace(work, kept_bytes_total=1e9, kept_footprint=1e9)
    assert cost.seconds(small, H100) == cost.seconds(work, H100)
    moved = (1.0 - cost.L2_ROOM * H100.l2_bytes / 1e9) * 1e9 / (H100.dram_gbps * 1e9)
    assert cost.seconds(large, H100) > moved


@pytest.mark.parametrize("name", GPUS)
def test_no_launch_is_free(name):
    (work,) = works(mugraph(MATMUL, {"n": 1, "d": 1, "h": 1}))
    assert 2e-6 <= GPUS[name].launch_s <= 5e-6
    assert cost.seconds(work, GPUS[name]) > GPUS[name].launch_s
