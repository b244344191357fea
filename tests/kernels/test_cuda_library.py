"""Kernels of a CUDA graph that a library runs: as text, in the simulator, predicted."""

from __future__ import annotations

import ast

import numpy as np
import pytest
from kernels.cases import CONTRACTIONS, GRAM
from kernels.legal import mugraph
from kernels.library_products import DTYPES, SIZES, ffn, given_for, product, put, torch_module
from kernels.programs import MATMUL, random_arguments
from kernels.several import mu_of
from kernels.simulated import SHARED_LIMIT, assert_computes, launched
from kernels.test_cpu_library import FFN, of_the_library

from prism.errors import KernelError
from prism_kernels.cuda.devices import ARCHS, LIBRARY_MMA_SM
from prism_kernels.cuda.emit import emit
from prism_kernels.cuda.product import read_product
from prism_kernels.cuda.target import OfflineTarget
from prism_kernels.lockstep import FaultKind, LockstepFault, simulate

pytestmark = pytest.mark.usefixtures("fresh_torch")


# --- in the simulator


@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_products_of_any_layout_are_right_in_the_simulator(layout, rng):
    mu = product(layout)
    for dtype in DTYPES:
        assert_computes(mu, random_arguments(mu.graph.program, dict(mu.sizes), rng), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_library_kernels_and_ours_take_turns(dtype, rng):
    mu = mu_of(FFN, SIZES, {}, {"x": 3}, {})
    assert_computes(mu, random_arguments(FFN.program, SIZES, rng), dtype)


def test_one_argument_may_be_both_operands(rng):
    mu = of_the_library(mugraph(GRAM, {"n": 5, "d": 7}))
    assert_computes(mu, random_arguments(GRAM, {"n": 5, "d": 7}, rng), "float16")


def test_what_lies_between_kernels_is_not_rounded_to_half():
    """300 rounds to 300.0 and 0.01 to something else, in bfloat16; their sum to 300."""
    mu = mu_of(FFN, {"n": 1, "d": 2, "f": 1, "h": 1}, {}, {"x": 1}, {})
    x, w = np.array([[1, 1]], np.float32), np.array([[300], [0.0625]], np.float32)
    u, down = np.array([[1], [0]], np.float32), np.array([[1]], np.float32)
    source = emit(mu, "bfloat16", SHARED_LIMIT, "lockstep")
    (out,) = launched(source.text, source.meta, (x, w, u, down))
    assert out.item() == 300  # rounded once, at the end
    (entry,) = [e for e in source.meta["launches"] if e["kernel"] == "kernel0"]
    assert entry["parameters"] == ["bfloat16", "bfloat16", "float32"]


def test_the_file_shows_the_call_and_reads_back():
    source = ffn("float16")
    assert "    # t0[n, f] = x[n, d] w[d, f], summed over d.\n    matmul(" in source.text
    assert "matrices(in_w, rows=[(61, 43)], columns=[(43, 1)])" in source.text
    assert ["library" in launch for launch in source.meta["launches"]] == [True, False, True]
    found = read_product(source.text, "kernel2")
    assert found.sizes == (1, 7, 37, 43)
    assert [m.parameter for m in found.operands] == [2, 0, 1]


def test_a_result_is_rounded_to_the_nearest_of_its_type():
    mu = of_the_library(mugraph(MATMUL, {"n": 1, "d": 2, "h": 1}))
    source = emit(mu, "bfloat16", SHARED_LIMIT, "lockstep")
    numbers = np.ones((1, 2), np.float32), np.array([[1], [0.75 / 128]], np.float32)
    (out,) = launched(source.text, source.meta, numbers)
    assert out.item() == 1 + 1 / 128


CHANGED = {
    "two calls": ("    )\n", "    )\n    matmul()\n", "one call of matmul"),
    "a computed axis": ("(61, 43)", "(60 + 1, 43)", "literal"),
    "a negative stride": ("(61, 43)", "(61, -43)", "an extent and a stride"),
    "depths that differ": ("(61, 43)", "(60, 43)", "do not make"),
    "an unknown array": ("matrices(in_w", "matrices(in_v", "PARAMETER"),
    "an unknown group": ("rows=[(61", "lines=[(61", "PARAMETER"),
    "another function": ("matmul(", "multiply(", "one call of matmul"),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_call_that_was_changed_is_refused(change):
    old, new, words = CHANGED[change]
    source = ffn()
    assert old in source.text
    with pytest.raises(KernelError, match=words):
        read_product(source.text.replace(old, new, 1), "kernel0")


FAULTS = {
    "out of bounds": ("(61, 43)", "(61, 44)", FaultKind.OUT_OF_BOUNDS),
    "into an argument": ("out=matrices(mid_t0", "out=matrices(in_x", FaultKind.INPUT_WRITE),
    "twice into one": ("[(7, 43)], columns=[(43, 1)]", "[(7, 1)], columns=[(43, 1)]",
                       FaultKind.RACE),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_the_simulator_finds_what_a_product_does_wrong(fault, rng):
    old, new, kind = FAULTS[fault]
    source = ffn()
    assert old in source.text
    arguments = given_for(mu_of(FFN, SIZES, {}, {"x": 3}, {}), "float32", rng)
    with pytest.raises(LockstepFault) as caught:
        launched(source.text.replace(old, new, 1), source.meta, arguments)
    assert caught.value.fault.kind is kind
    assert "line " in str(caught.value)


def test_a_product_of_what_no_kernel_has_written_yet_is_a_fault(rng):
    source = ffn()
    first, second, third = source.meta["launches"]
    swapped = {**source.meta, "launches": [first, third, second]}
    arguments = given_for(mu_of(FFN, SIZES, {}, {"x": 3}, {}), "float32", rng)
    with pytest.raises(LockstepFault, match=r"reads mid_t1\[0\], which nobody has written"):
        launched(source.text, swapped, arguments)


def test_the_simulator_counts_what_a_product_touches(rng):
    mu = product("result transposed")
    source = emit(mu, "float32", SHARED_LIMIT, "lockstep")
    outputs = [np.empty(o["shape"], np.float32) for o in source.meta["outputs"]]
    counted = simulate(source.text, source.meta, given_for(mu, "float32", rng), outputs)
    assert counted.global_loads == {"in_p": 9 * 50, "in_q": 50 * 21, "out0": 0}
    assert counted.global_stores["out0"] == 9 * 21


def test_an_emitted_file_with_a_product_is_python():
    ast.parse(ffn().text)


# --- predicted


def test_every_architecture_has_a_rate_for_the_library():
    assert set(LIBRARY_MMA_SM) == set(ARCHS)


@pytest.mark.parametrize("name", ["sm_80", "sm_90", "h200"])
def test_the_library_is_predicted_to_win_where_rows_are_many_only(name):
    target = OfflineTarget(name)

    def seconds(rows, dtype, **counts):
        sizes = {"n": rows, "d": 4096, "h": 4096}
        ours = mugraph(MATMUL, sizes, {"x": "h", "y": "n"}, "d", counts)
        alone = of_the_library(mugraph(MATMUL, sizes))
        return target.estimate(ours, dtype), target.estimate(alone, dtype)

    ours, library = seconds(8, "float16", x=128, y=1, i=8)
    assert ours < 2 * library
    ours, library = seconds(4096, "float16", x=32, y=32, i=64)
    assert library < ours
    peak = 2 * 4096**3 / (2 * LIBRARY_MMA_SM[target._gpu.arch] * target._gpu.sms
                          * target._gpu.clock_ghz * 1e9)  # fmt: skip
    assert peak < library < 2 * peak
    _, in_float32 = seconds(4096, "float32", x=32, y=32, i=64)
    assert in_float32 > 4 * library


def test_copies_of_another_type_cost_time():
    target = OfflineTarget("sm_90")
    mu = mu_of(FFN, {"n": 2048, "d": 2048, "f": 2048, "h": 2048}, {}, {"x": 32}, {})
    first, _, last = (launch["work"] for launch in target.emit(mu, "float16").meta["launches"])
    assert (first["on_tensor_cores"], first["launches"]) == (True, 1)
    assert (last["on_tensor_cores"], last["launches"]) == (False, 3)


def test_a_library_alone_has_no_options_of_ours():
    target = OfflineTarget("sm_90")
    mu = product("result transposed")
    assert target.schedules(mu.graph, dict(mu.sizes)) == {}
    assert set(target.schedules(FFN, SIZES)) == {"T", "S", "C"}


@pytest.mark.usefixtures("cuda_extra")
def test_a_kernel_for_another_machine_is_predicted_with_its_library(tmp_path):
    target = OfflineTarget("sm_90")
    for mu in (mu_of(FFN, SIZES, {}, {"x": 3}, {}), product("result transposed")):
        source = target.emit(mu, "float16")
        path = tmp_path / "kernel.py"
        path.write_text(source.text, encoding="utf-8")
        kernel = target.load(path, source.meta)
        assert kernel.facts["library"] == "torch"
        assert kernel.predicted_s == pytest.approx(target.estimate(mu, "float16"), rel=0.5)
        assert ("registers" in kernel.facts) == (len(mu.graph.kernels) > 1)


def test_the_simulator_checks_a_graph_that_a_library_has_a_part_in(monkeypatch, rng):
    put(monkeypatch, torch_module())
    sizes = {"n": 512, "d": 1024, "f": 2048, "h": 512}
    found = OfflineTarget("sm_90").rehearsal(mu_of(FFN, sizes, {}, {"x": 64}, {}), "float16")
    assert [kernel.library for kernel in found.mu.graph.kernels] == [True, False, True]
    arguments = random_arguments(FFN.program, dict(found.mu.sizes), rng)
    assert_computes(found.mu, arguments, "float16")
