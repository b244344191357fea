"""The text of the rewritten kernel: lines, where each comes from, and what each piece counts.

One line does at most one thing that can fail, so that the line number of an exception, or of a
thread that waits, leads to one `Site`. Accesses are counted per straight-line piece: how many stand
in it is known when it is written, how often it ran is one counter per thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from prism_kernels.lockstep.memory import Site


class Action(Enum):
    """What a place in the source does, where it can fail or wait."""

    COMPUTE = "computes"
    LOOP = "loops"
    READ = "reads"
    WRITE = "writes"
    ADD = "adds to"
    BARRIER = "waits"
    COLLECTIVE = "takes part"


@dataclass(frozen=True, slots=True)
class Place:
    """A place in the source: its line (from 1), what happens there, and to what.

    `subject` is a memory's name, or the name of a collective; `index` the variable or number that
    holds the index there.
    """

    line: int
    action: Action
    subject: str = ""
    index: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A straight-line piece of the kernel: how often each access stands in it."""

    counter: str
    accesses: Counter[tuple[Action, str]] = field(default_factory=Counter, hash=False)
    is_loop: bool = False


@dataclass(slots=True)
class Code:
    """The rewritten kernel under construction."""

    lines: list[tuple[str, Site]] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    """Global name -> value."""
    source_line: int = 0
    """The line of the statement being rewritten."""
    _depth: int = 1
    _fresh: int = 0
    _names: dict[Hashable, str] = field(default_factory=dict)
    top: Piece = field(default_factory=lambda: Piece("1"))
    """What every thread runs once."""
    _piece: Piece = field(init=False)

    def __post_init__(self) -> None:
        self._piece = self.top

    def site(self, action: Action, subject: str = "", index: str = "") -> Site:
        """A new site at the statement being rewritten."""
        self.places.append(Place(self.source_line, action, subject, index))
        return len(self.places) - 1

    def line(self, text: str, site: Site | None = None) -> None:
        """Write one line; without a site of its own, it computes."""
        place = self.site(Action.COMPUTE) if site is None else site
        self.lines.append(("    " * self._depth + text, place))

    def count(self, action: Action, subject: str) -> None:
        """Count an access of the piece being written."""
        self._piece.accesses[action, subject] += 1

    def fresh(self) -> str:
        """A variable name not used before; names of the source never start with `_`."""
        self._fresh += 1
        return f"_{self._fresh}"

    def constant(self, value: Any) -> str:  # noqa: ANN401 - float32 scalars and ranges
        """The global name of a value."""
        key = (type(value), repr(value))
        if key not in self._names:
            self._names[key] = f"_c{len(self._names)}"
            self.constants[self._names[key]] = value
        return self._names[key]

    def bound_to_name(self, text: str) -> str:
        """A name or number that holds the value of an expression."""
        if text.isidentifier() or text.isdecimal():
            return text
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    @contextmanager
    def branch(self, head: str) -> Iterator[None]:
        """Write a branch; what is written inside is its body."""
        self.line(head)
        with self._indented():
            yield

    @contextmanager
    def loop(self, head: str, trips: str) -> Iterator[None]:
        """Write a loop whose number of iterations is the value of `trips`."""
        piece, site = self._new_piece(is_loop=True), self.site(Action.LOOP)
        self.pieces.append(piece)
        self.line(f"{piece.counter} += {trips}", site)
        self.line(f"if {piece.counter} > _limit: _endless({piece.counter})", site)
        self.line(head)
        outer, self._piece = self._piece, piece
        self._depth += 1
        yield
        self._depth -= 1
        self._piece = outer

    @contextmanager
    def captured(self) -> Iterator[list[tuple[str, Site]]]:
        """Collect what is written in a list, indented as the body of a branch."""
        outer, self.lines = self.lines, []
        inner = self.lines
        with self._indented():
            yield inner
        self.lines = outer

    @contextmanager
    def _indented(self) -> Iterator[None]:
        """One level deeper, in a piece of its own that counts how often it runs."""
        outer, self._piece = self._piece, self._new_piece()
        start = len(self.lines)
        self._depth += 1
        yield
        if self._piece.accesses:
            self.pieces.append(self._piece)
            self.line(f"{self._piece.counter} += 1")
            self.lines.insert(start, self.lines.pop())
        self._depth -= 1
        self._piece = outer

    def _new_piece(self, *, is_loop: bool = False) -> Piece:
        self._fresh += 1
        return Piece(f"_n{self._fresh}", is_loop=is_loop)

    def assemble(self, parameters: str) -> tuple[str, list[Site]]:
        """The text of the generator function, and the site of each of its lines (from 1)."""
        counters = [piece.counter for piece in self.pieces]
        first, last = self.lines[0][1], self.lines[-1][1]
        lines = [
            (f"def kernel({parameters}):", first),
            *((f"    {name} = 0", first) for name in counters),
            *self.lines,
            (f"    return ({''.join(f'{name}, ' for name in counters)})", last),
            ("    yield", last),  # a kernel without a barrier is a generator too
        ]
        return "\n".join(text for text, _ in lines), [0, *(site for _, site in lines)]
