"""Runs the CUDA kernel of a muGraph in the lockstep simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from kernels.programs import relative_error

from prism.dtypes import TOLERANCES
from prism.ir import evaluate
from prism_kernels.cuda.emit import emit
from prism_kernels.lockstep import simulate

SHARED_LIMIT = 99 << 10


def simulated(mu, arguments, dtype="float32", *, seed=0, shared_limit=SHARED_LIMIT, **schedule):
    """The outputs of a muGraph's kernel on arguments in its dtype, as float64."""
    mu = replace(mu, schedule=(*mu.schedule, *schedule.items()))
    source = emit(mu, dtype, shared_limit, "lockstep")
    return launched(source.text, source.meta, arguments, seed=seed)


def launched(text, meta, arguments, *, seed=0):
    """The outputs of a kernel file; bfloat16 arrays go as their bits."""
    if meta["dtype"] == "bfloat16":
        arguments = [bits_of(a) for a in arguments]
    kind = {"bfloat16": np.uint16}.get(meta["dtype"], meta["dtype"])
    outputs = [np.zeros(o["shape"], kind) for o in meta["outputs"]]
    simulate(text, meta, [np.ascontiguousarray(a) for a in arguments], outputs, seed=seed)
    if meta["dtype"] == "bfloat16":
        outputs = [numbers_of(out) for out in outputs]
    return [out.astype(np.float64) for out in outputs]


def bits_of(array):
    """The upper halves of float32 numbers that are bfloat16."""
    return (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def numbers_of(bits):
    """The bfloat16 numbers with these bits, as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(arguments, dtype):
    """Arrays of numbers that the dtype has: float32 arrays for bfloat16."""
    if dtype != "bfloat16":
        return tuple(np.asarray(a, dtype) for a in arguments)
    return tuple(numbers_of(bits_of(a)) for a in arguments)


def assert_computes(mu, arguments, dtype="float32", tolerance=None, **options):
    """The simulated kernel's outputs equal the program's float64 value up to a relative norm."""
    program = mu.graph.program
    arguments = rounded(arguments, dtype)
    arrays = {a.name: x for a, x in zip(program.arguments, arguments, strict=True)}
    expected = evaluate(program, arrays)
    for out, reference in zip(simulated(mu, arguments, dtype, **options), expected, strict=True):
        assert out.shape == reference.shape
        assert relative_error(out, reference) <= (tolerance or TOLERANCES[dtype])
