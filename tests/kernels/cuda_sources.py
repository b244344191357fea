"""Kernels in the dialect of `prism_kernels.cuda.dialect`, written by hand for tests."""

from __future__ import annotations

from prism_kernels.cuda.dialect import FUNCTIONS

_HEAD = f"""\
from numba import cuda

from prism_kernels.cuda.intrinsics import INF, LOWEST, NAN, f32, u32
from prism_kernels.cuda.intrinsics import {", ".join(FUNCTIONS)}


"""


def source(parameters: str, *lines: str) -> str:
    """A kernel file of these parameters and statements; `tid` is there already."""
    body = "".join(f"    {line}\n" for line in ("tid = u32(cuda.threadIdx.x)", *lines))
    return f"{_HEAD}def kernel({parameters}):\n{body}"


def meta(*dtypes: str, threads: int = 128) -> dict[str, object]:
    """The metadata that compiling needs."""
    return {"kernel": "kernel", "parameters": list(dtypes), "threads": threads}


COPY = source("x, out", "store_float32(out, tid, load_float32(x, tid))")
COPY_META = meta("float32", "float32")

RMSNORM_MATMUL = source(
    "x, w, out",
    # blocks of 8 x 64 outputs, threads of 4 x 1; 4096 deep in steps of 64; sum of squares in warp 0
    "shared = cuda.shared.array(0, f32, alignment=16)",
    "acc = cuda.local.array(4, f32)",
    "first = u32(u32(cuda.blockIdx.x) * 64)",
    "column = u32(tid & 63)",
    "row = u32(tid >> 6)",
    "for j in range(4):",
    "    acc[j] = f32(0.0)",
    "squares = f32(0.0)",
    "for step in range(64):",
    "    k = u32(step * 64)",
    "    for j in range(4):",
    "        e = u32(tid + j * 128)",
    "        shared[e] = load_float16(x, u32((e >> 6) * 4096 + k + (e & 63)))",
    "    for j in range(32):",
    "        e = u32(tid + j * 128)",
    "        shared[u32(512 + e)] = load_float16(w, u32((k + (e >> 6)) * 4096 + first + (e & 63)))",
    "    cuda.syncthreads()",
    "    if tid < 8:",
    "        for q in range(64):",
    "            value = shared[u32(tid * 64 + q)]",
    "            squares += value * value",
    "    for q in range(64):",
    "        weight = shared[u32(512 + q * 64 + column)]",
    "        for j in range(4):",
    "            acc[j] += shared[u32((row + j * 2) * 64 + q)] * weight",
    "    cuda.syncthreads()",
    "if tid < 8:",
    "    shared[u32(tid)] = sqrt(squares * f32(1 / 4096) + f32(1e-5))",
    "cuda.syncthreads()",
    "for j in range(4):",
    "    m = u32(row + j * 2)",
    "    store_float16(out, u32(m * 4096 + first + column), acc[j] / shared[u32(m)])",
)
RMSNORM_MATMUL_META = meta("float16", "float16", "float16")
