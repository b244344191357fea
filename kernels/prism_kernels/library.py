"""The kernels that a library runs: one contraction of whole tensors, whatever the target.

Each target calls its own library (`prism_kernels.cpu.library`, `prism_kernels.cuda.product`); what
is multiplied, and in which order of dims, is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prism.ir import DataDim
from prism_kernels.tile import Contract, Load, Store, Tensor, TileProgram


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A kernel that is one product of matrices, or of many of them."""

    program: TileProgram
    left: Tensor
    right: Tensor
    result: Tensor
    depth: DataDim

    def dims(self) -> tuple[tuple[DataDim, ...], ...]:
        """The dims of the batch, the rows and the columns, as the result has them in order."""
        left, right = ({d for d, _ in t.strides} for t in (self.left, self.right))
        order = [d for d, _ in self.result.strides]
        batch = tuple(d for d in order if d in left and d in right)
        return batch, *(tuple(d for d in order if d in t and d not in batch) for t in (left, right))

    def extent(self, dims: Sequence[DataDim]) -> int:
        """How many elements some dims have."""
        return math.prod(self.program.sizes[d] for d in dims)

    def describe(self) -> str:
        """What it computes: `t0[n, f] = x[n, d] w[d, f], summed over d.` or the like."""
        left, right, result = (
            f"{t.name}[{', '.join(d for d, _ in t.strides)}]"
            for t in (self.left, self.right, self.result)
        )
        return f"{result} = {left} {right}, summed over {self.depth}."


def library_call(program: TileProgram) -> LibraryCall | None:
    """The call that computes a tile program, if it is one contraction."""
    match program.nodes:
        case (Load(), Load(), Contract(left=i, right=j, dim=depth), Store(target=target)):
            sources = [n.source for n in program.nodes if isinstance(n, Load)]
            left, right = (program.inputs[sources[k]] for k in (i, j))
            return LibraryCall(program, left, right, program.outputs[target], depth)
        case _:
            return None
