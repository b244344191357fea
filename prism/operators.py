"""Tables of operators: files in TOML beside axiom files, one table per operator.

  [gelu_quick]
  constructor = "GeluQuick"             # its name in axioms
  operands = ["x"]
  numpy = "x * sigmoid(1.702 * x)"      # its meaning (`prism.ir.expression`)

  [rope]
  constructor = "Rope"
  operands = ["x", "c", "s"]
  dim = "k"                             # it acts along a dim of its first operand
  numpy = "x * c + where(index(k) < size(k) / 2, -1, 1) * roll(x, k, size(k) / 2) * s"

A table is data from a stranger, like an axiom file. Loading one defines its operators for this
process (`prism.ir.operators`); those of installed plug-ins are looked up when one is asked for.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from types import ModuleType
from typing import Any

from prism.errors import AxiomError, ParseError
from prism.files import MAX_TEXT_BYTES, read_regular_text
from prism.ir import Definition, define, make_definition
from prism.plugins import Group, installed, load

ENDING = ".toml"
MAX_NESTING = 20
"""Brackets within each other; tables of ours have two."""

_FIELDS = ("constructor", "operands", "dim", "numpy")


def load_operators(*files: str | os.PathLike[str]) -> tuple[str, ...]:
    """Define the operators of these table files; their names, for `prism.ops`.

    Raises:
        AxiomError: a file cannot be read, is no table of operators, or defines another operator
            under a name that is taken.
    """
    return tuple(
        definition.name
        for file in files
        for definition in define_table(read_table(Path(file)), str(file))
    )


def define_table(text: str, source: str) -> tuple[Definition, ...]:
    """Define the operators of a table; again does nothing.

    Raises:
        AxiomError: see `parse_table` and `prism.ir.define`.
    """
    found = parse_table(text, source)
    for definition in found:
        define(definition)
    return found


def parse_table(text: str, source: str) -> tuple[Definition, ...]:
    """The operators that a table defines, vetted.

    Raises:
        AxiomError: it is no table of operators; names the source and the operator.
    """
    if text.count("[") + text.count("{") > 10 * MAX_NESTING and _depth(text) > MAX_NESTING:
        raise AxiomError(f"{source}: nested too deep")
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise AxiomError(f"{source}: not TOML: {str(error) or 'nested too deep'}") from error
    found = tuple(_definition(name, table, source) for name, table in tables.items())
    constructors = [definition.constructor for definition in found]
    for definition in found:
        if constructors.count(definition.constructor) > 1:
            raise AxiomError(
                f"{source}: two operators have the constructor {definition.constructor}"
            )
    return found


def _depth(text: str) -> int:
    depth = most = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        most = max(most, depth)
    return most


def _definition(name: str, table: Any, source: str) -> Definition:  # noqa: ANN401 - from a file
    place = f"{source}: operator {name[:40]!r}"
    if not isinstance(table, dict):
        raise AxiomError(f"{place}: a table is needed: [{name[:40]}] and its fields below")
    for unknown in table.keys() - set(_FIELDS):
        raise AxiomError(f"{place}: unknown field {unknown[:40]!r}; {', '.join(_FIELDS)} are known")
    operands = table.get("operands")
    if not isinstance(operands, list) or not all(isinstance(o, str) for o in operands):
        raise AxiomError(f'{place}: operands is a list of names, such as ["x"]')
    texts = {field: table.get(field) for field in ("constructor", "numpy")}
    for field, value in texts.items():
        if not isinstance(value, str):
            raise AxiomError(f"{place}: {field} is missing, or no text")
    dim = table.get("dim")
    if dim is not None and not isinstance(dim, str):
        raise AxiomError(f"{place}: dim is the name of one dim")
    try:
        return make_definition(
            name, str(texts["constructor"]), tuple(operands), dim, str(texts["numpy"]), source
        )
    except ParseError as error:
        raise AxiomError(f"{source}: {error}") from error


def read_table(path: Path) -> str:
    """The text of a table file.

    Raises:
        AxiomError: it cannot be read.
    """
    try:
        return read_regular_text(path, MAX_TEXT_BYTES)
    except (OSError, ValueError) as error:
        raise AxiomError(f"table of operators {path} cannot be read: {error}") from error


def tables_beside(path: Path) -> tuple[Path, ...]:
    """The table that belongs to an axiom file: of its name, where there is one."""
    table = path.with_suffix(ENDING)
    return (table,) if os.path.lexists(table) else ()


def package_texts(package: ModuleType, spec: str, endings: Sequence[str]) -> list[tuple[str, str]]:
    """The files of a package of axioms with one of these endings: name and text.

    Raises:
        AxiomError: one is not text.
    """
    entries = sorted(resources.files(package).iterdir(), key=lambda e: e.name)
    try:
        return [
            (f"{spec}/{entry.name}", entry.read_text(encoding="utf-8"))
            for entry in entries
            if entry.name.endswith(tuple(endings))
        ]
    except UnicodeDecodeError as error:
        raise AxiomError(f"a file of the axiom set {spec!r} is not text: {error}") from error


def define_installed() -> None:
    """Define the operators of every installed plug-in.

    Raises:
        AxiomError: a table that is none.
        PluginError: a plug-in that cannot be loaded.
    """
    for name in installed(Group.AXIOMS):
        for source, text in package_texts(load(Group.AXIOMS, name), name, (ENDING,)):
            define_table(text, source)
