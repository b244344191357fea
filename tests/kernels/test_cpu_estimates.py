"""What the CPU target leaves to the tuner and predicts, and the text it emits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kernels.legal import mugraph
from kernels.programs import LINEAR, MATMUL, RMSNORM_DIVIDED_LAST, SOFTMAX

from prism.protocols import Device
from prism_kernels.cpu import device as device_module
from prism_kernels.cpu.emit_file import emit_file
from prism_kernels.cpu.places import plan
from prism_kernels.cpu.registers import Registers
from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cpu.widths import Widths
from prism_kernels.lower import lower

SIZES = {"n": 4, "d": 20, "h": 12}
BIG = {"n": 8, "d": 4096, "h": 4096}
MACHINE = Device("a machine", 2, 512, 32 << 10, 1 << 20, 32 << 20, 34.0)


@pytest.fixture
def machine(monkeypatch):
    """Whatever asks for the machine at hand is told of `MACHINE`, with 32 vector registers."""
    answers = {
        "device": MACHINE,
        "vector_bits": MACHINE.vector_bits,
        "vector_registers": 32,
        "l2_bytes": MACHINE.l2_bytes,
        "l3_bytes": MACHINE.l3_bytes,
        "streams_stores": True,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(device_module, name, lambda answer=answer: answer)


@pytest.mark.usefixtures("machine")
def test_schedules_name_the_options_that_matter_default_first(cpu):
    streamed = mugraph(MATMUL, BIG, {"x": "h"})
    options = cpu.schedules(streamed.graph, BIG)
    assert set(options) == {"KB"}
    assert options["KB"][0] == 16
    assert cpu.schedules(mugraph(LINEAR, BIG).graph, BIG) == {}
    assert cpu.schedules(mugraph(MATMUL, SIZES).graph, SIZES) == {}


@pytest.fixture
def estimated(cpu, machine):
    """`estimated(program, ...)`: predicted seconds on one known machine."""
    return lambda *graph, **schedule: cpu.estimate(
        mugraph(*graph, schedule=schedule.items()), "float32"
    )


def test_wide_pieces_of_the_stream_are_predicted_faster_than_narrow_ones(estimated):
    times = [
        estimated(RMSNORM_DIVIDED_LAST, BIG, {"x": "h"}, "d", {"x": x, "i": 8}) for x in (2, 8, 32)
    ]
    assert times == sorted(times)
    # the stream bounds what is possible: 67 MB at 34 GB/s
    assert 1.9e-3 < times[0] < 5e-3


def test_one_block_is_predicted_slower_than_one_per_thread(estimated):
    one, two = (estimated(MATMUL, BIG, {"x": "h"}, "d", {"x": x, "i": 8}) for x in (1, 2))
    assert one > two


def test_blocks_that_each_read_the_whole_weight_are_predicted_slower(estimated):
    by_rows = estimated(MATMUL, BIG, {"x": "n"}, None, {"x": 2})
    by_columns = estimated(MATMUL, BIG, {"x": "h"}, None, {"x": 2})
    assert by_rows > by_columns


def test_a_softmax_of_whole_tiles_is_predicted_slower_than_row_by_row(estimated):
    sizes = {"n": 4096, "d": 4096}
    whole = estimated(SOFTMAX, sizes, {"x": "n"}, None, {"x": 2})
    by_rows = estimated(SOFTMAX, sizes, {"x": "n"}, None, {"x": 256})
    assert whole > by_rows


def test_an_accumulator_that_is_read_more_often_is_predicted_slower(estimated):
    grid, counts = {"x": "h"}, {"x": 2, "i": 8}
    few, many = (estimated(MATMUL, BIG, grid, "d", counts, KB=kb) for kb in (4, 16))
    assert few > many


def test_k_blocks_that_crowd_the_l2_cache_are_predicted_slower(estimated):
    """Rows that lie 32 KB apart do: blocks of 32 of them; rows of 32 KB + 64 do not."""
    grid, counts = {"x": "h"}, {"x": 2}
    for columns, is_crowded in ((8192, True), (8208, False)):
        sizes = BIG | {"h": columns}
        middle, most = (estimated(MATMUL, sizes, grid, None, counts, KB=kb) for kb in (16, 32))
        assert (most > middle) is is_crowded


def test_larger_k_blocks_pay_with_more_rows_and_smaller_ones_with_fewer(estimated):
    """Of rows that lie well apart."""
    grid, counts = {"x": "h"}, {"x": 2}
    for rows, ordered in ((2, False), (8, True)):
        sizes = {"n": rows, "d": 4096, "h": 14336}
        times = [estimated(MATMUL, sizes, grid, None, counts, KB=kb) for kb in (32, 16, 8)]
        assert (times == sorted(times)) is ordered
        assert (times == sorted(times, reverse=True)) is not ordered


def test_the_default_k_block_is_the_predicted_one(cpu, estimated):
    grid, counts = {"x": "h"}, {"x": 2}
    for rows, columns, expected in ((2, 14336, 8), (8, 14336, 32), (8, 4096, 16), (8, 8192, 16)):
        sizes = {"n": rows, "d": 4096, "h": columns}
        text = cpu.emit(mugraph(MATMUL, sizes, grid, None, counts), "float32").text
        assert f"range(0, 4096, {expected}):" in text


# -- the text


GOLDEN = {
    "rmsnorm": mugraph(
        RMSNORM_DIVIDED_LAST,
        {"n": 8, "d": 1024, "h": 2050},
        {"x": "h"},
        "d",
        {"x": 2, "i": 4},
    ),
    "softmax": mugraph(SOFTMAX, {"n": 100, "d": 300}, {"x": "n"}, "d", {"x": 3, "i": 2}),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_emitted_source_is_as_reviewed(golden, monkeypatch, name):
    monkeypatch.setattr("prism_kernels.cpu.emit_file.runtime_digest", lambda: "of some version")
    made = [plan(tile, Widths(4, 4)) for tile in lower(GOLDEN[name]).programs]
    golden(
        f"kernels/{name}",
        emit_file(made, "float32", Registers(32, 16, Widths(4, 4)), name, ["header"]),
    )


def test_emission_is_deterministic(cpu):
    mu = GOLDEN["rmsnorm"]
    first, second = cpu.emit(mu, "float32"), CpuTarget().emit(replace(mu), "float32")
    assert first.text == second.text
    assert first.meta == second.meta
