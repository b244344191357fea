"""What of a lowered graph depends on its counts: a graph is lowered once for all of them.

Nodes, axes and stages follow from the graph and the sizes of its data dims. The counts decide how
long tiles are and how often loops run; they change a node only where a sum over a loop adds what is
the same in every iteration, and nothing else asks more than whether a count is 1. So `lower` keeps
what it made for one choice of counts (`Structure` is the key), and `resized` gives it others. A
tuner asks for thousands of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Self

from prism.ir import Accumulator, DataDim, MuGraph, SGraph, varies_along
from prism_kernels.tile import (
    GridDim,
    Intermediate,
    Loop,
    Lowered,
    Tensor,
)


@dataclass(frozen=True, slots=True)
class Structure:
    """Equal for muGraphs that are lowered to the same nodes; `mu` is one of them."""

    graph: SGraph
    sizes: tuple[tuple[DataDim, int], ...]
    units: tuple[tuple[str, ...], ...]
    """For each kernel the parallelization dims of size 1."""
    counts: tuple[tuple[tuple[str, int], ...], ...]
    """Where iterations are counted, all counts."""
    mu: MuGraph = field(compare=False)

    @classmethod
    def of(cls, mu: MuGraph) -> Self:
        """The structure of a muGraph."""
        units = tuple(tuple(p for p, n in counts if n == 1) for counts in mu.par_sizes)
        counts = mu.par_sizes if _counts_iterations(mu.graph) else ()
        return cls(mu.graph, mu.sizes, units, counts, mu)


@lru_cache(maxsize=1024)
def _counts_iterations(graph: SGraph) -> bool:
    """Whether an accumulator combines a value that is the same in every iteration."""
    return any(
        isinstance(node, Accumulator) and not varies_along(op, node.par)[node.operand]
        for op in graph.kernels
        for node in op.block.nodes
    )


def resized(
    lowered: Lowered,
    sizes: Mapping[DataDim, int],
    pars: Sequence[tuple[tuple[GridDim, ...], tuple[Loop, ...]]],
) -> Lowered:
    """The same nodes for other counts: each kernel's grid and loops, and the sizes they give."""
    between = tuple(
        Intermediate(t.name, t.dims, tuple(sizes[d] for d in t.dims)) for t in lowered.between
    )
    strides = {t.name: t.strides for t in between}
    programs = []
    for program, (grid, loops) in zip(lowered.programs, pars, strict=True):
        inputs, outputs = _restrided(program.inputs, strides), _restrided(program.outputs, strides)
        own = {dim: sizes[dim] for dim in program.sizes}
        programs.append(
            replace(program, sizes=own, grid=grid, loops=loops, inputs=inputs, outputs=outputs)
        )
    return Lowered(tuple(programs), between)


def with_own_sizes(lowered: Lowered, stacks: Collection[DataDim]) -> Lowered:
    """The same without the sizes of stack dims that a kernel has nothing to do with.

    Kernels that differ in nothing else are equal then, whatever is chosen for others.
    """
    programs = []
    for program in lowered.programs:
        tensors = (*program.inputs.values(), *program.outputs.values())
        touched = {dim for tensor in tensors for dim, _ in tensor.strides}
        own = {d: n for d, n in program.sizes.items() if d in touched or d not in stacks}
        programs.append(replace(program, sizes=own))
    return replace(lowered, programs=tuple(programs))


def _restrided(
    tensors: Mapping[str, Tensor], strides: Mapping[str, tuple[tuple[DataDim, int], ...]]
) -> Mapping[str, Tensor]:
    """Tensors, those between kernels with new strides."""
    if not strides.keys() & tensors.keys():
        return tensors
    return {
        name: replace(t, strides=strides[name]) if name in strides else t
        for name, t in tensors.items()
    }
