"""Reads the s-expressions of axiom files, keeping lines and the comment above each form.

Prism has its own reader because axiom files are data from a stranger: what is vetted is printed
back and only that text reaches egglog, so the two can never read one file differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from prism.errors import AxiomError


@dataclass(frozen=True, slots=True)
class Atom:
    """A symbol, a number or (with its quotes) a string."""

    text: str
    line: int

    def __str__(self) -> str:
        """As egglog reads it."""
        return self.text


@dataclass(frozen=True, slots=True)
class Form:
    """A parenthesised list. `comment` is the comment directly above a top-level form."""

    items: tuple[SExpr, ...]
    line: int
    comment: str = ""

    def __str__(self) -> str:
        """As egglog reads it."""
        return f"({' '.join(str(item) for item in self.items)})"

    @property
    def head(self) -> str:
        """The first item if it is a symbol, else the empty string."""
        first = self.items[0] if self.items else None
        return first.text if isinstance(first, Atom) else ""


SExpr = Atom | Form

MAX_DEPTH = 64
"""Lists within lists; no axiom comes near it."""


def heads(expr: SExpr) -> Iterator[str]:
    """The head of every form in an expression."""
    if isinstance(expr, Form):
        yield expr.head
        for item in expr.items:
            yield from heads(item)


def constants(expr: SExpr) -> frozenset[str]:
    """The texts of the constants in an expression, without quotes."""
    if isinstance(expr, Atom):
        return frozenset()
    if expr.head == "Const":
        return frozenset(str(item).strip('"') for item in expr.items[1:])
    return frozenset().union(*(constants(item) for item in expr.items))


_TOKEN = re.compile(
    r"""[ \t\r\f\v]*(?:(?P<symbol>[^\s()";]+) | (?P<open>\() | (?P<close>\)) | (?P<newline>\n)
      | ;(?P<comment>[^\n]*) | (?P<string>"(?:[^"\\\n]|\\.)*") | (?P<end>\Z))""",
    re.VERBOSE,
)


def read(text: str, where: str) -> tuple[Form, ...]:
    """The top-level forms of `text`; `where` names the file in messages.

    Raises:
        AxiomError: unbalanced parentheses, a stray atom, an unterminated string.
    """
    return _Reader(text, where).run()


class _Reader:
    """One pass over the tokens with a stack of open lists."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where
        self.line = 1
        self.forms: list[Form] = []
        self.stack: list[tuple[list[SExpr], int]] = []
        self.comment: list[str] = []
        self.is_blank_line = True

    def run(self) -> tuple[Form, ...]:
        position = 0
        while position < len(self.text):
            match = _TOKEN.match(self.text, position)
            if match is None:
                found = self.text[position:].lstrip()[:1]
                raise AxiomError(
                    f"{self.where}:{self.line}: cannot read {found!r} here; an unterminated string?"
                )
            position = match.end()
            self.token(match.lastgroup or "end", match)
        if self.stack:
            line = self.stack[0][1]
            raise AxiomError(f"{self.where}:{line}: the parenthesis opened here is never closed")
        return tuple(self.forms)

    def token(self, kind: str, match: re.Match[str]) -> None:
        match kind:
            case "end":
                return
            case "newline":
                if self.is_blank_line:
                    self.comment = []  # a blank line ends the comment above a form
                self.line += 1
                self.is_blank_line = True
                return
            case "comment":
                if not self.stack:
                    self.comment.append(match["comment"].strip("; "))
            case "open":
                if len(self.stack) == MAX_DEPTH:
                    raise AxiomError(f"{self.where}:{self.line}: more than {MAX_DEPTH} open lists")
                self.stack.append(([], self.line))
            case "close":
                self.close()
            case _:
                self.atom(match[kind])
        self.is_blank_line = False

    def atom(self, text: str) -> None:
        if not self.stack:
            raise AxiomError(f"{self.where}:{self.line}: {text!r} stands outside every parenthesis")
        self.stack[-1][0].append(Atom(text, self.line))

    def close(self) -> None:
        if not self.stack:
            raise AxiomError(f"{self.where}:{self.line}: ')' closes nothing")
        items, line = self.stack.pop()
        if self.stack:
            self.stack[-1][0].append(Form(tuple(items), line))
            return
        comment = " ".join(part for part in self.comment if part)
        self.forms.append(Form(tuple(items), line, comment))
        self.comment = []
