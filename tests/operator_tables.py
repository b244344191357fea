"""Tables of operators as users write them, for tests to put together."""

from __future__ import annotations

GELU_QUICK = """
[gelu_quick]
constructor = "GeluQuick"
operands = ["x"]
numpy = "x * sigmoid(1.702 * x)"
"""

LERP = """
[lerp]
constructor = "Lerp"
operands = ["x", "y", "t"]
numpy = "x + t * (y - x)"
"""
