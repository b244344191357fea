"""Rewrites the statements that move several neighbours at once (`dialect.VECTORS`).

Each element is an access of its own, tested and logged as any other; beforehand the index is tested
to be a multiple of their count.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from prism_kernels.cuda.dialect import VECTORS
from prism_kernels.lockstep.accesses import Accesses
from prism_kernels.lockstep.code import Action, Code
from prism_kernels.lockstep.expressions import Expressions
from prism_kernels.lockstep.functions import ROUND, Kind
from prism_kernels.lockstep.names import Local, Names, Parameter, Value


@dataclass(frozen=True, slots=True)
class VectorStatements:
    """Rewrites the statements of one kernel into `code`."""

    code: Code
    names: Names
    accesses: Accesses
    expressions: Expressions

    def write(self, name: str, args: Sequence[ast.expr]) -> Parameter:
        """Rewrite one statement; the parameter it goes through.

        Raises:
            KernelError: its operands are not what it takes.
        """
        dtype, count = VECTORS[name]
        is_load = name.startswith("load")
        (array, at), (pointer, index) = (args[:2], args[2:]) if is_load else (args[2:], args[:2])
        registers, parameter = self._registers(array), self.expressions.parameter(pointer, dtype)
        first = self.accesses.named(self.expressions.integer(at))
        element = self.accesses.named(self.expressions.integer(index))
        action = Action.READ if is_load else Action.WRITE
        site = self.code.site(action, parameter.name, element.text)
        self.code.line(f"if {element.text} % {count}: _misaligned({element.text})", site)
        for k in range(count):
            place, there = _further(first, k), _further(element, k)
            if is_load:
                value = self.accesses.load(parameter.name, there, is_shared=not parameter.is_input)
                self.accesses.store_local(registers, place, value.text)
            else:
                text = self.accesses.load_local(registers, place).text
                rounded = text if ROUND[dtype] is None else f"_round_{dtype}({text})"
                self.accesses.store(parameter.name, there, rounded)
        return parameter

    def _registers(self, node: ast.expr) -> Local:
        known = self.names.known.get(node.id) if isinstance(node, ast.Name) else None
        if not isinstance(known, Local) or known.kind is not Kind.FLOAT:
            raise self.names.refusal(node, "a local array of f32 must stand here")
        return known


def _further(at: Value, count: int) -> Value:
    """An index so many elements on."""
    if not count:
        return at
    return replace(at, text=f"({at.text} + {count})", low=at.low + count, high=at.high + count)
