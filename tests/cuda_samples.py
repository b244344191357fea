"""CUDA kernel files written by hand in the dialect, sealed as the emitter seals its own."""

from __future__ import annotations

import numpy as np

from prism.dtypes import HALF, dtype_of
from prism.protocols import KernelSource
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.seal import seal

DTYPES = ("float32", *sorted(HALF))
_ROUNDING = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3}

_REVERSED = '''\
"""out[r, c] = s * x[r, last - c]: a row a block, staged in {staging}."""

from __future__ import annotations

from numba import cuda

from prism_kernels.cuda.intrinsics import {imports}


def kernel(in_x, in_s, out0{extra}):
    shared = cuda.shared.array(0, f32, alignment=16)
    tid = u32(cuda.threadIdx.x)
    block = u32(cuda.blockIdx.x)
    scale = load_{dtype}(in_s, u32(0))
    for c in range(tid, {columns}, {threads}):
        value = load_{dtype}(in_x, u32(u32(block * {columns}) + c))
        {write}
    cuda.syncthreads()
    for c in range(tid, {columns}, {threads}):
        back = u32({last} - c)
        store_{dtype}(out0, u32(u32(block * {columns}) + c), f32(scale * {read}))
'''


def reversed_rows(
    dtype="float32", rows=3, columns=40, *, threads=32, staging="shared", text=None, shared_bytes=0
):
    """A kernel that needs its barrier, its shared memory or workspace, and all its arguments."""
    in_shared = staging == "shared"
    place = "u32(u32(block * {columns}) + {c})"
    names = [f"load_{dtype}", f"store_{dtype}", "u32", "f32"]
    if not in_shared:
        names += ["load_float32", "store_float32"]
    write_at, read_at = (
        place.format(columns=columns, c="c"),
        place.format(columns=columns, c="back"),
    )
    source = (text or _REVERSED).format(
        staging=staging,
        imports=", ".join(sorted(set(names))),
        extra="" if in_shared else ", workspace",
        dtype=dtype,
        columns=columns,
        threads=threads,
        last=columns - 1,
        write="shared[c] = value" if in_shared else f"store_float32(workspace, {write_at}, value)",
        read="shared[back]" if in_shared else f"load_float32(workspace, {read_at})",
    )
    shape = [rows, columns]
    meta = {
        "target": "cuda",
        "runtime": runtime_digest(),
        "program": "reversed_rows",
        "dtype": dtype,
        "arguments": [{"name": "x", "shape": shape}, {"name": "s", "shape": []}],
        "outputs": [{"name": "out0", "shape": shape}],
        "between": [],
        "workspace_elements": 0 if in_shared else rows * columns,
        "launches": [
            {
                "kernel": "kernel",
                "takes": list(range(3 + (not in_shared))),
                "parameters": [dtype] * 3 + ["float32"] * (not in_shared),
                "blocks": rows,
                "threads": threads,
                "shared_bytes": shared_bytes or (4 * columns if in_shared else 0),
            }
        ],
    }
    meta["seal"] = seal(source, meta)
    return KernelSource(source, meta)


def written(source, folder):
    """The source in a file, and its metadata: what a target's `load` gets."""
    path = folder / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    return path, source.meta


def arguments(dtype="float32", rows=3, columns=40):
    """What `reversed_rows` takes."""
    x = np.linspace(-2, 2, rows * columns).reshape(rows, columns)
    return x.astype(dtype_of(dtype)), np.asarray(1.5, dtype_of(dtype))


def expected(x, s):
    """What it gives, in float64."""
    return x.astype(float)[:, ::-1] * float(s)


def assert_right(result, given):
    """`result` is what `reversed_rows` gives, but for one rounding to the dtype."""
    wanted = expected(*given)
    assert result.shape == wanted.shape
    tolerance = _ROUNDING[given[0].dtype.name]
    np.testing.assert_allclose(result.astype(float), wanted, rtol=tolerance, atol=1e-12)
