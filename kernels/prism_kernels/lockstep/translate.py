"""Turns the text of an emitted kernel into a Python generator function, or refuses it.

Each thread of a launch is one such generator. Where threads wait for each other it yields: the
site alone at a barrier, the site and its operands at a collective of its warp, whose result it is
sent. Memory becomes dicts (see `prism_kernels.lockstep.memory`), every access logged.

The file is never imported: it is parsed, and what runs is written anew from the parts that the
dialect knows (`prism_kernels.cuda.dialect`).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, FunctionType
from typing import TypeGuard

from prism.errors import KernelError, one_line
from prism_kernels.cuda import dialect, tensor_dialect
from prism_kernels.lockstep import arithmetic
from prism_kernels.lockstep.accesses import Accesses
from prism_kernels.lockstep.code import Action, Code, Piece, Place
from prism_kernels.lockstep.expressions import Expressions
from prism_kernels.lockstep.faults import Fault, FaultKind, LockstepFault
from prism_kernels.lockstep.functions import ROUND, Kind
from prism_kernels.lockstep.intervals import Range
from prism_kernels.lockstep.kernel_file import kernel_named, parameters_of, parsed, require_name
from prism_kernels.lockstep.memory import Site
from prism_kernels.lockstep.names import (
    HIGH,
    LOW,
    Local,
    Names,
    Parameter,
    Shared,
    Value,
    source_line,
)
from prism_kernels.lockstep.runtime import define
from prism_kernels.lockstep.tensor_statements import TensorStatements, has_words
from prism_kernels.lockstep.vector_statements import VectorStatements

MAX_LOCAL = 1 << 14
"""Elements of a local array."""
LOCAL_KINDS = {"f32": Kind.FLOAT, "u32": Kind.INT}
"""What a local array is said to hold -> what its elements are."""


@dataclass(frozen=True, slots=True)
class Translated:
    """A kernel that can run.

    `function` takes the thread, the block, the limit of iterations, then for each memory in order
    its values and, unless it is an input, its size and the thread's reads, writes and additions.
    """

    function: FunctionType
    text: str
    parameters: tuple[Parameter, ...]
    shared: str | None
    places: tuple[Place, ...]
    sites: tuple[Site, ...] = field(repr=False)
    """Line of the rewritten kernel -> site."""
    top: Piece
    pieces: tuple[Piece, ...]
    """Those whose counters the generator returns, in order."""

    @property
    def code(self) -> CodeType:
        """The code that a frame of this kernel runs."""
        return self.function.__code__


@lru_cache(maxsize=128)
def translate(
    text: str, kernel: str, dtypes: tuple[str, ...], inputs: int, *, checks: bool
) -> Translated:
    """A kernel in `text`, whose parameters have `dtypes`; the first `inputs` are only read.

    Raises:
        KernelError: the text is outside the dialect; the message names the line.
    """
    names, code = Names(text), Code()
    try:
        function = kernel_named(kernel, parsed(text), names)
        parameters = parameters_of(function, names, dtypes, inputs)
        rewriting = _Kernel(names, code, Accesses(code, checks, has_words(function)))
        rewriting.rewrite(function, parameters)
        lines, sites = code.assemble(", ".join(_arguments(parameters, rewriting.shared)))
        runnable = define(lines, code.constants)
    except (RecursionError, SyntaxError) as error:  # Python nests no more than 20 loops
        raise KernelError(f"not a kernel file: nested too deeply ({one_line(error)})") from None
    return Translated(
        runnable,
        text,
        parameters,
        rewriting.shared,
        tuple(code.places),
        tuple(sites),
        code.top,
        tuple(code.pieces),
    )


def _arguments(parameters: Sequence[Parameter], shared: str | None) -> Iterator[str]:
    """The parameters of the generator function, see `Translated`."""
    yield from ("_thread", "_block", "_limit")
    memories = [(p.name, p.is_input) for p in parameters]
    if shared is not None:
        memories.append((shared, False))
    for name, is_input in memories:
        yield f"_v_{name}"
        if not is_input:
            yield from (f"_s_{name}", f"_r_{name}", f"_w_{name}", f"_a_{name}")


class _Kernel:
    """Rewrites the statements of one kernel into `code`."""

    def __init__(self, names: Names, code: Code, accesses: Accesses) -> None:
        self.names = names
        self.code = code
        self.accesses = accesses
        self.expressions = Expressions(code, names, accesses)
        self.tensors = TensorStatements(code, names, accesses, self.expressions)
        self.vectors = VectorStatements(code, names, accesses, self.expressions)
        self.shared: str | None = None
        self.top_statements: list[ast.stmt] = []

    def rewrite(self, function: ast.FunctionDef, parameters: Sequence[Parameter]) -> None:
        """Rewrite the whole kernel."""
        self.names.known.update({p.name: p for p in parameters})
        self.names.assignments = Counter(n.id for n in ast.walk(function) if _is_assigned(n))
        self.top_statements = function.body
        self._body(function.body)
        if self.shared is not None:
            self.tensors.finish()

    # -- statements

    def _body(self, statements: Sequence[ast.stmt]) -> None:
        start = len(self.code.lines)
        for statement in statements:
            self.code.source_line = statement.lineno
            self._statement(statement)
        if len(self.code.lines) == start:
            self.code.line("pass")

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as value) if (
                array := _array_call(value)
            ):
                self._declare(statement, name, array, value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._assign(statement, name, self.expressions.value(value))
            case ast.Assign(targets=[ast.Subscript(ast.Name(id=name), index)], value=value):
                self._store(statement, name, index, value)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                old = self.names.variable(statement, name)
                new = arithmetic.binary(
                    self.names, statement, op, old, self.expressions.value(value)
                )
                self._assign(statement, name, new)
            case ast.AugAssign(target=ast.Subscript(ast.Name(id=name), index), op=op, value=value):
                self._update(statement, name, index, op, value)
            case ast.For(target=ast.Name(id=name), orelse=[]):
                self._loop(statement, name)
            case ast.If(test=test, body=body, orelse=orelse):
                self._branch(test, body, orelse)
            case ast.Expr(value=ast.Call() as call):
                self._call(statement, call)
            case ast.Expr(value=ast.Constant(value=str())) | ast.Pass():
                pass
            case _:
                kind = type(statement).__name__
                raise self.names.refusal(statement, f"the dialect has no such statement ({kind})")

    def _declare(self, statement: ast.stmt, name: str, array: str, call: ast.Call) -> None:
        """`cuda.shared.array` and `cuda.local.array`."""
        require_name(statement, name, self.names)
        if self.names.assignments[name] != 1 or name in self.names.known:
            raise self.names.refusal(statement, f"the array {name} must be made once")
        match array, call.args, call.keywords:
            case (
                "shared",
                [ast.Constant(value=0), ast.Name("f32")],
                [ast.keyword("alignment", ast.Constant(value=16))],
            ) if self.shared is None and statement in self.top_statements:
                self.shared = name
                self.names.known[name] = Shared(name)
                self.tensors.start(name)
            case "local", [ast.Constant(value=int(size)), ast.Name("f32" | "u32" as kind)], [] if (
                type(size) is int and 0 < size <= MAX_LOCAL
            ):
                self.code.line(f"{name} = [None] * {size}")
                self.names.known[name] = Local(name, size, LOCAL_KINDS[kind])
            case _:
                raise self.names.refusal(
                    statement,
                    "arrays are `cuda.shared.array(0, f32, alignment=16)`, once, "
                    "and `cuda.local.array(n, f32)` or `(n, u32)`",
                )

    def _assign(self, statement: ast.stmt, name: str, value: Value) -> None:
        require_name(statement, name, self.names)
        value = arithmetic.settled(self.names, statement, value)
        if value.kind is Kind.INT and (value.low < LOW or value.high > HIGH):
            value = replace(value, text=f"_int64({value.text})", low=LOW, high=HIGH)
        self.code.line(f"{name} = {value.text}")
        self.names.assign(statement, name, value)

    def _store(self, statement: ast.stmt, name: str, index: ast.expr, value: ast.expr) -> None:
        known = self.names.known.get(name)
        if isinstance(known, Local) and known.kind is Kind.INT:
            text = self.expressions.word(value).text
        else:
            text = self.expressions.number(value).text
        at = self.expressions.integer(index)
        match known:
            case Shared():
                self.accesses.store(name, at, text)
            case Local() as local:
                self.accesses.store_local(local, at, text)
            case _:
                raise self.names.refusal(statement, f"{name} is no array")

    def _update(
        self,
        statement: ast.stmt,
        name: str,
        index: ast.expr,
        op: ast.operator,
        operand: ast.expr,
    ) -> None:
        """`array[i] += value`."""
        at = self.accesses.named(self.expressions.integer(index))
        value = self.expressions.number(operand)
        match self.names.known.get(name):
            case Shared():
                old = self.accesses.load(name, at)
                new = arithmetic.binary(self.names, statement, op, old, value)
                self.accesses.store(name, at, new.text)
            case Local(kind=Kind.FLOAT) as local:
                # None + x fails, so an element that holds nothing needs no test
                at_text = self.accesses.index_of_local(local, at, Action.READ)
                old = Value(f"{name}[{at_text}]", Kind.FLOAT)
                new = arithmetic.binary(self.names, statement, op, old, value)
                site = self.code.site(Action.READ, name, at_text)
                self.code.line(f"{old.text} = {new.text}", site)
            case _:
                raise self.names.refusal(statement, f"{name} is no array of float32 numbers")

    def _branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        condition = self.expressions.condition(test)
        with self.code.branch(f"if {condition.text}:"):
            self._body(body)
        if orelse:
            with self.code.branch("else:"):
                self._body(orelse)

    def _loop(self, statement: ast.For, name: str) -> None:
        """`for i in range(..)`; how often it runs is known before it does."""
        match statement.iter:
            case ast.Call(func=ast.Name("range"), args=[_, *_] as args, keywords=[]) if (
                len(args) <= 3 and statement.type_comment is None
            ):
                bounds = [self.expressions.integer(a) for a in args]
            case _:
                raise self.names.refusal(statement, "loops are `for i in range(..)`")
        require_name(statement, name, self.names)
        assigned = {n.id for b in statement.body for n in ast.walk(b) if _is_assigned(n)}
        if name in assigned:
            raise self.names.refusal(statement, f"the loop assigns to its own variable {name}")
        known, over, trips = self._range(statement, bounds)
        signed = any(b.is_signed for b in bounds)
        variable = Value(name, Kind.INT, known.low, known.high, is_signed=signed)
        outside = self.names.assign(statement, name, variable)
        with self.code.loop(f"for {name} in {over}:", trips):
            self.names.known[name] = variable
            self._body(statement.body)
        self.names.known[name] = outside

    def _range(self, statement: ast.For, bounds: Sequence[Value]) -> tuple[Range, str, str]:
        """What a loop variable can be, the range object, and its length."""
        start, stop = (Value("0", Kind.INT, 0, 0), *bounds)[-2:] if len(bounds) < 3 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else Value("1", Kind.INT, 1, 1)
        if step.low < 0 or step.high == 0:
            raise self.names.refusal(statement, "loops go upwards: the step must be positive")
        known = Range(start.low, stop.high - 1)
        if all(b.low == b.high for b in bounds):
            numbers = range(start.low, stop.low, step.low)
            return known, self.code.constant(numbers), str(len(numbers))
        over = self.code.fresh()
        texts = ", ".join(b.text for b in bounds)
        self.code.line(f"{over} = range({texts})", self.code.site(Action.LOOP))
        return known, over, f"len({over})"

    def _call(self, statement: ast.stmt, call: ast.Call) -> None:
        """A statement that is a call: a store, an addition, a barrier."""
        match call:
            case ast.Call(ast.Name(name), args, []) if name.startswith(("store_", "atomic_add_")):
                self.expressions.require_arguments(call, name, dialect.FUNCTIONS)
                self._write(call, name, args)
            case ast.Call(ast.Name(name), args, []) if name in dialect.VECTORS:
                self.expressions.require_arguments(call, name, dict.fromkeys(dialect.VECTORS, 4))
                moved = self.vectors.write(name, args)
                if name.startswith("store") and moved.is_input:
                    raise LockstepFault(self._input_write(call, moved.name))
            case ast.Call(ast.Name(name), args, []) if name in tensor_dialect.STATEMENTS:
                self.expressions.require_arguments(call, name, tensor_dialect.STATEMENTS)
                self.tensors.write(call, name, args)
            case ast.Call(ast.Attribute(ast.Name("cuda"), "syncthreads"), [], []):
                site = self.code.site(Action.BARRIER, "syncthreads")
                self.code.line(f"yield {site}", site)
            case ast.Call(ast.Attribute(ast.Name("cuda"), "syncwarp"), [], []):
                site = self.code.site(Action.COLLECTIVE, "syncwarp")
                self.code.line(f"yield ({site},)", site)
            case ast.Call(ast.Attribute(ast.Name("cuda"))):
                self.expressions.value(call)
            case _:
                raise self.names.refusal(statement, "a call whose result is not used must store")

    def _write(self, call: ast.Call, name: str, args: Sequence[ast.expr]) -> None:
        dtype = name.removeprefix("store_").removeprefix("atomic_add_")
        parameter = self.expressions.parameter(args[0], dtype)
        if parameter.is_input:
            raise LockstepFault(self._input_write(call, parameter.name))
        at = self.expressions.integer(args[1])
        value = self.expressions.number(args[2]).text
        if name.startswith("atomic_add_"):
            self.accesses.add(parameter.name, at, value)
        else:
            rounded = value if ROUND[dtype] is None else f"_round_{dtype}({value})"
            self.accesses.store(parameter.name, at, rounded)

    def _input_write(self, call: ast.Call, name: str) -> Fault:
        where = f"line {call.lineno} `{source_line(self.names.text, call.lineno)}`"
        message = f"{where}: {name} is an input: a kernel writes its outputs and workspace only"
        return Fault(FaultKind.INPUT_WRITE, message, line=call.lineno, memory=name)


def _is_assigned(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _array_call(call: ast.Call) -> str | None:
    """`shared` or `local`, where a call makes such an array."""
    match call.func:
        case ast.Attribute(ast.Attribute(ast.Name("cuda"), "shared" | "local" as space), "array"):
            return space
        case _:
            return None
