"""Compiling CUDA kernels without a GPU: what comes out, what is refused, and what is kept."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest
from kernels.cuda_sources import (
    COPY,
    COPY_META,
    RMSNORM_MATMUL,
    RMSNORM_MATMUL_META,
    meta,
    source,
)

from prism.errors import KernelError
from prism_kernels.cuda import compile as compile_module
from prism_kernels.cuda import toolchain
from prism_kernels.cuda.compile import compile_kernel, kernel_ptx
from prism_kernels.cuda.compile_pool import Job, compile_all
from prism_kernels.cuda.dialect import COLLECTIVES, DTYPES, FUNCTIONS
from prism_kernels.cuda.runtime import runtime_digest

ARCHS = ("sm_80", "sm_90")


def call(name):
    """A statement that calls a function of the dialect, on pointers x and out and number `a`."""
    if name.startswith("load"):
        return f"store_float32(out, tid, {name}(x, u32(tid + 3)))"
    if name.startswith(("store", "atomic")):
        return f"{name}(x, tid, a)"
    if name in {"quotient", "remainder", "smaller"}:
        return f"store_float32(out, {name}(tid, u32(7)), a)"
    numbers = ", ".join(["a", "load_float32(out, u32(tid + 9))"][: FUNCTIONS[name]])
    return f"store_float32(out, tid, {name}({numbers}))"


INSTRUCTIONS = {
    "load_float32": "ld.global.f32",
    "load_float16": "cvt.f32.f16",
    "load_bfloat16": "shl.b32",
    "store_float32": "st.global.f32",
    "store_float16": "cvt.rn.f16.f32",
    "store_bfloat16": "cvt.rn.bf16.f32",
    "atomic_add_float32": "global.add.f32",
    "quotient": "mul.wide.u32",  # by the reciprocal: the divisor is known
    "remainder": "mul.wide.u32",
    "smaller": "min.u32",
    "maximum": "max.NaN.f32",
    "minimum": "min.NaN.f32",
    "bound": "max.NaN.f32",
    "absolute": "abs.f32",
    "divide": "div.full.f32",
    "sqrt": "sqrt.approx.f32",
    "exp": "ex2.approx.ftz.f32",
    "log": "fma.rn.f32",
    "tanh": "copysign.f32",
    "sigmoid": "rcp.approx.ftz.f32",
    "silu": "rcp.approx.ftz.f32",
    "gelu_tanh": "ex2.approx.ftz.f32",
    "gelu_erf": "ex2.approx.ftz.f32",
}
"""Function -> an instruction that its PTX must hold."""


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.usefixtures("cuda_extra")
def test_function_compiles_to_its_instruction(name):
    storage = next((dtype for dtype in DTYPES if name.endswith(f"_{dtype}")), "float32")
    text = source("x, out", "a = load_float32(out, u32(tid + 5))", call(name))
    for arch in ARCHS:
        ptx = kernel_ptx(text, meta(storage, "float32"), arch)
        assert f".target {arch}" in ptx
        assert INSTRUCTIONS[name] in ptx


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
@pytest.mark.usefixtures("cuda_extra")
def test_collective_compiles(name):
    operands = {
        0: "",
        2: "0xFFFFFFFF, a > f32(0.0)",
        3: "0xFFFFFFFF, a, 1",
    }[COLLECTIVES[name]]
    result = "" if COLLECTIVES[name] == 0 else "b = "
    text = source(
        "x, out",
        "a = load_float32(x, tid)",
        f"{result}cuda.{name}({operands})",
        "store_float32(out, tid, f32(b))" if result else "store_float32(out, tid, a)",
    )
    assert compile_kernel(text, COPY_META, "sm_90").stack_bytes == 0


@pytest.mark.usefixtures("cuda_extra")
def test_products_and_sums_are_contracted():
    text = source(
        "x, out",
        "a = load_float32(x, tid)",
        "b = load_float32(x, u32(tid + 1))",
        "store_float32(out, tid, a * b + a)",
    )
    assert "fma.rn.f32" in kernel_ptx(text, COPY_META, "sm_90")


@pytest.mark.usefixtures("cuda_extra")
def test_indices_are_unsigned():
    text = source("x, out", "i = u32(tid - 1)", "store_float32(out, i, load_float32(x, i))")
    ptx = kernel_ptx(text, COPY_META, "sm_90")
    assert "mul.wide.u32" in ptx  # the index -1 is 4294967295
    assert "mul.wide.s32" not in ptx


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.usefixtures("cuda_extra")
def test_typical_kernel_keeps_everything_in_registers(arch):
    compiled = compile_kernel(RMSNORM_MATMUL, RMSNORM_MATMUL_META, arch)
    assert compiled.arch == arch
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.entry.encode() in compiled.cubin
    assert compiled.registers <= 64  # 64-bit indices would take twice that
    assert (compiled.shared_bytes, compiled.spills) == (0, 0)


@pytest.mark.usefixtures("cuda_extra")
def test_an_array_that_loops_with_literal_bounds_walk_lies_in_registers():
    def walk(bound):
        text = source(
            "x, out",
            "acc = cuda.local.array(32, f32)",
            "for i in range(32):",
            "    acc[i] = f32(0.0)",
            "for k in range(100):",
            "    for m in range(8):",
            f"        for n in range({bound}):",
            "            if u32(k + n) < tid:",
            "                acc[u32(m * 4 + n)] += load_float32(x, u32(k * 32 + m * 4 + n))",
            "for i in range(32):",
            "    store_float32(out, u32(tid + i), acc[i])",
        )
        return compile_kernel(text, COPY_META, "sm_90")

    assert walk("4").spills == 0
    assert walk("u32(tid & 3)").stack_bytes == 32 * 4


LOOPS = ["range(5)", "range(3, 9)", "range(3, 20, 4)", "range(3, 19, 4)", "range(4, 4)"]
LOOPS += [
    "range(9, 3)",
    "range(9, 3, 2)",
    "range(-2, 3)",
    "range(6, 0, -2)",
    "range(2**31, 2**31 + 3)",
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.usefixtures("cuda_extra")
def test_a_loop_takes_the_numbers_of_its_range(loop):
    # LLVM works the loop out: what is stored is a constant
    text = source(
        "x, out",
        "total = u32(0)",
        f"for i in {loop}:",
        "    total = u32((total * 31 + i + 7) & 65535)",
        "store_float32(out, tid, f32(total))",
    )
    total = 0
    for i in eval(loop):
        total = (total * 31 + i + 7) & 65535
    (stored,) = re.findall(r"mov\.u32 \s*%r\d+, (\d+);", kernel_ptx(text, COPY_META, "sm_90"))
    assert np.uint32(stored).view(np.float32) == total


@pytest.mark.usefixtures("cuda_extra")
def test_loops_count_in_32_bits():
    text = source(
        "x, out",
        "total = f32(0.0)",
        "for i in range(tid, 4096, 128):",
        "    total += load_float32(x, i)",
        "for i in range(u32(tid + 1)):",
        "    total += load_float32(x, u32(total))",
        "store_float32(out, tid, total)",
    )
    ptx = kernel_ptx(text, COPY_META, "sm_90")
    assert "bra" in ptx
    assert not re.search(r"setp\.\w+\.[su]64", ptx)


@pytest.mark.usefixtures("cuda_extra")
@pytest.mark.parametrize("cure", [True, False])
def test_a_kernel_that_spills_is_linked_again_without_regard_to_occupancy(monkeypatch, cure):
    seen = []

    def link(ltoir, arch, where, *options):
        seen.append(options)
        spilt = 0 if cure and options else 8
        return b"", (
            "Compiling entry function 'k' for 'sm_90'\n"
            f"{spilt} bytes stack frame, {spilt} bytes spill stores, {spilt} bytes spill loads\n"
            f"Used {40 + 16 * len(options)} registers"
        )

    monkeypatch.setattr(compile_module, "_link", link)
    compiled = compile_kernel(COPY, COPY_META, "sm_90")
    assert seen == [(), compile_module.ONE_BLOCK]
    assert (compiled.registers, compiled.spills) == ((56, 0) if cure else (40, 8))


@pytest.mark.usefixtures("cuda_extra")
def test_what_registers_cannot_hold_is_reported_as_spilled():
    text = source(
        "x, out",
        "acc = cuda.local.array(96, f32)",
        "for i in range(96):",
        "    acc[i] = load_float32(x, u32(tid + i))",
        "for k in range(100):",
        "    for i in range(96):",
        "        acc[i] += acc[i] * load_float32(x, u32(k * 96 + i))",
        "for i in range(96):",
        "    store_float32(out, u32(tid + i), acc[i])",
    )
    compiled = compile_kernel(text, meta("float32", "float32", threads=1024), "sm_90")
    assert compiled.registers <= 64  # 1024 threads must launch
    assert compiled.spill_store_bytes > 0
    assert compiled.spill_load_bytes > 0
    assert compiled.spills > 0


@pytest.mark.usefixtures("cuda_extra")
def test_static_shared_memory_is_reported():
    text = source(
        "x, out",
        "shared = cuda.shared.array(128, f32)",
        "shared[tid] = load_float32(x, tid)",
        "cuda.syncthreads()",
        "store_float32(out, tid, shared[u32(127 - tid)])",
    )
    assert compile_kernel(text, COPY_META, "sm_80").shared_bytes == 512


@pytest.mark.usefixtures("cuda_extra")
@pytest.mark.parametrize(
    ("text", "arch", "message"),
    [
        ("kernel = 1 +", "sm_90", "the kernel: not a kernel file: SyntaxError"),
        ("def other(): pass", "sm_90", "the kernel: not a kernel file: KeyError: 'kernel'"),
        (source("x, out", "out.sort()"), "sm_90", "the kernel: does not compile for sm_90: Typ"),
        (COPY, "sm_20", "the kernel: does not compile for sm_20"),
        (COPY, "hopper", "'hopper' is no architecture; one is called sm_90"),
    ],
)
def test_what_does_not_compile_is_refused_in_one_line(text, arch, message):
    with pytest.raises(KernelError) as caught:
        compile_kernel(text, COPY_META, arch)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("cuda_extra")
def test_errors_name_the_file(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text(source("x, out", "out.sort()"))
    with pytest.raises(KernelError, match=re.escape(f"{path}: does not compile")):
        compile_kernel(path.read_text(), COPY_META, "sm_90", path)


# -- without the extra, or a part of it ------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("numba_cuda", r"need numba-cuda, which is not installed: in Prism's .* '\.\[cuda\]'"),
        ("cuda.bindings.nvvm", r"need NVVM, which cannot be loaded .*, pip install"),
        ("cuda.bindings.nvjitlink", r"need nvJitLink, which cannot be loaded .*, pip install"),
        ("numba.cuda.extending", r"numba-cuda cannot be imported .*, pip install"),
    ],
)
def test_a_missing_part_is_named_with_what_to_install(monkeypatch, request, module, message):
    if module != "numba_cuda":
        request.getfixturevalue("cuda_extra")
    monkeypatch.setitem(sys.modules, module, None)
    toolchain.require_cuda.cache_clear()
    request.addfinalizer(toolchain.require_cuda.cache_clear)
    with pytest.raises(KernelError, match=message):
        compile_kernel(COPY, COPY_META, "sm_90")
    assert re.search(message, toolchain.missing())
    with pytest.raises(KernelError, match=message):
        compile_all([Job(COPY, COPY_META, "sm_90")])


@pytest.mark.usefixtures("cuda_extra")
def test_numba_cudas_own_simulator_is_named_as_the_obstacle(monkeypatch, request):
    monkeypatch.setenv("NUMBA_ENABLE_CUDASIM", "1")
    toolchain.require_cuda.cache_clear()
    request.addfinalizer(toolchain.require_cuda.cache_clear)
    with pytest.raises(KernelError, match=r"NUMBA_ENABLE_CUDASIM is set, .*: unset it"):
        compile_kernel(COPY, COPY_META, "sm_90")


def test_all_but_compiling_works_without_numba_cuda():
    modules = ", ".join(
        f"prism_kernels.cuda.{name}"
        for name in ("compile_pool", "compile_worker", "devices", "dialect", "runtime")
    )
    script = (
        "import sys\n"
        "sys.modules['numba_cuda'] = sys.modules['numba.cuda'] = sys.modules['cuda'] = None\n"
        f"import {modules}\n"
        "print(prism_kernels.cuda.runtime.runtime_digest())\n"
        "print(prism_kernels.cuda.toolchain.missing())\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    digest, reason = run.stdout.splitlines()
    assert digest == runtime_digest()
    assert reason.startswith("CUDA kernels need numba-cuda")
