"""Tracing: run a user's function on symbolic tensors and keep what it did as a `Program`.

Each parameter says the dims of its axes, as an annotation (`x: "n d"`) or as a keyword of `trace`.
A parameter without dims keeps its default, as a plain Python value. The traced nodes are then
resolved under the final dimension names, cleared of dead ones, and checked.
"""

from __future__ import annotations
import __future__

import ast
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prism.errors import PrismError, TraceError, one_line
from prism.frontend.builder import Axes, Builder, live_below
from prism.frontend.dims import DimsError, DimTable, parse_dims
from prism.frontend.scopes import named_apart
from prism.frontend.site import definition_error, function_name, raised_error
from prism.frontend.tensor import Tensor
from prism.ir import (
    Apply,
    Argument,
    Const,
    Input,
    Node,
    Output,
    Program,
    SizeOf,
    TensorId,
    check_program,
    output_name,
)

Function = Callable[..., Any]

_EXAMPLE = 'write its dims as a string, e.g. x: "n d" (or "" for a scalar)'


def trace(fn: Function, /, name: str | None = None, **dims: str) -> Program:
    """The program that `fn` computes.

    Args:
        fn: a plain function of tensors; it returns a tensor, or a tuple of tensors.
        name: the program's name, by default the function's (`program` for a lambda).
        dims: dims of parameters by name, over the annotations.

    Raises:
        TraceError: the function does something a program cannot; names the user's line.
    """
    annotations = _dims_of_parameters(fn, dims)
    table = DimTable()
    builder = Builder(table)
    axes = {p: _declared(fn, p, text, table) for p, text in annotations.items()}
    tensors = {p: _input_tensor(builder, p, a) for p, a in axes.items()}
    results = _outputs(fn, builder, _call(fn, tensors))
    return _finished(name or _default_name(fn), builder, axes, results)


def _default_name(fn: Function) -> str:
    name = function_name(fn)
    return name if name.isidentifier() and name.isascii() else "program"


def _dims_of_parameters(fn: Function, given: Mapping[str, str]) -> dict[str, str]:
    """The dims of each parameter that has them; the others must have a default."""
    if not callable(fn):
        raise TraceError(f"trace needs a function, not {fn!r}")
    if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn):
        raise definition_error(fn, f"{function_name(fn)} must be a plain function that returns")
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise definition_error(fn, f"{function_name(fn)} has no signature: {error}") from error
    unknown = [p for p in given if p not in parameters]
    if unknown:
        known = ", ".join(parameters) or "none"
        raise definition_error(
            fn,
            f"dims given for {', '.join(unknown)}, but the parameters are {known} (options of the "
            "search go to search_options=SearchOptions(...), see prism.search)",
        )
    out: dict[str, str] = {}
    for parameter in parameters.values():
        text = _dims_of(fn, parameter, given.get(parameter.name))
        if text is not None:
            out[parameter.name] = text
    return out


def _dims_of(fn: Function, parameter: inspect.Parameter, given: object) -> str | None:
    what = f"parameter {parameter.name!r} of {function_name(fn)}"
    if parameter.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise definition_error(fn, f"{what}: a program has no *args or **kwargs; name each one")
    if given is not None:
        if not isinstance(given, str):
            raise definition_error(fn, f"{what}: dims must be a string like 'n d', not {given!r}")
        return given
    text = _annotated(fn, parameter.annotation)
    if text is not None or parameter.default is not inspect.Parameter.empty:
        return text
    if parameter.annotation is inspect.Parameter.empty:
        raise definition_error(fn, f"{what} has no annotation; {_EXAMPLE}")
    shown = parameter.annotation
    raise definition_error(fn, f"{what}: the annotation {shown!r} is not a string; {_EXAMPLE}")


def _annotated(fn: Function, annotation: object) -> str | None:
    """The annotation as the user wrote it, if it is a string."""
    if not isinstance(annotation, str):
        return None
    code = getattr(inspect.unwrap(getattr(fn, "func", fn)), "__code__", None)
    flags = getattr(code, "co_flags", 0)
    if not flags & __future__.annotations.compiler_flag:
        return annotation
    try:
        # postponed annotations arrive as source text: the string "n d" with its quotes
        value = ast.literal_eval(annotation)
    except (SyntaxError, ValueError):
        return None
    return value if isinstance(value, str) else None


def _declared(fn: Function, parameter: str, text: str, table: DimTable) -> Axes:
    """The dimensions of an argument's axes."""
    if parameter == output_name(0) or (parameter.startswith("out") and parameter[3:].isdigit()):
        raise definition_error(fn, f"{parameter!r} names an output; call the parameter otherwise")
    try:
        words = parse_dims(text)
    except DimsError as error:
        raise definition_error(fn, f"parameter {parameter!r}: {error}") from error
    axes: list[str | None] = []
    for i, word in enumerate(words):
        if word == 1:
            axes.append(None)
        elif isinstance(word, int):
            axes.append(table.declare_fixed(f"{parameter}_{i}", word))
        else:
            dim = table.declare(word)
            axes.append(table.alias(dim) if dim in axes else dim)
    return tuple(axes)


def _input_tensor(builder: Builder, name: str, axes: Axes) -> Tensor:
    dims = tuple(d for d in axes if d is not None)
    return Tensor(builder, builder.add(Input(name, name, dims)), axes)


def _call(fn: Function, tensors: Mapping[str, Tensor]) -> object:
    parameters = inspect.signature(fn).parameters
    positional = [
        tensors.get(p.name, p.default)
        for p in parameters.values()
        if p.kind is inspect.Parameter.POSITIONAL_ONLY
    ]
    keywords = {
        name: tensor
        for name, tensor in tensors.items()
        if parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY
    }
    try:
        return fn(*positional, **keywords)
    except (PrismError, KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # the user's code may raise anything
        raise raised_error(error, f"{function_name(fn)} raised {one_line(error)}") from error


def _outputs(fn: Function, builder: Builder, result: object) -> tuple[Tensor, ...]:
    results = tuple(result) if isinstance(result, (tuple, list)) else (result,)
    for i, item in enumerate(results):
        place = f"result {i}" if isinstance(result, (tuple, list)) else "the result"
        if isinstance(item, Tensor) and item.builder is not builder:
            raise definition_error(
                fn,
                f"{place} of {function_name(fn)} is a tensor of another trace (kept from an "
                "earlier call, or a copy); return what this call computes from its arguments",
            )
        if not isinstance(item, Tensor):
            raise definition_error(
                fn,
                f"{place} of {function_name(fn)} is {type(item).__name__}, not a tensor; return "
                "a tensor or a tuple of tensors that depend on the arguments",
            )
    if not results:
        raise definition_error(fn, f"{function_name(fn)} returns no tensor")
    return tuple(item for item in results if isinstance(item, Tensor))


def _finished(
    name: str, builder: Builder, axes: Mapping[str, Axes], results: Sequence[Tensor]
) -> Program:
    """The program under its final dimension names, without dead or repeated nodes."""
    table = builder.dims
    # unification may have made nodes equal after they were added: intern them all once more
    final = Builder(table)
    new: dict[TensorId, TensorId] = {}
    for i in live_below(builder.nodes, [r.tensor for r in results]):
        new[i] = _copied(builder.nodes[i], final, new)
    roots = [new[r.tensor] for r in results]
    live = live_below(final.nodes, roots)
    place = {i: k for k, i in enumerate(live)}
    nodes = _named_inputs([_renumbered(final.nodes[i], place) for i in live])
    arguments = tuple(Argument(p, table.resolve(a)) for p, a in axes.items())
    outputs = tuple(
        Output(place[root], result.axes) for root, result in zip(roots, results, strict=True)
    )
    nodes, outputs = named_apart(nodes, outputs, table.alias)
    used = [d for a in arguments for d in a.axes if d is not None]
    for node in nodes:
        match node:
            case Input(dims=dims):
                used.extend(dims)
            case SizeOf(dim=dim):
                used.append(dim)
            case _:
                pass
    program = Program(name, table.infos(used), arguments, nodes, outputs)
    check_program(program)
    return program


def _copied(node: Node, final: Builder, new: Mapping[TensorId, TensorId]) -> TensorId:
    match node:
        case Apply(op=op, operands=operands, dim=dim):
            return final.apply(op, [new[j] for j in operands], dim)
        case Input() | Const() | SizeOf():
            return final.add(node)


def _renumbered(node: Node, place: Mapping[TensorId, int]) -> Node:
    if isinstance(node, Apply):
        return Apply(node.op, tuple(place[j] for j in node.operands), node.dim)
    return node


def _named_inputs(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The first use of an argument has its name, further ones a quote mark each."""
    uses: dict[str, int] = {}
    out: list[Node] = []
    for node in nodes:
        if isinstance(node, Input):
            count = uses.get(node.argument, 0)
            uses[node.argument] = count + 1
            out.append(Input(node.argument + "'" * count, node.argument, node.dims))
        else:
            out.append(node)
    return tuple(out)
