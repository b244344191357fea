"""Mapping variables m[T,d,p] and the problem an encoding solves (paper, section 4).

For a tensor T at the border of a block graph (an input or an output), a data dimension d and a
parallelization dimension p, the Boolean m[T,d,p] says that d is partitioned along p. All zero for
p means T is replicated along p (an input), or that every block of p holds all of T (an output).
Constraints on every mapping:

  (1) for every T, p:            sum_d m[T,d,p] <= 1
  (2) for every T, d:            sum_{p in P_g} m[T,d,p] <= 1
  (3) dimension matching:        m[T,d,p] = m[U,d,p] where the operators match d of T with d of U
  (4) symmetry breaking:         of mappings equal up to renaming grid dims, the smallest one

An *encoding* turns a `MappingProblem` into a solver model and enumerates its assignments.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from prism.ir.program import DataDim

REPLICATED = None
"""What `Mapping.dim_of` gives where no data dimension is mapped along p."""


class ParKind(Enum):
    """Where a parallelization dimension runs."""

    GRID = "grid"
    BLOCK = "block"
    LOOP = "loop"


@dataclass(frozen=True, slots=True, order=True)
class ParDim:
    """A parallelization dimension: grid x, y, z or the loop i. Its size d_p is symbolic."""

    name: str
    kind: ParKind


GRID_DIMS = tuple(ParDim(name, ParKind.GRID) for name in "xyz")
LOOP_DIM = ParDim("i", ParKind.LOOP)


@dataclass(frozen=True, slots=True, order=True)
class MapVar:
    """The mapping variable m[tensor,dim,par]."""

    tensor: str
    dim: DataDim
    par: str

    def __str__(self) -> str:
        """As the paper prints it."""
        return f"m[{self.tensor},{self.dim},{self.par}]"


@dataclass(frozen=True, slots=True)
class Mapping:
    """The mapping variables that are true; all others are false. The value of an assignment."""

    true: frozenset[MapVar]

    def dim_of(self, tensor: str, par: str) -> DataDim | None:
        """The data dimension of `tensor` partitioned along `par`, or REPLICATED."""
        for var in self.true:
            if var.tensor == tensor and var.par == par:
                return var.dim
        return REPLICATED

    def __str__(self) -> str:
        """The true variables in order, e.g. `m[W,h,x] m[W,d,i]`."""
        return " ".join(str(v) for v in sorted(self.true))


Assignment = Mapping
"""One solution of a mapping problem."""


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A tensor at the border of a block graph: its dims, and whether it is an output.

    Outputs have no loop mapping: a loop leaves nothing partitioned.
    """

    name: str
    dims: tuple[DataDim, ...]
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class MappingProblem:
    """What an encoding gets.

    `equal` lists pairs of (tensor, dim) that dimension matching forces to be mapped alike along
    every p (along the loop only where both sides have loop variables). `must_partition` asks that
    every grid dim be used by some tensor: fewer grid dims is a problem with fewer.
    """

    tensors: tuple[MappedTensor, ...]
    grid: tuple[ParDim, ...]
    loops: tuple[ParDim, ...]
    equal: frozenset[tuple[tuple[str, DataDim], tuple[str, DataDim]]]
    must_partition: bool = True

    def variables(self) -> tuple[MapVar, ...]:
        """Every mapping variable, tensors in order, then dims, then grid dims before loops."""
        return tuple(
            MapVar(t.name, d, p.name)
            for t in self.tensors
            for d in t.dims
            for p in (*self.grid, *(() if t.is_output else self.loops))
        )


@dataclass(frozen=True, slots=True)
class Enumeration:
    """All assignments an encoding found, sorted; `complete` is false when a limit cut it short."""

    assignments: tuple[Assignment, ...]
    complete: bool
