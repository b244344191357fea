"""Writes a kernel file: the header that documents it, imports, micro-kernels, the block function.

The block function is called once per block, by address, from one precompiled parallel launcher
(`prism_kernels.cpu.launch`). It is compiled serially as a `cfunc`, which takes a quarter of the
time of compiling a parallel loop around it. Its machine code is not kept: Numba's cache on disk is
a pickle, and reading a pickle runs what is in it.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from prism_kernels.cpu import functions, intrinsics, vector
from prism_kernels.cpu.emit_block import emit_block
from prism_kernels.cpu.places import Plan
from prism_kernels.cpu.registers import Registers
from prism_kernels.cpu.writer import Writer

_TEMPLATE = '''\
"""{title}

{header}

Emitted by Prism (runtime {runtime}). An edited file is not loaded: change the program instead.
"""

from __future__ import annotations

from numba import cfunc
from numpy import {dtype} as real

{imports}

INF = real("inf")
NAN = real("nan")
LOWEST = real({lowest!r})
{kernels}

@cfunc(signature({dtype!r}), fastmath=set(FASTMATH), error_model="numpy")
def block(index, thread, arrays):
{body}
'''

_INTRINSICS = (
    "absolute", "argument", "bound", "exp", "gelu_erf", "gelu_tanh", "load", "log", "maximum",
    "minimum", "offset", "sigmoid", "silu", "smaller", "sqrt", "stack", "store", "tanh",
)  # fmt: skip


def emit_file(
    plan: Plan, dtype: str, registers: Registers, title: str, header: Sequence[str]
) -> str:
    """The text of the kernel file for a planned tile program."""
    w = Writer(plan, dtype, registers.lanes)
    emit_block(w, registers)
    kernels = "".join(f"{name} = {maker}\n" for name, maker in w.kernels.items())
    body = "\n".join(w.lines)
    return _TEMPLATE.format(
        title=title,
        header="\n".join(header),
        runtime=runtime_digest(),
        dtype=dtype,
        imports=_imports(kernels + body),
        lowest=float(-np.finfo(dtype).max),
        kernels=kernels,
        body=body,
    )


def _imports(code: str) -> str:
    """The import lines for the functions that the code calls."""

    def line(module: str, names: Iterable[str]) -> str:
        listed = ", ".join(sorted(names, key=str.lower))
        wrapped = textwrap.fill(listed + ",", 95, initial_indent="    ", subsequent_indent="    ")
        return f"from prism_kernels.cpu.{module} import (\n{wrapped}\n)"

    called = set(re.findall(r"\b(\w+)\(", code))
    lines = [line("intrinsics", {"FASTMATH", "signature", *(called & set(_INTRINSICS))})]
    if micro_kernels := called & {"axpy", "dot"}:
        lines.append(line("vector", micro_kernels))
    return "\n".join(lines)


@cache
def runtime_digest() -> str:
    """A digest of the modules that emitted files import: machine code made with others is stale."""
    sources = (Path(str(m.__file__)).read_bytes() for m in (functions, intrinsics, vector))
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]
