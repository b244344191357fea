"""Writes a kernel file: the header that documents it, imports, micro-kernels, block functions.

There is one block function for each kernel of the graph. It is called once per block, by address,
from one launcher for all kernels (`prism_kernels.cpu.launch`). It is compiled serially as a
`cfunc`, which takes a quarter of the time of compiling a parallel loop around it. Its machine code
is not kept: Numba's cache on disk is a pickle, and reading a pickle runs what is in it. A kernel
that is the library's is a function that calls NumPy instead.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from prism.dtypes import computed_in
from prism_kernels.cpu import copies, fetches, formats, functions, intrinsics, stores, vector
from prism_kernels.cpu.emit_block import emit_block
from prism_kernels.cpu.library import LibraryCall, emit_call
from prism_kernels.cpu.places import Planned
from prism_kernels.cpu.registers import Registers
from prism_kernels.cpu.writer import Writer

_TEMPLATE = '''\
"""{title}

{header}

Emitted by Prism (runtime {runtime}). An edited file is not loaded: change the program instead.
"""

from __future__ import annotations

from numba import cfunc
from numpy import {numpy}{dtype} as real

{imports}

INF = real("inf")
NAN = real("nan")
LOWEST = real({lowest!r})
{kernels}{blocks}'''

_BLOCK = """

@cfunc(signature({dtype!r}), fastmath=set(FASTMATH), error_model="numpy")
def {name}(index, thread, arrays):
{body}
"""

_INTRINSICS = (
    "absolute", "argument", "argument_of", "bound", "exp", "gelu_erf", "gelu_tanh", "load",
    "log", "maximum", "minimum", "offset", "plus", "sigmoid", "silu", "smaller", "sqrt",
    "stack", "store", "tanh",
)  # fmt: skip

_COPIES = {"narrow_into", "widened"}


def function_names(plans: Sequence[Planned]) -> tuple[str, ...]:
    """What the functions of a file are called, one for each kernel."""
    names = ("library" if isinstance(plan, LibraryCall) else "block" for plan in plans)
    return tuple(f"{name}{k}" if len(plans) > 1 else name for k, name in enumerate(names))


def emit_file(
    plans: Sequence[Planned], dtype: str, registers: Registers, title: str, header: Sequence[str]
) -> str:
    """The text of the kernel file for the planned tile programs of a graph."""
    programs = [plan.program for plan in plans]
    tensors = (t for p in programs for t in (*p.inputs.values(), *p.outputs.values()))
    real = computed_in(dtype)
    workspace = 1 + max(t.position for t in tensors)
    makers: dict[str, str] = {}
    blocks = ""
    for name, plan in zip(function_names(plans), plans, strict=True):
        if isinstance(plan, LibraryCall):
            blocks += emit_call(plan, name, copies=dtype != real)
            continue
        w = Writer(plan, real, registers.lanes, stored=dtype)
        emit_block(w, registers, workspace)
        makers |= w.kernels
        blocks += _BLOCK.format(dtype=real, name=name, body="\n".join(w.lines))
    kernels = "".join(f"{name} = {maker}\n" for name, maker in makers.items())
    return _TEMPLATE.format(
        title=title,
        header="\n".join(header),
        runtime=runtime_digest(),
        dtype=real,
        numpy="matmul, " if any(isinstance(plan, LibraryCall) for plan in plans) else "",
        imports=_imports(kernels + blocks),
        lowest=float(-np.finfo(real).max),
        kernels=kernels,
        blocks=blocks,
    )


def _imports(code: str) -> str:
    """The import lines for the functions that the code calls."""

    def line(module: str, names: Iterable[str]) -> str:
        listed = ", ".join(sorted(names, key=str.lower))
        wrapped = textwrap.fill(listed + ",", 95, initial_indent="    ", subsequent_indent="    ")
        return f"from prism_kernels.cpu.{module} import (\n{wrapped}\n)"

    called = set(re.findall(r"\b(\w+)\(", code))
    lines = [line("intrinsics", {"FASTMATH", "signature", *(called & set(_INTRINSICS))})]
    for module, functions_of in (
        ("vector", {"axpy", "dot"}),
        ("stores", {"fence", "stream_out"}),
        ("fetches", {"fetch_row"}),
        ("copies", _COPIES),
    ):
        if found := called & functions_of:
            lines.append(line(module, found))
    return "\n".join(lines)


@cache
def runtime_digest() -> str:
    """A digest of the modules that emitted files import: machine code made with others is stale."""
    sources = (
        Path(str(m.__file__)).read_bytes()
        for m in (copies, fetches, formats, functions, intrinsics, stores, vector)
    )
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]
