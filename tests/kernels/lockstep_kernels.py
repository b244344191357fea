"""Hand-written kernels in the CUDA dialect, and what launches them in the simulator."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from prism_kernels.lockstep import LockstepFault, simulate

HEAD = '''"""A kernel."""

from __future__ import annotations

from numba import cuda

from prism_kernels.cuda.intrinsics import (
    INF, LOWEST, NAN, absolute, atomic_add_float32, bound, exp, f32, load_bfloat16, load_float16,
    load_float32, maximum, quotient, remainder, smaller, sqrt, store_bfloat16, store_float16,
    store_float32, u32,
)

'''
SHARED = "shared = cuda.shared.array(0, f32, alignment=16)"
TID = "tid = u32(cuda.threadIdx.x)"
BLOCK = "block = u32(cuda.blockIdx.x)"


def kernel(body, parameters="x, out"):
    """A kernel file with this body; `shared`, `tid` and `block` are there."""
    lines = [SHARED, TID, BLOCK, *textwrap.dedent(body).strip().splitlines()]
    return f"{HEAD}\ndef kernel({parameters}):\n" + textwrap.indent("\n".join(lines), "    ")


def line_of(text, part):
    """The number of the only line that contains `part`."""
    (found,) = (n for n, line in enumerate(text.splitlines(), 1) if part in line)
    return found


def metadata(arguments=((32,),), output=(32,), dtype="float32", **launch):
    """What a launch of one warp, and of these array shapes, needs to know."""
    workspace = launch.pop("workspace_elements", 0)
    parameters = [dtype] * (len(arguments) + 1) + ["float32"] * bool(workspace)
    one = {
        "kernel": "kernel",
        "takes": list(range(len(parameters))),
        "parameters": parameters,
        "blocks": 1,
        "threads": 32,
        "shared_bytes": 0,
    }
    return {
        "dtype": dtype,
        "arguments": [{"name": f"a{i}", "shape": shape} for i, shape in enumerate(arguments)],
        "outputs": [{"name": "out", "shape": output}],
        "between": [],
        "workspace_elements": workspace,
        "launches": [{**one, **launch}],
    }


def launch(
    text,
    arrays=(),
    shape=32,
    *,
    threads=32,
    blocks=1,
    dtype="float32",
    shared=256,
    workspace=0,
    **options,
):
    """Run a kernel with one output of `shape`, given first as garbage; output and statistics."""
    kind = np.uint16 if dtype == "bfloat16" else np.dtype(dtype)
    out = np.full(shape, 7, kind)
    arrays = [np.ascontiguousarray(a) for a in arrays]
    meta = metadata(
        [a.shape for a in arrays],
        out.shape,
        dtype,
        blocks=blocks,
        threads=threads,
        shared_bytes=4 * shared,
        workspace_elements=workspace,
    )
    return out, simulate(text, meta, arrays, [out], **options)


def fault_of(text, arrays=(), shape=32, **options):
    """The fault that a kernel ends with."""
    with pytest.raises(LockstepFault) as caught:
        launch(text, arrays, shape, **options)
    return caught.value.fault


def numbers(count, seed=0):
    """float32 numbers."""
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)
