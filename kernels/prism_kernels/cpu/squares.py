"""Which contractions make the sums of squares of what they stream.

A contraction in DOT form has each row of its stream in registers once. Where a kernel also needs
the row's sum of squares (keys that are normalised, cosines), it costs one more multiply-add there,
and a second pass over the stream otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from prism_kernels.cpu.contraction import Contraction, Form
from prism_kernels.nests import Nest, Nests
from prism_kernels.tile import Accumulate, Map, Reduce, TileProgram, ValueId


def sums_of_squares(
    program: TileProgram,
    nests: Nests,
    contractions: Mapping[ValueId, Contraction],
    packs: Collection[ValueId],
) -> dict[ValueId, Nest]:
    """Contraction -> the nest of two nodes, a square and its sum, that it makes as well.

    What is copied densely (`packs`) is made by its own nest, after which the copy is made.
    """
    found: dict[ValueId, Nest] = {}
    for i, c in contractions.items():
        if c.form is not Form.DOT or i in nests.sinks:
            continue
        for nest in nests.of_stage(nests.of_node(i).stage):
            if nest in found.values() or nest.nodes[-1] in packs:
                continue
            if _sums_squares(program, nest, c) and _is_in_time(program, nests, i, nest):
                found[i] = nest
                break
    return found


def _sums_squares(program: TileProgram, nest: Nest, c: Contraction) -> bool:
    """Whether a nest sums the squares of a contraction's stream along the contracted axis."""
    if len(nest.nodes) != 2:
        return False
    square, total = (program.nodes[i] for i in nest.nodes)
    if not (isinstance(square, Map) and isinstance(total, Reduce)):
        return False
    is_square = (square.op, square.operands) in {
        ("square", (c.stream,)),
        ("mul", (c.stream, c.stream)),
    }
    return is_square and (total.op, total.operand, total.dim) == ("sum", nest.nodes[0], c.depth.dim)


def _is_in_time(program: TileProgram, nests: Nests, i: ValueId, nest: Nest) -> bool:
    """Whether nothing needs the sum before contraction i, nor the squares.

    Nor may the sum be added over a loop, or be put beside others that are rescaled before it.
    """
    square, total = nest.nodes
    users = program.users()
    if users[square] != (total,) or total in nests.sinks:
        return False
    if total in nests.slices:
        whole = program.nodes[nests.slices[total]]
        if isinstance(whole, Accumulate) and whole.scales:
            return False
    order = nests.of_stage(nest.stage)
    before = order[: order.index(nests.of_node(i)) + 1]
    return not any(j in other.nodes for other in before for j in users[total])
