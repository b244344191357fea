"""Lines up two programs: arguments by position, dimensions by where the arguments carry them.

The other program is rewritten in the names of the base program. A size that the arguments fix is
matched by position. Dimensions that share one size (X X^T uses one axis twice) may pair up in more
than one way; each way that agrees with the outputs is offered, and equality under any of them is
equality.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice, permutations, product

from prism.ir import (
    Apply,
    Const,
    DataDim,
    DimGroups,
    DimInfo,
    Input,
    Node,
    Occurrence,
    Output,
    Program,
    SizeOf,
    rename_groups,
)

MAX_PAIRINGS = 64


class MismatchError(Exception):
    """Why two programs cannot be the same function: arguments or outputs differ."""


@dataclass(frozen=True, slots=True)
class Pairing:
    """The other program in the base's names; `dims` are those the base lacks."""

    program: Program
    dims: tuple[DimInfo, ...]


def pairings(base: Program, other: Program, *, is_exact: bool = False) -> Iterator[Pairing]:
    """Every way to write `other` in the names of `base`, at most `MAX_PAIRINGS`.

    `is_exact`: `base` may not ask more of the sizes than `other` either (a graph's program is the
    base, but it is the candidate: it must take all sizes that the reference takes).

    Raises:
        MismatchError: the number or rank of arguments or outputs differ, or `other` asks sizes to
            be equal or fixed that are free in `base` (or the reverse, where `is_exact`).
    """
    _check_outputs(base, other)
    roots = _match_sizes(base, other)
    if is_exact:
        _check_not_narrower(base, other, roots)
    return islice(_renamed(base, other, roots), MAX_PAIRINGS)


def named_alike(program: Program) -> Program:
    """The program with the name of its size for each dimension that is reduced where that is free.

    The front end names apart what shares a name by accident; `sum(x) + sum(y) = sum(x + y)` needs
    both under one name.
    """
    sizes = {d.name: d.size for d in program.dims}
    nodes, outputs = program.nodes, program.outputs
    while True:
        groups = DimGroups(nodes)
        names = _next_alike(groups, groups.shown(outputs), sizes)
        if not names:
            break
        nodes, outputs = rename_groups(groups, outputs, names)
    used = {d for n in nodes if isinstance(n, Input) for d in n.dims}
    used |= {d for a in program.arguments for d in a.axes if d is not None}
    used |= {n.dim for n in nodes if isinstance(n, SizeOf)}
    dims = tuple(d for d in program.dims if d.name in used or d.size == d.name)
    return replace(program, dims=dims, nodes=nodes, outputs=outputs)


def _next_alike(
    groups: DimGroups, shown: frozenset[Occurrence], sizes: Mapping[DataDim, DataDim]
) -> dict[Occurrence, DataDim]:
    """A group that can take the name of its size, with that name; empty when there is none."""
    taken: dict[Occurrence, None] = {}
    clashing: set[Occurrence] = set()
    for i in range(len(groups.nodes)):
        span = groups.span(i)
        taken |= dict.fromkeys(span.values())
        clashing.update(group for dim, group in span.items() if sizes[dim] in span.keys() - {dim})
    for group in taken:
        size = sizes[group[1]]
        if group not in shown and group not in clashing and group[1] != size:
            return {group: size}
    return {}


def _check_outputs(base: Program, other: Program) -> None:
    if len(base.outputs) != len(other.outputs):
        raise MismatchError(
            f"{base.name} returns {len(base.outputs)} arrays and {other.name} {len(other.outputs)}"
        )
    for index, (a, b) in enumerate(zip(base.outputs, other.outputs, strict=True)):
        if [d is None for d in a.axes] != [d is None for d in b.axes]:
            raise MismatchError(
                f"output {index} has axes {_axes(a.axes)} in {base.name} and {_axes(b.axes)} in "
                f"{other.name}"
            )


def _match_sizes(base: Program, other: Program) -> Mapping[DataDim, DataDim]:
    """Size name of `other` -> size name of `base`, from the axes of the arguments."""
    if len(base.arguments) != len(other.arguments):
        raise MismatchError(
            f"{base.name} takes {len(base.arguments)} arguments and {other.name} "
            f"{len(other.arguments)}"
        )
    base_dims = {d.name: d for d in base.dims}
    other_dims = {d.name: d for d in other.dims}
    roots: dict[DataDim, DataDim] = {}
    for a, b in zip(base.arguments, other.arguments, strict=True):
        if [d is None for d in a.axes] != [d is None for d in b.axes]:
            raise MismatchError(
                f"argument {a.name!r} has axes {_axes(a.axes)} in {base.name}, and in its place "
                f"{b.name!r} has {_axes(b.axes)} in {other.name}"
            )
        for x, y in zip(a.axes, b.axes, strict=True):
            if x is None or y is None:
                continue
            size, wanted = base_dims[x].size, other_dims[y].size
            if roots.setdefault(wanted, size) != size:
                raise MismatchError(
                    f"{other.name} needs sizes {roots[wanted]} and {size} of {base.name} to be "
                    "equal"
                )
            fixed = other_dims[wanted].fixed
            if fixed is not None and base_dims[size].fixed != fixed:
                raise MismatchError(f"{other.name} only takes {size} = {fixed}")
    return roots


def _check_not_narrower(base: Program, other: Program, roots: Mapping[DataDim, DataDim]) -> None:
    """`base` takes every size that `other` takes: none is fixed or tied to another in it alone."""
    base_fixed = {d.name: d.fixed for d in base.dims}
    other_fixed = {d.name: d.fixed for d in other.dims}
    origin: dict[DataDim, DataDim] = {}
    for size, root in roots.items():
        fixed = base_fixed[root]
        if fixed is not None and other_fixed[size] != fixed:
            raise MismatchError(f"{base.name} only takes {size} = {fixed}, {other.name} any size")
        first = origin.setdefault(root, size)
        if first != size and fixed is None:
            raise MismatchError(
                f"{base.name} needs sizes {first} and {size} of {other.name} to be equal"
            )


def _renamed(base: Program, other: Program, roots: Mapping[DataDim, DataDim]) -> Iterator[Pairing]:
    groups: dict[DataDim, list[DataDim]] = {}
    for dim in other.dims:
        if dim.size not in roots:
            raise MismatchError(f"{other.name} has a size {dim.size} that no argument carries")
        groups.setdefault(roots[dim.size], []).append(dim.name)
    choices: list[list[dict[DataDim, DataDim]]] = []
    fresh: list[DimInfo] = []
    for size, names in groups.items():
        known = [d.name for d in base.dims if d.size == size]
        extra = [DimInfo(f"{size}~other{i}", size) for i in range(len(known), len(names))]
        fresh += extra
        targets = (*known, *(d.name for d in extra))
        choices.append(
            [
                dict(zip(names, order, strict=True))
                for order in islice(permutations(targets, len(names)), MAX_PAIRINGS)
            ]
        )
    for parts in product(*choices):
        names_of = {old: new for part in parts for old, new in part.items()}
        if _outputs_agree(base, other, names_of):
            yield Pairing(_rename(base, other, (*base.dims, *fresh), names_of), tuple(fresh))


def _outputs_agree(base: Program, other: Program, names: Mapping[DataDim, DataDim]) -> bool:
    return all(
        a.axes == tuple(None if d is None else names[d] for d in b.axes)
        for a, b in zip(base.outputs, other.outputs, strict=True)
    )


def _rename(
    base: Program, other: Program, dims: tuple[DimInfo, ...], names: Mapping[DataDim, DataDim]
) -> Program:
    """`other` with the base's names for dimensions, arguments and inputs."""
    arguments = {b.name: a.name for a, b in zip(base.arguments, other.arguments, strict=True)}
    inputs = {(i.argument, i.dims): i.name for i in base.inputs}

    def node(old: Node) -> Node:
        match old:
            case Input(argument=argument, dims=dims):
                key = (arguments[argument], tuple(names[d] for d in dims))
                name = inputs.get(key, f"{key[0]}({' '.join(key[1])})")
                return Input(name, *key)
            case Apply(dim=dim) if dim is not None:
                return replace(old, dim=names[dim])
            case SizeOf(dim=dim):
                return SizeOf(names[dim])
            case Apply() | Const():
                return old

    return Program(
        name=other.name,
        dims=dims,
        arguments=base.arguments,
        nodes=tuple(node(old) for old in other.nodes),
        outputs=tuple(
            Output(o.tensor, tuple(None if d is None else names[d] for d in o.axes))
            for o in other.outputs
        ),
    )


def _axes(axes: tuple[DataDim | None, ...]) -> str:
    return f"({', '.join('1' if d is None else d for d in axes)})"
