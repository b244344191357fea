"""Contractions of many rows by tensor cores: tiles through a ring in shared memory; its faults."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from kernels.cases import contraction
from kernels.legal import mugraph
from kernels.programs import LINEAR, MATMUL, random_arguments
from kernels.simulated import SHARED_LIMIT, assert_computes, launched, rounded

from prism.errors import KernelError
from prism.ir import evaluate, parse_program
from prism_kernels.cuda import contraction as contraction_plan
from prism_kernels.cuda.contraction import plan_contraction
from prism_kernels.cuda.emit import emit, plan_kernels
from prism_kernels.cuda.operands import Operand, Problem
from prism_kernels.cuda.pipeline import (
    MOST_RING_BYTES,
    MOST_TOTALS,
    PipelineTiling,
    pipeline_tilings,
)
from prism_kernels.cuda.stream import StreamTiling
from prism_kernels.lockstep import FaultKind, LockstepFault

FORMS = {
    "x[n, d] w[d, h]": MATMUL,
    "x[n, d] w[h, d]": LINEAR,
    "x[d, n] w[d, h]": parse_program("""
program turned
  dims n, d, h
  args x[d, n], w[d, h]
  x = input x[d, n]
  w = input w[d, h]
  %2 = matmul[d](x, w)
  return %2[n, h]
"""),
    "x[d, n] w[h, d]": parse_program("""
program both_turned
  dims n, d, h
  args x[d, n], w[h, d]
  x = input x[d, n]
  w = input w[h, d]
  %2 = matmul[d](x, w)
  return %2[n, h]
"""),
}
BIASED = parse_program("""
program biased
  dims n, d, h
  args x[n, d], w[d, h], b[h]
  x = input x[n, d]
  w = input w[d, h]
  b = input b[h]
  %3 = matmul[d](x, w)
  %4 = add(%3, b)
  return %4[n, h]
""")
SHAPES = {
    "whole tiles": (64, 64, 64),
    "a ragged depth": (32, 72, 32),
    "ragged sides": (72, 48, 104),
    "less depth than a step": (40, 16, 48),
}


@pytest.fixture(autouse=True)
def chosen(monkeypatch):
    """Only rings, the one of this number; `chosen(k)` takes another."""

    def choose(number):
        def ring(problem):
            found = sorted(pipeline_tilings(problem), key=repr)
            if number is None:
                return min(found, key=lambda t: t.cost, default=None)
            return found[number % len(found)] if found else None

        monkeypatch.setattr(contraction_plan, "_cheapest_of_cores", ring)
        plan_contraction.cache_clear()

    choose(None)
    yield choose
    plan_contraction.cache_clear()


def tiling_of(mu, dtype="float16", **schedule):
    mu = replace(mu, schedule=tuple({"C": 2, **schedule}.items()))
    (kernel,) = plan_kernels(mu, dtype, SHARED_LIMIT).kernels
    (tiling,) = kernel.plan.tilings.values()
    return tiling


def assert_passes(mu, arguments, dtype="float16", **schedule):
    tiling = tiling_of(mu, dtype, **schedule)
    assert isinstance(tiling, PipelineTiling)
    assert_computes(mu, arguments, dtype, **{"C": 2, **schedule})
    return tiling


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_products_are_right_whichever_way_the_matrices_lie(rng, form, shape):
    program, sizes = FORMS[form], dict(zip("ndh", SHAPES[shape], strict=True))
    mu = mugraph(program, sizes)
    tiling = assert_passes(mu, random_arguments(program, sizes, rng), T=64)
    assert tiling.is_along == ("x[n, d]" in form, "w[h, d]" in form)


@pytest.mark.parametrize("number", Random(5).sample(range(1000), 6))
@pytest.mark.parametrize("form", FORMS)
def test_every_way_to_tile_is_right(rng, chosen, form, number):
    program, sizes = FORMS[form], {"n": 48, "d": 136, "h": 40}
    chosen(number)
    arguments = random_arguments(program, sizes, rng)
    assert_passes(mugraph(program, sizes), arguments, T=(32, 64, 128)[number % 3])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(("loop", "count"), [(None, 1), ("d", 3), ("h", 2), ("n", 2)])
def test_rings_stand_in_loops_and_before_other_work(rng, dtype, loop, count):
    sizes = {"n": 48, "d": 120, "h": 64}
    mu = mugraph(BIASED, sizes, {"x": "h"} if loop != "h" else {}, loop, {"x": 2, "i": count})
    tiling = assert_passes(mu, random_arguments(BIASED, sizes, rng), dtype, T=64)
    assert tiling.is_persistent == (loop == "d")


@pytest.mark.parametrize(
    "layout", ["both operands stored along k last, batch first", "two dims of rows and columns"]
)
def test_batches_pass_one_after_the_other(rng, layout):
    program = contraction(layout)
    sizes = {"b": 2, "n": 32, "m": 32, "c": 8, "k": 32}
    sizes = {d: s for d, s in sizes.items() if d in program.size_names}
    assert_passes(mugraph(program, sizes), random_arguments(program, sizes, rng), T=64)


def test_what_lies_beyond_the_end_of_a_step_is_never_read(rng):
    sizes = {"n": 16, "d": 40, "h": 24}
    x, w = rounded(random_arguments(MATMUL, sizes, rng), "float16")
    x[:, 39], w[39, :] = np.inf, 0.0
    mu = replace(mugraph(MATMUL, sizes), schedule=(("T", 32), ("C", 2)))
    source = emit(mu, "float16", SHARED_LIMIT, "lockstep")
    assert np.isnan(launched(source.text, source.meta, (x, w))[0]).all()
    x[:, 39] = 0.0
    assert np.isfinite(launched(source.text, source.meta, (x, w))[0]).all()


# -- which are chosen


def problem(rows, depth, width, threads=128, run=8):
    left, right = (
        Operand(strides, is_global=True, element_bytes=2, is_stageable=True, dtype="float16",
                is_exact=True, near=near, run=run)
        for strides, near in (((("n", depth), ("d", 1)), "d"), ((("d", width), ("h", 1)), "h"))
    )  # fmt: skip
    extents = (("n", rows), ("d", depth), ("h", width))
    return Problem(extents, "d", left, right, 1, is_sum=False, threads=threads, staging=0)


def test_many_rows_pass_through_a_ring_and_few_stream(monkeypatch):
    monkeypatch.undo()
    plan_contraction.cache_clear()
    assert isinstance(plan_contraction(problem(128, 4096, 128)), PipelineTiling)
    assert isinstance(plan_contraction(problem(8, 4096, 64)), StreamTiling)


@pytest.mark.parametrize("threads", [32, 128, 512])
@pytest.mark.parametrize("shape", [(32, 64, 32), (128, 4096, 128), (1000, 512, 1000)])
def test_tilings_keep_their_limits(shape, threads):
    found = list(pipeline_tilings(problem(*shape, threads=threads)))
    assert found or shape[0] * shape[2] < 8 * threads  # 16 x 16 results of a warp at least
    for tiling in found:
        assert 4 * tiling.ring_elements <= MOST_RING_BYTES
        assert tiling.results <= MOST_TOTALS
        assert np.prod(tiling.warps) * 32 == threads
        assert all(stride % 8 == 4 for stride in tiling.strides)


def test_what_cannot_be_copied_sixteen_bytes_at_a_time_has_no_ring():
    assert not list(pipeline_tilings(problem(128, 4096, 128, run=4)))


def test_a_ring_that_shared_memory_cannot_hold_is_refused():
    mu = replace(mugraph(MATMUL, {"n": 64, "d": 64, "h": 64}), schedule=(("C", 2),))
    with pytest.raises(KernelError, match="of shared memory"):
        plan_kernels(mu, "float16", 2048)


# -- faults

SIZES = {"n": 32, "d": 168, "h": 32}


@pytest.fixture
def changed(chosen):
    """`changed(text)`: what becomes of a kernel of three stages: a fault, or how far it is off."""
    found = sorted(pipeline_tilings(problem(32, 168, 32, 64)), key=repr)
    wanted = ((32, 32), (1, 2), 32, 3)
    number = next(k for k, t in enumerate(found) if (t.tile, t.warps, t.depth, t.stages) == wanted)
    chosen(number)
    mu = replace(mugraph(MATMUL, SIZES), schedule=(("T", 64), ("C", 2)))
    source = emit(mu, "float16", SHARED_LIMIT, "lockstep")
    rng = np.random.default_rng(1)
    arguments = rounded(random_arguments(MATMUL, SIZES, rng), "float16")
    names = [a.name for a in MATMUL.arguments]
    (expected,) = evaluate(MATMUL, dict(zip(names, arguments, strict=True)))

    def run(change, seed=0):
        text = change(source.text)
        try:
            (out,) = launched(text, source.meta, arguments, seed=seed)
        except LockstepFault as error:
            return error.fault.kind
        return float(np.abs(out - expected).max() / np.abs(expected).max())

    assert run(lambda text: text) < 1e-3
    return run


@pytest.mark.parametrize("seed", range(2))
def test_no_wait_and_no_barrier_of_the_ring_can_be_left_out(changed, seed):
    for line in ("cp_wait1()", "cuda.syncthreads()"):
        found = changed(lambda text, line=line: text.replace(line, "tid = tid", 1), seed)
        kinds = {FaultKind.RACE, FaultKind.UNFINISHED_COPY, FaultKind.UNWRITTEN_READ}
        assert found in kinds
    assert changed(lambda text: text.replace("cp_wait1()", "cp_wait2()", 1), seed) in kinds


def test_no_commit_can_be_left_out(changed):
    for count in range(3):

        def without(text, count=count):
            parts = text.split("cp_commit()")
            return (
                "cp_commit()".join(parts[: count + 1])
                + "tid = tid"
                + "cp_commit()".join(parts[count + 1 :])
            )

        assert changed(without) is FaultKind.UNFINISHED_COPY


def test_a_stage_that_is_filled_too_early_is_seen(changed):
    def early(text):
        return re.sub(r"next = u32\(\d+\)", "next = u32(0)", text, count=1)

    assert changed(early) in {FaultKind.RACE, FaultKind.UNFINISHED_COPY}


def test_every_wrong_fragment_or_place_in_the_ring_is_seen(changed):
    count = 0

    found = []

    def noted(text):
        found.extend(re.finditer(r"(?m)^ +(mma_|ldmatrix|cp_async).*$", text))
        return text

    changed(noted)
    for match in found:
        for number in re.finditer(r"(?<![\w.])(?<!& )\d+(?=[ )])", match.group()):
            start = match.start() + number.start()
            old, new = number.group(), str(int(number.group()) + 4)

            def other(text, start=start, old=old, new=new):
                return text[:start] + new + text[start + len(old) :]

            result = changed(other)
            assert isinstance(result, FaultKind) or result > 1e-2, match.group()
            count += 1
    assert count > 20
