"""Dimension matching asked of Z3: do operands agree in shape for every d_p >= 1?

The paper asks a solver where `prism.search.dimension` compares mapping variables one by one. Along
one parallel dim a dim of size t d is t d long in a whole and t long in a tile; an operator fits if
no t and d make a shared dim longer in one operand than in another. Both ways drop the same; this
one is here to say so, and for what it costs (`--without dimension --also dimension-z3`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from prism.search import DimensionPruner, Partial, Tiled


class Z3DimensionPruner(DimensionPruner):
    """Drops operators whose operands differ in shape for some number of chunks."""

    name = "dimension-z3"
    is_optional = True

    def judge(self, partial: Partial) -> str | None:
        """Why the partial graph cannot be completed, or None."""
        match partial:
            case Tiled():
                return _mismatch(partial)
            case _:
                return super().judge(partial)


def _mismatch(tiled: Tiled) -> str | None:
    """Sizes for which the operands do not fit, or None."""
    import z3  # noqa: PLC0415 - every search loads every pruner, and Z3 takes longer than many

    context = z3.Context()
    tile, count = z3.Int("t", context), z3.Int("d", context)
    solver = z3.SimpleSolver(ctx=context)
    solver.set("ctrl_c", False)  # noqa: FBT003 - Z3's way to set a parameter
    solver.add(tile >= 1, count >= 1)
    lengths = {True: tile, False: tile * count}
    pairs = [lengths[is_tile] != lengths[is_other] for is_tile, is_other in _shared(tiled)]
    solver.add(z3.Or(*pairs, context))
    if solver.check() != z3.sat:
        return None  # also where Z3 gives up: a pruner drops only what it knows to be wrong
    model = solver.model()
    sizes = f"t = {model[tile]}, d = {model[count]}"
    return f"{tiled.op} of operands that differ in shape, as for {sizes}"


def _shared(tiled: Tiled) -> Iterator[tuple[bool, bool]]:
    """For each dim of two operands, whether each has a tile of it."""
    operands = zip(tiled.tiles, tiled.operand_dims, strict=True)
    for (tiles, dims), (other_tiles, other_dims) in combinations(operands, 2):
        shared = dims & other_dims
        for dim in range(shared.bit_length()):
            if shared >> dim & 1:
                yield bool(tiles >> dim & 1), bool(other_tiles >> dim & 1)
