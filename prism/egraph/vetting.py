"""Checks the commands of an axiom file, as data from a stranger, and turns them into axioms.

Allowed are equations and helper constructors, nothing that runs, reads, writes or deletes:

  (rewrite LEFT RIGHT :when (CONDITION ...) :ruleset R :name "N")       used left to right
  (birewrite LEFT RIGHT :when (CONDITION ...) :ruleset R :name "N")     used both ways
  (rule ((= e LEFT) CONDITION ...) ((union e RIGHT)) :ruleset R :name "N")
  (constructor NAME (E ...) E)                                          an elementwise helper

Operators that a table defines beside the file (`prism.operators`) are constructors already.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from prism.egraph.axiom import VARIABLE, Axiom, AxiomFile
from prism.egraph.facts import FACTS, named
from prism.egraph.sexpr import Atom, Form, SExpr, read
from prism.egraph.signature import (
    ALGEBRA,
    ALGEBRA_VERIFY,
    PAR_RULES,
    PARALLEL,
    Constructor,
    Sort,
    constructors,
    definition_of,
)
from prism.errors import AxiomError
from prism.ir import Definition

ALLOWED_COMMANDS = ("rewrite", "birewrite", "rule", "constructor")
ALLOWED_RULESETS = (PAR_RULES, ALGEBRA, ALGEBRA_VERIFY)
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")
MOST_AXIOMS = 2_000
"""In one file. Each is tested before anything is proved with it, and no e-graph bears so many."""
ARITHMETIC = ("&", "|", "<<", "+", "-")
ANALYSIS_FUNCTIONS = ("dims", "pars")

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_CONSTRUCTOR = re.compile(r"[A-Z][A-Za-z0-9]*")
_STRING = re.compile(r'"[A-Za-z0-9_.+-]*"')
_INTEGER = re.compile(r"-?\d{1,9}")
_PARALLEL_NAMES = frozenset(c.name for c in PARALLEL)


@dataclass(frozen=True, slots=True)
class Vetted:
    """What a file contributes."""

    axioms: tuple[Axiom, ...]
    helpers: tuple[Constructor, ...]


def vet(
    file: AxiomFile,
    helpers: Mapping[str, Constructor],
    operators: Collection[Definition] = (),
) -> Vetted:
    """The axioms of a file; `helpers` are constructors declared by files before it.

    `operators` are those that tables beside these files define: no other user's are known to it,
    whatever else was loaded in this process.

    Raises:
        AxiomError: a command that is not allowed or not well formed; names file and line.
    """
    return _Vetter(file, helpers, operators).run()


def atoms(expr: SExpr) -> frozenset[str]:
    """The texts of all atoms of an expression."""
    if isinstance(expr, Atom):
        return frozenset({expr.text})
    return frozenset().union(*(atoms(item) for item in expr.items))


class _Vetter:
    """Holds where we are, so that every message can say file and line."""

    def __init__(
        self,
        file: AxiomFile,
        helpers: Mapping[str, Constructor],
        operators: Collection[Definition],
    ) -> None:
        self.file = file
        self.operators = {definition.constructor: definition for definition in operators}
        own = {
            name: constructor
            for name, constructor in constructors().items()
            if definition_of(name) is None or name in self.operators
        }
        self.known = {**own, **helpers}
        self.helpers: list[Constructor] = []
        self.axioms: list[Axiom] = []

    def fail(self, at: SExpr, message: str) -> AxiomError:
        return AxiomError(f"{self.file.name}:{at.line}: {message}")

    def run(self) -> Vetted:
        forms = read(self.file.text, self.file.name)
        if len(forms) > MOST_AXIOMS:
            raise self.fail(
                forms[MOST_AXIOMS],
                f"there are {len(forms)} commands in this file, and at most {MOST_AXIOMS} are "
                "read, as each is tested before it is used; leave out what no proof needs",
            )
        for form in forms:
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
        if name in self.operators:
            self.declared(form, self.operators[name], len(sorts))
            return
        elsewhere = definition_of(name)
        if elsewhere is not None:
            raise self.fail(
                form,
                f"{name} is the constructor of {elsewhere.name}, which another file defines "
                f"({elsewhere.source or 'a graph'}): name its table, or choose another name",
            )
        if not _CONSTRUCTOR.fullmatch(name) or name in self.known:
            raise self.fail(form, f"the constructor name {name!r} is taken or not in CamelCase")
        helper = Constructor(name, (Sort.TERM,) * len(sorts))
        self.known[name] = helper
        self.helpers.append(helper)

    def declared(self, form: Form, definition: Definition, arity: int) -> None:
        """A constructor that a table defines may be declared once more, the same way."""
        if definition.dim is not None or arity != len(definition.operands):
            raise self.fail(
                form,
                f"the table beside this file says otherwise: {definition}; leave the line out",
            )

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
        if expr.head == "Const":
            self.number_text(expr)

    def number_text(self, expr: Form) -> None:
        """A constant is a finite number, written as programs write it: "2.0", not "2"."""
        texts = [str(item).strip('"') for item in expr.items[1:]]
        try:
            is_good = all(math.isfinite(float(t)) and repr(float(t)) == t for t in texts)
        except ValueError:
            is_good = False
        if not is_good:
            raise self.fail(expr, f'{expr} is no number; write it as in (Const "2.0")')

    def atom(self, atom: Atom, sort: Sort, found: dict[str, Sort]) -> None:
        if sort is Sort.TEXT:
            if not _STRING.fullmatch(atom.text):
                raise self.fail(atom, f"expected a plain string, found {atom.text!r}")
            return
        if not VARIABLE.fullmatch(atom.text):
            raise self.fail(
                atom, f"expected a variable in lower case for a {sort.value}, found {atom.text!r}"
            )
        if found.setdefault(atom.text, sort) is not sort:
            raise self.fail(
                atom, f"{atom.text!r} is used as a {found[atom.text].value} and as a {sort.value}"
            )

    def condition(self, expr: SExpr, bound: Mapping[str, Sort]) -> Form:
        """Checks a side condition: a named fact, or a comparison of dimensions and of analyses."""
        if isinstance(expr, Form) and expr.head in FACTS:
            return self.fact(expr, bound)
        if not isinstance(expr, Form) or expr.head not in COMPARISONS or len(expr.items) != 3:
            raise self.fail(
                expr,
                f"{expr} is no condition; one is a fact ({', '.join(FACTS)}) or compares two "
                f"numbers with {' '.join(COMPARISONS)}",
            )
        for item in expr.items[1:]:
            self.number(item, bound)
        return expr

    def fact(self, expr: Form, bound: Mapping[str, Sort]) -> Form:
        fact = named(expr)
        assert fact is not None
        sorts = [bound.get(item.text) if isinstance(item, Atom) else None for item in expr.items]
        if tuple(sorts[1:]) != fact.arguments:
            wanted = " ".join(f"<{sort.value}>" for sort in fact.arguments)
            raise self.fail(
                expr, f"{expr} should read ({fact.name} {wanted}), with variables of the left side"
            )
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
