"""Proofs that need rules: pairs that are proved equal, and the rules without which they are not.

Four kinds of pairs. `PROGRAMS`: two user programs, as `prism verify` gets them. `REACHED`: programs
of which the search meets the second in what the algebra makes of the first, before anything is
known of the second. `GRAPHS`: right graphs of `verify.table`. `TERMS`: two sides over whole
inputs, tiles and copies, for rules that no small graph needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from axioms.proofs_table import GRAPH_PROOFS, PROGRAM_PROOFS, REACHED_PROOFS, TERM_PROOFS
from program_texts import traced
from verify.table import CASES, PROGRAMS

from prism.egraph import (
    ALGEBRA,
    AxiomSet,
    GraphTerms,
    Limits,
    Session,
    TermBank,
    build_program,
    declare_sizes,
    new_bank,
)
from prism.egraph.bank import MAX_DATA_DIMS
from prism.egraph.sexpr import read
from prism.egraph.sides import build
from prism.ir import Program
from prism.verify import Verdict
from prism.verify.alignment import named_alike, pairings
from prism.verify.equivalence import Judge, VerifyLimits

LIMITS = VerifyLimits(algebra_nodes=3_000)
"""Half of what a candidate gets elsewhere: these proofs are short."""
ARGUMENTS = (
    'x: "n d", y: "n d", z: "n d", w: "d h", v: "d h", s: "", c: "n", g: "d", t: "h k", a: "d r",'
    ' b: "r h"'
)
LEAVES = {"x": "dk", "y": "dk", "z": "dk", "u": "k", "o": "dj"}
"""The inputs of term proofs and their dimensions; the size of j is one."""
DIMS, PARS = "dkefj", {"p": MAX_DATA_DIMS, "q": MAX_DATA_DIMS + 1}


@dataclass(frozen=True)
class Proof:
    """Two things that are equal; `needs`: the rules each of which their proof cannot do without."""

    left: str
    right: str
    needs: tuple[str, ...]
    holds: Callable[[str, str, AxiomSet], bool]

    @property
    def name(self) -> str:
        """What is proved, in one line."""
        return f"{self.left} = {self.right}" if self.right else self.left

    def is_proved(self, axioms: AxiomSet) -> bool:
        """Whether these axioms prove it."""
        return self.holds(self.left, self.right, axioms)


def without(axioms: AxiomSet, name: str) -> AxiomSet:
    """The axioms less one directed rule."""
    kept = tuple(rule for rule in axioms.rules if rule.name != name)
    assert len(kept) == len(axioms.rules) - 1, f"there is no rule {name!r}"
    return replace(axioms, rules=kept)


@functools.cache
def program(text: str) -> Program:
    """The program that returns an expression over `ARGUMENTS`."""
    return traced(text, ARGUMENTS)


def programs_equal(left: str, right: str, axioms: AxiomSet) -> bool:
    """Whether two programs are proved equal, in one way to line up their dimensions."""
    plain = (program(left), program(right))
    alike = (named_alike(plain[0]), named_alike(plain[1]))
    return any(_judged(*pair, axioms) for pair in dict.fromkeys((plain, alike)))


def _judged(reference: Program, candidate: Program, axioms: AxiomSet) -> bool:
    way = next(pairings(reference, candidate))
    bank = TermBank(d.name for d in (*reference.dims, *way.dims))
    declare_sizes(bank, (*reference.dims, *way.dims))
    target, other = build_program(bank, reference), build_program(bank, way.program)
    return Judge(bank, target, axioms, LIMITS).verdicts({0: other})[0] is Verdict.PROVED


def reached(left: str, right: str, axioms: AxiomSet) -> bool:
    """Whether the algebra makes the second program of the first, without having seen it."""
    reference, candidate = program(left), program(right)
    bank = new_bank(reference)
    target, other = build_program(bank, reference), build_program(bank, candidate)
    session = Session(axioms, {ALGEBRA}, bank.heads)
    session.insert(bank, [(0, target[0])])
    assert session.settle(Limits(), ALGEBRA)
    session.insert(bank, [(1, other[0])])
    classes = session.roots()
    return classes[0] == classes[1]


def graph_right(name: str, _: str, axioms: AxiomSet) -> bool:
    """Whether a graph of the table is proved to compute its program."""
    case = next(case for case in CASES if case.name == name)
    reference = PROGRAMS[case.program]
    bank = new_bank(reference)
    terms = GraphTerms(bank, reference).build(case.graph.kernels)
    judge = Judge(bank, build_program(bank, reference), axioms, LIMITS)
    return judge.verdicts({0: terms})[0] is Verdict.PROVED


def terms_equal(left: str, right: str, axioms: AxiomSet) -> bool:
    """Whether two terms over `LEAVES` are proved equal."""
    bank = TermBank(DIMS)
    bank.declare_size("j", 1.0)
    names = {name: bank.input(name, tuple(dims)) for name, dims in LEAVES.items()}
    names |= {dim: i for i, dim in enumerate(DIMS)} | PARS
    target, other = (
        build(bank, read(text, text)[0], names) if text.startswith("(") else names[text]
        for text in (left, right)
    )
    judge = Judge(bank, (target,), axioms, LIMITS)
    return judge.verdicts({0: (other,)})[0] is Verdict.PROVED


def _read(table: str, holds: Callable[[str, str, AxiomSet], bool]) -> Iterator[Proof]:
    """The proofs of a table: `rules : left = right`; an indented line continues the one before."""
    for line in table.strip().replace("\n  ", " ").splitlines():
        needs, _, sides = line.partition(" : ")
        left, _, right = sides.partition(" = ")
        yield Proof(left.strip(), right.strip(), tuple(needs.split()), holds)


PROOFS = (
    *_read(PROGRAM_PROOFS, programs_equal),
    *_read(REACHED_PROOFS, reached),
    *_read(GRAPH_PROOFS, graph_right),
    *_read(TERM_PROOFS, terms_equal),
)
