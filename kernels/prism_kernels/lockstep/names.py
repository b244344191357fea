"""What the names and expressions of a kernel stand for, as far as the text tells.

Numba types a kernel before it runs; a `Value` is that type with the range an integer is known to
stay in. Ranges spare work (no mask where nothing can wrap, no test of an index that cannot be out
of bounds), kinds keep float64 out: a float32 with an integer, or a literal, makes one.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from prism.errors import KernelError
from prism_kernels.lockstep.functions import Kind

MAX_U32 = 2**32 - 1
LOW, HIGH = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Value:
    """An expression of the rewritten kernel, and what is known of it."""

    text: str
    kind: Kind
    low: int = LOW
    high: int = HIGH
    """Of an integer."""
    is_signed: bool = True
    """Whether Numba computes with it as a signed integer."""
    may_wrap: bool = False
    """A difference of unsigned integers: below zero here, huge on the GPU."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A pointer to elements of a storage dtype; `is_input` when the launch only reads it."""

    name: str
    dtype: str
    is_input: bool


@dataclass(frozen=True, slots=True)
class Shared:
    """The block's shared memory."""

    name: str


@dataclass(frozen=True, slots=True)
class Local:
    """A thread's own array, of float32 numbers or of words (unsigned 32-bit integers)."""

    name: str
    size: int
    kind: Kind = Kind.FLOAT


Named = Value | Parameter | Shared | Local
"""What a name of the source stands for."""


@dataclass(slots=True)
class Names:
    """The names known so far, in the order of the text."""

    text: str
    known: dict[str, Named] = field(default_factory=dict)
    assignments: dict[str, int] = field(default_factory=dict)
    """How often each name is assigned to in the whole kernel."""

    def refusal(self, node: ast.AST, reason: str) -> KernelError:
        """What to raise for a place outside the dialect."""
        line = getattr(node, "lineno", 1)
        return KernelError(f"line {line} `{source_line(self.text, line)}`: {reason}")

    def variable(self, node: ast.AST, name: str) -> Value:
        """The variable of that name."""
        match self.known.get(name):
            case Value() as value:
                return value
            case Parameter():
                raise self.refusal(node, f"{name} is a pointer: use load_* and store_*")
            case Shared() | Local():
                raise self.refusal(node, f"{name} is an array: use {name}[index]")
            case None:
                raise self.refusal(node, f"unknown name {name}")

    def assign(self, node: ast.AST, name: str, value: Value) -> Value:
        """Note that a variable holds a value; the variable as later expressions see it."""
        old = self.known.get(name)
        if old is not None and (not isinstance(old, Value) or old.kind is not value.kind):
            held = old.kind.value if isinstance(old, Value) else "an array"
            raise self.refusal(node, f"{name} holds {held}, it cannot hold {value.kind.value} too")
        if self.assignments.get(name) == 1:
            variable = replace(value, text=name)
        else:  # which value it holds depends on the way taken
            signed = value.is_signed or (isinstance(old, Value) and old.is_signed)
            variable = Value(name, value.kind, is_signed=signed)
        self.known[name] = variable
        return variable


def source_line(text: str, line: int) -> str:
    """A line of the source, without its indentation."""
    lines = text.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
