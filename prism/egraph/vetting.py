"""Checks the commands of an axiom file, as data from a stranger, and turns them into axioms.

Allowed are equations and helper constructors, nothing that runs, reads, writes or deletes:

  (rewrite LEFT RIGHT :when (CONDITION ...) :ruleset R :name "N")       used left to right
  (birewrite LEFT RIGHT :when (CONDITION ...) :ruleset R :name "N")     used both ways
  (rule ((= e LEFT) CONDITION ...) ((union e RIGHT)) :ruleset R :name "N")
  (constructor NAME (E ...) E)                                          an elementwise helper
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prism.egraph.sexpr import Atom, Form, SExpr, read
from prism.egraph.signature import (
    ALGEBRA,
    ALGEBRA_VERIFY,
    PAR_RULES,
    PARALLEL,
    Constructor,
    Sort,
    constructors,
)
from prism.errors import AxiomError

ALLOWED_COMMANDS = ("rewrite", "birewrite", "rule", "constructor")
ALLOWED_RULESETS = (PAR_RULES, ALGEBRA, ALGEBRA_VERIFY)
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
ARITHMETIC = ("&", "|", "<<", "+", "-")
ANALYSIS_FUNCTIONS = ("dims", "pars")

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VARIABLE = re.compile(r"[a-z][a-z0-9]*")
_CONSTRUCTOR = re.compile(r"[A-Z][A-Za-z0-9]*")
_STRING = re.compile(r'"[A-Za-z0-9_.+-]*"')
_INTEGER = re.compile(r"-?\d{1,9}")
_PARALLEL_NAMES = frozenset(c.name for c in PARALLEL)


@dataclass(frozen=True, slots=True)
class Axiom:
    """An equation. `conditions` are facts; `family` names the file it comes from."""

    name: str
    family: str
    ruleset: str
    left: Form
    right: SExpr
    conditions: tuple[Form, ...]
    is_bidirectional: bool
    sentence: str
    line: int

    def variables(self) -> Mapping[str, Sort]:
        """The variables of both sides and what each stands for."""
        found: dict[str, Sort] = {}
        for side in (self.left, self.right):
            for name, sort in _variables(side, Sort.TERM):
                found.setdefault(name, sort)
        return found


@dataclass(frozen=True, slots=True)
class AxiomFile:
    """A file of axioms by name (`prism/elementwise.egg`) and its text."""

    name: str
    text: str

    @property
    def family(self) -> str:
        """The name without its ending."""
        return self.name.removesuffix(".egg")


@dataclass(frozen=True, slots=True)
class Vetted:
    """What a file contributes."""

    axioms: tuple[Axiom, ...]
    helpers: tuple[Constructor, ...]


def vet(file: AxiomFile, helpers: Mapping[str, Constructor]) -> Vetted:
    """The axioms of a file; `helpers` are constructors declared by files before it.

    Raises:
        AxiomError: a command that is not allowed or not well formed; names file and line.
    """
    return _Vetter(file, helpers).run()


def atoms(expr: SExpr) -> frozenset[str]:
    """The texts of all atoms of an expression."""
    if isinstance(expr, Atom):
        return frozenset({expr.text})
    return frozenset().union(*(atoms(item) for item in expr.items))


def _variables(expr: SExpr, sort: Sort) -> Iterator[tuple[str, Sort]]:
    if isinstance(expr, Atom):
        if _VARIABLE.fullmatch(expr.text):
            yield expr.text, sort
        return
    known = constructors().get(expr.head)
    sorts = known.arguments if known else (Sort.TERM,) * (len(expr.items) - 1)
    for item, inner in zip(expr.items[1:], sorts, strict=True):
        yield from _variables(item, inner)


class _Vetter:
    """Holds where we are, so that every message can say file and line."""

    def __init__(self, file: AxiomFile, helpers: Mapping[str, Constructor]) -> None:
        self.file = file
        self.known = {**constructors(), **helpers}
        self.helpers: list[Constructor] = []
        self.axioms: list[Axiom] = []

    def fail(self, at: SExpr, message: str) -> AxiomError:
        return AxiomError(f"{self.file.name}:{at.line}: {message}")

    def run(self) -> Vetted:
        for form in read(self.file.text, self.file.name):
            match form.head:
                case "rewrite" | "birewrite":
                    self.rewrite(form)
                case "rule":
                    self.rule(form)
                case "constructor":
                    self.constructor(form)
                case other:
                    raise self.fail(
                        form,
                        f"the command {other!r} is not allowed in an axiom file; allowed are "
                        f"{', '.join(ALLOWED_COMMANDS)}",
                    )
        return Vetted(tuple(self.axioms), tuple(self.helpers))

    def constructor(self, form: Form) -> None:
        match form.items[1:]:
            case (Atom(text=name), Form(items=sorts), Atom(text="E")) if sorts and all(
                str(s) == "E" for s in sorts
            ):
                pass
            case _:
                raise self.fail(form, "a constructor must read (constructor NAME (E ...) E)")
        if not _CONSTRUCTOR.fullmatch(name) or name in self.known:
            raise self.fail(form, f"the constructor name {name!r} is taken or not in CamelCase")
        helper = Constructor(name, (Sort.TERM,) * len(sorts))
        self.known[name] = helper
        self.helpers.append(helper)

    def rewrite(self, form: Form) -> None:
        positional, options = self.options(form, (":when", ":ruleset", ":name"))
        if len(positional) != 2:
            raise self.fail(form, f"a {form.head} needs a left and a right side")
        conditions: tuple[SExpr, ...] = ()
        if ":when" in options:
            when = options[":when"]
            if not isinstance(when, Form):
                raise self.fail(when, ":when takes a list of facts in parentheses")
            conditions = when.items
        self.add(form, positional[0], positional[1], conditions, options)

    def rule(self, form: Form) -> None:
        positional, options = self.options(form, (":ruleset", ":name"))
        match positional:
            case (
                Form(items=(Form(items=(Atom(text="="), Atom(text=root), left)), *conditions)),
                Form(items=(Form(items=(Atom(text="union"), Atom(text=target), right)),)),
            ) if root == target:
                self.check_root(root, (left, right, *conditions))
                self.add(form, left, right, tuple(conditions), options)
            case _:
                raise self.fail(
                    form,
                    "a rule must read (rule ((= e LEFT) CONDITION ...) ((union e RIGHT)) "
                    ":ruleset R :name N): it may only add an equation",
                )

    def check_root(self, root: str, parts: tuple[SExpr, ...]) -> None:
        """The root names the class of LEFT; inside of it, it would be another, free variable."""
        for part in parts:
            if root in atoms(part):
                raise self.fail(
                    part,
                    f"{root!r} names the root of the rule, so it cannot occur in LEFT, RIGHT or a "
                    "CONDITION; call the variable there otherwise",
                )

    def options(
        self, form: Form, allowed: tuple[str, ...]
    ) -> tuple[tuple[SExpr, ...], dict[str, SExpr]]:
        positional: list[SExpr] = []
        options: dict[str, SExpr] = {}
        items = list(form.items[1:])
        while items:
            item = items.pop(0)
            if not (isinstance(item, Atom) and item.text.startswith(":")):
                positional.append(item)
                continue
            if item.text not in allowed:
                raise self.fail(
                    item, f"{item.text} is not allowed here; allowed are {', '.join(allowed)}"
                )
            if not items or item.text in options:
                raise self.fail(item, f"{item.text} needs one value, once")
            options[item.text] = items.pop(0)
        return tuple(positional), options

    def add(
        self,
        form: Form,
        left: SExpr,
        right: SExpr,
        conditions: tuple[SExpr, ...],
        options: Mapping[str, SExpr],
    ) -> None:
        name = str(options.get(":name", "")).strip('"')
        if not _NAME.fullmatch(name):
            raise self.fail(
                form,
                f'every rule needs a :name in kebab-case, such as "mul-comm"; found {name!r}',
            )
        ruleset = str(options.get(":ruleset", ""))
        if ruleset not in ALLOWED_RULESETS:
            raise self.fail(
                form,
                f"rule {name!r} needs a :ruleset, one of {', '.join(ALLOWED_RULESETS)}; "
                f"found {ruleset!r}",
            )
        if not isinstance(left, Form):
            raise self.fail(left, f"the left side of {name!r} must be an operator applied")
        is_bidirectional = form.head == "birewrite"
        if is_bidirectional and not isinstance(right, Form):
            raise self.fail(right, f"the right side of {name!r} must be an operator applied")
        bound = self.side(left, ruleset)
        other = self.side(right, ruleset)
        self.check_bound(form, name, bound, other)
        if is_bidirectional:
            self.check_bound(form, name, other, bound)
        self.axioms.append(
            Axiom(
                name=name,
                family=self.file.family,
                ruleset=ruleset,
                left=left,
                right=right,
                conditions=tuple(self.condition(c, bound) for c in conditions),
                is_bidirectional=is_bidirectional,
                sentence=form.comment,
                line=form.line,
            )
        )

    def check_bound(
        self, at: Form, name: str, bound: Mapping[str, Sort], used: Mapping[str, Sort]
    ) -> None:
        for variable, sort in used.items():
            if variable not in bound:
                raise self.fail(
                    at, f"rule {name!r}: {variable!r} occurs only on the side that is produced"
                )
            if bound[variable] is not sort:
                raise self.fail(
                    at,
                    f"rule {name!r}: {variable!r} is a {bound[variable].value} on one side and "
                    f"a {sort.value} on the other",
                )

    def side(self, expr: SExpr, ruleset: str) -> dict[str, Sort]:
        found: dict[str, Sort] = {}
        self.term(expr, Sort.TERM, ruleset, found)
        return found

    def term(self, expr: SExpr, sort: Sort, ruleset: str, found: dict[str, Sort]) -> None:
        """Checks a term and records its variables."""
        if isinstance(expr, Atom):
            self.atom(expr, sort, found)
            return
        if sort is not Sort.TERM or expr.head not in self.known:
            raise self.fail(
                expr, f"{expr} is no term; operators are {', '.join(sorted(self.known))}"
            )
        if expr.head in _PARALLEL_NAMES and ruleset != PAR_RULES:
            raise self.fail(
                expr,
                f"{expr.head} may only occur in ruleset {PAR_RULES}: algebra is about whole values",
            )
        sorts = self.known[expr.head].arguments
        if len(expr.items) - 1 != len(sorts):
            raise self.fail(
                expr, f"{expr.head} takes {len(sorts)} arguments, not {len(expr.items) - 1}"
            )
        for item, inner in zip(expr.items[1:], sorts, strict=True):
            self.term(item, inner, ruleset, found)

    def atom(self, atom: Atom, sort: Sort, found: dict[str, Sort]) -> None:
        if sort is Sort.TEXT:
            if not _STRING.fullmatch(atom.text):
                raise self.fail(atom, f"expected a plain string, found {atom.text!r}")
            return
        if not _VARIABLE.fullmatch(atom.text):
            raise self.fail(
                atom, f"expected a variable in lower case for a {sort.value}, found {atom.text!r}"
            )
        if found.setdefault(atom.text, sort) is not sort:
            raise self.fail(
                atom, f"{atom.text!r} is used as a {found[atom.text].value} and as a {sort.value}"
            )

    def condition(self, expr: SExpr, bound: Mapping[str, Sort]) -> Form:
        """Checks a side condition: a comparison of dimensions and of analyses."""
        if not isinstance(expr, Form) or expr.head not in COMPARISONS or len(expr.items) != 3:
            raise self.fail(
                expr,
                f"{expr} is no condition; one compares two numbers with {' '.join(COMPARISONS)}",
            )
        for item in expr.items[1:]:
            self.number(item, bound)
        return expr

    def number(self, expr: SExpr, bound: Mapping[str, Sort]) -> None:
        match expr:
            case Atom(text=text):
                good = _INTEGER.fullmatch(text) or bound.get(text) in {Sort.DATA, Sort.PAR}
            case Form(items=(_, Atom(text=text))) if expr.head in ANALYSIS_FUNCTIONS:
                good = bound.get(text) is Sort.TERM
            case Form(items=(_, a, b)) if expr.head in ARITHMETIC:
                self.number(a, bound)
                self.number(b, bound)
                good = True
            case _:
                good = False
        if not good:
            raise self.fail(
                expr,
                f"{expr} is no number here; conditions may use the dimensions of the left side, "
                f"(dims t), (pars t) and {' '.join(ARITHMETIC)}",
            )
