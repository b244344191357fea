"""Writes a CUDA kernel file: the header that documents it, imports, a function for each kernel."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from prism_kernels.cuda.dialect import CASTS, CONSTANTS, FUNCTIONS
from prism_kernels.cuda.runtime import runtime_digest

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


{functions}
'''


def function_text(name: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    """The definition of a kernel."""
    return "\n".join([f"def {name}({', '.join(parameters)}):", *lines])


def emit_file(functions: Sequence[str], title: str, header: Sequence[str]) -> str:
    """The text of a file of kernels."""
    text = "\n\n\n".join(functions)
    used = set(re.findall(r"\b\w+\b", re.sub(r"#.*", "", text)))
    names = sorted(used & {*FUNCTIONS, *CASTS, *CONSTANTS}, key=str.lower)
    return _TEMPLATE.format(
        title=title,
        header="\n".join(header),
        runtime=runtime_digest(),
        imports=textwrap.fill(
            ", ".join(names) + ",", 96, initial_indent="    ", subsequent_indent="    "
        ),
        functions=text,
    )
