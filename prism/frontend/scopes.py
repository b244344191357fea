"""Names apart: a reduced dimension never has the name of another one that it meets further out.

In `(q @ k.T) @ v` with all three arguments `"s e"` the product of q and k reduces their e, and the
result has the e of v: two dimensions of one name. That is right as it stands, but no law may move v
into the inner product, where its e would be captured. So the inner one gets an alias.

A group of occurrences is renamed as a whole, so no input is read twice for it: in
`x / sqrt(mean(x * x))` both d are those of x, one group, and nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prism.ir import DataDim, DimGroups, Node, Occurrence, Output, rename_groups


def named_apart(
    nodes: Sequence[Node], outputs: Sequence[Output], alias: Callable[[DataDim], DataDim]
) -> tuple[tuple[Node, ...], tuple[Output, ...]]:
    """The same nodes and outputs; `alias` makes a further name of a dimension."""
    groups = DimGroups(nodes)
    shown = groups.shown(outputs)
    names: dict[Occurrence, DataDim] = {}
    for inner, outer in groups.captures():
        if inner in names or outer in names:
            continue  # they have different names already
        # what the caller sees keeps its name, where one of the two can
        moving = outer if inner in shown and outer not in shown else inner
        names[moving] = alias(moving[1])
    return rename_groups(groups, outputs, names) if names else (tuple(nodes), tuple(outputs))
