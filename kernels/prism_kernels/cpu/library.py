"""Writes a call of NumPy for a kernel that the library runs: one contraction of whole tensors.

The operands are laid out as matrices, batch dims first, by views where there is one. The call
writes straight into the result where that is such a view too, with the operands swapped if its
columns come before its rows. What is stored narrower than float32 is copied to that and back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from prism.ir import DataDim
from prism_kernels.tile import Contract, Load, Store, Tensor, TileProgram


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A kernel that is one `numpy.matmul`."""

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


def library_call(program: TileProgram) -> LibraryCall | None:
    """The call that computes a tile program, if it is one contraction."""
    match program.nodes:
        case (Load(), Load(), Contract(left=i, right=j, dim=depth), Store(target=target)):
            sources = [n.source for n in program.nodes if isinstance(n, Load)]
            left, right = (program.inputs[sources[k]] for k in (i, j))
            return LibraryCall(program, left, right, program.outputs[target], depth)
        case _:
            return None


def emit_call(call: LibraryCall, name: str, *, copies: bool = False) -> str:
    """The function, of the kernel's arrays, that computes the contraction.

    With `copies`, arguments and results are not what the library multiplies.
    """
    batch, rows, columns = call.dims()
    left, right = call.left, call.right
    order = [d for d, _ in call.result.strides]
    if order == [*batch, *columns, *rows]:
        left, right, rows, columns = right, left, columns, rows
    depth = (call.depth,)
    groups = (batch, rows, columns)
    product = [
        f"    left = {_matrices(call, left, (batch, rows, depth), copies=copies)}",
        f"    right = {_matrices(call, right, (batch, depth, columns), copies=copies)}",
    ]
    is_in_order = order == [*batch, *rows, *columns]
    if copies and not call.program.is_between(call.result.name):
        values = "matmul(left, right)"
        if not is_in_order:
            values += _reordered(call, [*batch, *rows, *columns], order)
        product.append(f"    narrow_into(arrays[{call.result.position}], {values})")
    elif is_in_order:
        product.append(f"    matmul(left, right, out={_matrices(call, call.result, groups)})")
    else:
        whole = [call.program.sizes[d] for d in (*batch, *rows, *columns)]
        view = f"arrays[{call.result.position}]"
        view += _reordered(call, order, [*batch, *rows, *columns])
        product.append(f"    {view}[...] = matmul(left, right).reshape({whole})")
    lines = [f"def {name}(arrays):", f'    """{_described(call)}"""', *product]
    return "\n\n" + "\n".join(lines) + "\n"


def _reordered(call: LibraryCall, stored: Sequence[DataDim], wanted: Sequence[DataDim]) -> str:
    """What makes of an array with the dims as they are stored one with the dims as wanted."""
    shape = [call.program.sizes[d] for d in stored]
    return f".reshape({shape}).transpose({[stored.index(d) for d in wanted]})"


def _matrices(
    call: LibraryCall,
    tensor: Tensor,
    groups: Sequence[Sequence[DataDim]],
    *,
    copies: bool = False,
) -> str:
    """An array as matrices: an axis for each group of dims, batch first, if there is one."""
    stored = [d for d, _ in tensor.strides]
    wanted = [d for group in groups for d in group]
    shape = [call.extent(group) for group in groups]
    if not groups[0]:
        shape = shape[1:]
    text = f"arrays[{tensor.position}]"
    if copies and not call.program.is_between(tensor.name):
        text = f"widened({text})"
    if stored != wanted:
        text += _reordered(call, stored, wanted)
    return f"{text}.reshape({shape})"


def _described(call: LibraryCall) -> str:
    texts = (f"{t.name}[{', '.join(d for d, _ in t.strides)}]" for t in (call.left, call.right))
    result = f"{call.result.name}[{', '.join(d for d, _ in call.result.strides)}]"
    return f"{result} = {' '.join(texts)}, summed over {call.depth}."
