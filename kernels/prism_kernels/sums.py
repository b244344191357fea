"""Over which axes the values of a graph's kernels are summed, in their own kernel and later ones.

What counts are sums that a value reaches through operators that scale with it (`TRANSPARENT`), and
in later kernels those of the tensors that it is stored in.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism.ir import DataDim
from prism_kernels.tile import Accumulate, Contract, Load, Map, Reduce, Store, TileProgram, ValueId

TRANSPARENT = frozenset(
    {"mul", "div", "neg", "abs", "relu", "square", "sqrt", "reciprocal", "rsqrt"}
)


class Sums:
    """The sums of a graph's kernels."""

    def __init__(self, programs: Sequence[TileProgram]) -> None:
        self._programs = programs
        self._users = [program.users() for program in programs]

    def of(self, kernel: int, value: ValueId) -> tuple[set[DataDim], set[DataDim]]:
        """The axes over which a value of a kernel is summed: there, and in later kernels."""
        program = self._programs[kernel]
        here: set[DataDim] = set()
        later: set[DataDim] = set()
        seen, todo = {value}, [value]
        while todo:
            for j in self._users[kernel][todo.pop()]:
                match program.nodes[j]:
                    case Reduce(op="sum", dim=dim) | Contract(dim=dim):
                        here.add(dim)
                        if j not in seen:
                            todo.append(j)
                    case Map(op=op) if op in TRANSPARENT and j not in seen:
                        todo.append(j)
                    case Accumulate() if j not in seen:
                        todo.append(j)
                    case Store(target=target) if program.is_between(target):
                        later |= self._of_tensor(kernel, target)
                    case _:
                        continue
                seen.add(j)
        return here, later

    def _of_tensor(self, kernel: int, name: str) -> set[DataDim]:
        """The axes over which later kernels sum a tensor."""
        out: set[DataDim] = set()
        for k in range(kernel + 1, len(self._programs)):
            for i, node in enumerate(self._programs[k].nodes):
                if isinstance(node, Load) and node.source == name:
                    out.update(*self.of(k, i))
        return out
