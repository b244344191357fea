"""Loads axiom sets: which files, vetted, as plain text at the moment they are used.

A spec is the name of an installed plug-in (entry-point group `prism.axioms`; its value is a
package, every `.egg` in it one file), or a path to an `.egg` file or to a folder of them. Tables of
operators (`prism.operators`) come along: those in a package or folder, and `mine.toml` with
`mine.egg`. A set knows the operators of its own tables; loading it defines them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from prism.egraph.analyses import Extras, declarations, literal_facts
from prism.egraph.axiom import Axiom, AxiomFile
from prism.egraph.facts import egglog_text, needed_bits
from prism.egraph.passages import passage_text
from prism.egraph.sexpr import SExpr, constants, heads
from prism.egraph.signature import (
    ALGEBRA,
    ALGEBRA_VERIFY,
    Constructor,
    Sort,
    constructors,
    definition_of,
)
from prism.egraph.vetting import vet
from prism.errors import AxiomError
from prism.files import MAX_TEXT_BYTES, read_regular_text
from prism.ir import Definition, definitions
from prism.operators import ENDING as TABLE
from prism.operators import define_table, package_texts, read_table, tables_beside
from prism.plugins import SHIPPED_AXIOMS, Group, installed, load

WHOLE = "whole-e"
"""The variable that stands for all of a rule's left side; no file can have it (`vetting`)."""


@dataclass(frozen=True, slots=True)
class DirectedRule:
    """One direction of an axiom: fires only on terms with every constructor in `needs`."""

    name: str
    axiom: Axiom
    left: SExpr
    right: SExpr
    needs: frozenset[str]
    makes: frozenset[str]
    facts: str
    text: str

    @property
    def ruleset(self) -> str:
        """The axiom's ruleset."""
        return self.axiom.ruleset

    @property
    def variables(self) -> Mapping[str, Sort]:
        """The variables of the left side, which bind those of the right."""
        return self.axiom.variables()

    @property
    def nodes_made(self) -> int:
        """The e-nodes that one match may add: its right side has no more terms."""
        return sum(1 for _ in heads(self.right))

    @property
    def counting(self) -> str:
        """A rule of ruleset `counting(ruleset)` that matches the same and does nothing.

        Each term is named in its head: egglog does not look for what nobody asks for.
        """
        terms = [WHOLE, *(name for name, sort in self.variables.items() if sort is Sort.TERM)]
        nothing = " ".join(f"(union {name} {name})" for name in terms)
        ruleset = counting(self.ruleset)
        return f'(rule ({self.facts}) ({nothing}) :ruleset {ruleset} :name "{self.name}")'

    @property
    def asks_for_entries(self) -> bool:
        """Whether a condition is about the entries of a value."""
        return bool(needed_bits(self.axiom.conditions))


def counting(ruleset: str) -> str:
    """The ruleset that counts what another would match."""
    return f"count-{ruleset}"


@dataclass(frozen=True, slots=True)
class AxiomSet:
    """Vetted axioms. `fingerprint` identifies the text of all files, in order."""

    files: tuple[AxiomFile, ...]
    axioms: tuple[Axiom, ...]
    rules: tuple[DirectedRule, ...]
    helpers: tuple[Constructor, ...]
    fingerprint: str
    operators: tuple[Definition, ...] = ()

    def reachable(
        self, rulesets: AbstractSet[str], heads: AbstractSet[str]
    ) -> tuple[DirectedRule, ...]:
        """The rules that can ever fire on terms made of `heads`.

        Leaving the others out changes no result and most of the set-up time.
        """
        known = set(heads)
        rules = (*self.rules, *(r for d in definitions() for r in passages(d)))
        todo = [rule for rule in rules if rule.ruleset in rulesets]
        kept: set[str] = set()
        while fired := [rule for rule in todo if rule.needs <= known]:
            todo = [rule for rule in todo if not rule.needs <= known]
            kept.update(rule.text for rule in fired)
            known.update(head for rule in fired for head in rule.makes)
        return tuple(rule for rule in rules if rule.text in kept)

    def commands(self, rulesets: AbstractSet[str], heads: AbstractSet[str]) -> tuple[str, Extras]:
        """The egglog text for terms made of `heads`: generated sort and analyses, then rules.

        Numbers are added up only in verification, where no search has to read what comes of it.
        """
        self._check_helpers()
        rules = self.reachable(rulesets, heads)
        known = {*heads, *(head for rule in rules for head in (*rule.needs, *rule.makes))}
        declared = [c for c in (*constructors().values(), *self.helpers) if c.name in known]
        extras = Extras(
            known=any(rule.asks_for_entries for rule in rules), value=ALGEBRA_VERIFY in rulesets
        )
        numbers = {text for rule in rules for text in constants(rule.left) | constants(rule.right)}
        parts = (declarations(declared, extras), literal_facts(numbers, extras))
        return "\n".join((*parts, *(rule.text for rule in rules))), extras

    def _check_helpers(self) -> None:
        """No constructor without a meaning has the name of an operator that was defined since."""
        for helper in self.helpers:
            definition = definition_of(helper.name)
            if definition is not None:
                raise AxiomError(
                    f"an axiom file declares the constructor {helper.name} without a meaning, and "
                    f"{definition.source or 'a graph'} defines an operator under it "
                    f"({definition}): give one another name"
                )


@lru_cache(maxsize=1_024)
def passages(definition: Definition) -> tuple[DirectedRule, ...]:
    """The rules by which a user's operator passes through tiles, copies and sums over blocks."""
    file = AxiomFile(f"operator {definition.name}", passage_text(definition))
    vetted = vet(file, {}, (definition,))
    # no axiom of a file has such a name
    named = (replace(axiom, name=f"{definition.name}: {axiom.name}") for axiom in vetted.axioms)
    return tuple(rule for axiom in named for rule in directed(axiom))


def directed(axiom: Axiom) -> tuple[DirectedRule, ...]:
    """The rules of an axiom. Algebra applies to whole values only, see `RULESETS`."""
    conditions = "".join(f" {egglog_text(c)}" for c in axiom.conditions)
    if axiom.ruleset in {ALGEBRA, ALGEBRA_VERIFY}:
        conditions = f" (= 0 (pars {WHOLE})){conditions}"
    sides: list[tuple[str, SExpr, SExpr]] = [(axiom.name, axiom.left, axiom.right)]
    if axiom.is_bidirectional:
        sides.append((f"{axiom.name}-back", axiom.right, axiom.left))
    return tuple(
        DirectedRule(
            name=name,
            axiom=axiom,
            left=left,
            right=right,
            needs=frozenset(heads(left)),
            makes=frozenset(heads(right)),
            facts=(facts := f"(= {WHOLE} {left}){conditions}"),
            text=f"(rule ({facts}) ((union {WHOLE} {right}))"
            f' :ruleset {axiom.ruleset} :name "{name}")',
        )
        for name, left, right in sides
    )


def load_axioms(specs: Sequence[str] = (SHIPPED_AXIOMS,)) -> AxiomSet:
    """Read and vet the axiom files that `specs` name, in order.

    Raises:
        AxiomError: a file is missing, or holds something that is not allowed.
        PluginError: a name that is not installed.
    """
    return make_axiom_set(tuple(file for spec in specs for file in axiom_files(spec)))


@lru_cache(maxsize=8)
def make_axiom_set(files: tuple[AxiomFile, ...]) -> AxiomSet:
    """Vet files already read; the same files are vetted once per process.

    Raises:
        AxiomError: see `vet`; also a name used twice, naming both places.
    """
    axioms: dict[str, Axiom] = {}
    helpers: dict[str, Constructor] = {}
    tables = [file for file in files if file.is_table]
    operators = tuple(d for file in tables for d in define_table(file.text, file.name))
    for file in files:
        if file.is_table:
            continue
        vetted = vet(file, helpers, operators)
        helpers.update({h.name: h for h in vetted.helpers})
        for axiom in vetted.axioms:
            first = axioms.setdefault(axiom.name, axiom)
            if first is not axiom:
                raise AxiomError(
                    f"{file.name}:{axiom.line}: the rule name {axiom.name!r} is used before, in "
                    f"{first.place}; give each rule its own name"
                )
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{len(file.name)} {len(file.text)} {file.name}{file.text}".encode())
    return AxiomSet(
        files=files,
        axioms=tuple(axioms.values()),
        rules=tuple(rule for axiom in axioms.values() for rule in directed(axiom)),
        helpers=tuple(helpers.values()),
        fingerprint=digest.hexdigest()[:16],
        operators=operators,
    )


def axiom_files(spec: str) -> tuple[AxiomFile, ...]:
    """The files that a spec names, read but not vetted.

    Raises:
        AxiomError: a file is missing or cannot be read.
        PluginError: a name that is not installed.
    """
    path = Path(spec)
    if spec.endswith(".egg"):
        tables = tuple(AxiomFile(p.name, read_table(p)) for p in tables_beside(path))
        return (*tables, AxiomFile(path.name, _read(path)))
    if spec.endswith(TABLE):
        return (AxiomFile(path.name, read_table(path)),)
    if path.is_dir() and spec not in installed(Group.AXIOMS):
        found = sorted(path.glob("*.egg"))
        if not found:
            raise AxiomError(f"the folder {spec} holds no .egg file")
        beside = sorted(path.glob(f"*{TABLE}"))
        texts = [*((p, read_table(p)) for p in beside), *((p, _read(p)) for p in found)]
        return tuple(AxiomFile(f"{path.name}/{p.name}", text) for p, text in texts)
    package = load(Group.AXIOMS, spec)
    found_files = [AxiomFile(*pair) for pair in package_texts(package, spec, (TABLE, ".egg"))]
    if all(file.is_table for file in found_files):
        raise AxiomError(f"the axiom set {spec!r} ({package.__name__}) holds no .egg file")
    return tuple(sorted(found_files, key=lambda file: not file.is_table))


def _read(path: Path) -> str:
    try:
        return read_regular_text(path, MAX_TEXT_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        raise AxiomError(f"axiom file {path} cannot be read: {error}") from error
