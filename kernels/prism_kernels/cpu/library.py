"""Writes a call of NumPy for a kernel that the library runs: one contraction of whole tensors.

The operands are laid out as matrices, batch dims first, by views where there is one. The call
writes straight into the result where that is such a view too, with the operands swapped if its
columns come before its rows. What is stored narrower than float32 is copied to that and back.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism.ir import DataDim
from prism_kernels.library import LibraryCall, library_call
from prism_kernels.tile import Tensor

__all__ = ["LibraryCall", "emit_call", "library_call"]


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
    lines = [f"def {name}(arrays):", f'    """{call.describe()}"""', *product]
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
