"""Products that are left to a library on CUDA, and a torch that is there or is not."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
from kernels.cases import contraction
from kernels.legal import mugraph
from kernels.programs import random_arguments
from kernels.several import mu_of
from kernels.simulated import SHARED_LIMIT
from kernels.test_cpu_library import FFN, of_the_library

from prism.dtypes import dtype_of
from prism.ir import evaluate
from prism_kernels.cuda import torch_library
from prism_kernels.cuda.emit import emit
from prism_kernels.cuda.torch_library import torch_problem

DTYPES = ("float32", "float16", "bfloat16")
SIZES = {"n": 7, "d": 61, "h": 37, "f": 43}
ALL_SIZES = {"b": 3, "n": 9, "m": 21, "c": 18, "k": 50}


def product(layout):
    """The muGraph of a row of CONTRACTIONS, left to the library."""
    program = contraction(layout)
    return of_the_library(mugraph(program, {d: ALL_SIZES[d] for d in program.size_names}))


def ffn(dtype="float32", target="lockstep", **sizes):
    return emit(mu_of(FFN, {**SIZES, **sizes}, {}, {"x": 3}, {}), dtype, SHARED_LIMIT, target)


def given_for(mu, dtype, rng):
    program = mu.graph.program
    arguments = random_arguments(program, dict(mu.sizes), rng)
    return [np.ascontiguousarray(a, dtype_of(dtype)) for a in arguments]


def expected_of(mu, arguments):
    names = (a.name for a in mu.graph.program.arguments)
    wide = (np.asarray(a, np.float64) for a in arguments)
    return evaluate(mu.graph.program, dict(zip(names, wide, strict=True)))


def torch_module(**facts):
    """What is asked of torch before it is used."""
    cuda = SimpleNamespace(is_available=lambda: facts.get("gpu", True))
    return SimpleNamespace(version=SimpleNamespace(cuda=facts.get("cuda", "13.0")), cuda=cuda)


def put(monkeypatch, module):
    """Torch is this module; None: it is not installed."""
    monkeypatch.setattr(torch_library, "_is_installed", lambda: module is not None)
    monkeypatch.setitem(sys.modules, "torch", module)
    torch_problem.cache_clear()
