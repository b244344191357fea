"""Programs, and sGraphs written by hand that compute them or do not.

A case is a program, the text of one kernel and whether it is right. A wrong one stands next to the
right one it was made from.
"""

from __future__ import annotations

from verify import (
    table_contractions,
    table_gates,
    table_normalization,
    table_outputs,
    table_softmax,
)
from verify.cases import PROGRAMS, Case
from verify.table_gates import SWIGLU

__all__ = ["CASES", "PROGRAMS", "SWIGLU", "Case"]

CASES: list[Case] = [
    *table_normalization.CASES,
    *table_contractions.CASES,
    *table_softmax.CASES,
    *table_gates.CASES,
    *table_outputs.CASES,
]
