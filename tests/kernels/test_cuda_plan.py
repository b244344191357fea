"""How CUDA kernels are planned: shares of threads, tilings, memory, barriers, predictions."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from kernels.cases import OUTPUTS, contraction
from kernels.legal import mugraph
from kernels.programs import (
    ATTENTION,
    LINEAR,
    MATMUL,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX_MATMUL,
    STABLE_SOFTMAX,
)

from prism.errors import KernelError
from prism_kernels.cuda import cost
from prism_kernels.cuda.contraction import MOST_PERSISTENT, Operand, Problem, plan_contraction
from prism_kernels.cuda.devices import GPUS
from prism_kernels.cuda.emit import emit, plan_kernels
from prism_kernels.cuda.layout import Layout, Share, deal, deal_reduction
from prism_kernels.cuda.memory import accesses_of, lives_of
from prism_kernels.tile import Axis

LIMIT = 99 << 10


def planned(mu, dtype="float32", limit=LIMIT, **schedule):
    planned = plan_kernels(replace(mu, schedule=tuple(schedule.items())), dtype, limit)
    (kernel,) = planned.kernels
    return kernel.plan, kernel.schedule


# -- layouts


@pytest.mark.parametrize("threads", [32, 128, 512])
@pytest.mark.parametrize("extents", [(1, 1), (3, 50), (50, 3), (64, 64), (1000, 1), (7, 129)])
def test_every_element_of_a_space_has_exactly_one_thread(threads, extents):
    sizes = dict(zip("ab", extents, strict=True))
    axes = [Axis("a"), Axis("b")]
    for layout in (
        deal(axes, sizes, threads),
        deal(axes[::-1], sizes, threads),
        deal_reduction(axes, axes[0], sizes, threads),
        deal_reduction(axes, axes[1], sizes, threads),
    ):
        assert layout.used <= threads
        seen = [
            tuple(
                c + j * layout[d].threads for d, c, j in zip("ab", coordinates, passes, strict=True)
            )
            for t in range(layout.used)
            for coordinates in [tuple((t >> layout[d].shift) % layout[d].threads for d in "ab")]
            for passes in [
                (j, k)
                for j in range(layout.passes("a", sizes["a"]))
                for k in range(layout.passes("b", sizes["b"]))
            ]
        ]
        within = [p for p in seen if p[0] < sizes["a"] and p[1] < sizes["b"]]
        assert len(within) == len(set(within)) == math.prod(extents)


def test_the_first_axis_has_the_lanes():
    layout = deal([Axis("b"), Axis("a")], {"a": 8, "b": 64}, 128)
    assert layout["b"] == Share(64, 0)
    assert layout["a"] == Share(2, 6)


def test_a_reduction_along_the_contiguous_axis_stays_in_a_warp_if_there_are_rows_enough():
    layout = deal_reduction([Axis("d"), Axis("n")], Axis("d"), {"n": 8, "d": 4096}, 128)
    assert layout["d"].warps == 1
    assert deal_reduction([Axis("d")], Axis("d"), {"d": 4096}, 128)["d"].warps == 4


def test_shares_know_their_lanes_and_warps():
    layout = Layout.of([("a", 8), ("b", 16), ("c", 4)])
    assert [(layout[d].lanes, layout[d].warps) for d in "abc"] == [(8, 1), (4, 4), (1, 4)]


# -- tilings


def problem(n, k, m, *, iterations=1, staging=0, threads=128, transposed=False):
    stride = {"m": k, "k": 1} if transposed else {"k": m, "m": 1}
    left = Operand((("n", k), ("k", 1)), is_global=False, element_bytes=4, is_stageable=False)
    right = Operand(tuple(stride.items()), is_global=True, element_bytes=4, is_stageable=True)
    extents = (("n", n), ("k", k), ("m", m))
    return Problem(
        extents, "k", left, right, iterations, iterations > 1, threads, staging
    )  # fmt: skip


def test_a_streamed_matrix_is_read_along_its_rows():
    assert next(iter(plan_contraction(problem(8, 64, 64)).layout.shares))[0] == "m"
    rows = plan_contraction(problem(8, 64, 64, transposed=True, staging=1)).layout
    assert next(iter(rows.shares))[0] == "k"


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (8, 64, 64), (64, 32, 64), (3, 1000, 7), (128, 64, 128)]
)
@pytest.mark.parametrize("threads", [32, 128, 512])
def test_tilings_keep_their_limits(shape, threads):
    for iterations in (1, 10):
        tiling = plan_contraction(problem(*shape, iterations=iterations, threads=threads))
        assert tiling.layout.used <= threads
        assert tiling.results <= MOST_PERSISTENT
        if tiling.is_persistent:
            assert all(
                tiling.tile[d] == tiling.layout.passes(d, s)
                for d, s in zip("nm", (shape[0], shape[2]), strict=True)
            )


def test_few_rows_leave_the_matrix_where_it_is_and_many_stage_it():
    assert not plan_contraction(problem(4, 64, 64)).staged[1]
    assert plan_contraction(problem(64, 64, 64)).staged[1]
    assert not plan_contraction(problem(64, 64, 64, staging=1)).staged[1]


# -- memory


@pytest.mark.parametrize(
    ("program", "grid", "loop"),
    [
        (RMSNORM_DIVIDED_LAST, {"x": "h"}, "d"),
        (SOFTMAX_MATMUL, {"x": "n"}, "d"),
        (ATTENTION, {"x": "b"}, "l"),
        (OUTPUTS, {"x": "h"}, "n"),
        (STABLE_SOFTMAX, {}, None),
    ],
)
@pytest.mark.parametrize("limit", [64, 4096, LIMIT])
def test_buffers_that_are_alive_together_never_overlap(program, grid, loop, limit):
    sizes = dict.fromkeys(program.size_names, 16)
    plan, schedule = planned(mugraph(program, sizes, grid, loop, {"x": 2, "i": 4}), limit=limit)
    assert 4 * schedule.shared_elements <= limit
    lives = lives_of(accesses_of(plan, schedule.steps))
    for a in lives:
        for b in lives:
            one, other = schedule.addresses[a], schedule.addresses[b]
            together = lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]
            if a < b and one.is_shared == other.is_shared and together:
                assert (
                    one.offset + plan.buffers[a] <= other.offset
                    or other.offset + plan.buffers[b] <= one.offset
                )


def test_what_shared_memory_cannot_hold_lies_in_the_workspace():
    mu = mugraph(STABLE_SOFTMAX, {"n": 4, "d": 100}, {"x": "n"}, None, {"x": 2})
    assert planned(mu)[1].workspace_elements == 0
    assert planned(mu, limit=64)[1].workspace_elements > 0
    assert emit(mu, "float16", 64, "lockstep").meta["launches"][0]["parameters"][-1] == "float32"


def test_what_a_gpu_cannot_index_or_hold_is_refused():
    huge = mugraph(MATMUL, {"n": 1 << 17, "d": 1 << 16, "h": 8}, {"x": "n"}, None, {"x": 1024})
    with pytest.raises(KernelError, match="32-bit indices overflow"):
        planned(huge)
    whole = mugraph(STABLE_SOFTMAX, {"n": 1 << 15, "d": 1 << 15})
    with pytest.raises(KernelError, match="shared memory takes"):
        planned(whole)
    with pytest.raises(KernelError, match="not float64"):
        planned(mugraph(MATMUL, {"n": 2, "d": 2, "h": 2}), dtype="float64")


# -- source


def test_loops_stay_loops_and_there_is_one_shared_buffer():
    mu = mugraph(RMSNORM_DIVIDED_LAST, {"n": 8, "d": 4096, "h": 4096}, {"x": "h"}, "d",
                 {"x": 64, "i": 32})  # fmt: skip
    text = emit(mu, "float16", LIMIT, "sm_90").text
    assert text.count("cuda.shared.array(0, f32, alignment=16)") == 1
    assert len(text[text.index("def kernel") :].splitlines()) < 150


def test_the_same_graph_gives_the_same_text():
    mu = mugraph(contraction("result interleaved"), dict.fromkeys("bnmck", 6), {}, "k", {"i": 2})
    assert emit(mu, "float32", LIMIT, "sm_80").text == emit(mu, "float32", LIMIT, "sm_80").text


def test_a_rmsnorm_kernel_looks_as_it_did(golden):
    mu = mugraph(RMSNORM_DIVIDED_LAST, {"n": 8, "d": 1024, "h": 1000}, {"x": "h"}, "d",
                 {"x": 16, "i": 8})  # fmt: skip
    text = emit(mu, "float16", LIMIT, "sm_90").text
    golden("kernels/cuda_rmsnorm", text[text.index("def kernel") :])


# -- predictions


def predicted(mu, dtype="float16", gpu="sm_90", **schedule):
    return cost.seconds(cost.work_of(*planned(mu, dtype, **schedule)), GPUS[gpu])


def rmsnorm(x, i, n=8):
    sizes = {"n": n, "d": 4096, "h": 4096}
    return mugraph(RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": x, "i": i})


def test_no_kernel_is_predicted_to_beat_the_memory():
    for gpu in ("sm_80", "sm_90", "h200"):
        floor = 2 * 4096 * 4096 / (GPUS[gpu].dram_gbps * 1e9)
        assert predicted(rmsnorm(128, 8), gpu=gpu, T=256) > floor


def test_filling_the_gpu_is_predicted_to_pay():
    assert predicted(rmsnorm(128, 8)) < predicted(rmsnorm(16, 8)) < predicted(rmsnorm(1, 8))


def test_more_memory_bandwidth_is_predicted_to_pay_where_memory_is_what_is_short():
    mu = mugraph(LINEAR, {"n": 1, "d": 8192, "h": 8192}, {"x": "h"}, None, {"x": 2048})
    assert predicted(mu, gpu="h200", T=128) < predicted(mu, gpu="sm_90", T=128)


def test_registers_that_halve_the_occupancy_are_predicted_to_cost():
    work = cost.work_of(*planned(rmsnorm(512, 8), "float16", T=128))
    assert cost.seconds(work, GPUS["sm_90"], 32) < cost.seconds(work, GPUS["sm_90"], 255)
