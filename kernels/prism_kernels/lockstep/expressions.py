"""Rewrites expressions: what touches memory or waits becomes a line of its own, in order.

What is left is an expression over names and numbers. Nothing of the source's tree is kept: each
form the dialect has is written anew from its parts, and any other is refused, so that a file can
only do what stands here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar, assert_never

import numpy as np

from prism_kernels.cuda import dialect, tensor_dialect
from prism_kernels.cuda.devices import MAX_BLOCKS, MAX_THREADS
from prism_kernels.lockstep import arithmetic
from prism_kernels.lockstep.accesses import Accesses
from prism_kernels.lockstep.code import Action, Code
from prism_kernels.lockstep.functions import CONSTANTS, Function, Kind
from prism_kernels.lockstep.functions import FUNCTIONS as NUMBER_FUNCTIONS
from prism_kernels.lockstep.matrices import FUNCTIONS as WORD_FUNCTIONS
from prism_kernels.lockstep.names import HIGH, MAX_U32, Local, Names, Parameter, Shared, Value
from prism_kernels.lockstep.warp import COLLECTIVES

INDICES: Mapping[str, Value] = MappingProxyType(
    {
        "threadIdx": Value("_thread", Kind.INT, 0, MAX_THREADS - 1),
        "blockIdx": Value("_block", Kind.INT, 0, MAX_BLOCKS - 1),
    }
)
"""Attribute of `cuda` -> variable of the rewritten kernel, with the range the hardware has."""

MAX_TEXT = 500
"""Characters of an expression in one line: Python nests no more than 200 parentheses."""

_COLLECTIVE_ARGUMENTS = {f"cuda.{name}": n for name, n in dialect.COLLECTIVES.items()}
_FUNCTION_ARGUMENTS = {"u32": 1, "f32": 1, **dialect.FUNCTIONS, **tensor_dialect.CONVERSIONS}
FUNCTIONS: Mapping[str, Function] = MappingProxyType({**NUMBER_FUNCTIONS, **WORD_FUNCTIONS})


@dataclass(frozen=True, slots=True)
class Expressions:
    """Rewrites the expressions of one kernel into `code`."""

    code: Code
    names: Names
    accesses: Accesses

    def value(self, node: ast.expr) -> Value:
        """Any expression.

        Raises:
            KernelError: the dialect has no such expression.
        """
        form = self._FORMS.get(type(node))
        if form is None:
            raise self._unknown(node)
        value = form(self, node)
        if len(value.text) <= MAX_TEXT:
            return value
        return replace(value, text=self.code.bound_to_name(value.text))

    def integer(self, node: ast.expr) -> Value:
        """An index or count."""
        value = self.value(node)
        if value.kind is not Kind.INT:
            raise self.names.refusal(node, f"an integer must stand here, not {value.kind.value}")
        return arithmetic.settled(self.names, node, value)

    def number(self, node: ast.expr) -> Value:
        """A float32."""
        value = self.value(node)
        if value.kind is not Kind.FLOAT:
            raise self.names.refusal(node, f"a float32 must stand here, not {value.kind.value}")
        return value

    def word(self, node: ast.expr) -> Value:
        """An unsigned 32-bit integer."""
        value = self.integer(node)
        if value.low < 0 or value.high > MAX_U32:
            raise self.names.refusal(node, "a word must stand here: wrap it in u32")
        return value

    def condition(self, node: ast.expr) -> Value:
        """A truth value."""
        return arithmetic.condition(self.names, node, self.value(node))

    def _any(self, node: ast.expr) -> Value:
        """A value of any kind that can be kept or moved."""
        return arithmetic.settled(self.names, node, self.value(node))

    def _unknown(self, node: ast.expr) -> Exception:
        return self.names.refusal(
            node, f"`{ast.unparse(node)[:60]}` is no expression of the dialect"
        )

    # -- names and numbers

    def _constant(self, node: ast.Constant) -> Value:
        match node.value:
            case bool() as claim:
                return Value(repr(claim), Kind.BOOL)
            case int() as number if number <= HIGH:
                return Value(repr(number), Kind.INT, number, number)
            case float() as number:
                reason = f"{number!r} alone is a float64: write f32({number!r})"
                raise self.names.refusal(node, reason)
            case _:
                raise self._unknown(node)

    def _name(self, node: ast.Name) -> Value:
        if node.id in CONSTANTS:
            return Value(self.code.constant(CONSTANTS[node.id]), Kind.FLOAT)
        return self.names.variable(node, node.id)

    def _attribute(self, node: ast.Attribute) -> Value:
        match node:
            case ast.Attribute(ast.Attribute(ast.Name("cuda"), register), "x") if (
                register in INDICES
            ):
                return INDICES[register]
            case _:
                raise self._unknown(node)

    # -- operators

    def _unary(self, node: ast.UnaryOp) -> Value:
        match node.op:
            case ast.Not():
                return Value(f"(not {self.condition(node.operand).text})", Kind.BOOL)
            case ast.USub():
                return arithmetic.negative(self.names, node, self.value(node.operand))
            case _:
                raise self._unknown(node)

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.value(node.left), self.value(node.right)
        return arithmetic.binary(self.names, node, node.op, left, right)

    def _compare(self, node: ast.Compare) -> Value:
        match node:
            case ast.Compare(left, [op], [right]):
                values = self.value(left), self.value(right)
                return arithmetic.comparison(self.names, node, op, *values)
            case _:
                raise self.names.refusal(node, "write a chain of comparisons as several with `and`")

    def _logic(self, node: ast.BoolOp) -> Value:
        """`and` and `or`: an operand is not evaluated when an earlier one decides."""
        word, test = ("and", "if {}:") if isinstance(node.op, ast.And) else ("or", "if not {}:")
        result = self.condition(node.values[0]).text
        for operand in node.values[1:]:
            name = self.code.fresh()
            with self.code.captured() as lines:
                text = self.condition(operand).text
                if lines:
                    self.code.line(f"{name} = {text}")
            if not lines:
                result = f"({result} {word} {text})"
                continue
            self.code.line(f"{name} = {result}")
            self.code.line(test.format(name))
            self.code.lines += lines
            result = name
        return Value(result, Kind.BOOL)

    def _choice(self, node: ast.IfExp) -> Value:
        """`a if c else b`."""
        condition, name = self.condition(node.test).text, self.code.fresh()
        with self.code.captured() as yes_lines:
            yes = self._any(node.body)
            self.code.line(f"{name} = {yes.text}")
        with self.code.captured() as no_lines:
            no = self._any(node.orelse)
            self.code.line(f"{name} = {no.text}")
        if yes.kind is not no.kind:
            reason = f"{yes.kind.value} and {no.kind.value} are no alternatives"
            raise self.names.refusal(node, reason)
        self.code.line(f"if {condition}:")
        self.code.lines += yes_lines
        self.code.line("else:")
        self.code.lines += no_lines
        low, high = min(yes.low, no.low), max(yes.high, no.high)
        return Value(name, yes.kind, low, high, yes.is_signed or no.is_signed)

    # -- memory

    def _subscript(self, node: ast.Subscript) -> Value:
        """`shared[i]` and `local[i]`."""
        match node.value:
            case ast.Name(id=name):
                known = self.names.known.get(name)
            case _:
                known = None
        at = self.integer(node.slice)
        match known:
            case Shared(name=name):
                return self.accesses.load(name, at)
            case Local():
                return self.accesses.load_local(known, at)
            case _:
                raise self.names.refusal(node, "only shared and local arrays have []")

    def parameter(self, node: ast.expr, dtype: str) -> Parameter:
        """The pointer that a load or store goes through."""
        match node:
            case ast.Name(id=name):
                known = self.names.known.get(name)
            case _:
                known = None
        if not isinstance(known, Parameter):
            raise self.names.refusal(node, "loads and stores go through a parameter of the kernel")
        if known.dtype != dtype:
            raise self.names.refusal(node, f"{known.name} holds {known.dtype}, not {dtype}")
        return known

    # -- calls

    def _call(self, node: ast.Call) -> Value:
        match node:
            case ast.Call(ast.Name(name), args, []):
                self.require_arguments(node, name, _FUNCTION_ARGUMENTS)
                return self._function(node, name, args)
            case ast.Call(ast.Attribute(ast.Name("cuda"), name), args, []):
                self.require_arguments(node, f"cuda.{name}", _COLLECTIVE_ARGUMENTS)
                return self._collective(node, name, args)
            case _:
                raise self._unknown(node)

    def require_arguments(self, node: ast.Call, name: str, known: Mapping[str, int]) -> None:
        """Refuse an unknown function and a wrong number of arguments.

        Raises:
            KernelError: it is not called like that.
        """
        if name not in known:
            raise self.names.refusal(node, f"unknown function {name}")
        if len(node.args) != known[name] or node.keywords:
            raise self.names.refusal(node, f"{name} takes {known[name]} arguments")

    def _function(self, node: ast.Call, name: str, args: Sequence[ast.expr]) -> Value:
        """A cast, a load, or a function of numbers."""
        if name == "u32":
            return arithmetic.as_u32(self.names, node, self.value(args[0]))
        if name == "f32":
            return self._as_f32(node, args[0])
        if name.startswith("load_"):
            parameter = self.parameter(args[0], name.removeprefix("load_"))
            at = self.integer(args[1])
            return self.accesses.load(parameter.name, at, is_shared=not parameter.is_input)
        if name not in FUNCTIONS:
            raise self.names.refusal(node, f"{name} gives nothing back: it is a statement")
        function = FUNCTIONS[name]
        operands = [self._operand(k, a) for k, a in zip(function.operands, args, strict=True)]
        text = f"{name}({', '.join(operand.text for operand in operands)})"
        if function.result is Kind.INT:
            return Value(text, Kind.INT, 0, MAX_U32, is_signed=False)
        return Value(text, function.result)

    def _as_f32(self, node: ast.Call, operand: ast.expr) -> Value:
        match operand:
            case ast.Constant(float() | int() as number) if type(number) is not bool:
                pass
            case ast.UnaryOp(ast.USub(), ast.Constant(float(positive))):
                number = -positive
            case _:
                return arithmetic.as_f32(self.names, node, self.value(operand))
        with np.errstate(over="ignore"):
            return Value(self.code.constant(np.float32(number)), Kind.FLOAT)

    def _collective(self, node: ast.Call, name: str, args: Sequence[ast.expr]) -> Value:
        """A shuffle or vote: the thread waits with its operands, and is sent its result."""
        if name not in COLLECTIVES:
            raise self.names.refusal(node, f"cuda.{name} gives nothing back: it is a statement")
        collective = COLLECTIVES[name]
        if self.integer(args[0]).text != str(dialect.FULL_MASK):
            reason = f"the mask must be {dialect.FULL_MASK:#x}: all lanes take part"
            raise self.names.refusal(node, reason)
        operands = [self._operand(k, a) for k, a in zip(collective.operands, args[1:], strict=True)]
        result, site = self.code.fresh(), self.code.site(Action.COLLECTIVE, name)
        texts = "".join(f", {operand.text}" for operand in operands)
        self.code.line(f"{result} = yield ({site}{texts})", site)
        match collective.result:
            case None:
                moved = operands[0]
                return Value(result, moved.kind, moved.low, moved.high, moved.is_signed)
            case Kind.INT:
                return Value(result, Kind.INT, 0, MAX_U32, is_signed=False)
            case kind:
                return Value(result, kind)

    def _operand(self, kind: Kind | None, node: ast.expr) -> Value:
        match kind:
            case Kind.BOOL:
                return self.condition(node)
            case Kind.INT:
                return self.integer(node)
            case Kind.FLOAT:
                return self.number(node)
            case None:
                return self._any(node)
            case _:
                assert_never(kind)

    _FORMS: ClassVar[Mapping[type[ast.expr], Callable[[Expressions, Any], Value]]] = (
        MappingProxyType(
            {
                ast.Constant: _constant,
                ast.Name: _name,
                ast.Attribute: _attribute,
                ast.UnaryOp: _unary,
                ast.BinOp: _binary,
                ast.Compare: _compare,
                ast.BoolOp: _logic,
                ast.IfExp: _choice,
                ast.Subscript: _subscript,
                ast.Call: _call,
            }
        )
    )
    """Form of an expression -> what rewrites it; there are no others."""
