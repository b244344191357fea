"""The text form of programs and sGraphs, made to be read; `parse.py` reads it back exactly.

One line per node. A value that is an input goes by its name, any other by its number: `%5`. What
follows `#` is a comment with what can be derived: dimensions, tile sizes. The sections `once:`,
`body:` and `after:` of a looped kernel (`outer:` and `between:` where there are two loops) are
derived too; the parser holds them against the graph. Operators that users defined
(`operators.py`) come first, so that a text says all it needs.

    sgraph
    program row_sum
      dims n, d
      args x[n, d]
      x = input x[n, d]
      %1 = sum[d](x)  # [n]
      return %1[n]
    kernel 0
      grid x
      loop i
      map m[out0,n,x]
      map m[x,d,i] m[x,n,x]
      body:
        x = load x[n, d]  # tile [n/x, d/i]
        %1 = sum[d](x)  # [n]
      after:
        %2 = accumulate[i] sum(%1)  # [n]
        save %2 as out0[n]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from prism.ir.graph import (
    Accumulator,
    BlockNode,
    GraphOp,
    InputLoader,
    OutputSaver,
    SGraph,
    stack_dims,
)
from prism.ir.operators import definitions_of
from prism.ir.program import (
    Apply,
    Const,
    DataDim,
    DimInfo,
    Input,
    Node,
    Program,
    SizeOf,
    TensorId,
)
from prism.ir.sizes import tile_size
from prism.ir.stages import loop_stages


def format_program(program: Program) -> str:
    """The program as text."""
    lines = [*_operator_lines(program.nodes), *_program_lines(program)]
    return "\n".join(lines) + "\n"


def format_sgraph(graph: SGraph) -> str:
    """The sGraph as text, its program first."""
    nodes = [n for kernel in graph.kernels for n in kernel.block.nodes]
    defined = _operator_lines([*graph.program.nodes, *nodes])
    lines = ["sgraph", *defined, *_program_lines(graph.program)]
    order = [d.name for d in graph.program.dims]
    order += stack_dims(graph)
    for k, kernel in enumerate(graph.kernels):
        header = f"kernel {k} library" if kernel.library else f"kernel {k}"
        lines.extend([header, *_kernel_lines(kernel, order)])
    return "\n".join(lines) + "\n"


def format_mapping(kernel: GraphOp) -> tuple[str, ...]:
    """The mapping variables that are true, a line per tensor: `m[x,n,x] m[x,d,i]`."""
    true = sorted(kernel.mapping.true)
    return tuple(" ".join(map(str, group)) for _, group in groupby(true, lambda v: v.tensor))


def _operator_lines(nodes: Iterable[Node | BlockNode]) -> list[str]:
    """The definitions of the operators that are not Prism's own."""
    return [str(d) for d in definitions_of(n.op for n in nodes if isinstance(n, Apply))]


def _program_lines(program: Program) -> list[str]:
    lines = [f"program {program.name}"]
    if program.dims:
        lines.append(f"  dims {', '.join(map(_dim_text, program.dims))}")
    if program.arguments:
        arguments = (f"{a.name}{_axes_text(a.axes)}" for a in program.arguments)
        lines.append(f"  args {', '.join(arguments)}")
    names = value_names(program.nodes)
    order = [d.name for d in program.dims]
    for i, (node, dims) in enumerate(zip(program.nodes, program.tensor_dims(), strict=True)):
        note = f"  # {_axes_text(_ordered(dims, order))}" if isinstance(node, Apply) else ""
        lines.append(f"  {names[i]} = {node_text(node, names)}{note}")
    lines.extend(f"  return {names[o.tensor]}{_axes_text(o.axes)}" for o in program.outputs)
    return lines


def _kernel_lines(kernel: GraphOp, order: Sequence[DataDim]) -> list[str]:
    lines = []
    for word, pars in (("grid", kernel.grid), ("loop", kernel.loops)):
        if pars:
            lines.append(f"  {word} {', '.join(p.name for p in pars)}")
    lines.extend(f"  map {text}" for text in format_mapping(kernel))
    names = value_names(kernel.block.nodes)
    stage = None
    dims = kernel.block.tensor_dims()
    for i, (node, its_stage) in enumerate(
        zip(kernel.block.nodes, loop_stages(kernel), strict=True)
    ):
        if kernel.loops and its_stage is not stage:
            lines.append(f"  {its_stage.value}:")
            stage = its_stage
        text = node_text(node, names)
        target = "" if isinstance(node, OutputSaver) else f"{names[i]} = "
        indent = "    " if kernel.loops else "  "
        lines.append(f"{indent}{target}{text}{_note(kernel, node, _ordered(dims[i], order))}")
    return lines


def _note(kernel: GraphOp, node: BlockNode, dims: Sequence[DataDim]) -> str:
    match node:
        case InputLoader(source=tensor, dims=stored):
            sizes = ", ".join(str(tile_size(kernel, tensor, d)) for d in stored)
            return f"  # tile [{sizes}]"
        case OutputSaver(target=tensor, dims=stored):
            sizes = ", ".join(str(tile_size(kernel, tensor, d)) for d in stored)
            return f"  # tile [{sizes}]"
        case Const() | SizeOf():
            return ""
        case Apply() | Accumulator():
            return f"  # {_axes_text(dims)}"


def node_text(  # noqa: PLR0911 - a case per node
    node: Node | BlockNode, names: Sequence[str]
) -> str:
    """A node without its name, its operands by theirs."""
    match node:
        case Input(argument=argument, dims=dims):
            return f"input {argument}{_axes_text(dims)}"
        case InputLoader(source=source, dims=dims):
            return f"load {source}{_axes_text(dims)}"
        case Const(value=value):
            return repr(float(value))
        case SizeOf(dim=dim):
            return f"size[{dim}]"
        case Apply(op=op, operands=operands, dim=dim):
            over = "" if dim is None else f"[{dim}]"
            return f"{op}{over}({', '.join(names[j] for j in operands)})"
        case Accumulator(operand=operand, kind=kind, par=par, dim=dim):
            over = "" if dim is None else f"[{dim}]"
            return f"accumulate[{par}] {kind.value}{over}({names[operand]})"
        case OutputSaver(operand=operand, target=target, dims=dims):
            return f"save {names[operand]} as {target}{_axes_text(dims)}"


def value_names(nodes: Sequence[Node | BlockNode]) -> list[str]:
    """What each value is called: inputs by name (once each), the rest by number."""
    out: list[str] = []
    for i, node in enumerate(nodes):
        match node:
            case Input(name=name) | InputLoader(source=name) if name not in out:
                out.append(name)
            case _:
                out.append(_numbered(i))
    return out


def _numbered(i: TensorId) -> str:
    return f"%{i}"


def _dim_text(dim: DimInfo) -> str:
    if dim.size != dim.name:
        return f"{dim.name} = {dim.size}"
    return dim.name if dim.fixed is None else f"{dim.name} = {dim.fixed}"


def _axes_text(axes: Sequence[DataDim | None]) -> str:
    return f"[{', '.join('1' if d is None else d for d in axes)}]"


def _ordered(dims: frozenset[DataDim], order: Sequence[DataDim]) -> list[DataDim]:
    return sorted(dims, key=order.index)
