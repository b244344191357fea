"""Before the cells: import what they need and start torch's compilers, on next to nothing.

The first compilation starts pools of processes and builds tools; no cell's time goes into that.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from prism.frontend import load_program
from prism_experiments.gpu.rivals import Contestant, NoTorchError, open_torch, rivals_of
from prism_experiments.rivals.torch_source import torch_forms

WORKLOAD, ROWS, SIZE = "matmul", 16, 64
"""What is compiled: no size that is measured, since choices made now would be found again."""


def run(request: Mapping[str, Any], tell: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Get ready; without torch there is less to do."""
    tell({})
    importlib.import_module("prism_experiments.gpu.cell")
    try:
        torch = open_torch(request["target"])
    except NoTorchError:
        return {}
    if not request["compiles"]:
        return {}
    device = "cuda" if request["target"] == "cuda" else "cpu"
    tensors = [torch.ones(shape, device=device) for shape in ((ROWS, SIZE), (SIZE, SIZE))]
    _, program = load_program(WORKLOAD)
    forms = torch_forms(program, {"n": ROWS, "d": SIZE, "h": SIZE}, torch)
    for _, found in rivals_of(request["target"], torch, forms, tensors, lambda: math.inf):
        if not isinstance(found, Contestant):
            # where a compiler is broken the cells will say so
            with contextlib.suppress(Exception):
                found()()
    return {}
