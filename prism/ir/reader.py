"""Lines of text as tokens, for the parser of `parse.py`: what is there, what was expected."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NoReturn

from prism.errors import ParseError

_TOKEN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*'*"  # a name
    r"|%[A-Za-z0-9_]+"  # a value without a name
    r"|-?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?"  # a number
    r"|[][(),=:]"
)
_OPERATOR = re.compile(r"\s*operator\s+(?!=)")
_SPACE = re.compile(r"\s*")
_MAX_DIGITS = 18
_MAX_SHOWN = 80


@dataclass(slots=True)
class Line:
    """One line, read from left to right."""

    number: int
    text: str
    tokens: list[str]
    place: int = 0

    def peek(self, ahead: int = 0) -> str:
        """The token to come, or the empty string at the end of the line."""
        i = self.place + ahead
        return self.tokens[i] if i < len(self.tokens) else ""

    def opens(self, word: str) -> bool:
        """Whether the line begins with this keyword (`args = ...` defines a value instead)."""
        return self.tokens[0] == word and self.peek(1 - self.place) != "="

    def accept(self, token: str) -> bool:
        """Step over this token if it comes."""
        found = self.peek() == token
        self.place += found
        return found

    def expect(self, token: str) -> None:
        """Step over this token."""
        if not self.accept(token):
            self.fail(f"{token!r}")

    def name(self, what: str) -> str:
        """A name."""
        token = self.peek()
        if not token or not (token[0].isalpha() or token[0] == "_"):
            self.fail(what)
        self.place += 1
        return token

    def integer(self, what: str) -> int:
        """A whole number without a sign."""
        token = self.peek()
        if not token.isdigit() or len(token) > _MAX_DIGITS:
            self.fail(what)
        self.place += 1
        return int(token)

    def at_number(self) -> bool:
        """Whether a number comes."""
        token = self.peek()
        return token[:1] == "-" or token[:1].isdigit()

    def number_value(self) -> float:
        """A number."""
        if not self.at_number():
            self.fail("a number")
        self.place += 1
        return float(self.tokens[self.place - 1])

    def names(self, what: str, close: str = "") -> tuple[str, ...]:
        """Names with commas between them, up to `close` or the end of the line."""
        out: list[str] = []
        if not self.accept(close) or not close:
            out.append(self.name(what))
            while self.accept(","):
                out.append(self.name(what))
            if close:
                self.expect(close)
        return tuple(out)

    def end(self) -> None:
        """Nothing more on this line."""
        if self.peek():
            self.fail("the end of the line")

    def fail(self, expected: str) -> NoReturn:
        """Say what was expected instead of the token to come."""
        found = repr(self.peek()) if self.peek() else "the end of the line"
        self.error(f"expected {expected}, found {found}")

    def error(self, message: str) -> NoReturn:
        """Raise an error at this line."""
        raise self.located(message)

    def located(self, message: str) -> ParseError:
        """An error at this line."""
        text = self.text.strip()
        shown = text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
        return ParseError(f"line {self.number}: {message} (in: {shown})")


@dataclass(slots=True)
class Lines:
    """The lines that say something, comments and blank ones left out."""

    lines: list[Line]
    place: int = 0
    last: int = field(default=0)

    def next(self, what: str) -> Line:
        """The next line."""
        if self.place == len(self.lines):
            raise ParseError(f"line {self.last + 1}: expected {what}, found the end of the text")
        self.place += 1
        return self.lines[self.place - 1]

    def opens(self, *words: str) -> bool:
        """Whether the next line begins with one of these keywords."""
        return self.more() and any(self.lines[self.place].opens(w) for w in words)

    def more(self) -> bool:
        """Whether there is a further line."""
        return self.place < len(self.lines)

    def end(self) -> None:
        """Nothing more in this text."""
        if self.more():
            self.lines[self.place].fail("the end of the text")


def read_lines(text: str) -> Lines:
    """Cut a text into lines of tokens.

    Raises:
        ParseError: a character belongs to no token.
    """
    out: list[Line] = []
    numbered = list(enumerate(text.splitlines(), start=1))
    for number, raw in numbered:
        line = Line(number, raw, [])
        place = 0
        content = raw.split("#", maxsplit=1)[0].rstrip()
        if _OPERATOR.match(content):
            out.append(Line(number, content, ["operator"]))  # a language of its own
            continue
        while place < len(content):
            space = _SPACE.match(content, place)
            place = space.end() if space else place
            token = _TOKEN.match(content, place)
            if token is None:
                line.error(f"unexpected character {content[place]!r}")
            line.tokens.append(token.group())
            place = token.end()
        if line.tokens:
            out.append(line)
    return Lines(out, last=len(numbered))
