"""Kernels that the library runs: NumPy's matmul, beside kernels of ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
import stacked
from kernels.cases import CONTRACTIONS, contraction
from kernels.legal import mugraph
from kernels.programs import TOLERANCE, assert_computes, random_arguments
from kernels.several import mu_of

from prism.errors import KernelError
from prism.ir import SGraph
from prism.protocols import Device
from prism_kernels.cpu import device as device_module
from prism_kernels.lower import lower

SIZES = {"n": 7, "d": 61, "h": 37, "f": 43}

FFN = stacked.graph(
    stacked.ffn,
    """\
    kernel 0 library
      x = load x[n, d]
      w = load w[d, f]
      %2 = matmul[d](x, w)
      save %2 as t0[n, f]
    kernel 1
      grid x
      map m[u,f,x]
      map m[t0,f,x]
      map m[t1,f,x]
      x = load x[n, d]
      u = load u[d, f]
      t0 = load t0[n, f]
      %3 = matmul[d](x, u)
      %4 = silu(t0)
      %5 = mul(%4, %3)
      save %5 as t1[n, f]
    kernel 2 library
      t1 = load t1[n, f]
      down = load down[f, h]
      %2 = matmul[f](t1, down)
      save %2 as out0[n, h]
    """,
)


def of_the_library(mu):
    """The muGraph of one contraction, left to the library."""
    (kernel,) = mu.graph.kernels
    return replace(mu, graph=SGraph(mu.graph.program, (replace(kernel, library=True),)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_library_kernels_and_ours_take_turns(compiled, rng, dtype):
    kernel = compiled(mu_of(FFN, SIZES, {}, {"x": 3}, {}), dtype)
    arguments = random_arguments(FFN.program, SIZES, rng, dtype)
    assert_computes(kernel, FFN.program, arguments, TOLERANCE[dtype])


@pytest.mark.parametrize("layout", CONTRACTIONS)
def test_contractions_of_any_layout_are_right(compiled, rng, layout):
    program = contraction(layout)
    all_sizes = {"b": 3, "n": 9, "m": 21, "c": 18, "k": 50}
    sizes = {d: all_sizes[d] for d in program.size_names}
    kernel = compiled(of_the_library(mugraph(program, sizes)), "float64")
    arguments = random_arguments(program, sizes, rng, "float64")
    assert_computes(kernel, program, arguments, TOLERANCE["float64"])


def test_the_file_shows_the_call(cpu):
    source = cpu.emit(mu_of(FFN, SIZES, {}, {"x": 3}, {}), "float32")
    assert "def library0(arrays):" in source.text
    assert "t0[n, f] = x[n, d] w[d, f], summed over d." in source.text
    assert [next(iter(entry)) for entry in source.meta["launches"]] == [
        "library",
        "block",
        "library",
    ]


def test_a_target_without_a_library_refuses_them():
    with pytest.raises(KernelError, match="left to a library, and this target has none"):
        lower(mu_of(FFN, SIZES, {}, {"x": 3}, {}))


def test_the_library_is_predicted_to_win_where_rows_are_many_only(cpu, monkeypatch):
    machine = Device("a machine", 2, 512, 32 << 10, 1 << 20, 32 << 20, 34.0)
    monkeypatch.setattr(device_module, "device", lambda: machine)
    program = contraction("two dims of rows and columns")

    def seconds(rows):
        sizes = {"b": 1, "n": rows, "k": 2048, "m": 1, "c": 2048}
        mu = mugraph(program, sizes, {"x": "c"}, None, {"x": 4})
        alone = of_the_library(mugraph(program, sizes))
        return cpu.estimate(mu, "float32"), cpu.estimate(alone, "float32")

    ours, library = seconds(4)
    assert ours < library
    ours, library = seconds(1024)
    assert library < ours
