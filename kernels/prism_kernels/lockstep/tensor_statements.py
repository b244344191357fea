"""Rewrites the statements of tensor cores (`prism_kernels.cuda.tensor_dialect`).

Fragments are slices of a thread's own arrays. A product or matrix load is a collective: each lane
waits with its operands and is sent what it writes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from prism.errors import KernelError
from prism_kernels.cuda.tensor_dialect import (
    COPIES,
    FETCHES,
    MATRIX_LOADS,
    MULTIPLICATIONS,
    WAITS,
)
from prism_kernels.lockstep.accesses import Accesses
from prism_kernels.lockstep.code import Action, Code
from prism_kernels.lockstep.expressions import Expressions
from prism_kernels.lockstep.functions import Kind
from prism_kernels.lockstep.names import Local, Names, Parameter, Shared

ROW_WORDS = 4
"""Words of a row of a matrix, and of a copy."""


def has_words(function: ast.FunctionDef) -> bool:
    """Whether a kernel puts packed words in shared memory."""
    return any(isinstance(n, ast.Name) and n.id in COPIES for n in ast.walk(function))


@dataclass(slots=True)
class TensorStatements:
    """Rewrites the statements of one kernel into `code`."""

    code: Code
    names: Names
    accesses: Accesses
    expressions: Expressions
    shared: str | None = field(default=None, init=False)

    def start(self, shared: str) -> None:
        """After the shared memory is known by its name."""
        self.shared = shared
        if self.accesses.has_words:
            memories = f"_v_{shared}, _r_{shared}, _w_{shared}"
            self.code.line(f"_copies = _copies_of({memories})")

    def finish(self) -> None:
        """At the end of the kernel."""
        if self.accesses.has_words:
            self.code.line("_copies.finish()", self.code.site(Action.WRITE, self.shared or ""))

    def write(self, call: ast.Call, name: str, args: Sequence[ast.expr]) -> None:
        """Rewrite one statement.

        Raises:
            KernelError: its operands are not what it takes.
        """
        if name in FETCHES:
            self._fetch(call, name, args)
        elif name in MULTIPLICATIONS:
            self._multiply(name, args)
        elif name in MATRIX_LOADS:
            self._load_matrices(call, name, args)
        elif name in COPIES:
            self._copy(call, name, args)
        else:
            self._order(call, name)

    # -- memory

    def _fetch(self, call: ast.Call, name: str, args: Sequence[ast.expr]) -> None:
        dtype, count = FETCHES[name]
        words = self._packed(call, dtype, args[2], args[3], 2 * count, str(2 * count))
        target = self._local(args[0], Kind.INT)
        at = self.accesses.index_of_local(
            target, self.expressions.integer(args[1]), Action.WRITE, count
        )
        self.code.line(f"{target.name}[{at}:{at} + {count}] = {words}")

    def _packed(  # noqa: PLR0913, PLR0917 - a read of several elements has that many parts
        self,
        call: ast.Call,
        dtype: str,
        pointer: ast.expr,
        index: ast.expr,
        elements: int,
        count: str,
    ) -> str:
        """Elements of an argument as words, by the name of a list."""
        parameter = self.expressions.parameter(pointer, dtype)
        self._require_input(call, parameter)
        at = self.code.bound_to_name(self.expressions.integer(index).text)
        site, result = self.code.site(Action.READ, parameter.name, at), self.code.fresh()
        self.code.count(Action.READ, parameter.name)
        values = f"_v_{parameter.name}, {at}, {elements}, {count}"
        self.code.line(f"{result} = _packed_{dtype}({values})", site)
        return result

    def _require_input(self, call: ast.Call, parameter: Parameter) -> None:
        if not parameter.is_input:
            reason = f"{parameter.name} is written in the launch: words are read of arguments only"
            raise self.names.refusal(call, reason)

    def _copy(self, call: ast.Call, name: str, args: Sequence[ast.expr]) -> None:
        shared = self._shared(call, args[0])
        count = self.code.bound_to_name(self.expressions.integer(args[4]).text)
        dtype = name.removeprefix("cp_async_")
        words = self._packed(call, dtype, args[2], args[3], 2 * ROW_WORDS, count)
        at = self.code.bound_to_name(self.expressions.integer(args[1]).text)
        site = self.code.site(Action.WRITE, shared, at)
        self.code.count(Action.WRITE, shared)
        self.code.line(f"if {at} % {ROW_WORDS}: _misaligned({at})", site)
        self.code.line(f"if not 0 <= {at} <= _s_{shared} - {ROW_WORDS}: _outside({at})", site)
        self.code.line(f"_copies.start({at}, {words}, {site})", site)

    def _order(self, call: ast.Call, name: str) -> None:
        if self.shared is None or not self.accesses.has_words:
            raise self.names.refusal(call, f"{name}: the kernel copies nothing")
        action = f"wait({WAITS[name]})" if name in WAITS else "commit()"
        self.code.line(f"_copies.{action}", self.code.site(Action.WRITE, self.shared))

    # -- matrices

    def _load_matrices(self, call: ast.Call, name: str, args: Sequence[ast.expr]) -> None:
        target, shared = self._local(args[0], Kind.INT), self._shared(call, args[2])
        at = self.code.bound_to_name(self.expressions.integer(args[3]).text)
        site, row = self.code.site(Action.READ, shared, at), self.code.fresh()
        self.code.count(Action.READ, shared)
        self.code.line(f"{row} = _row(_v_{shared}, _r_{shared}, {at}, {site})", site)
        self._collective(name, target, args[1], [row])

    def _multiply(self, name: str, args: Sequence[ast.expr]) -> None:
        kind = Kind.FLOAT if name == "mma_tf32" else Kind.INT
        totals = self._local(args[0], Kind.FLOAT)
        operands = [
            self.accesses.load_locals(
                self._local(array, wanted), self.expressions.integer(at), count
            )
            for array, at, wanted, count in (
                (args[2], args[3], kind, 4),
                (args[4], args[5], kind, 2),
                (args[0], args[1], Kind.FLOAT, 4),
            )
        ]
        self._collective(name, totals, args[1], operands)

    def _collective(self, name: str, target: Local, at: ast.expr, operands: Sequence[str]) -> None:
        """Wait with the operands, and write the four numbers that are sent."""
        index = self.accesses.index_of_local(target, self.expressions.integer(at), Action.WRITE, 4)
        site, result = self.code.site(Action.COLLECTIVE, name), self.code.fresh()
        self.code.line(f"{result} = yield ({site}, {', '.join(operands)})", site)
        self.code.line(f"{target.name}[{index}:{index} + 4] = {result}")

    # -- names

    def _local(self, node: ast.expr, kind: Kind) -> Local:
        known = self.names.known.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(known, Local) or known.kind is not kind:
            what = "f32" if kind is Kind.FLOAT else "u32"
            raise self.names.refusal(node, f"a local array of {what} must stand here")
        return known

    def _shared(self, call: ast.Call, node: ast.expr) -> str:
        known = self.names.known.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(known, Shared):
            raise self._no_shared(call)
        return known.name

    def _no_shared(self, call: ast.Call) -> KernelError:
        return self.names.refusal(call, "the shared memory must stand here")
