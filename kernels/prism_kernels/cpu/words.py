"""Compiles small functions on 64-bit words: the launcher's own code, where Numba takes 1.4 s.

The functions are Python in a dialect: every value is a signed word, a pointer too. There are
assignments, `while`, `for .. in range(..)`, `if`, `return`, integer arithmetic, comparisons, `and`,
module constants, `min`, `max`, calls of each other and of the primitives below. They are read from
their source and never run as Python. Compiling takes 60 ms; the code lives as long as the process.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import inspect
import platform
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MappingProxyType
from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it has no stubs
from llvmlite import ir

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_BYTES = 8
_ORDER = "seq_cst"
"""Of every atomic access: the strictest, as none of them is in a hot loop."""
_PAUSES: Mapping[str, tuple[str, tuple[int, ...]]] = MappingProxyType(
    {
        "x86_64": ("llvm.x86.sse2.pause", ()),
        "amd64": ("llvm.x86.sse2.pause", ()),
        "aarch64": ("llvm.aarch64.hint", (1,)),
        "arm64": ("llvm.aarch64.hint", (1,)),
    }
)
"""What tells the processor that this thread waits for another, by machine."""

# -- the primitives, as the dialect's functions see them


def peek(address: int) -> int:
    """The word at an address that nobody writes meanwhile."""
    raise NotImplementedError(address)


def peek_int(address: int) -> int:
    """As `peek`, the C `int` at an address."""
    raise NotImplementedError(address)


def poke(address: int, value: int) -> None:
    """Write a word that nobody reads or writes meanwhile."""
    raise NotImplementedError(address, value)


def atomic_load(address: int) -> int:
    """The word at an address."""
    raise NotImplementedError(address)


def atomic_store(address: int, value: int) -> None:
    """Write the word at an address."""
    raise NotImplementedError(address, value)


def atomic_add(address: int, value: int) -> None:
    """Add to the word at an address."""
    raise NotImplementedError(address, value)


def exchange(address: int, old: int, new: int) -> bool:
    """Write `new` where the word is `old`, and say whether it was."""
    raise NotImplementedError(address, old, new)


def pause() -> None:
    """Let some time go by while another thread is waited for."""
    raise NotImplementedError


def call(address: int, *arguments: int) -> int:
    """Call the C function at an address; an answer of less than a word has anything above it."""
    raise NotImplementedError(address, arguments)


Values = Sequence[ir.Value]


def _word(builder: ir.IRBuilder, address: ir.Value, kind: ir.Type = _I64) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())


def _exchange(builder: ir.IRBuilder, args: Values) -> ir.Value:
    done = builder.cmpxchg(_word(builder, args[0]), args[1], args[2], _ORDER, _ORDER)
    return builder.zext(builder.extract_value(done, 1), _I64)


def _pause(builder: ir.IRBuilder, _args: Values) -> None:
    found = _PAUSES.get(platform.machine().lower())
    if found is None:
        return
    name, numbers = found
    kind = ir.FunctionType(ir.VoidType(), [_I32] * len(numbers))
    function = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
    builder.call(function, [ir.Constant(_I32, number) for number in numbers])


def _call(builder: ir.IRBuilder, args: Values) -> ir.Value:
    kind = ir.FunctionType(_I64, [_I64] * (len(args) - 1))
    return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])


_PRIMITIVES: Mapping[Callable[..., Any], Callable[[ir.IRBuilder, Values], ir.Value | None]] = (
    MappingProxyType(
        {
            peek: lambda b, a: b.load(_word(b, a[0])),
            peek_int: lambda b, a: b.sext(b.load(_word(b, a[0], _I32)), _I64),
            poke: lambda b, a: b.store(a[1], _word(b, a[0])),
            atomic_load: lambda b, a: b.load_atomic(_word(b, a[0]), _ORDER, _BYTES),
            atomic_store: lambda b, a: b.store_atomic(a[1], _word(b, a[0]), _ORDER, _BYTES),
            atomic_add: lambda b, a: b.atomic_rmw("add", _word(b, a[0]), a[1], _ORDER),
            exchange: _exchange,
            pause: _pause,
            call: _call,
            min: lambda b, a: b.select(b.icmp_signed("<", *a), *a),
            max: lambda b, a: b.select(b.icmp_signed(">", *a), *a),
        }
    )
)

_ARITHMETIC: Mapping[type[ast.operator], str] = MappingProxyType(
    {
        ast.Add: "add",
        ast.Sub: "sub",
        ast.Mult: "mul",
        ast.FloorDiv: "sdiv",  # of what is not negative
        ast.LShift: "shl",
        ast.RShift: "ashr",
        ast.BitAnd: "and_",
        ast.BitOr: "or_",
    }
)
_COMPARED: Mapping[type[ast.cmpop], str] = MappingProxyType(
    {
        ast.Eq: "==",
        ast.NotEq: "!=",
        ast.Lt: "<",
        ast.LtE: "<=",
        ast.Gt: ">",
        ast.GtE: ">=",
    }
)


def compiled(functions: Sequence[Callable[..., Any]]) -> Mapping[str, int]:
    """The addresses of functions of the dialect, by name; they may call those before them."""
    module = ir.Module()
    for function in functions:
        assert isinstance(function, FunctionType)
        _Function(module, function).write()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()
    _ENGINES.append(engine)
    return {f.__name__: engine.get_function_address(f.__name__) for f in functions}


_ENGINES: list[Any] = []
"""What owns the machine code."""


class _Function:
    """Writes one function of the dialect."""

    def __init__(self, module: ir.Module, function: FunctionType) -> None:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
        assert isinstance(tree, ast.FunctionDef)
        self.tree = tree
        self.names = function.__globals__
        parameters = [a.arg for a in tree.args.args]
        kind = ir.FunctionType(_I64, [_I64] * len(parameters))
        self.made = ir.Function(module, kind, function.__name__)
        self.builder = ir.IRBuilder(self.made.append_basic_block())
        assigned = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _is_target(n)}
        self.variables = {
            name: self.builder.alloca(_I64) for name in sorted({*parameters, *assigned})
        }
        for name, value in zip(parameters, self.made.args, strict=True):
            self.builder.store(value, self.variables[name])

    def write(self) -> None:
        """Write all of it."""
        self._body(self.tree.body)
        if not self.builder.block.is_terminated:
            self.builder.ret(_number(0))

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, statement: ast.stmt) -> None:
        builder = self.builder
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                builder.store(self._value(value), self.variables[name])
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                old = builder.load(self.variables[name])
                builder.store(self._arithmetic(op, old, self._value(value)), self.variables[name])
            case ast.Expr(value=ast.Constant()):
                pass  # the docstring
            case ast.Expr(value=value):
                self._value(value)
            case ast.Return(value=value):
                builder.ret(_number(0) if value is None else self._value(value))
                builder.position_at_end(builder.append_basic_block())
            case ast.If(test=test, body=body, orelse=orelse):
                self._if(test, body, orelse)
            case ast.While(test=test, body=body, orelse=[]):
                self._while(lambda: self._value(test), body, lambda: None)
            case ast.For(target=ast.Name(id=name), iter=ast.Call(args=bounds), body=body):
                self._for(name, bounds, body)
            case _:
                raise self._unknown(statement)

    def _if(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        with self.builder.if_else(self._truth(self._value(test))) as (then, otherwise):
            with then:
                self._body(body)
            with otherwise:
                self._body(orelse)

    def _while(
        self, test: Callable[[], ir.Value], body: Sequence[ast.stmt], step: Callable[[], object]
    ) -> None:
        builder = self.builder
        head, inside, after = (builder.append_basic_block() for _ in range(3))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(self._truth(test()), inside, after)
        builder.position_at_end(inside)
        self._body(body)
        step()
        builder.branch(head)
        builder.position_at_end(after)

    def _for(self, name: str, bounds: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        builder, variable = self.builder, self.variables[name]
        start, stop = [_number(0), *map(self._value, bounds)][-2:]
        builder.store(start, variable)
        self._while(
            lambda: self._compared("<", builder.load(variable), stop),
            body,
            lambda: builder.store(builder.add(builder.load(variable), _number(1)), variable),
        )

    def _value(self, expression: ast.expr) -> ir.Value:
        match expression:
            case ast.Constant() | ast.Name():
                return self._atom(expression)
            case ast.BinOp(left=left, op=op, right=right):
                return self._arithmetic(op, self._value(left), self._value(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._compared(_COMPARED[type(op)], self._value(left), self._value(right))
            case ast.BoolOp(op=ast.And(), values=values):
                return self._and(values)
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._called(name, [self._value(arg) for arg in args])
            case _:
                raise self._unknown(expression)

    def _atom(self, expression: ast.Constant | ast.Name) -> ir.Value:
        match expression:
            case ast.Name(id=name) if name in self.variables:
                return self.builder.load(self.variables[name])
            case ast.Name(id=name):
                return _number(int(self.names[name]))
            case ast.Constant(value=int(number)):
                return _number(number)
            case _:
                raise self._unknown(expression)

    def _called(self, name: str, args: Values) -> ir.Value:
        found = self.names[name] if name in self.names else getattr(builtins, name)
        primitive = _PRIMITIVES.get(found)
        if primitive is None:
            return self.builder.call(self.builder.module.get_global(name), args)
        value = primitive(self.builder, args)
        return _number(0) if value is None else value

    def _and(self, values: Sequence[ast.expr]) -> ir.Value:
        """Later values are computed where the earlier ones are true."""
        builder = self.builder
        with builder.goto_entry_block():
            result = builder.alloca(_I64)
        builder.store(self._value(values[0]), result)
        for value in values[1:]:
            with builder.if_then(self._truth(builder.load(result))):
                builder.store(self._value(value), result)
        return builder.load(result)

    def _arithmetic(self, op: ast.operator, left: ir.Value, right: ir.Value) -> ir.Value:
        return getattr(self.builder, _ARITHMETIC[type(op)])(left, right)

    def _compared(self, op: str, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.builder.zext(self.builder.icmp_signed(op, left, right), _I64)

    def _truth(self, value: ir.Value) -> ir.Value:
        return self.builder.icmp_signed("!=", value, _number(0))

    def _unknown(self, node: ast.AST) -> AssertionError:
        return AssertionError(f"{self.made.name}: no such thing here: {ast.unparse(node)}")


def _is_target(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _number(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


class _Method(ctypes.Structure):
    """How Python is told of a builtin function (PyMethodDef)."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_FASTCALL = 0x80
_METHODS: list[_Method] = []
"""Python keeps their addresses."""


def builtin(name: str, address: int, owner: object) -> Callable[..., Any]:
    """A builtin function of Python's at an address: (owner, arguments, how many) -> an object.

    Calling it touches a fifth of the memory that a call by ctypes does.
    """
    method = _Method(name.encode(), address, _FASTCALL, None)
    _METHODS.append(method)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make.restype = ctypes.py_object
    made: Callable[..., Any] = make(ctypes.addressof(method), owner, None)
    return made
