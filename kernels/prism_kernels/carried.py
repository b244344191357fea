"""Range references in memory: what a kernel stores of them, and what later kernels load.

A value that one kernel stores for another keeps its references (`range_safe`): each lies in a
tensor of its own beside the value. Where the blocks along a grid dim have their own references, as
those that each sum over a part of an axis do, they are stacked along it as the value is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prism.ir import DataDim
from prism_kernels.builder import Builder
from prism_kernels.tile import (
    Axis,
    Contract,
    Intermediate,
    Load,
    Lowered,
    Reduce,
    Store,
    TileProgram,
    ValueId,
    connected,
    operands,
    prune,
)

References = dict[ValueId, float]
"""Reference value -> exponent, none of them 0."""

Stack = tuple[DataDim, str]
"""A stack dim and the grid dim it is along."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A reference in memory: its tensor, and the axes it is a max over."""

    tensor: Intermediate
    over: frozenset[DataDim]


@dataclass(slots=True)
class Carried:
    """What the kernels of a graph know of its tensors; each adds to it."""

    references: dict[str, tuple[tuple[Stored, float], ...]]
    """Tensor between kernels -> the references stored beside it, with their exponents."""
    plain: frozenset[str]
    """Tensors that are needed without references."""


class Memory:
    """The references that one kernel loads and stores; the latter go into `carried`.

    Its `builder` makes the kernel's new program.
    """

    def __init__(
        self,
        program: TileProgram,
        carried: Carried,
        between: Sequence[Intermediate],
    ) -> None:
        self.builder = Builder(program.loops)
        self.summed_axes: dict[
            ValueId, frozenset[DataDim]
        ] = {}  # reference -> what it is a max over
        self._program = program
        self._carried = carried
        self._names = {*(t.name for t in between), *program.inputs, *program.outputs}
        self._stored: dict[tuple[ValueId, Stack | None], Stored] = {}
        self._own: dict[ValueId, frozenset[str]] = {}  # value -> see `_own_along`

    @property
    def added(self) -> list[Intermediate]:
        """The tensors of the references that were stored."""
        return [stored.tensor for stored in self._stored.values()]

    def load(self, node: Load, axes: tuple[Axis, ...]) -> References:
        """The references stored beside what is loaded."""
        by_dim = {a.dim: a for a in axes}
        out: References = {}
        for stored, c in self._carried.references.get(node.source, ()):
            order = (by_dim[d] for d in stored.tensor.dims)
            m = self.builder.add(Load(stored.tensor.name), order)
            self.summed_axes[m] = stored.over
            out[m] = c
        return out

    def store(self, node: Store, references: References) -> bool:
        """Stores the references of a stored value beside it; whether it can be done."""
        if not self._program.is_between(node.target) or node.target in self._carried.plain:
            return False
        own = {par for m in references for par in self._own_along(m)}
        if not own <= ({node.stack[1]} if node.stack else set()):
            return False
        saved = ((self._saved(m, node), c) for m, c in references.items())
        self._carried.references[node.target] = tuple(saved)
        return True

    def require_plain(self, name: str) -> None:
        """Note that a loaded tensor is needed without references."""
        self._carried.plain |= {name}

    def _saved(self, m: ValueId, value: Store) -> Stored:
        """Stores reference m of a value, once where several values have it."""
        stack = value.stack if self._own_along(m) else None
        if (m, stack) not in self._stored:
            by_dim = {a.dim: a for a in self.builder.axes[m]}
            order = [d for d, _ in self._program.outputs[value.target].strides]
            axes = [by_dim[d] for d in order if d in by_dim]
            split = {a.grid for a in axes} | ({stack[1]} if stack else set())
            single = tuple(
                g.name for g in self._program.grid if g.count > 1 and g.name not in split
            )
            dims = tuple(d for d in order if d in by_dim or (stack and d == stack[0]))
            tensor = Intermediate(
                self._free_name(f"{value.target}_max"),
                dims,
                tuple(self._program.sizes[d] for d in dims),
            )
            self.builder.add(Store(m, tensor.name, single, stack), axes)
            self._stored[m, stack] = Stored(tensor, self.summed_axes[m])
        return self._stored[m, stack]

    def _free_name(self, name: str) -> str:
        while name in self._names:
            name += "_"
        self._names.add(name)
        return name

    def _own_along(self, i: ValueId) -> frozenset[str]:
        """The grid dims along which new value i is of the block's chunk of an axis it has not."""
        if i not in self._own:
            node = self.builder.nodes[i]
            out = {par for j in operands(node) for par in self._own_along(j)}
            if isinstance(node, Reduce | Contract):
                axes = (a for j in operands(node) for a in self.builder.axes[j])
                split = (a for a in axes if a.dim == node.dim and self._program.is_split(a))
                out |= {a.grid for a in split if a.grid is not None}
            self._own[i] = frozenset(out)
        return self._own[i]


def without_unread(
    programs: Sequence[TileProgram], plain: Sequence[Intermediate], between: Sequence[Intermediate]
) -> Lowered:
    """The programs without references that no later kernel reads; `plain` are no references."""
    unread = {t.name for t in between} - {t.name for t in plain}
    pruned: list[TileProgram] = []
    for program in reversed(programs):
        pruned.insert(0, prune(program, unread))
        unread -= {n.source for n in pruned[0].nodes if isinstance(n, Load)}
    return connected(pruned, [t for t in between if t.name not in unread])
