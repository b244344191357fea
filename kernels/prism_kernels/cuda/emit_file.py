"""Writes a CUDA kernel file: the header that documents it, imports, a function for each kernel."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from prism_kernels.cuda.dialect import CASTS, CONSTANTS, FUNCTIONS, VECTORS
from prism_kernels.cuda.product import NAMES as PRODUCT_NAMES
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.cuda.tensor_dialect import NAMES

MODULES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "prism_kernels.cuda.intrinsics": frozenset({*FUNCTIONS, *CASTS, *CONSTANTS}),
        "prism_kernels.cuda.product": PRODUCT_NAMES,
        "prism_kernels.cuda.tensor_cores": NAMES,
        "prism_kernels.cuda.vectors": frozenset(VECTORS),
    }
)
"""Module -> the names that kernels import from it."""

_TEMPLATE = '''\
"""{title}

{header}

Emitted by Prism (runtime {runtime}). An edited file is not loaded: change the program instead.
"""

from __future__ import annotations

from numba import cuda

{imports}


{functions}
'''


def function_text(name: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    """The definition of a kernel."""
    return "\n".join([f"def {name}({', '.join(parameters)}):", *lines])


def emit_file(functions: Sequence[str], title: str, header: Sequence[str]) -> str:
    """The text of a file of kernels."""
    text = "\n\n\n".join(functions)
    used = set(re.findall(r"\b\w+\b", re.sub(r"#.*", "", text)))
    return _TEMPLATE.format(
        title=title,
        header="\n".join(header),
        runtime=runtime_digest(),
        imports="\n".join(
            _import(module, used & names) for module, names in MODULES.items()
        ).strip(),
        functions=text,
    )


def _import(module: str, names: Collection[str]) -> str:
    """The import of some names of a module; nothing where there are none."""
    if not names:
        return ""
    listed = ", ".join(sorted(names, key=str.lower)) + ","
    lines = textwrap.fill(listed, 96, initial_indent="    ", subsequent_indent="    ")
    return f"from {module} import (\n{lines}\n)"
