"""Lowers a muGraph to the tile program of its kernel.

Here the mapping variables become axes (imap and fmap say how an input's tile is cut, omap where an
output's tile goes), symbolic sizes become numbers, and whatever cannot be run is refused with a
reason. `mean` becomes sum / size, the size of the whole dimension.
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
    BlockGraph,
    Const,
    DataDim,
    GraphOp,
    Input,
    InputLoader,
    MuGraph,
    OpKind,
    OutputSaver,
    Program,
    SizeOf,
    chunk,
    is_legal_count,
    output_name,
)
from prism_kernels.guards import OwnValues, own_values, unguarded
from prism_kernels.range_safe import safe_forms
from prism_kernels.tile import (
    Accumulate,
    Axis,
    Builder,
    Contract,
    GridDim,
    Load,
    Loop,
    Map,
    Reduce,
    Scalar,
    Stage,
    Store,
    Tensor,
    TileProgram,
    ValueId,
    prune,
)


def lower(mu: MuGraph) -> TileProgram:
    """The tile program of a muGraph, its exponentials range-safe.

    Raises:
        KernelError: the graph cannot be run as one kernel, or an exponential in it leaves the range
            of floating point where the program does not; the message says why.
    """
    plain = tile_program(mu)
    if not any(isinstance(n, Map) and n.op == "exp" for n in plain.nodes):
        return plain
    own = _own_values(mu.graph.program, mu.sizes)
    fault: str | None = None
    for form in safe_forms(plain):
        found = _divided_by_running(form) or unguarded(form, own)
        if found is None:
            return form
        fault = fault or found
    raise KernelError(fault or "")


def _divided_by_running(form: TileProgram) -> str | None:
    """Why a running reference cannot be followed: a quotient by it grows as the reference does.

    Before the first iteration the reference is the lowest number, and the factor infinite.
    """
    for node in form.nodes:
        if isinstance(node, Accumulate) and any(c < 0 for _, c in node.scales):
            return "what is added up over the loop is divided by exponentials of other iterations"
    return None


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
    return own_values(TileProgram(*parts, known, (), None, inputs, {}))


def tile_program(mu: MuGraph) -> TileProgram:
    """The tile program of a muGraph as it stands.

    Raises:
        KernelError: the graph cannot be run as one kernel; the message says why.
    """
    if len(mu.graph.kernels) != 1:
        raise KernelError(f"this target runs graphs of one kernel, not {len(mu.graph.kernels)}")
    op, program = mu.graph.kernels[0], mu.graph.program
    sizes = dict(mu.sizes)
    counts = dict(mu.par_sizes[0])
    grid = tuple(_grid_dim(op, name.name, counts, sizes) for name in op.grid)
    loop = _loop(op, counts, sizes, grid)
    builder = Builder()
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
                if builder.stages[ids[operand]] is Stage.BEFORE:
                    _check_iterations(node, loop, sizes, grid)
                ids.append(_accumulate(builder, node, ids[operand]))
            case OutputSaver(operand=operand, target=target):
                axes, single = _output_axes(op, program, target, grid)
                _check_output(builder, ids[operand], target, axes)
                ids.append(builder.add(Store(ids[operand], target, single), axes))
            case _:
                assert_never(node)
    _check_sources(op.block, program)
    return prune(
        TileProgram(
            tuple(builder.nodes),
            tuple(builder.axes),
            tuple(builder.stages),
            sizes,
            grid,
            loop,
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
        case OpKind.ELEMENTWISE:
            return builder.add(Map(op, operands))
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
    looped = {a.dim for a in builder.axes[operand] if a.looped}
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
    node: Accumulator, loop: Loop | None, sizes: Mapping[DataDim, int], grid: tuple[GridDim, ...]
) -> None:
    """A sum of equal values counts the iterations: each block must run all of them."""
    for g in grid:
        is_ragged = loop is not None and g.dim == loop.dim and g.dim and sizes[g.dim] % g.tile
        if node.kind is AccumulatorKind.SUM and is_ragged:
            raise KernelError(
                f"the sum over {node.par} of a value that is the same in every iteration needs "
                f"blocks of equal size, but {g.name} does not divide {g.dim}"
            )


def _mapped_dim(op: GraphOp, par: str) -> DataDim | None:
    """The data dim split along a parallel dim, by whatever tensor."""
    dims = {v.dim for v in op.mapping.true if v.par == par}
    if len(dims) > 1:
        raise KernelError(
            f"{par} splits {' and '.join(sorted(dims))}: a parallel dim may split one data dim only"
        )
    return next(iter(dims), None)


def _count(counts: Mapping[str, int], par: str, dim: DataDim | None, size: int) -> int:
    if par not in counts:
        raise KernelError(f"the muGraph gives no size for parallel dim {par!r}")
    count = counts[par]
    if count < 1 or (dim is not None and not is_legal_count(size, count)):
        raise KernelError(
            f"{par} cannot split {dim or 'nothing'} of size {size} in {count} chunks: "
            "one would be empty"
        )
    return count


def _grid_dim(
    op: GraphOp, par: str, counts: Mapping[str, int], sizes: Mapping[DataDim, int]
) -> GridDim:
    dim = _mapped_dim(op, par)
    size = 1 if dim is None else sizes[dim]
    count = _count(counts, par, dim, size)
    return GridDim(par, count, dim, chunk(size, count) if dim is not None else 0)


def _loop(
    op: GraphOp,
    counts: Mapping[str, int],
    sizes: Mapping[DataDim, int],
    grid: tuple[GridDim, ...],
) -> Loop | None:
    if len(op.loops) > 1:
        raise KernelError(f"this target runs one loop, not {len(op.loops)}")
    for par in op.loops:
        dim = _mapped_dim(op, par.name)
        size = 1 if dim is None else min((g.tile for g in grid if g.dim == dim), default=sizes[dim])
        count = _count(counts, par.name, dim, size)
        return Loop(par.name, count, dim, chunk(size, count) if dim is not None else 0)
    return None


def _grid_of(op: GraphOp, tensor: str, dim: DataDim) -> str | None:
    """The grid dim that splits `dim` of `tensor`."""
    names = [p.name for p in op.grid if op.mapping.dim_of(tensor, p.name) == dim]
    if len(names) > 1:
        raise KernelError(f"{' and '.join(names)} both split {dim} of {tensor}")
    return names[0] if names else None


def _input_axes(op: GraphOp, source: str, dims: tuple[DataDim, ...]) -> tuple[Axis, ...]:
    looped = {op.mapping.dim_of(source, p.name) for p in op.loops}
    return tuple(Axis(d, _grid_of(op, source, d), d in looped) for d in dims)


def _output_axes(
    op: GraphOp, program: Program, target: str, grid: tuple[GridDim, ...]
) -> tuple[tuple[Axis, ...], tuple[str, ...]]:
    """The axes of an output in its storage order, and the grid dims it is not split along."""
    known = {output_name(k): out for k, out in enumerate(program.outputs)}
    if target not in known:
        raise KernelError(f"a saver writes {target!r}, which is no output of {program.name}")
    axes = tuple(Axis(d, _grid_of(op, target, d)) for d in known[target].axes if d is not None)
    split = {a.grid for a in axes}
    return axes, tuple(g.name for g in grid if g.name not in split and g.count > 1)


def _check_output(builder: Builder, value: ValueId, target: str, axes: tuple[Axis, ...]) -> None:
    of_target = {a.dim: a for a in axes}
    for axis in builder.axes[value]:
        if of_target.get(axis.dim) != axis:
            raise KernelError(
                f"{target} is saved from a value whose dimension {axis.dim!r} is "
                f"{'a loop tile' if axis.looped else 'split otherwise, or is no axis of it'}"
            )


def _check_sources(block: BlockGraph, program: Program) -> None:
    names = {i.name for i in program.inputs}
    for loader in block.loaders:
        if loader.source not in names:
            raise KernelError(
                f"a loader reads {loader.source!r}, which is no input of {program.name}"
            )
    saved = {s.target for s in block.savers}
    for k in range(len(program.outputs)):
        if output_name(k) not in saved:
            raise KernelError(f"no saver writes {output_name(k)} of {program.name}")


def _strides(
    axes: tuple[DataDim | None, ...], sizes: Mapping[DataDim, int]
) -> tuple[tuple[DataDim, int], ...]:
    """Element strides of a C-contiguous array; axes of None have size one."""
    out: list[tuple[DataDim, int]] = []
    stride = 1
    for dim in reversed(axes):
        if dim is not None:
            out.append((dim, stride))
            stride *= sizes[dim]
    return tuple(reversed(out))


def _input_tensors(program: Program, sizes: Mapping[DataDim, int]) -> dict[str, Tensor]:
    """Every input by name; aliases of one argument share its position."""
    positions = {a.name: k for k, a in enumerate(program.arguments)}
    return {
        i.name: Tensor(i.name, positions[i.argument], _strides(i.dims, sizes))
        for i in program.inputs
    }


def _output_tensors(program: Program, sizes: Mapping[DataDim, int]) -> dict[str, Tensor]:
    first = len(program.arguments)
    return {
        output_name(k): Tensor(output_name(k), first + k, _strides(out.axes, sizes))
        for k, out in enumerate(program.outputs)
    }
