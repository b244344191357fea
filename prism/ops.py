"""The operators that users define, as functions: `prism.ops.gelu_quick(x)`.

Which there are, tables beside axiom files say (`prism.operators`): those named by `--axioms`, those
given to `prism.load_operators`, and those of installed plug-ins.
"""

from __future__ import annotations

from prism.frontend import defined_operators as _defined


def __getattr__(name: str) -> _defined.Operator:
    """The operator of this name."""
    return _defined.operator(name)


def __dir__() -> list[str]:
    """The operators known so far."""
    return _defined.known()
