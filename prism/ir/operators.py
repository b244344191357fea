"""Operators that users define: a name, a constructor for axioms, a meaning as an expression.

A definition is data (`expression.py`, `expression_reader.py`). It becomes a row of the table `OPS`
for the life of the process, because programs and graphs name operators by text: defining it again
is nothing, another one under its name or constructor is an error. What follows from the meaning is
derived from it and never declared: in which operands the operator is linear, and which others it is
made of.

A program or graph that uses one says so in its text form, one line each:

    operator gelu_quick as GeluQuick(x) = x * sigmoid(1.702 * x)
    operator rope as Rope(x, c, s) along k = x * c + roll(x, k, size(k) / 2) * s
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from prism.errors import AxiomError, ParseError
from prism.ir.expression import (
    WORDS,
    Along,
    Call,
    Choice,
    Expression,
    Extent,
    Flip,
    Index,
    Literal,
    Operand,
    Roll,
    evaluate_expression,
    walk,
)
from prism.ir.expression_reader import parse_expression
from prism.ir.ops import BUILT_IN, OPS, Linearity, OpKind, OpSpec, add_row

MAX_OPERANDS = 4
MAX_DEFINED = 200
"""Operators that one process may define: a file cannot fill the memory with them."""

RESERVED = frozenset(
    {"accumulate", "annotations", "bound", "const", "input", "load", "operator", "rms", "rms_eps",
     "save"}
) | WORDS  # fmt: skip
"""Names with a meaning of their own in text forms, in the search or in emitted kernels."""

_TEMPLATES = " ".join(row.term for row in BUILT_IN)
RESERVED_CONSTRUCTORS = frozenset(
    {*re.findall(r"[A-Z]\w*", _TEMPLATES),
     "Input", "Const", "Size", "Part", "Repl", "Comb", "Red", "RedMax", "Pick", "Stack", "Scale",
     "Unscale", "BigInt", "BigRat", "Map", "MultiSet", "Pair", "Rational", "Set", "String", "Unit",
     "UnstableFn", "Vec"}
)  # fmt: skip
"""Constructors of our own, and sorts of egglog."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")
_CONSTRUCTOR = re.compile(r"[A-Z][A-Za-z0-9]{1,39}")
_LINE = re.compile(
    r"operator (?P<name>\w+) as (?P<constructor>\w+)\((?P<operands>[\w, ]*)\)"
    r"(?: along (?P<dim>\w+))? = (?P<numpy>.+)"
)


@dataclass(frozen=True, slots=True)
class Definition:
    """An operator of a user. `numpy` is its meaning; `source` says which file it is from."""

    name: str
    constructor: str
    operands: tuple[str, ...]
    dim: str | None
    numpy: str
    source: str = field(default="", compare=False)

    @property
    def meaning(self) -> Expression:
        """The meaning, taken apart."""
        return _meaning(self.numpy, self.operands, self.dim)

    @property
    def key(self) -> tuple[object, ...]:
        """What two spellings of one operator have in common."""
        return self.constructor, len(self.operands), self.dim is None, self.meaning

    @property
    def basic_ops(self) -> frozenset[str]:
        """The elementwise operators that its meaning is made of."""
        return frozenset(part.op for part in walk(self.meaning) if isinstance(part, Call))

    @property
    def numbers(self) -> frozenset[float]:
        """The numbers that its meaning speaks of."""
        literals = (part for part in walk(self.meaning) if isinstance(part, Literal))
        return frozenset(float(part.value) for part in literals)

    @property
    def can_be_written_out(self) -> bool:
        """Whether its meaning is operators of the table alone, as emitters need it."""
        return all(isinstance(p, Literal | Operand | Call) for p in walk(self.meaning))

    def value(
        self,
        operands: Sequence[Any],
        along: Along | None = None,
        scalar: Callable[[Fraction], Any] = float,
    ) -> Any:  # noqa: ANN401 - arrays of whatever numbers the operands are
        """Its meaning on operands aligned for broadcasting, in the shape of all of them.

        `along`: where its dim is; `scalar` makes numbers like those of the operands.
        """
        value = np.asarray(evaluate_expression(self.meaning, operands, along, scalar))
        shape = list(np.broadcast_shapes(*(np.shape(operand) for operand in operands)))
        if along is not None:
            shape[along.axis] = along.size
        return value if value.shape == tuple(shape) else np.broadcast_to(value, shape)

    def __str__(self) -> str:
        """The line of the text form."""
        along = "" if self.dim is None else f" along {self.dim}"
        operands = ", ".join(self.operands)
        return f"operator {self.name} as {self.constructor}({operands}){along} = {self.numpy}"


@lru_cache(maxsize=1_024)
def _meaning(text: str, operands: tuple[str, ...], dim: str | None) -> Expression:
    return parse_expression(text, operands, dim)


def make_definition(  # noqa: PLR0913, PLR0917 - the fields of a definition
    name: str,
    constructor: str,
    operands: tuple[str, ...],
    dim: str | None,
    numpy: str,
    source: str = "",
) -> Definition:
    """A vetted definition.

    Raises:
        ParseError: a name that is taken or not of the right form, or a meaning that is none.
    """
    if any(row.name == name for row in BUILT_IN):
        raise ParseError(f"the operator {name!r} is one of Prism's own; give yours another name")
    if not _NAME.fullmatch(name) or name in RESERVED or keyword.iskeyword(name):
        raise ParseError(f"the operator name {name[:40]!r} is taken or not in snake_case")
    if not _CONSTRUCTOR.fullmatch(constructor) or constructor in RESERVED_CONSTRUCTORS:
        raise ParseError(
            f"{name}: the constructor name {constructor[:40]!r} is taken or not in CamelCase"
        )
    if not 1 <= len(operands) <= MAX_OPERANDS:
        raise ParseError(f"{name}: an operator has 1 to {MAX_OPERANDS} operands")
    names = (*operands, *(() if dim is None else (dim,)))
    for operand in names:
        if not _NAME.fullmatch(operand) or operand in WORDS or keyword.iskeyword(operand):
            raise ParseError(f"{name}: {operand[:40]!r} cannot name an operand or a dim")
    if len(set(names)) != len(names):
        raise ParseError(f"{name}: operands and dim need different names")
    definition = Definition(name, constructor, operands, dim, " ".join(numpy.split()), source)
    try:
        meaning = definition.meaning
    except ParseError as error:
        raise ParseError(f"{name}: numpy: {error}") from error
    if dim is not None and not any(isinstance(p, Roll | Flip | Index) for p in walk(meaning)):
        raise ParseError(
            f"{name}: its meaning mixes or counts no places along {dim}: without dim it is "
            "elementwise, and can be split"
        )
    return definition


def definition_of_line(line: str) -> Definition:
    """The definition that a line of the text form writes.

    Raises:
        ParseError: it is none.
    """
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise ParseError("expected 'operator NAME as CONSTRUCTOR(OPERANDS) = EXPRESSION'")
    operands = tuple(name.strip() for name in found["operands"].split(","))
    return make_definition(
        found["name"], found["constructor"], operands, found["dim"], found["numpy"]
    )


def define(definition: Definition) -> OpSpec:
    """Its row in the table: the one that is there, or a new one.

    Raises:
        AxiomError: its name or its constructor belongs to another operator.
    """
    known = OPS.get(definition.name)
    if known is not None and known.definition is not None:
        if known.definition.key != definition.key:
            raise _clash(known.definition, definition)
        if definition.source:
            _SPELLED.setdefault(definition.name, definition)
        return known
    for other in definitions():
        if other.constructor == definition.constructor:
            raise _clash(other, definition)
    if len(definitions()) >= MAX_DEFINED:
        raise AxiomError(f"more than {MAX_DEFINED} operators are defined in this process")
    spec = _row(definition)
    add_row(spec)
    if definition.source:
        _SPELLED[definition.name] = definition
    return spec


_SPELLED: dict[str, Definition] = {}
"""Those of files that the user named, in whose name programs may be written."""


def spelled() -> Mapping[str, Definition]:
    """The operators that programs may call: of files that the user named or installed.

    Not those that a program or graph in text form brought along: it does not decide what a name
    means elsewhere.
    """
    return MappingProxyType(_SPELLED)


def _clash(old: Definition, new: Definition) -> AxiomError:
    return AxiomError(
        f"two operators under one name in this process: {_placed(old)}, and {_placed(new)}; give "
        "one another name and constructor"
    )


def _placed(definition: Definition) -> str:
    return f"{definition} ({definition.source or 'a program or graph in text form'})"


def definitions() -> tuple[Definition, ...]:
    """Every operator that is defined in this process."""
    return tuple(
        row.definition for row in list(OPS.values())[len(BUILT_IN) :] if row.definition is not None
    )


def as_lines() -> tuple[str, ...]:
    """Every operator that is defined in this process, to be adopted by a worker of it."""
    return tuple(map(str, definitions()))


def adopt(lines: Iterable[str]) -> None:
    """Define the operators that these lines of the text form write.

    Raises:
        ParseError: a line is none.
        AxiomError: see `define`.
    """
    for line in lines:
        define(definition_of_line(line))


def definitions_of(ops: Iterable[str]) -> tuple[Definition, ...]:
    """The definitions of those operators that users defined, by name."""
    rows = (OPS[op] for op in sorted(set(ops)) if op in OPS)
    return tuple(row.definition for row in rows if row.definition is not None)


def _row(definition: Definition) -> OpSpec:
    meaning = definition.meaning
    linear = tuple(
        place
        for place in range(len(definition.operands))
        if _degree(meaning, place) is Degree.LINEAR
    )
    operands = " ".join(f"{{{place}}}" for place in range(len(definition.operands)))
    along = "" if definition.dim is None else " {dim}"
    return OpSpec(
        definition.name,
        OpKind.ELEMENTWISE if definition.dim is None else OpKind.ALONG,
        len(definition.operands),
        _numpy(definition),
        f"({definition.constructor} {operands}{along})",
        Linearity.EACH if linear else Linearity.NONE,
        linear,
        definition=definition,
    )


class Degree(Enum):
    """How an expression depends on one operand."""

    ZERO = "it is zero"
    FREE = "not at all"
    LINEAR = "linearly: that of a sum is the sum of those of the summands"
    OTHER = "otherwise"


def _degree(  # noqa: PLR0911 - a case per form
    expression: Expression, place: int
) -> Degree:
    """How the value depends on the operand at `place`; OTHER where the form does not tell."""
    match expression:
        case Literal(value=value):
            return Degree.FREE if value else Degree.ZERO
        case Operand(place=other):
            return Degree.LINEAR if other == place else Degree.FREE
        case Index() | Extent():
            return Degree.FREE
        case Call(op=op, operands=operands):
            return _degree_of_call(op, [_degree(part, place) for part in operands])
        case Choice(left, right, yes, no):
            if {_degree(left, place), _degree(right, place)} <= _FREE:
                return _degree_of_call("add", [_degree(yes, place), _degree(no, place)])
            return Degree.OTHER
        case Roll(value=value) | Flip(value=value):
            return _degree(value, place)
        case _:
            assert_never(expression)


_FREE = frozenset({Degree.ZERO, Degree.FREE})


def _degree_of_call(op: str, degrees: list[Degree]) -> Degree:
    match op, degrees:
        case "add" | "sub", [a, b] if a is b or Degree.ZERO in degrees:
            return b if a is Degree.ZERO else a
        case "neg", [a]:
            return a
        case "mul", [a, b] if b in _FREE or a in _FREE:
            other = b if a in _FREE else a
            return Degree.ZERO if Degree.ZERO in degrees else other
        case "div", [a, b] if b in _FREE:
            return a
        case _:
            return Degree.FREE if set(degrees) <= _FREE else Degree.OTHER


def _numpy(definition: Definition) -> Callable[..., NDArray[np.float64]]:
    """As `OpSpec.numpy`; an operator along a dim is told where that is."""
    if definition.dim is None:
        return lambda *operands: definition.value(operands)
    return lambda *operands, axis, size: definition.value(operands, Along(axis, size))
