"""Loops of CUDA kernels count in one unsigned 32-bit number.

Numba's `range` over literals counts in two signed 64-bit numbers (the value, and the iterations
left, which take a division to find). On a GPU, where such numbers take two registers each, emitted
kernels needed a fifth more registers and code for it, and some spilled. So `count_in_32_bits` puts
`span` in the place of `range` in the loops of a kernel's syntax tree; the file itself remains plain
Python, which the simulator runs as it stands.

Importing this module imports numba-cuda, as with `intrinsics`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs

from prism_kernels.cuda.frontend import (
    RefType,
    cgutils,
    intrinsic,
    iternext_impl,
    lower_builtin,
    types,
)
from prism_kernels.cuda.intrinsics import Context, NumbaType, Typed

SPAN = types.RangeType(types.uint32)
"""Start, stop and step. Numba has ranges of other integers, and no loops over this one."""
COUNTER = SPAN.iterator_type

_NAME = "span_"
"""What `span` is called in a kernel: no name of the dialect ends like this."""
_END = 2**32


@intrinsic
def span(_context: Context, start: NumbaType, stop: NumbaType, step: NumbaType) -> Typed:
    """The numbers from `start` up to `stop`, by `step`; stop + step must be below 2**32."""
    del start, stop, step

    def build(
        context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
    ) -> ir.Value:
        state = cgutils.create_struct_proxy(SPAN)(context, builder)
        state.start, state.stop, state.step = args
        return state._getvalue()  # noqa: SLF001 - Numba's own way to read a struct

    return SPAN(types.uint32, types.uint32, types.uint32), build


@lower_builtin("getiter", SPAN)
def _begin(
    context: Context, builder: ir.IRBuilder, _signature: NumbaType, args: Sequence[ir.Value]
) -> ir.Value:
    state = cgutils.create_struct_proxy(SPAN)(context, builder, args[0])
    counter = cgutils.create_struct_proxy(COUNTER)(context, builder)
    counter.iter = cgutils.alloca_once_value(builder, state.start)
    counter.count = counter.iter  # a second counter, which there is none of
    counter.stop, counter.step = state.stop, state.step
    return counter._getvalue()  # noqa: SLF001 - see above


@lower_builtin("iternext", COUNTER)
@iternext_impl(RefType.UNTRACKED)
def _next(
    context: Context,
    builder: ir.IRBuilder,
    _signature: NumbaType,
    args: Sequence[ir.Value],
    result: Context,
) -> None:
    counter = cgutils.create_struct_proxy(COUNTER)(context, builder, args[0])
    value = builder.load(counter.iter)
    is_valid = builder.icmp_unsigned("<", value, counter.stop)
    result.set_valid(is_valid)
    result.yield_(value)
    with builder.if_then(is_valid):
        builder.store(builder.add(value, counter.step, flags=["nuw"]), counter.iter)


class _Counting(ast.NodeTransformer):
    """Turns the `range` of each loop into a span of three arguments."""

    def visit_For(self, node: ast.For) -> ast.For:
        """One loop, and those in its body."""
        self.generic_visit(node)
        match node.iter:
            case ast.Call(func=ast.Name(id="range"), args=given, keywords=[]):
                if (arguments := _span_arguments(given)) is not None:
                    node.iter = ast.Call(ast.Name(_NAME, ast.Load()), arguments, [])
            case _:
                pass
        return node


def _span_arguments(given: Sequence[ast.expr]) -> list[ast.expr] | None:
    """Start, stop and step; None where the step is not known, or 32 bits may not do."""
    match given:
        case [stop]:
            start, step = ast.Constant(0), 1
        case [start, stop]:
            step = 1
        case [start, stop, ast.Constant(value=int(step))]:
            pass
        case _:
            return None
    last = stop.value if isinstance(stop, ast.Constant) and isinstance(stop.value, int) else 0
    if step < 1 or last + step >= _END or isinstance(start, ast.UnaryOp):
        return None
    return [start, stop, ast.Constant(step)]


def count_in_32_bits(tree: ast.Module) -> tuple[ast.Module, dict[str, object]]:
    """The tree with its loops over spans, and the names that it needs."""
    return ast.fix_missing_locations(_Counting().visit(tree)), {_NAME: span}
