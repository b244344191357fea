"""Operators on values that are already rewritten: their text, kind and range, or a refusal."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from prism_kernels.lockstep.functions import Kind
from prism_kernels.lockstep.intervals import OPERATORS, Range
from prism_kernels.lockstep.names import MAX_U32, Names, Value

FLOAT_SYMBOLS: Mapping[type[ast.operator], str] = MappingProxyType(
    {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
)
LOGIC_SYMBOLS: Mapping[type[ast.operator], str] = MappingProxyType(
    {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
)
"""Of truth values."""
COMPARISON_SYMBOLS: Mapping[type[ast.cmpop], str] = MappingProxyType(
    {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
)

MAX_BITS = 128
"""Of an integer inside an expression; the GPU has 64, and wraps."""


def binary(names: Names, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
    """An arithmetic operator on two values of one kind."""
    match left.kind, right.kind:
        case Kind.INT, Kind.INT:
            return _integers(names, node, op, left, right)
        case Kind.FLOAT, Kind.FLOAT if symbol := FLOAT_SYMBOLS.get(type(op)):
            return Value(f"({left.text} {symbol} {right.text})", Kind.FLOAT)
        case Kind.BOOL, Kind.BOOL if symbol := LOGIC_SYMBOLS.get(type(op)):
            return Value(f"({left.text} {symbol} {right.text})", Kind.BOOL)
        case _:
            kinds = f"{left.kind.value} and {right.kind.value}"
            reason = f"no such operator on {kinds} (Numba would compute in float64, or not at all)"
            raise names.refusal(node, reason)


def _integers(names: Names, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
    operator = OPERATORS.get(type(op))
    if operator is None:
        raise names.refusal(node, "integers have + - * // % << >> & | ^; / makes a float64")
    if not operator.is_modular:
        left, right = settled(names, node, left), settled(names, node, right)
    known = operator.range(Range(left.low, left.high), Range(right.low, right.high))
    if known is None:
        raise names.refusal(node, "shift by 0 to 63 bits, by a number in the text")
    if max(-known.low, known.high) >> MAX_BITS:
        raise names.refusal(node, "this leaves 64 bits by far: wrap its parts in u32")
    is_signed = left.is_signed or right.is_signed
    wraps = left.may_wrap or right.may_wrap or (isinstance(op, ast.Sub) and not is_signed)
    text = f"({left.text} {operator.symbol} {right.text})"
    return Value(text, Kind.INT, known.low, known.high, is_signed, wraps and known.low < 0)


def negative(names: Names, node: ast.AST, value: Value) -> Value:
    """The value with the other sign."""
    if value.kind is Kind.FLOAT:
        return Value(f"(-{value.text})", Kind.FLOAT)
    return binary(names, node, ast.Sub(), Value("0", Kind.INT, 0, 0), value)


def comparison(names: Names, node: ast.AST, op: ast.cmpop, left: Value, right: Value) -> Value:
    """Two numbers of one kind, compared."""
    left, right = settled(names, node, left), settled(names, node, right)
    symbol = COMPARISON_SYMBOLS.get(type(op))
    if symbol is None or left.kind is not right.kind:
        raise names.refusal(node, "numbers of one kind are compared, by == != < <= > >=")
    return Value(f"({left.text} {symbol} {right.text})", Kind.BOOL)


def condition(names: Names, node: ast.AST, value: Value) -> Value:
    """A truth value; of an integer, whether it is not 0."""
    match value.kind:
        case Kind.BOOL:
            return value
        case Kind.INT:
            return Value(f"({settled(names, node, value).text} != 0)", Kind.BOOL)
        case Kind.FLOAT:
            raise names.refusal(node, "a float32 is no condition: compare it")


def as_u32(names: Names, node: ast.AST, value: Value) -> Value:
    """Wrapped as an unsigned 32-bit integer."""
    match value.kind:
        case Kind.FLOAT:
            raise names.refusal(node, "u32 takes an integer")
        case Kind.BOOL:
            return Value(f"(1 if {value.text} else 0)", Kind.INT, 0, 1, is_signed=False)
        case Kind.INT if value.low >= 0 and value.high <= MAX_U32:
            return Value(value.text, Kind.INT, value.low, value.high, is_signed=False)
        case Kind.INT:
            return Value(f"({value.text} & {MAX_U32})", Kind.INT, 0, MAX_U32, is_signed=False)


def as_f32(names: Names, node: ast.AST, value: Value) -> Value:
    """Converted to float32."""
    match value.kind:
        case Kind.FLOAT:
            return value
        case Kind.BOOL:
            return Value(f"_f32(1 if {value.text} else 0)", Kind.FLOAT)
        case Kind.INT:
            return Value(f"_f32({settled(names, node, value).text})", Kind.FLOAT)


def settled(names: Names, node: ast.AST, value: Value) -> Value:
    """The value, refused if the GPU may have another one."""
    if value.may_wrap:
        reason = (
            "a difference of unsigned integers may be below zero here, where it wraps on the GPU: "
            "wrap it in u32, or compare sums"
        )
        raise names.refusal(node, reason)
    return value
