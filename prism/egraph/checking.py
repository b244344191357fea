"""`prism axioms check`: every test an axiom file has to pass before it is trusted, in order.

Vetting (is it an equation of ours?), random tensors (is it true?), proof (of all tensors?), poison
(is it true together with the others?), growth (does it end?). A rule that fails is left out of the
tests after, so that others are not blamed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from prism.egraph.axiom import AxiomFile
from prism.egraph.axioms import AxiomSet, DirectedRule, axiom_files, make_axiom_set
from prism.egraph.growth import Growth, endless_rules, growth_of
from prism.egraph.poison import find_poison
from prism.egraph.proving import Proof, RuleProver, best_proof
from prism.egraph.session import Session
from prism.egraph.sexpr import Form, read
from prism.egraph.signature import RULESETS, constructors
from prism.egraph.soundness import check_rule
from prism.errors import AxiomError
from prism.ir import Program
from prism.plugins import SHIPPED_AXIOMS

PROOF_SECONDS = 1.0
CASES = 50

Progress = Callable[[float, float, str], None]
"""Done, of how much, with what."""


class Fault(Enum):
    """What a rule may fail by; the value says so."""

    MALFORMED = "malformed"
    UNSOUND = "unsound"
    POISON = "poison"
    GROWTH = "growth"


@dataclass(frozen=True, slots=True)
class Failure:
    """A rule that fails, where it stands, and why in words a person can check."""

    fault: Fault
    place: str
    rule: str | None
    why: str


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """What is known about a directed rule that no random tensor refutes.

    `cases` is zero where a rule speaks of a helper that has no meaning: it is tested with the
    others only. `rounding`: an instance in which floats differ and the reals do not.
    """

    rule: str
    place: str
    cases: int
    exact_cases: int
    proof: Proof
    rounding: str | None


@dataclass(frozen=True, slots=True)
class CheckReport:
    """All of it. The files are good if nothing failed."""

    files: tuple[str, ...]
    rules: tuple[RuleCheck, ...]
    failures: tuple[Failure, ...]
    growth: tuple[Growth, ...]


def check_axioms(
    specs: Sequence[str],
    programs: Mapping[str, Program],
    provers: tuple[RuleProver, ...],
    *,
    seed: int = 0,
    progress: Progress = lambda _done, _total, _what: None,
) -> CheckReport:
    """Check the files of `specs`, together with the shipped set.

    Raises:
        AxiomError: a file cannot be read.
        PluginError: a name that is not installed.
    """
    own = tuple(file for spec in specs for file in axiom_files(spec))
    texts = {file.text for file in own}
    base = [file for file in axiom_files(SHIPPED_AXIOMS) if file.text not in texts]
    axioms, good, failures = _vetted(base, own)
    families = {file.family for file in good}
    suspects = [rule for rule in axioms.rules if rule.axiom.family in families]
    check = _Check(axioms, suspects, failures, progress)
    rules = check.test(provers, seed)
    check.poison()
    growth = check.growth(programs)
    return CheckReport(
        tuple(file.name for file in own), rules, tuple(check.failures.values()), growth
    )


class _Check:
    """The set under test, which loses every rule that fails."""

    def __init__(
        self,
        axioms: AxiomSet,
        suspects: Sequence[DirectedRule],
        failures: Iterable[Failure],
        progress: Progress,
    ) -> None:
        self.axioms = axioms
        self.suspects = tuple(suspects)
        self.failures = {(f.place, f.rule): f for f in failures}
        self.progress = progress

    def fail(self, fault: Fault, rule: DirectedRule, why: str) -> None:
        """Note the first failure of an axiom."""
        axiom = rule.axiom
        self.failures.setdefault(
            (axiom.place, axiom.name), Failure(fault, axiom.place, axiom.name, why)
        )

    def drop_failed(self) -> None:
        """Leave failed axioms out from here on."""
        gone = {name for _, name in self.failures}
        kept = tuple(r for r in self.axioms.rules if r.axiom.name not in gone)
        self.axioms = replace(self.axioms, rules=kept)
        self.suspects = tuple(r for r in self.suspects if r.axiom.name not in gone)

    def test(self, provers: tuple[RuleProver, ...], seed: int) -> tuple[RuleCheck, ...]:
        """Random tensors, then proof."""
        helpers = {helper.name for helper in self.axioms.helpers}
        passed: list[RuleCheck] = []
        for done, rule in enumerate(self.suspects):
            self.progress(done, 2 * len(self.suspects), f"testing {rule.name}")
            if helpers & (rule.needs | rule.makes):
                passed.append(RuleCheck(rule.name, rule.axiom.place, 0, 0, Proof.NONE, None))
                continue
            report = check_rule(rule, seed=seed, cases=CASES)
            if report.counterexample is not None:
                direction = "" if rule.name == rule.axiom.name else "right to left, "
                self.fail(Fault.UNSOUND, rule, direction + report.counterexample)
                continue
            proof = best_proof(provers, rule, PROOF_SECONDS)
            passed.append(
                RuleCheck(
                    rule.name,
                    rule.axiom.place,
                    report.cases,
                    report.exact_cases,
                    proof,
                    report.rounding,
                )
            )
        self.drop_failed()
        return tuple(passed)

    def poison(self) -> None:
        """All rules together, on terms of each."""
        by_name = {rule.name: rule for rule in self.suspects}
        total = 2 * len(self.suspects)
        for done, (rule, poison) in enumerate(find_poison(self.axioms, self.suspects)):
            self.progress(len(self.suspects) + done, total, f"all rules on terms of {rule.name}")
            if poison is None:
                continue
            for name in poison.rules:
                others = [n for n in poison.rules if n != name]
                company = f" together with {', '.join(others)}" if others else ""
                self.fail(Fault.POISON, by_name[name], f"proves {poison.claim}{company}")
        self.drop_failed()

    def growth(self, programs: Mapping[str, Program]) -> tuple[Growth, ...]:
        """E-graphs of the rules' own terms and of programs, with and without the rules."""
        by_name = {rule.name: rule for rule in self.suspects}
        for rule, nodes in endless_rules(self.axioms, self.suspects):
            if nodes is not None:
                self.fail(
                    Fault.GROWTH, rule, f"terms it applies to never settle: {nodes} nodes and more"
                )
        self.drop_failed()
        found: list[Growth] = []
        for step in growth_of(self.axioms, self.suspects, programs):
            self.progress(len(found), len(programs), f"growth of {step.name}")
            found.append(step)
            for name in step.rules:
                self.fail(
                    Fault.GROWTH,
                    by_name[name],
                    f"the e-graph of {step.name} no longer saturates: {step.nodes} nodes after "
                    f"{step.iterations} iterations, {step.nodes_before} nodes without this file",
                )
        return tuple(found)


def _vetted(
    base: Sequence[AxiomFile], own: Sequence[AxiomFile]
) -> tuple[AxiomSet, list[AxiomFile], list[Failure]]:
    """The set of all files that are well formed, and what is wrong with the others."""
    good: list[AxiomFile] = []
    failures: list[Failure] = []
    axioms = make_axiom_set(tuple(base))
    for file in own:
        try:
            more = make_axiom_set((*base, *good, file))
            Session(more, set(RULESETS), constructors().keys() | {h.name for h in more.helpers})
        except AxiomError as error:
            failures.append(_malformed(file, str(error)))
        else:
            axioms, good = more, [*good, file]
    return axioms, good, failures


def _malformed(file: AxiomFile, message: str) -> Failure:
    """A failure of vetting: the message begins with the place."""
    place, line, why = (*message.split(":", 2), "", "")[:3]
    if place != file.name or not line.isdigit():
        return Failure(Fault.MALFORMED, file.name, None, message)
    return Failure(Fault.MALFORMED, f"{place}:{line}", _rule_at(file, int(line)), why.strip())


def _rule_at(file: AxiomFile, line: int) -> str | None:
    """The name of the rule that a line belongs to."""
    try:
        forms = [form for form in read(file.text, file.name) if form.line <= line]
    except AxiomError:
        return None
    if not forms:
        return None
    items = [str(item) for item in forms[-1].items if not isinstance(item, Form)]
    names = [value for option, value in pairwise(items) if option == ":name"]
    return names[0].strip('"') if names else None
