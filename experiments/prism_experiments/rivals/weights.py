"""Which arguments of a program are weights, so that a rival may pack them before the first call.

A program does not say. In a layer the first argument is what flows through, and a weight shares
with it nothing but what is multiplied away, so nothing that is left in a result: in
`rmsnorm(x[n, d], g[d], w[d, h])` those are g and w, in attention with its cache of keys and values
none.
"""

from __future__ import annotations

from prism.ir import Program


def weights_of(program: Program) -> frozenset[str]:
    """The names of the arguments that a rival gets beforehand."""
    first, *others = program.arguments
    kept = {d for output in program.outputs for d in output.axes if d is not None}
    flowing = {d for d in first.axes if d is not None} & kept
    return frozenset(a.name for a in others if not flowing & set(a.axes))
