"""Reads expressions of users' operators (`expression.py`) from text, as data from a stranger.

Python's parser reads the text, nothing runs it: what is not listed here is refused, by size too.
Arithmetic of numbers alone is done at once, exactly where it is rational.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from types import MappingProxyType

import numpy as np

from prism.errors import ParseError
from prism.ir.expression import (
    BY_NAME,
    CONSTANTS,
    WORDS,
    Call,
    Choice,
    Expression,
    Extent,
    Flip,
    Index,
    Literal,
    Operand,
    Roll,
    walk,
)
from prism.ir.ops import BUILT_IN

MAX_CHARACTERS = 1_000
MAX_NODES = 200
MAX_DEPTH = 40
MAX_POWER = 16
MOST_BITS = 4_000
"""Of the numerator or denominator of a number that others are folded into."""

_ALLOWED = re.compile(r"[A-Za-z0-9_.,()<>=+*/ \t-]*")


def parse_expression(text: str, operands: Sequence[str], dim: str | None) -> Expression:
    """The expression that a text over `operands` writes; `dim` is what it may act along.

    Raises:
        ParseError: it is none, or too large; says why.
    """
    if len(text) > MAX_CHARACTERS:
        raise ParseError(f"longer than {MAX_CHARACTERS} characters")
    if not _ALLOWED.fullmatch(text):
        bad = next(c for c in text if not _ALLOWED.fullmatch(c))
        raise ParseError(f"the character {bad!r} has no place in an expression")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a strange literal is a mistake here
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        why = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ParseError(f"no expression of Python ({why})") from error
    except (RecursionError, MemoryError) as error:
        raise ParseError("nested too deep") from error
    try:
        expression = _Reader(tuple(operands), dim).read(tree, 0)
    except RecursionError as error:  # a message about something deep
        raise ParseError("nested too deep") from error
    _check_size(expression)
    missing = {*range(len(operands))} - {
        part.place for part in walk(expression) if isinstance(part, Operand)
    }
    if missing:
        raise ParseError(f"the operand {operands[min(missing)]!r} is not used")
    return expression


_BINARY: Mapping[type[ast.operator], str] = MappingProxyType(
    {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
)


@dataclass(slots=True)
class _Reader:
    """Reads one tree of Python's; counts what it makes."""

    operands: tuple[str, ...]
    dim: str | None
    made: int = 0

    def read(  # noqa: PLR0911 - a case per form
        self, node: ast.expr, depth: int
    ) -> Expression:
        self.count()
        if depth > MAX_DEPTH:
            raise ParseError("nested too deep")
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return Literal(_finite(ast.unparse(node), value))
            case ast.Name(id=name):
                return self.name(name)
            case ast.UnaryOp(op=ast.UAdd(), operand=inner):
                return self.read(inner, depth + 1)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return _call("neg", self.read(inner, depth + 1))
            case ast.BinOp(op=ast.Pow(), left=base, right=ast.Constant(value=int() as exponent)):
                return self.power(self.read(base, depth + 1), exponent)
            case ast.BinOp(op=operator, left=left, right=right) if type(operator) in _BINARY:
                a, b = self.read(left, depth + 1), self.read(right, depth + 1)
                return _call(_BINARY[type(operator)], a, b)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self.call(name, args, depth + 1)
            case _:
                raise ParseError(
                    f"{_shown(node)} is not allowed: an expression has operands, numbers, + - * /, "
                    f"** with a whole number, {', '.join(sorted(WORDS))}"
                )

    def count(self) -> None:
        self.made += 1
        if self.made > MAX_NODES:
            raise _too_large()

    def name(self, name: str) -> Expression:
        if name in self.operands:
            return Operand(self.operands.index(name))
        if name in CONSTANTS:
            return Literal(CONSTANTS[name])
        raise ParseError(f"unknown name {name!r}; the operands are {', '.join(self.operands)}")

    def power(self, base: Expression, exponent: int) -> Expression:
        if not 1 <= exponent <= MAX_POWER or isinstance(exponent, bool):
            raise ParseError(f"** {exponent}: an exponent is a whole number from 1 to {MAX_POWER}")
        result: Expression | None = None
        while exponent:
            self.count()
            if exponent % 2:
                result = base if result is None else _call("mul", result, base)
            exponent //= 2
            if exponent:
                base = _call("square", base)
        assert result is not None
        _check_size(result)  # it holds the base several times
        return result

    def call(self, name: str, args: Sequence[ast.expr], depth: int) -> Expression:
        match name, args:
            case "where", [ast.Compare(left=left, ops=[test], comparators=[right]), yes, no]:
                read = [self.read(part, depth) for part in (left, right, yes, no)]
                return _choice(test, *read)
            case "where", _:
                raise ParseError("where takes a comparison of two values and two values")
            case "roll", [value, dim, by]:
                self.along(name, dim)
                shift = self.read(by, depth)
                if any(isinstance(p, Operand | Index | Roll | Flip) for p in walk(shift)):
                    raise ParseError("roll: the number of places depends on numbers and sizes only")
                return Roll(self.read(value, depth), shift)
            case "flip", [value, dim]:
                self.along(name, dim)
                return Flip(self.read(value, depth))
            case "index", [dim]:
                self.along(name, dim)
                return Index()
            case "size", [dim]:
                self.along(name, dim)
                return Extent()
            case _:
                return self.operator(name, args, depth)

    def operator(self, name: str, args: Sequence[ast.expr], depth: int) -> Expression:
        if name not in BY_NAME:
            known = ", ".join(sorted(WORDS - set(CONSTANTS)))
            raise ParseError(
                f"{name}(...) with {len(args)} arguments is unknown; known are {known}"
            )
        arity = next(row.arity for row in BUILT_IN if row.name == name)
        if len(args) != arity:
            raise ParseError(f"{name} takes {arity} argument(s), not {len(args)}")
        return _call(name, *(self.read(arg, depth) for arg in args))

    def along(self, word: str, given: ast.expr) -> None:
        """The one dim there is."""
        if self.dim is None:
            raise ParseError(f"{word} acts along a dim: say which with dim = ")
        if not (isinstance(given, ast.Name) and given.id == self.dim):
            raise ParseError(f"{word} acts along {self.dim}, not along {_shown(given)}")


def _check_size(expression: Expression) -> None:
    if sum(1 for _ in islice(walk(expression), MAX_NODES + 1)) > MAX_NODES:
        raise _too_large()


def _too_large() -> ParseError:
    return ParseError(f"more than {MAX_NODES} operators and operands")


def _shown(node: ast.expr) -> str:
    text = ast.unparse(node)
    return repr(text if len(text) <= 40 else f"{text[:37]}...")


def _finite(text: str, value: float) -> Fraction:
    try:
        if math.isfinite(float(value)):
            return Fraction(text if isinstance(value, int) else repr(value))
    except (OverflowError, ValueError):
        pass
    raise ParseError(f"the number {text[:20]} is too large")


def _choice(
    test: ast.cmpop, left: Expression, right: Expression, yes: Expression, no: Expression
) -> Choice:
    """Every comparison by `>` alone: a <= b is not a > b."""
    match test:
        case ast.Gt():
            return Choice(left, right, yes, no)
        case ast.Lt():
            return Choice(right, left, yes, no)
        case ast.LtE():
            return Choice(left, right, no, yes)
        case ast.GtE():
            return Choice(right, left, no, yes)
        case _:
            raise ParseError("where compares with < <= > or >=")


_FOLDED: Mapping[str, Callable[..., Fraction]] = MappingProxyType(
    {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "neg": lambda a: -a,
        "square": lambda a: a * a,
        "reciprocal": lambda a: 1 / a,
    }
)
"""Arithmetic of fractions; of numbers alone, other operators give the nearest float."""


def _call(op: str, *operands: Expression) -> Expression:
    numbers = [part.value for part in operands if isinstance(part, Literal)]
    if len(numbers) < len(operands):
        return Call(op, operands)
    try:
        if op in _FOLDED:
            value = _FOLDED[op](*numbers)
        else:
            with np.errstate(all="ignore"):
                result = BY_NAME[op](*map(float, numbers))
            value = Fraction(repr(float(result)))
        bits = max(value.numerator.bit_length(), value.denominator.bit_length())
        if bits <= MOST_BITS and math.isfinite(float(value)):
            return Literal(value)
    except (ArithmeticError, ValueError):
        pass
    raise ParseError(f"{op} of the numbers {', '.join(f'{float(n):g}' for n in numbers)}")
