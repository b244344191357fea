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

Two views of a problem are worked out here, because the search and several encodings need them: the
`groups` of places that (3) ties together, and the `columns` that (1) and (3) leave along one p.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    """A parallelization dimension: grid x, y, z, the loop i, j inside it. d_p is symbolic."""

    name: str
    kind: ParKind


GRID_DIMS = tuple(ParDim(name, ParKind.GRID) for name in "xyz")
LOOP_DIMS = tuple(ParDim(name, ParKind.LOOP) for name in "ij")
"""The outer loop and the inner one."""
LOOP_DIM = LOOP_DIMS[0]
"""The loop where there is only one."""


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

Place = tuple[str, DataDim]
"""A dim of a tensor, (tensor, dim): where a parallel dim may partition."""

Column = frozenset[Place]
"""The places partitioned along one parallel dim: one p's part of a mapping."""


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A tensor at the border of a block graph: its dims, and whether it is an output.

    Outputs have no loop mapping: a loop leaves nothing partitioned.
    """

    name: str
    dims: tuple[DataDim, ...]
    is_output: bool = False


@dataclass(frozen=True, slots=True)
class Legality:
    """What placement says of the columns of a problem: those it allows, the empty one left out.

    None stands for "not known": any column may be legal. The empty column, a parallel dim that
    partitions nothing, always is. All grid dims share one set, since renaming them changes nothing,
    and so do both loops, since what is legal along one does not depend on the other.
    """

    grid: frozenset[Column] | None = None
    loop: frozenset[Column] | None = None

    def of(self, par: ParDim) -> frozenset[Column] | None:
        """The legal columns of a parallel dim, or None where they are not known."""
        return self.loop if par.kind is ParKind.LOOP else self.grid


@dataclass(frozen=True, slots=True)
class MappingProblem:
    """What an encoding gets.

    `equal` lists pairs of (tensor, dim) that dimension matching forces to be mapped alike along
    every p (along the loop only where both sides have loop variables). `must_partition` asks that
    every grid dim be used by some tensor: fewer grid dims is a problem with fewer. `legal` is no
    rule: it is what placement knows, for encodings that declare to use it.
    """

    tensors: tuple[MappedTensor, ...]
    grid: tuple[ParDim, ...]
    loops: tuple[ParDim, ...]
    equal: frozenset[tuple[Place, Place]]
    must_partition: bool = True
    legal: Legality = Legality()

    def variables(self) -> tuple[MapVar, ...]:
        """Every mapping variable, tensors in order, then dims, then grid dims before loops."""
        return tuple(
            MapVar(t.name, d, p.name)
            for t in self.tensors
            for d in t.dims
            for p in (*self.grid, *(() if t.is_output else self.loops))
        )

    def groups(self, kind: ParKind) -> tuple[tuple[Place, ...], ...]:
        """The places that must be mapped alike along a grid dim or a loop, by first place.

        Outputs have no place along a loop, so they tie nothing together there.
        """
        is_loop = kind is ParKind.LOOP
        known = [(t.name, d) for t in self.tensors if not (is_loop and t.is_output) for d in t.dims]
        rank = {place: i for i, place in enumerate(known)}
        group_of = {place: [place] for place in known}
        for left, right in self.equal:
            if left in group_of and right in group_of:
                keep, merge = group_of[left], group_of[right]
                if keep is not merge:
                    keep.extend(merge)
                    group_of.update(dict.fromkeys(merge, keep))
        groups = {frozenset(group) for group in group_of.values()}
        return tuple(
            sorted(
                (tuple(sorted(g, key=rank.__getitem__)) for g in groups), key=lambda g: rank[g[0]]
            )
        )

    def columns(self, kind: ParKind) -> Iterator[Column]:
        """Every column that (1) and (3) allow along one grid dim or loop, lazily.

        In order, the column read as a binary number whose first place is the highest digit.
        """
        groups = [
            (frozenset(group), tensors)
            for group in self.groups(kind)
            # a group with two dims of one tensor can never be partitioned
            if len(tensors := frozenset(t for t, _ in group)) == len(group)
        ]
        stack: list[tuple[int, Column, frozenset[str]]] = [(0, frozenset(), frozenset())]
        while stack:
            i, column, taken = stack.pop()
            if i == len(groups):
                yield column
                continue
            group, tensors = groups[i]
            if taken.isdisjoint(tensors):
                stack.append((i + 1, column | group, taken | tensors))
            stack.append((i + 1, column, taken))

    def canonical(self) -> MappingProblem:
        """The same problem, with one choice of `equal` for all that tie the same places together.

        Problems that differ in nothing else are equal in this form, and have one answer.
        """
        outputs = {t.name for t in self.tensors if t.is_output}
        looped = self.groups(ParKind.LOOP)
        first_of = {place: group[0] for group in looped for place in group}
        equal = {(group[0], place) for group in looped for place in group[1:]}
        for group in self.groups(ParKind.GRID):
            # an output is tied to the others along grid dims, and ties them there alone
            hubs = [place for place in group if place[0] in outputs][:1]
            equal |= {(hub, first_of.get(place, place)) for hub in hubs for place in group}
            equal -= {(hub, hub) for hub in hubs}
        legal = Legality(
            grid=self.legal.grid if self.grid else None,
            loop=self.legal.loop if self.loops else None,
        )
        return replace(self, equal=frozenset(equal), legal=legal)


@dataclass(frozen=True, slots=True)
class Enumeration:
    """All assignments an encoding found, sorted; `complete` is false when a limit cut it short."""

    assignments: tuple[Assignment, ...]
    complete: bool
