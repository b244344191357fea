"""Barriers stand where they are needed: without one of them there is a race, or a wrong order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import stacked
from kernels.legal import mugraph
from kernels.programs import (
    RMSNORM,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX_MATMUL,
    STABLE_SOFTMAX,
    random_arguments,
)
from kernels.several import ATTENTION, bare, mu_of
from kernels.simulated import SHARED_LIMIT, launched, rounded

from prism.ir import all_sizes
from prism_kernels.cuda.emit import emit, plan_kernels
from prism_kernels.cuda.layout import Layout, Share
from prism_kernels.cuda.memory import ALIGN, MOST_APART, _allocate, accesses_of, lives_of
from prism_kernels.lockstep import LockstepFault

BARRIER = "cuda.syncthreads()"
SIZES = {"n": 4, "d": 24, "h": 16}
FLASH_DECODING, FLASH_COUNTS = ATTENTION["one pass"]

KERNELS = {
    "rmsnorm in a loop": mugraph(RMSNORM_DIVIDED_LAST, SIZES, {"x": "h"}, "d", {"x": 2, "i": 3}),
    "rmsnorm": mugraph(RMSNORM, SIZES, {"x": "h"}, None, {"x": 2}),
    "a loop of one iteration": mugraph(RMSNORM_DIVIDED_LAST, SIZES, {}, "d", {"i": 1}),
    "softmax": mugraph(STABLE_SOFTMAX, SIZES, {"x": "n"}, None, {"x": 2}),
    "online softmax": mugraph(SOFTMAX_MATMUL, SIZES, {"x": "n"}, "d", {"x": 4, "i": 3}),
    "flash decoding": mu_of(
        stacked.graph(bare, FLASH_DECODING), {"q": 5, "e": 8, "k": 24, "f": 16}, *FLASH_COUNTS
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_no_barrier_can_be_left_out(name):
    mu = KERNELS[name]
    mu = replace(mu, schedule=(("T", 64),))
    source = emit(mu, "float16", SHARED_LIMIT, "lockstep")
    given = random_arguments(mu.graph.program, all_sizes(mu), np.random.default_rng(0))
    given = rounded(given, "float16")
    launched(source.text, source.meta, given)
    lines = source.text.splitlines()
    barriers = [k for k, line in enumerate(lines) if BARRIER in line]
    needless = []
    for k in barriers:
        text = "\n".join([*lines[:k], *lines[k + 1 :]])
        try:
            launched(text, source.meta, given)
        except LockstepFault:
            continue
        needless.append(k + 1)
    assert not needless, [lines[k : k + 2] for k in needless]


def test_shares_that_deal_an_axis_in_the_same_way_are_equal():
    assert Share(16, 2).within(4) == Share(4, 2)
    assert Share(16, 2).within(3) == Share(4, 2)
    assert Share(16, 2).within(1) == Share()
    assert Share(16, 2, width=8).within(8) == Share()
    assert Share(16, 2, width=4).within(8) == Share(2, 2, width=4)
    assert Share(4, 2).within(64) == Share(4, 2)


@pytest.mark.parametrize("extent", [1, 7, 8, 9, 64, 100])
@pytest.mark.parametrize("share", [Share(1), Share(8), Share(8, 3, 2), Share(4, 0, 8)])
def test_the_least_share_gives_every_element_the_same_thread(share, extent):
    def thread(share, element):
        return (element // share.width % share.threads) << share.shift

    least = share.within(extent)
    assert all(thread(share, e) == thread(least, e) for e in range(extent))


def test_widths_make_whole_groups():
    layout = Layout.of([("a", 8), ("b", 4)]).widened("a", 4)
    assert layout.passes("a", 32) == layout.passes("a", 5) == 4
    assert layout.passes("a", 33) == 8
    assert layout.passes("b", 8) == 2
    assert layout.widened("c", 2)["c"] == Share(width=2)


@pytest.mark.parametrize("name", KERNELS)
def test_what_small_buffers_have_to_themselves_is_little(name):
    mu = replace(KERNELS[name], schedule=(("T", 64),))
    for kernel in plan_kernels(mu, "float16", SHARED_LIMIT).kernels:
        lives = lives_of(accesses_of(kernel.plan, kernel.schedule.steps))
        least, _, _ = _allocate(kernel.plan, lives, SHARED_LIMIT)
        shared = max((a.offset + kernel.plan.buffers[n] for n, a in least.items()), default=0)
        assert kernel.schedule.shared_elements <= shared + MOST_APART + ALIGN * len(lives)
