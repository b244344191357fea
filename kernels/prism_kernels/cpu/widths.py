"""How many bytes an element has: in the caller's arrays, and in everything that is ours."""

from __future__ import annotations

from dataclasses import dataclass

from prism.dtypes import computed_in
from prism_kernels.tile import Load, Store, TileProgram, ValueId

_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

DTYPES = tuple(_BYTES)
"""What arguments and results may be stored in."""


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of a stored element (arguments, results) and of a computed one (all else)."""

    stored: int
    computed: int

    @classmethod
    def of(cls, dtype: str) -> Widths:
        """Those of a kernel whose arrays are stored in this dtype."""
        return cls(_BYTES[dtype], _BYTES[computed_in(dtype)])

    @property
    def are_equal(self) -> bool:
        """Whether kernels compute in what arrays are stored in."""
        return self.stored == self.computed

    def of_value(self, program: TileProgram, i: ValueId) -> int:
        """Bytes of an element of value i, where it is read or written in memory."""
        match program.nodes[i]:
            case Load(source=name) | Store(target=name) if not program.is_between(name):
                return self.stored
            case _:
                return self.computed
