"""Contractions of few rows by tensor cores: right at all sizes, and what is wrong is caught."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from kernels.cases import CONTRACTIONS, RMSNORM_FORMS, contraction
from kernels.legal import mugraph, random_mugraph
from kernels.programs import (
    ATTENTION,
    LINEAR,
    MATMUL,
    RMSNORM,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX_MATMUL,
    random_arguments,
)
from kernels.simulated import SHARED_LIMIT, assert_computes, launched, rounded, simulated

from prism.ir import evaluate
from prism_kernels.cuda import contraction as contraction_plan
from prism_kernels.cuda.contraction import plan_contraction
from prism_kernels.cuda.emit import emit, plan_kernels
from prism_kernels.cuda.operands import Operand, Problem
from prism_kernels.cuda.stream import MOST_TOTALS, MOST_WORDS, StreamTiling, stream_tilings
from prism_kernels.lockstep import FaultKind, LockstepFault


def tilings(mu, dtype="float16", **schedule):
    """How the contractions of the only kernel are computed."""
    mu = replace(mu, schedule=tuple({"C": 2, **schedule}.items()))
    (kernel,) = plan_kernels(mu, dtype, SHARED_LIMIT).kernels
    return list(kernel.plan.tilings.values())


def assert_streams(mu, arguments, dtype="float16", **schedule):
    """All contractions are left to tensor cores, and computed right."""
    found = tilings(mu, dtype, **schedule)
    assert all(isinstance(t, StreamTiling) for t in found)
    assert_computes(mu, arguments, dtype, **{"C": 2, **schedule})
    return found


SHAPES = {
    "even": (8, 128, 64),
    "one row": (1, 64, 32),
    "few rows": (5, 96, 64),
    "two products of rows": (13, 64, 32),
    "eight products of rows": (60, 32, 32),
    "a ragged depth": (4, 72, 32),
    "less depth than a step": (3, 8, 16),
    "a ragged width": (8, 32, 40),
    "less width than a block": (8, 48, 8),
    "pairs only": (6, 34, 22),
}


@pytest.mark.parametrize("threads", [32, 128])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_are_right_whichever_way_the_matrix_lies(rng, shape, dtype, threads):
    sizes = dict(zip("ndh", SHAPES[shape], strict=True))
    for program in (MATMUL, LINEAR) if shape != "pairs only" else (MATMUL,):
        arguments = random_arguments(program, sizes, rng)
        assert_streams(mugraph(program, sizes), arguments, dtype, T=threads)


@pytest.mark.parametrize("loop", [None, "d"])
@pytest.mark.parametrize("program", [MATMUL, LINEAR, RMSNORM_DIVIDED_LAST], ids=lambda p: p.name)
def test_every_way_to_tile_is_right(rng, monkeypatch, program, loop):
    sizes = {"n": 11, "d": 104, "h": 88}
    mu = mugraph(program, sizes, {}, loop, {"i": 2})
    arguments = random_arguments(program, sizes, rng)
    ways = set()
    for number in Random(3).sample(range(1000), 12):

        def chosen(problem, number=number):
            found = sorted(stream_tilings(problem), key=repr)
            return found[number % len(found)]

        monkeypatch.setattr(contraction_plan, "_cheapest_of_cores", chosen)
        plan_contraction.cache_clear()
        (tiling,) = assert_streams(mu, arguments, T=(32, 64, 128)[number % 3])
        ways.add((tiling.streamed, tiling.is_along, tiling.vector, tiling.blocks, tiling.unroll))
    plan_contraction.cache_clear()
    assert len(ways) > 4


@pytest.mark.parametrize(("x", "i"), [(1, 2), (2, 3), (3, 2)])
@pytest.mark.parametrize("form", RMSNORM_FORMS)
def test_every_form_of_rmsnorm_is_right(rng, form, x, i):
    program, grid, loop, in_body = RMSNORM_FORMS[form]
    sizes = {"n": 6, "d": 112, "h": 80}
    counts = {"x": x, "y": 2, "i": i}
    mu = mugraph(program, sizes, grid, loop, counts, in_body=lambda i: in_body)
    arguments = random_arguments(program, sizes, rng)
    for dtype in ("float16", "bfloat16"):
        assert_computes(mu, arguments, dtype, C=2, T=64)


def test_sums_over_the_loop_stay_in_registers(rng):
    sizes = {"n": 8, "d": 128, "h": 64}
    mu = mugraph(RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": 2, "i": 4})
    (tiling,) = assert_streams(mu, random_arguments(RMSNORM_DIVIDED_LAST, sizes, rng), T=64)
    assert tiling.is_persistent
    assert tiling.is_split


@pytest.mark.parametrize("loop", [None, "l"])
@pytest.mark.parametrize("sizes", [(2, 4, 64, 32, 32), (1, 3, 40, 16, 24), (3, 8, 24, 8, 16)])
def test_attention_streams_keys_and_values(rng, sizes, loop):
    sizes = dict(zip("bglde", sizes, strict=True))
    mu = mugraph(ATTENTION, sizes, {"x": "b"}, loop, {"x": sizes["b"], "i": 2})
    for dtype in ("float16", "bfloat16"):
        found = assert_streams(mu, random_arguments(ATTENTION, sizes, rng), dtype, T=64)
        assert [(t.is_along, t.is_split) for t in found] == [(True, False), (False, True)]


def test_totals_are_rescaled_when_a_range_reference_moves(rng):
    sizes = {"b": 2, "g": 3, "l": 64, "d": 16, "e": 32}
    mu = mugraph(ATTENTION, sizes, {"x": "b"}, "l", {"x": 2, "i": 4})
    assert tilings(mu, T=64)[1].is_persistent
    arguments = random_arguments(ATTENTION, sizes, rng)
    growing = arguments[1] * np.linspace(0.1, 20, 64)[None, :, None]
    assert_streams(mu, (arguments[0], growing, arguments[2]), T=64)


@pytest.mark.parametrize(("loop", "count"), [(None, 1), ("k", 3)])
@pytest.mark.parametrize(
    "layout",
    [
        "both operands stored along k last, batch first",
        "k is the slow axis of both",
        "result transposed",
        "two dims of rows and columns",
        "result interleaved",
    ],
)
def test_contractions_of_several_dims_are_right(rng, layout, loop, count):
    program = contraction(layout)
    sizes = {"b": 2, "n": 3, "m": 24, "c": 8, "k": 48}
    sizes = {d: s for d, s in sizes.items() if d in program.size_names}
    mu = mugraph(program, sizes, {}, loop, {"i": count})
    assert_streams(mu, random_arguments(program, sizes, rng), T=64)


def test_both_operands_may_be_read_of_one_argument_and_from_shared_memory(rng):
    sizes = {"n": 8, "d": 64, "h": 64}
    mu = mugraph(RMSNORM, sizes, {"x": "h"}, None, {"x": 2})
    arguments = random_arguments(RMSNORM, sizes, rng)
    for limit in (64, SHARED_LIMIT):
        assert_computes(mu, arguments, "float16", C=2, shared_limit=limit)


def test_rows_that_half_precision_does_not_hold_are_multiplied_as_they_are(rng):
    sizes = {"n": 4, "d": 64, "h": 32}
    mu = mugraph(RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": 2, "i": 2})
    x, g, w = random_arguments(RMSNORM_DIVIDED_LAST, sizes, rng)
    for large, small in ((1e4, 30), (1e-3, 1e-2)):  # products of up to 1e6, and of 1e-5
        assert_streams(mu, (x * large, g * small, w), tolerance=1e-3)


def test_infinities_and_nan_stay_where_they_are(rng):
    sizes = {"n": 3, "d": 40, "h": 32}
    x, w = rounded(random_arguments(MATMUL, sizes, rng), "float16")
    x[0, 39], w[39, 5], w[38, 6] = np.inf, np.inf, np.nan
    (out,) = simulated(mugraph(MATMUL, sizes), (x, w), "float16", C=2)
    (expected,) = evaluate(MATMUL, {"x": x, "w": w})
    np.testing.assert_array_equal(np.isnan(out), np.isnan(expected))
    np.testing.assert_array_equal(np.isinf(out), np.isinf(expected))


@pytest.mark.parametrize("seed", range(16))
def test_random_graphs_are_right_where_tensor_cores_do_what_they_can(seed):
    random = Random(seed)
    layouts = [contraction(layout) for layout in CONTRACTIONS]
    program = random.choice([RMSNORM, RMSNORM_DIVIDED_LAST, SOFTMAX_MATMUL, ATTENTION, *layouts])
    extents = (1, 3, 8, 16, 24, 34, 40)
    sizes = {d: random.choice(extents) for d in program.size_names}
    mu = random_mugraph(program, sizes, seed)
    arguments = random_arguments(program, sizes, np.random.default_rng(seed))
    options = {"T": random.choice((32, 64, 128)), "C": random.choice((2, 3))}
    for dtype in ("float16", "bfloat16"):
        assert_computes(mu, arguments, dtype, seed=seed, **options)


# -- which are chosen


def problem(rows, depth, width, dtype="float16", threads=128, **options):
    left = Operand((("n", depth), ("d", 1)), is_global=True, element_bytes=2, is_stageable=True,
                   dtype=dtype, is_exact=True, near="d", run=8)  # fmt: skip
    right = Operand((("d", width), ("h", 1)), is_global=True, element_bytes=2, is_stageable=True,
                    dtype=dtype, is_exact=True, near="h", run=8)  # fmt: skip
    extents = (("n", rows), ("d", depth), ("h", width))
    return Problem(
        extents, "d", left, right, 1, is_sum=False, threads=threads, staging=0, **options
    )


@pytest.mark.parametrize("rows", [1, 8, 16])
def test_tensor_cores_are_chosen_for_few_rows(rows):
    assert isinstance(plan_contraction(problem(rows, 4096, 64)), StreamTiling)
    assert not isinstance(plan_contraction(problem(rows, 4096, 64, cores=1)), StreamTiling)
    assert not isinstance(plan_contraction(problem(rows, 4096, 64, "float32")), StreamTiling)


@pytest.mark.parametrize("shape", [(1, 16, 16), (8, 4096, 32), (16, 512, 1000), (64, 64, 64)])
@pytest.mark.parametrize("threads", [32, 128, 512])
def test_tilings_keep_their_limits(shape, threads):
    found = list(stream_tilings(problem(*shape, threads=threads)))
    assert found
    for tiling in found:
        assert tiling.results <= MOST_TOTALS
        assert tiling.unroll * tiling.blocks * tiling.fetches * tiling.words <= MOST_WORDS
        assert tiling.wide_warps * tiling.deep_warps == threads // 32


def test_what_cannot_be_read_in_vectors_is_left_to_threads():
    odd = mugraph(MATMUL, {"n": 4, "d": 31, "h": 31})
    assert not isinstance(tilings(odd)[0], StreamTiling)
    split = mugraph(MATMUL, {"n": 4, "d": 31, "h": 36}, {"x": "h"}, None, {"x": 4})
    assert not isinstance(tilings(split)[0], StreamTiling)
    many = mugraph(MATMUL, {"n": 80, "d": 32, "h": 80})
    assert not isinstance(tilings(many)[0], StreamTiling)


# -- faults

SIZES = {"n": 6, "d": 72, "h": 64}


def kernel_of(program=RMSNORM_DIVIDED_LAST, loop="d", seed=0):
    mu = mugraph(program, SIZES, {"x": "h"}, loop, {"x": 2, "i": 2})
    mu = replace(mu, schedule=(("T", 64), ("C", 2)))
    rng = np.random.default_rng(seed)
    arguments = rounded(random_arguments(program, SIZES, rng), "float16")
    return emit(mu, "float16", SHARED_LIMIT, "lockstep"), arguments


def outcome(source, arguments, text):
    """The fault of a changed text, or how far its result is off."""
    assert text != source.text
    program = RMSNORM_DIVIDED_LAST if len(arguments) == 3 else MATMUL
    names = [a.name for a in program.arguments]
    (expected,) = evaluate(program, dict(zip(names, arguments, strict=True)))
    try:
        (out,) = launched(text, source.meta, arguments)
    except LockstepFault as error:
        return error.fault.kind
    return float(np.abs(out - expected).max() / np.abs(expected).max())


def test_no_barrier_can_be_left_out():
    source, arguments = kernel_of()
    lines = source.text.splitlines(keepends=True)
    places = [k for k, line in enumerate(lines) if line.strip() == "cuda.syncthreads()"]
    assert len(places) >= 4
    found = [outcome(source, arguments, "".join(lines[:k] + lines[k + 1 :])) for k in places]
    faults = [kind for kind in found if kind in {FaultKind.RACE, FaultKind.UNWRITTEN_READ}]
    assert (
        len(faults) >= len(places) - 1
    )  # at some sizes the threads of two steps happen to be the same


def test_every_wrong_fragment_index_is_seen():
    for program, loop in ((MATMUL, None), (RMSNORM_DIVIDED_LAST, "d")):
        source, arguments = kernel_of(program, loop)
        body = source.text.index("def kernel")
        changed = 0
        for match in re.finditer(
            r"(?m)^ +(mma_|fetch|a\d+\[|b\d+\[(?!u32\(z)).*$", source.text[body:]
        ):
            at = body + match.start()
            line = match.group()
            for old in re.finditer(r"(?<=[\[(+*] )\d+(?=[\])])|(?<=[\[(])\d+(?=[\])])", line):
                new = line[: old.start()] + str(int(old.group()) + 1) + line[old.end() :]
                text = source.text[:at] + new + source.text[at + len(line) :]
                found = outcome(source, arguments, text)
                assert isinstance(found, FaultKind) or found > 1e-2 or np.isnan(found), new
                changed += 1
        assert changed > 5


def test_a_product_that_some_lanes_miss_is_divergent():
    source, arguments = kernel_of()
    text = re.sub(r"^( +)(mma_.*)$", r"\1if tid != 3:\n\1    \2", source.text, flags=re.MULTILINE)
    assert outcome(source, arguments, text) is FaultKind.DIVERGENT_COLLECTIVE


@pytest.mark.parametrize("end", ["if i_d < ", "if i_h < ", "if i_n < "])
def test_no_end_of_an_axis_can_be_left_out(end):
    mu = mugraph(MATMUL, {"n": 6, "d": 40, "h": 40})
    mu = replace(mu, schedule=(("T", 64), ("C", 2)))
    source = emit(mu, "float16", SHARED_LIMIT, "lockstep")
    rng = np.random.default_rng(0)
    arguments = rounded(random_arguments(MATMUL, {"n": 6, "d": 40, "h": 40}, rng), "float16")
    text = re.sub(rf"{end}\d+", "if tid < 1000", source.text)
    if text == source.text:
        text = re.sub(r" and i_[nh] < \d+", "", source.text)
    found = outcome(source, arguments, text)
    assert isinstance(found, FaultKind) or found > 1e-2
