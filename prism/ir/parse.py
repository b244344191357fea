"""Reading the text form of programs and sGraphs (`text.py`), from whoever wrote it.

A line is cut into tokens and read left to right; nothing is evaluated. Every mistake is a
`ParseError` with the line, its text and what was expected there. What parses is then held against
the rules of `check.py`, and a broken rule is reported at the line of its node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from prism.errors import AxiomError, GraphError, ParseError
from prism.ir.check import check_program
from prism.ir.check_graph import check_sgraph
from prism.ir.graph import (
    Accumulator,
    AccumulatorKind,
    BlockGraph,
    BlockNode,
    GraphOp,
    InputLoader,
    OutputSaver,
    SGraph,
)
from prism.ir.mapping import Mapping, MapVar, ParDim, ParKind
from prism.ir.operators import define, definition_of_line
from prism.ir.ops import OPS
from prism.ir.program import (
    Apply,
    Argument,
    Const,
    DataDim,
    DimInfo,
    Input,
    Node,
    Output,
    Program,
    SizeOf,
    TensorId,
)
from prism.ir.reader import Line, Lines, read_lines
from prism.ir.stages import LoopStage, loop_stages

N = TypeVar("N")

_SECTIONS = tuple(stage.value for stage in LoopStage)


def parse_program(text: str) -> Program:
    """The program that `text` describes.

    Raises:
        ParseError: the text is not a sound program; names the line.
    """
    lines = read_lines(text)
    defined = _operators(lines)
    program = _program(lines)
    lines.end()
    _check_used(defined, program.nodes)
    return program


def parse_sgraph(text: str) -> SGraph:
    """The sGraph that `text` describes.

    Raises:
        ParseError: the text is not a sound sGraph; names the line.
    """
    lines = read_lines(text)
    first = lines.next("'sgraph'")
    first.expect("sgraph")
    first.end()
    defined = _operators(lines)
    program = _program(lines)
    parsed: list[_Kernel] = []
    while lines.opens("kernel"):
        parsed.append(_kernel(lines, len(parsed)))
    lines.end()
    graph = SGraph(program, tuple(p.kernel for p in parsed))
    try:
        check_sgraph(graph)
    except GraphError as error:
        if error.kernel is None:
            raise first.located(str(error)) from error
        raise _at_node(error, parsed[error.kernel].nodes) from error
    for kernel in parsed:
        _check_sections(kernel)
    _check_used(defined, (*program.nodes, *(n for p in parsed for n in p.kernel.block.nodes)))
    return graph


def _operators(lines: Lines) -> dict[str, Line]:
    """The operators that the text defines: they are now, and where it says so."""
    found: dict[str, Line] = {}
    while lines.opens("operator"):
        line = lines.next("'operator'")
        try:
            spec = define(definition_of_line(line.text))
        except (ParseError, AxiomError) as error:
            raise line.located(str(error)) from error
        if spec.name in found:
            line.error(f"{spec.name} is defined twice")
        found[spec.name] = line
    return found


def _check_used(defined: dict[str, Line], nodes: Iterable[Node | BlockNode]) -> None:
    used = {node.op for node in nodes if isinstance(node, Apply)}
    for name, line in defined.items():
        if name not in used:
            line.error(f"{name} is defined but not used")


@dataclass(slots=True)
class _Nodes:
    """The nodes read so far: what they are called, and where they stand."""

    header: Line
    nodes: list[BlockNode | Node] = field(default_factory=list)
    names: dict[str, TensorId] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    def add(self, line: Line, name: str | None, node: BlockNode | Node) -> None:
        line.end()
        if name in self.names:
            line.error(f"{name} is defined twice")
        if name is not None:
            self.names[name] = len(self.nodes)
        self.nodes.append(node)
        self.lines.append(line)

    def operand(self, line: Line) -> TensorId:
        token = line.peek()
        if token not in self.names:
            line.fail("a value defined above")
        line.place += 1
        return self.names[token]


@dataclass(frozen=True, slots=True)
class _Kernel:
    kernel: GraphOp
    nodes: _Nodes
    sections: tuple[tuple[LoopStage | None, Line], ...]


# --- programs


def _program(lines: Lines) -> Program:
    header = lines.next("'program NAME'")
    header.expect("program")
    name = header.name("the program's name")
    header.end()
    dims = _listed(lines, "dims", _dim)
    arguments = _listed(lines, "args", _argument)
    nodes = _Nodes(header)
    while lines.more() and not lines.opens("return", "kernel"):
        line = lines.next("a node")
        target = line.peek()
        if target.startswith("%"):
            line.place += 1
            line.expect("=")
            nodes.add(line, target, _computed(line, nodes))
        else:
            line.name("a value such as %3, or the name of an input")
            line.expect("=")
            line.expect("input")
            argument = line.name("the name of an argument")
            nodes.add(line, target, Input(target, argument, _dims(line)))
    outputs: list[Output] = []
    while lines.opens("return"):
        line = lines.next("'return'")
        line.expect("return")
        outputs.append(Output(nodes.operand(line), _axes(line)))
        line.end()
    kept = tuple(n for n in nodes.nodes if isinstance(n, (Input, Const, SizeOf, Apply)))
    program = Program(name, dims, arguments, kept, tuple(outputs))
    try:
        check_program(program)
    except GraphError as error:
        raise _at_node(error, nodes) from error
    return program


def _listed(lines: Lines, word: str, item: Callable[[Line], N]) -> tuple[N, ...]:
    if not lines.opens(word):
        return ()
    line = lines.next(word)
    line.expect(word)
    out = [item(line)]
    while line.accept(","):
        out.append(item(line))
    line.end()
    return tuple(out)


def _dim(line: Line) -> DimInfo:
    name = line.name("the name of a dimension")
    if not line.accept("="):
        return DimInfo(name, name)
    if line.at_number():
        return DimInfo(name, name, line.integer("a size"))
    return DimInfo(name, line.name("a size, or the dimension whose size it has"))


def _argument(line: Line) -> Argument:
    name = line.name("the name of an argument")
    return Argument(name, _axes(line))


def _axes(line: Line) -> tuple[DataDim | None, ...]:
    """`[n, 1, d]`: a dimension or 1 per axis."""
    line.expect("[")
    out: list[DataDim | None] = []
    if line.accept("]"):
        return ()
    while True:
        out.append(None if line.accept("1") else line.name("a dimension or 1"))
        if not line.accept(","):
            line.expect("]")
            return tuple(out)


def _dims(line: Line) -> tuple[DataDim, ...]:
    """`[n, d]`."""
    line.expect("[")
    return line.names("a dimension", "]")


# --- nodes


def _computed(line: Line, nodes: _Nodes) -> Const | SizeOf | Apply:
    """`2.5`, `size[d]`, `mul(x, %3)` or `sum[d](%3)`."""
    if line.at_number():
        return Const(line.number_value())
    op = line.name("a number, size[...] or an operator")
    if op == "size":
        line.expect("[")
        dim = line.name("a dimension")
        line.expect("]")
        return SizeOf(dim)
    if op not in OPS:
        line.error(f"unknown operator {op!r}; known are {', '.join(OPS)}")
    over = _over(line)
    line.expect("(")
    operands = [nodes.operand(line)]
    while line.accept(","):
        operands.append(nodes.operand(line))
    line.expect(")")
    return Apply(op, tuple(operands), over)


def _over(line: Line) -> DataDim | None:
    """`[d]`, or nothing."""
    if not line.accept("["):
        return None
    dim = line.name("a dimension")
    line.expect("]")
    return dim


# --- kernels


def _kernel(lines: Lines, index: int) -> _Kernel:
    header = lines.next("'kernel'")
    header.expect("kernel")
    if header.integer("the kernel's number") != index:
        header.error(f"kernels are numbered in order; this one is {index}")
    library = header.accept("library")
    header.end()
    grid = tuple(ParDim(name, ParKind.GRID) for name in _listed(lines, "grid", _par))
    loops = tuple(ParDim(name, ParKind.LOOP) for name in _listed(lines, "loop", _par))
    true: set[MapVar] = set()
    while lines.opens("map"):
        line = lines.next("'map'")
        line.expect("map")
        while line.peek():
            true.add(_map_var(line))
    nodes = _Nodes(header)
    sections: list[tuple[LoopStage | None, Line]] = []
    section: LoopStage | None = None
    while lines.more() and not lines.opens("kernel"):
        line = lines.next("a node")
        if line.peek() in _SECTIONS and line.peek(1) == ":":
            section = LoopStage(line.peek())
            line.place += 2
            line.end()
            continue
        _block_node(line, nodes)
        sections.append((section, line))
    kept = tuple(n for n in nodes.nodes if not isinstance(n, Input))
    kernel = GraphOp(grid, loops, Mapping(frozenset(true)), BlockGraph(kept), library)
    return _Kernel(kernel, nodes, tuple(sections))


def _par(line: Line) -> str:
    return line.name("the name of a parallel dim")


def _map_var(line: Line) -> MapVar:
    """`m[x,n,i]`."""
    line.expect("m")
    line.expect("[")
    tensor = line.name("a tensor")
    line.expect(",")
    dim = line.name("a dimension")
    line.expect(",")
    par = _par(line)
    line.expect("]")
    return MapVar(tensor, dim, par)


def _block_node(line: Line, nodes: _Nodes) -> None:
    if line.opens("save"):
        line.expect("save")
        operand = nodes.operand(line)
        line.expect("as")
        target = line.name("the name of the saved tensor")
        nodes.add(line, None, OutputSaver(operand, target, _dims(line)))
        return
    name = line.peek()
    if not name.startswith("%"):
        line.name("a value such as %3, or the name of a loaded tensor")
    else:
        line.place += 1
    line.expect("=")
    if line.accept("load"):
        source = line.name("the name of a tensor")
        if not name.startswith("%") and name != source:
            line.error(f"a loaded value has the name of its tensor, {source}, or a number")
        nodes.add(line, name, InputLoader(source, _dims(line)))
    elif not name.startswith("%"):
        line.fail("'load' (a computed value has a number such as %3)")
    elif line.accept("accumulate"):
        nodes.add(line, name, _accumulator(line, nodes))
    else:
        nodes.add(line, name, _computed(line, nodes))


def _accumulator(line: Line, nodes: _Nodes) -> Accumulator:
    """`accumulate[i] sum(%5)`, or with `concat[h](%5)`."""
    line.expect("[")
    par = _par(line)
    line.expect("]")
    kinds = {kind.value: kind for kind in AccumulatorKind}
    if line.peek() not in kinds:
        line.fail(f"one of {', '.join(kinds)}")
    kind = kinds[line.name("a kind")]
    over = _over(line)
    line.expect("(")
    operand = nodes.operand(line)
    line.expect(")")
    return Accumulator(operand, kind, par, over)


def _check_sections(parsed: _Kernel) -> None:
    for stage, (section, line) in zip(loop_stages(parsed.kernel), parsed.sections, strict=True):
        if section not in {None, stage}:
            line.error(f"this node belongs under {stage.value}:, by what it reads")


def _at_node(error: GraphError, nodes: _Nodes) -> ParseError:
    """The error at the line of its node, or where the list of nodes begins."""
    line = nodes.header if error.node is None else nodes.lines[error.node]
    return line.located(str(error))
