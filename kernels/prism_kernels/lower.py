"""Lowers a muGraph to the tile programs of its kernels, and the tensors between them.

Here the mapping variables become axes (imap and fmap say how an input's tile is cut, omap where an
output's tile goes), symbolic sizes become numbers, and whatever cannot be run is refused with a
reason. `mean` becomes sum / size, the size of the whole dimension; an operator that a user defined
becomes its meaning. A stack dim has the size of the grid dim it is along; in the kernel that makes
it, it is no axis but the block's place in the stored tensor (`Store.stack`), in later kernels it is
a dim like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import assert_never

from prism.errors import KernelError
from prism.ir import (
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    Const,
    DataDim,
    GraphOp,
    Input,
    InputLoader,
    MuGraph,
    OpKind,
    OutputSaver,
    Program,
    SGraph,
    SizeOf,
    all_sizes,
    output_name,
    stack_dims,
    varies_along,
)
from prism_kernels.builder import Builder
from prism_kernels.forms import in_range
from prism_kernels.guards import OwnValues, own_values
from prism_kernels.sites import Site, grid_of, pars_of, sites_of
from prism_kernels.structure import Structure, resized, with_own_sizes
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Contract,
    GridDim,
    Intermediate,
    Load,
    Loop,
    Lowered,
    Map,
    Reduce,
    Scalar,
    Store,
    Tensor,
    TileProgram,
    ValueId,
    connected,
    prune,
    strides_of,
)
from prism_kernels.written_out import written_out


def lower(mu: MuGraph, *, has_library: bool = False) -> Lowered:
    """The tile programs of a muGraph, their exponentials range-safe.

    `has_library`: whether the target runs library kernels. They have a tile program like others.

    Raises:
        KernelError: a kernel of the graph cannot be run, or an exponential in it leaves the range
            of floating point where the program does not; the message says why.
    """
    if not has_library and any(op.library for op in mu.graph.kernels):
        raise KernelError("a kernel is left to a library, and this target has none")
    sites = sites_of(mu)
    pars = [pars_of(site) for site in sites]  # the counts are judged before the structure
    made = _lowered(Structure.of(mu))
    if isinstance(made, str):
        raise KernelError(made)
    return resized(made, sites[0].sizes, pars)


@lru_cache(maxsize=1024)
def _lowered(structure: Structure) -> Lowered | str:
    """The tile programs of a structure, at the counts of one of its muGraphs; or a refusal."""
    mu = structure.mu
    try:
        plain = tile_programs(mu)
        nodes = [node for program in plain.programs for node in program.nodes]
        if not any(isinstance(n, Map) and n.op == "exp" for n in nodes):
            return plain
        return in_range(plain, dict(mu.sizes), _own_values(mu.graph.program, mu.sizes))
    except KernelError as error:
        return str(error)


@lru_cache(maxsize=64)
def _own_values(program: Program, sizes: tuple[tuple[DataDim, int], ...]) -> OwnValues:
    """What the program itself computes."""
    builder, known = Builder(), dict(sizes)
    ids: list[ValueId] = []
    for node in program.nodes:
        match node:
            case Input(name=name, dims=dims):
                ids.append(builder.add(Load(name), (Axis(d) for d in dims)))
            case Const(value=value):
                ids.append(builder.add(Scalar(value)))
            case SizeOf(dim=dim):
                ids.append(builder.add(Scalar(float(known[dim]))))
            case Apply(op=op, operands=operands, dim=dim):
                ids.append(_apply(builder, op, tuple(ids[i] for i in operands), dim, known))
            case _:
                assert_never(node)
    inputs = _input_tensors(program, known)
    parts = (tuple(builder.nodes), tuple(builder.axes), tuple(builder.stages))
    return own_values(TileProgram(*parts, known, (), (), inputs, {}))


def tile_programs(mu: MuGraph) -> Lowered:
    """The tile programs of a muGraph as it stands.

    Raises:
        KernelError: a kernel of the graph cannot be run; the message says why.
    """
    program, sizes = mu.graph.program, all_sizes(mu)
    tensors = {output_name(k): _named(o.axes) for k, o in enumerate(program.outputs)}
    between = _between(mu.graph, sizes)
    tensors |= {t.name: t.dims for t in between}
    programs = [_tile_program(program, site, tensors) for site in sites_of(mu)]
    return with_own_sizes(connected(programs, between), stack_dims(mu.graph).keys())


def _between(graph: SGraph, sizes: Mapping[DataDim, int]) -> tuple[Intermediate, ...]:
    """What kernels write for later ones to read; each output is written by one of them."""
    program, outputs = graph.program, {output_name(k) for k in range(len(graph.program.outputs))}
    known = {i.name for i in program.inputs}
    read_later = [{n.source for n in op.block.loaders} for op in graph.kernels]
    out: list[Intermediate] = []
    for k, op in enumerate(graph.kernels):
        for loader in op.block.loaders:
            if loader.source not in known:
                raise KernelError(
                    f"a loader reads {loader.source!r}, which is no input of {program.name} and "
                    "saved by no earlier kernel"
                )
        for saver in op.block.savers:
            known.add(saver.target)
            if saver.target in outputs:
                continue
            if not any(saver.target in read for read in read_later[k + 1 :]):
                raise KernelError(
                    f"a saver writes {saver.target!r}, which is no output of {program.name} and "
                    "read by no later kernel"
                )
            shape = tuple(sizes[d] for d in saver.dims)
            out.append(Intermediate(saver.target, saver.dims, shape))
    for name in sorted(outputs - known):
        raise KernelError(f"no saver writes {name} of {program.name}")
    return tuple(out)


def _tile_program(
    program: Program, site: Site, tensors: Mapping[str, tuple[DataDim, ...]]
) -> TileProgram:
    """The tile program of one kernel; `tensors`: the dims, as stored, of all that is written."""
    op, sizes = site.op, site.sizes
    grid, loops = pars_of(site)
    builder = Builder(loops)
    ids: list[ValueId] = []
    for node in op.block.nodes:
        match node:
            case InputLoader(source=source, dims=dims):
                ids.append(builder.add(Load(source), _input_axes(op, source, dims)))
            case Const(value=value):
                ids.append(builder.add(Scalar(value)))
            case SizeOf(dim=dim):
                ids.append(builder.add(Scalar(float(sizes[dim]))))
            case Apply(op=name, operands=operands, dim=dim):
                ids.append(_apply(builder, name, tuple(ids[i] for i in operands), dim, sizes))
            case Accumulator(operand=operand):
                if not varies_along(op, node.par)[operand]:
                    _check_iterations(node, site, loops, grid)
                ids.append(_accumulate(builder, node, ids[operand]))
            case OutputSaver(operand=operand, target=target):
                axes, store = _store(site, ids[operand], target, tensors[target], grid)
                _check_output(builder, ids[operand], target, axes)
                ids.append(builder.add(store, axes))
            case _:
                assert_never(node)
    return prune(
        TileProgram(
            tuple(builder.nodes),
            tuple(builder.axes),
            tuple(builder.stages),
            sizes,
            grid,
            loops,
            _input_tensors(program, sizes),
            _output_tensors(program, sizes),
        )
    )


def _apply(
    builder: Builder,
    op: str,
    operands: tuple[ValueId, ...],
    dim: DataDim | None,
    sizes: Mapping[DataDim, int],
) -> ValueId:
    spec = OPS[op]
    match spec.kind:
        case OpKind.ELEMENTWISE if spec.definition is not None:
            return written_out(builder, spec.definition, operands)
        case OpKind.ELEMENTWISE:
            return builder.add(Map(op, operands))
        case OpKind.ALONG:
            raise KernelError(
                f"{op} mixes places along {dim}, which no emitter can do: kernels compute "
                "elementwise operators, reductions and contractions"
            )
        case OpKind.REDUCE | OpKind.CONTRACT:
            if dim is None or any(dim not in {a.dim for a in builder.axes[i]} for i in operands):
                raise KernelError(f"{op} over {dim!r} reads a value that has no such dimension")
    if spec.kind is OpKind.CONTRACT:
        left, right = operands
        return builder.add(Contract(left, right, dim))
    if op == "mean":
        total = builder.add(Reduce("sum", operands[0], dim))
        return builder.add(Map("div", (total, builder.add(Scalar(float(sizes[dim]))))))
    return builder.add(Reduce(op, operands[0], dim))


def _accumulate(builder: Builder, node: Accumulator, operand: ValueId) -> ValueId:
    source = builder.nodes[operand]
    ended = {loop.dim for loop in builder.loops if loop.name == node.par}
    looped = {a.dim for a in builder.axes[operand] if a.looped and a.dim in ended}
    is_concat = node.kind is AccumulatorKind.CONCAT
    if isinstance(source, Load) and is_concat and looped == {node.dim}:
        # the tiles of an input side by side are the input: nothing to store
        axes = (a.whole() if a.dim == node.dim else a for a in builder.axes[operand])
        return builder.add(source, axes)
    concatenated = {node.dim} if node.kind is AccumulatorKind.CONCAT else set()
    if looped != concatenated:
        raise KernelError(
            f"an accumulator ({node.kind.value}) of a value that the loop splits along "
            f"{', '.join(sorted(looped)) or 'nothing'}: concatenate that dimension, sum the others"
        )
    return builder.add(Accumulate(node.kind, operand, node.dim))


def _check_iterations(
    node: Accumulator, site: Site, loops: tuple[Loop, ...], grid: tuple[GridDim, ...]
) -> None:
    """A sum of equal values counts the iterations: each block must run all of them."""
    if len(loops) > 1:
        raise KernelError(
            f"an accumulator over {node.par}, one of two loops, of a value that is the same in "
            "every iteration"
        )
    sizes = site.sizes
    for g in grid:
        is_ragged = g.dim and g.dim in {loop.dim for loop in loops} and sizes[g.dim] % g.tile
        if node.kind is AccumulatorKind.SUM and is_ragged:
            raise KernelError(
                f"the sum over {node.par} of a value that is the same in every iteration needs "
                f"blocks of equal size, but {g.name} does not divide {g.dim}"
            )


def _input_axes(op: GraphOp, source: str, dims: tuple[DataDim, ...]) -> tuple[Axis, ...]:
    looped = {op.mapping.dim_of(source, p.name) for p in op.loops}
    return tuple(Axis(d, grid_of(op, source, d), d in looped) for d in dims)


def _store(
    site: Site,
    operand: ValueId,
    target: str,
    dims: tuple[DataDim, ...],
    grid: tuple[GridDim, ...],
) -> tuple[tuple[Axis, ...], Store]:
    """A store and its axes in storage order, `dims`; a stack dim is none of them."""
    axes = tuple(Axis(d, grid_of(site.op, target, d)) for d in dims if d not in site.stacks)
    stack = next(((d, site.stacks[d]) for d in dims if d in site.stacks), None)
    split = {a.grid for a in axes} | ({stack[1]} if stack else set())
    single = tuple(g.name for g in grid if g.name not in split and g.count > 1)
    return axes, Store(operand, target, single, stack)


def _check_output(builder: Builder, value: ValueId, target: str, axes: tuple[Axis, ...]) -> None:
    of_target = {a.dim: a for a in axes}
    for axis in builder.axes[value]:
        if of_target.get(axis.dim) != axis:
            raise KernelError(
                f"{target} is saved from a value whose dimension {axis.dim!r} is "
                f"{'a loop tile' if axis.looped else 'split otherwise, or is no axis of it'}"
            )


def _named(axes: tuple[DataDim | None, ...]) -> tuple[DataDim, ...]:
    return tuple(d for d in axes if d is not None)


def _input_tensors(program: Program, sizes: Mapping[DataDim, int]) -> dict[str, Tensor]:
    """Every input by name; aliases of one argument share its position."""
    positions = {a.name: k for k, a in enumerate(program.arguments)}
    return {
        i.name: Tensor(i.name, positions[i.argument], strides_of(i.dims, sizes))
        for i in program.inputs
    }


def _output_tensors(program: Program, sizes: Mapping[DataDim, int]) -> dict[str, Tensor]:
    first = len(program.arguments)
    return {
        output_name(k): Tensor(output_name(k), first + k, strides_of(out.axes, sizes))
        for k, out in enumerate(program.outputs)
    }
