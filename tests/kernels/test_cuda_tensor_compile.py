"""What the dialect says of tensor cores compiles for every architecture, the templates unspilt."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import replace

import pytest
from kernels.cuda_sources import meta, source
from kernels.legal import mugraph
from kernels.programs import ATTENTION, LINEAR, MATMUL, RMSNORM_DIVIDED_LAST

from prism_kernels.cuda import tensor_dialect
from prism_kernels.cuda.compile import compile_kernel, kernel_ptx
from prism_kernels.cuda.devices import GPUS
from prism_kernels.cuda.emit import emit

pytestmark = pytest.mark.usefixtures("cuda_extra")

IMPORT = f"from prism_kernels.cuda.tensor_cores import {', '.join(sorted(tensor_dialect.NAMES))}"
STATEMENTS = [
    "fetch4_{0}(words, u32(0), x, u32(tid * 8))",
    "fetch2_{0}(words, u32(4), x, u32(tid * 4))",
    "fetch1_{0}(words, u32(6), x, u32(tid * 2))",
    "words[7] = pair_{0}(low_{0}(words[0]), high_{0}(words[1]))",
    "mma_{0}(totals, u32(0), words, u32(0), words, u32(6))",
    "cp_async_{0}(shared, u32(tid * 4), x, u32(tid * 8), u32(8))",
]
"""In order, for each storage dtype."""
BETWEEN = [
    "cp_commit()", "cp_wait3()", "cp_wait2()", "cp_wait1()", "cp_wait0()",
    "cuda.syncthreads()",
    "ldmatrix(words, u32(0), shared, u32(tid * 4))",
    "ldmatrix_transposed(words, u32(4), shared, u32(tid * 4))",
    "words[0] = low_halves(words[0], words[4])",
    "words[4] = high_halves(words[0], words[4])",
    "for j in range(6):",
    "    numbers[j] = as_tf32(totals[u32(j & 3)]) + tf32_rest(totals[u32(j & 3)])",
    "mma_tf32(totals, u32(0), numbers, u32(0), numbers, u32(4))",
]  # fmt: skip


def whole(dtype):
    """A kernel that uses every name for a storage dtype."""
    text = source(
        "x, out",
        "shared = cuda.shared.array(0, f32, alignment=16)",
        "words = cuda.local.array(8, u32)",
        "numbers = cuda.local.array(6, f32)",
        "totals = cuda.local.array(4, f32)",
        "for j in range(4):",
        "    totals[j] = f32(0.0)",
        *(line.format(dtype) for line in STATEMENTS),
        *BETWEEN,
        f"mma_{dtype}(totals, u32(0), words, u32(0), words, u32(4))",
        "for j in range(4):",
        "    store_float32(out, u32(tid * 4 + j), totals[j])",
    )
    return text.replace("\n\n\ndef", f"\n{IMPORT}\n\n\ndef", 1)


@pytest.mark.parametrize("arch", sorted({gpu.arch for gpu in GPUS.values()}))
@pytest.mark.parametrize("dtype", tensor_dialect.PACKED)
def test_every_name_compiles_without_local_memory(dtype, arch):
    text = whole(dtype)
    other = next(d for d in tensor_dialect.PACKED if d != dtype)
    assert all(name in text for name in tensor_dialect.STATEMENTS if other not in name)
    assert compile_kernel(text, meta(dtype, "float32"), arch).spills == 0


def test_names_are_the_instructions_they_promise():
    ptx = kernel_ptx(whole("bfloat16"), meta("bfloat16", "float32"), "sm_80")
    for instruction in (
        "ld.global.nc.L1::no_allocate.v4.b32",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
        "cp.async.cg.shared.global",
        "cp.async.wait_group 3;",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16",
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
        "cvt.rn.bf16x2.f32",
        "cvt.rna.tf32.f32",
        "0x7632",
    ):
        assert instruction in ptx
    assert "local" not in ptx


KERNELS = {
    "few rows across": (MATMUL, (8, 4096, 4096), {"x": "h"}, None, 2),
    "few rows along": (LINEAR, (16, 4096, 4096), {"x": "h"}, None, 2),
    "computed rows": (RMSNORM_DIVIDED_LAST, (8, 4096, 4096), {"x": "h"}, "d", 2),
    "many rows": (MATMUL, (4096, 4096, 4096), {"x": "h", "y": "n"}, "d", 3),
}


def each_kernel():
    """Every template for both architectures; most take seconds."""
    quick = {("few rows across", "sm_80"), ("many rows", "sm_90")}
    for name in KERNELS:
        for arch in ("sm_80", "sm_90"):
            marks = [] if (name, arch) in quick else [pytest.mark.slow]
            yield pytest.param(name, arch, marks=marks)


@pytest.mark.parametrize(("name", "arch"), list(each_kernel()))
def test_templates_keep_everything_in_registers(name, arch):
    program, extents, grid, loop, cores = KERNELS[name]
    sizes = dict(zip("ndh", extents, strict=True))
    counts = {"x": 64 if cores == 2 else 32, "y": 32, "i": 4}
    mu = mugraph(program, sizes, grid, loop, counts)
    mu = replace(mu, schedule=(("T", 256), ("C", cores)))
    source = emit(mu, "float16", GPUS[arch].shared_bytes_block, arch)
    assert "mma_" in source.text
    compiled = compile_kernel(source.text, source.meta["launches"][0], arch)
    assert compiled.spills == 0
    assert compiled.registers <= 128


@pytest.mark.slow
def test_attention_keeps_everything_in_registers():
    sizes = {"b": 8, "g": 4, "l": 4096, "d": 128, "e": 128}
    mu = mugraph(ATTENTION, sizes, {"x": "b"}, "l", {"x": 8, "i": 16})
    mu = replace(mu, schedule=(("T", 128), ("C", 2)))
    source = emit(mu, "bfloat16", GPUS["sm_90"].shared_bytes_block, "sm_90")
    assert source.text.count("mma_") >= 4
    assert compile_kernel(source.text, source.meta["launches"][0], "sm_90").spills == 0


def test_what_a_warp_does_together_may_not_move_into_a_branch():
    ir = importlib.import_module("llvmlite.ir")
    cores = importlib.import_module("prism_kernels.cuda.tensor_cores")
    for is_collective in (False, True):
        module = ir.Module()
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "kernel")
        builder = ir.IRBuilder(function.append_basic_block())
        cores._assemble(
            builder, ir.FloatType(), [], "nop;", operands="=f", is_collective=is_collective
        )
        assert ("convergent" in str(module)) == is_collective
    for name in (*tensor_dialect.MULTIPLICATIONS, *tensor_dialect.MATRIX_LOADS):
        assert "is_collective=True" in inspect.getsource(MAKERS[name[:2]](cores))


MAKERS = {"mm": lambda cores: cores._multiply, "ld": lambda cores: cores._matrices}
"""First letters of a name -> what makes its intrinsic."""
