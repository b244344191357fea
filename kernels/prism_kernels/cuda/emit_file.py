"""Writes a CUDA kernel file: the header that documents it, imports, the kernel function."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from prism_kernels.cuda.dialect import CASTS, CONSTANTS, FUNCTIONS
from prism_kernels.cuda.emit_kernel import emit_kernel
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.cuda.writer import Writer

_TEMPLATE = '''\
"""{title}

{header}

Emitted by Prism (runtime {runtime}). An edited file is not loaded: change the program instead.
"""

from __future__ import annotations

from numba import cuda

from prism_kernels.cuda.intrinsics import (
{imports}
)


def kernel({parameters}):
{body}
'''


def emit_file(w: Writer, parameters: Sequence[str], title: str, header: Sequence[str]) -> str:
    """The text of the kernel file for a planned tile program."""
    emit_kernel(w)
    body = "\n".join(w.lines)
    used = set(re.findall(r"\b\w+\b", re.sub(r"#.*", "", body)))
    names = sorted(used & {*FUNCTIONS, *CASTS, *CONSTANTS}, key=str.lower)
    return _TEMPLATE.format(
        title=title,
        header="\n".join(header),
        runtime=runtime_digest(),
        imports=textwrap.fill(
            ", ".join(names) + ",", 96, initial_indent="    ", subsequent_indent="    "
        ),
        parameters=", ".join(parameters),
        body=body,
    )
