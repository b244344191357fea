"""The rules of the IR for programs, one function each; every stage may rely on them.

What is read from outside (text, artifacts, candidate files) passes here first. A rule raises
`GraphError` with what is wrong and where. The rules for graphs are in `check_graph.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from prism.errors import GraphError
from prism.ir.graph import Accumulator, BlockNode, InputLoader, OutputSaver
from prism.ir.ops import OPS, OpKind
from prism.ir.program import (
    Apply,
    Const,
    DataDim,
    Input,
    Node,
    Program,
    SizeOf,
    TensorId,
    result_dims,
)

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*'*")
_OUTPUT_NAME = re.compile(r"out[0-9]+")


def check_program(program: Program) -> None:
    """Hold a program against every rule.

    Raises:
        GraphError: a rule is broken.
    """
    for rule in PROGRAM_RULES:
        rule(program)


def program_names_are_sane(program: Program) -> None:
    """Names are identifiers, an alias with quote marks; none names an output."""
    check_name("program", program.name)
    for dim in program.dims:
        check_name("dimension", dim.name)
    for name in (*(a.name for a in program.arguments), *(i.name for i in program.inputs)):
        check_name("argument", name)
        if is_output_name(name):
            fail(f"argument {name!r} has the name of an output; call it otherwise")


def program_names_are_unique(program: Program) -> None:
    """No two dimensions, arguments or inputs share a name."""
    check_unique("dimension", (d.name for d in program.dims))
    check_unique("argument", (a.name for a in program.arguments))
    check_unique("input", (i.name for i in program.inputs))


def aliases_lead_to_sizes(program: Program) -> None:
    """An alias shares the size of a dimension that is no alias; fixed sizes are positive."""
    size = {d.name: d.size for d in program.dims}
    for dim in program.dims:
        if dim.size not in size:
            fail(f"dimension {dim.name} has the size of {dim.size!r}, which is no dimension")
        if size[dim.size] != dim.size:
            fail(f"dimension {dim.name} has the size of {dim.size}, which is an alias itself")
        if dim.fixed is not None and dim.size != dim.name:
            fail(f"dimension {dim.name} is an alias of {dim.size} and cannot fix a size")
        if dim.fixed is not None and not is_positive(dim.fixed):
            fail(f"dimension {dim.name} is fixed to {dim.fixed!r}, not a positive integer")


def argument_axes_are_dims(program: Program) -> None:
    """Each axis of an argument carries a known dimension of its own, or none."""
    known = {d.name for d in program.dims}
    for argument in program.arguments:
        named = [d for d in argument.axes if d is not None]
        check_dims(f"argument {argument.name}", named, known)


def inputs_match_arguments(program: Program) -> None:
    """An input reads a known argument under dimensions of the same sizes."""
    known = {d.name: d.size for d in program.dims}
    arguments = {a.name: a for a in program.arguments}
    for i, node in enumerate(program.nodes):
        if not isinstance(node, Input):
            continue
        if node.argument not in arguments:
            fail(f"input {node.name} reads {node.argument!r}, which is no argument", node=i)
        check_dims(f"input {node.name}", node.dims, known, node=i)
        axes = [d for d in arguments[node.argument].axes if d is not None]
        if [known[d] for d in axes] != [known[d] for d in node.dims]:
            fail(
                f"input {node.name}{list(node.dims)} does not fit the axes {axes} of argument "
                f"{node.argument}: the sizes must be the same",
                node=i,
            )


def program_nodes_are_sound(program: Program) -> None:
    """The nodes are in SSA order and every operator is applied as its row says."""
    known = {d.name for d in program.dims}
    dims: list[frozenset[DataDim]] = []
    for i, node in enumerate(program.nodes):
        dims.append(checked_dims(i, node, dims, known))


def outputs_are_whole(program: Program) -> None:
    """There is an output; each has every dimension of its value on one axis."""
    if not program.outputs:
        fail(f"program {program.name} has no output")
    known = {d.name for d in program.dims}
    dims = program.tensor_dims()
    for i, output in enumerate(program.outputs):
        if not 0 <= output.tensor < len(program.nodes):
            fail(f"output {i} is node {output.tensor}, which does not exist")
        named = [d for d in output.axes if d is not None]
        check_dims(f"output {i}", named, known)
        missing = sorted(dims[output.tensor] - set(named))
        if missing:
            fail(f"output {i} varies along {', '.join(missing)}, which is none of its axes")


PROGRAM_RULES: tuple[Callable[[Program], None], ...] = (
    program_names_are_sane,
    program_names_are_unique,
    aliases_lead_to_sizes,
    argument_axes_are_dims,
    inputs_match_arguments,
    program_nodes_are_sound,
    outputs_are_whole,
)
"""Every rule, in an order in which each may rely on those before it."""


def checked_dims(
    i: TensorId,
    node: Node | BlockNode,
    earlier: Sequence[frozenset[DataDim]],
    known: Iterable[DataDim],
) -> frozenset[DataDim]:
    """The dimensions of node i, after those of the nodes before it, if it is applied soundly."""
    match node:
        case Input(dims=dims) | InputLoader(dims=dims):
            return frozenset(dims)
        case Const(value=value):
            if not math.isfinite(value):
                fail(f"the constant {value!r} is not a finite number", node=i)
            return frozenset()
        case SizeOf(dim=dim):
            if dim not in known:
                fail(f"size of {dim!r}, which is no dimension", node=i)
            return frozenset()
        case Accumulator(operand=operand) | OutputSaver(operand=operand):
            _check_operands(i, (operand,), len(earlier))
            return earlier[operand]
        case Apply(op=op, operands=operands, dim=dim):
            _check_operands(i, operands, len(earlier))
            _check_applied(i, node, [earlier[j] for j in operands])
            return result_dims(op, dim, tuple(earlier[j] for j in operands))


def _check_operands(i: TensorId, operands: Sequence[TensorId], count: int) -> None:
    for j in operands:
        if not 0 <= j < count:
            fail(f"operand {j!r} is not an earlier node", node=i)


def _check_applied(i: TensorId, node: Apply, operands: Sequence[frozenset[DataDim]]) -> None:
    spec = OPS.get(node.op)
    if spec is None:
        fail(f"unknown operator {node.op!r}; known are {', '.join(OPS)}", node=i)
    if len(operands) != spec.arity:
        fail(f"{node.op} takes {spec.arity} operand(s), not {len(operands)}", node=i)
    if spec.kind is OpKind.ELEMENTWISE:
        if node.dim is not None:
            fail(f"{node.op} works element by element; it has no dimension {node.dim!r}", node=i)
        return
    if node.dim is None:
        fail(f"{node.op} needs the dimension it sums or reduces over", node=i)
    if spec.kind is OpKind.ALONG:
        if node.dim not in operands[0]:
            fail(f"{node.op} acts along {node.dim!r}, which its operand does not have", node=i)
        return
    if any(node.dim not in dims for dims in operands):
        fail(f"{node.op} goes over {node.dim!r}, which an operand does not have", node=i)


def check_name(what: str, name: object) -> None:
    """A name is an identifier, with quote marks when it is an alias."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        fail(f"{what} name {name!r} is no identifier (letters, digits, _, and ' for an alias)")


def check_unique(what: str, names: Iterable[str]) -> None:
    """No name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            fail(f"{what} {name!r} occurs twice; names must be unique")
        seen.add(name)


def check_dims(
    what: str, dims: Sequence[DataDim], known: Iterable[DataDim], *, node: int | None = None
) -> None:
    """The dimensions of one tensor are known, and different."""
    for dim in dims:
        if dim not in known:
            fail(f"{what} has the unknown dimension {dim!r}", node=node)
    if len(set(dims)) != len(dims):
        fail(f"{what} has one dimension twice in {list(dims)}; use an alias", node=node)


def is_output_name(name: str) -> bool:
    """Whether this is the kernel-level name of a program's output."""
    return _OUTPUT_NAME.fullmatch(name) is not None


def is_positive(value: object) -> bool:
    """Whether this is a positive integer (True is none)."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def fail(message: str, *, node: int | None = None, kernel: int | None = None) -> NoReturn:
    """Raise the error, with its place for who can tell its line."""
    place = "" if kernel is None else f"kernel {kernel}: "
    place += "" if node is None else f"node {node}: "
    error = GraphError(place + message)
    error.kernel, error.node = kernel, node
    raise error
