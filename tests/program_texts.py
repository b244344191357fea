"""Programs written as an expression, for tests that compare many."""

from __future__ import annotations

from prism import frontend as pr
from prism.ir import Program


def traced(expression: str, arguments: str) -> Program:
    """The program that returns an expression (`pr` is the front end) over these arguments."""
    names = {"pr": pr}
    exec(f"def fn({arguments}):\n    return {expression}\n", names)
    return pr.trace(names["fn"])
