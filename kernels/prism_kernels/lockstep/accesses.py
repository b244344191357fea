"""Writes the lines that touch memory: an index that is tested or known, the access, its log entry.

What a thread reads of shared memory and outputs, and what it writes there, is logged before the
next thread runs. Inputs never change, so reads of them are not logged, and local arrays belong to
one thread. A read needs no test of its index: the look-up fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from prism_kernels.lockstep.code import Action, Code
from prism_kernels.lockstep.functions import Kind
from prism_kernels.lockstep.names import MAX_U32, Local, Value


@dataclass(frozen=True, slots=True)
class Accesses:
    """Writes accesses into `code`; with `checks`, logged.

    Where shared memory may hold packed words, what is read of it as a number is tested to be one.
    """

    code: Code
    checks: bool
    has_words: bool = False

    def load(self, name: str, at: Value, *, is_shared: bool = True) -> Value:
        """An element of shared memory or of a parameter; `is_shared` when others may write it."""
        code = self.code
        result, index = code.fresh(), at.text
        if (self.checks or self.has_words) and is_shared:
            index = code.bound_to_name(index)
        site = code.site(Action.READ, name, index)
        code.count(Action.READ, name)
        if self.checks and is_shared:
            code.line(f"_r_{name}[{index}] = {site}")
        code.line(f"{result} = _v_{name}[{index}]", site)
        if self.has_words and is_shared:
            code.line(f"if not _is_number({result}): _not_number({result}, {index})", site)
        return Value(result, Kind.FLOAT)

    def store(self, name: str, at: Value, value: str) -> None:
        """Write an element of shared memory or of an output."""
        code = self.code
        index = self._tested(at, f"_s_{name}", Action.WRITE, name)
        site = code.site(Action.WRITE, name, index)
        code.count(Action.WRITE, name)
        code.line(f"_v_{name}[{index}] = {value}")
        if self.checks:
            code.line(f"_w_{name}[{index}] = {site}")

    def add(self, name: str, at: Value, value: str) -> None:
        """Add to an element, whatever other threads add."""
        code = self.code
        index = code.bound_to_name(at.text)
        site = code.site(Action.ADD, name, index)
        code.count(Action.ADD, name)
        if self.checks:
            code.line(f"_a_{name}[{index}] = {site}")
        code.line(f"_v_{name}[{index}] += {value}", site)

    def load_local(self, local: Local, at: Value) -> Value:
        """An element of a thread's own array."""
        index = self.index_of_local(local, at, Action.READ)
        site, result = self.code.site(Action.READ, local.name, index), self.code.fresh()
        self.code.line(f"{result} = {local.name}[{index}]", site)
        self.code.line(f"if {result} is None: _unwritten({index})", site)
        if local.kind is Kind.INT:
            return Value(result, Kind.INT, 0, MAX_U32, is_signed=False)
        return Value(result, Kind.FLOAT)

    def store_local(self, local: Local, at: Value, value: str) -> None:
        """Write an element of a thread's own array."""
        index = self.index_of_local(local, at, Action.WRITE)
        self.code.line(f"{local.name}[{index}] = {value}")

    def index_of_local(self, local: Local, at: Value, action: Action, count: int = 1) -> str:
        """The text of the index of `count` elements of a list, where negative ones would wrap."""
        if at.low >= 0 and at.high + count <= local.size:
            return at.text
        return self._tested(at, f"{local.size - count + 1}", action, local.name)

    def load_locals(self, local: Local, at: Value, count: int) -> str:
        """Consecutive elements of a thread's own array, as the name of a list."""
        index = self.code.bound_to_name(self.index_of_local(local, at, Action.READ, count))
        site, result = self.code.site(Action.READ, local.name, index), self.code.fresh()
        self.code.line(f"{result} = {local.name}[{index}:{index} + {count}]")
        self.code.line(f"if None in {result}: _unwritten({index} + {result}.index(None))", site)
        return result

    def named(self, at: Value) -> Value:
        """The same index, as a name or number that can be written twice."""
        return replace(at, text=self.code.bound_to_name(at.text))

    def _tested(self, at: Value, size: str, action: Action, name: str) -> str:
        """A name or number that holds the index, after a test that it is below `size`."""
        index = self.code.bound_to_name(at.text)
        site = self.code.site(action, name, index)
        self.code.line(f"if not 0 <= {index} < {size}: _outside({index})", site)
        return index
