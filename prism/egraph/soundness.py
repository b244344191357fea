"""Tests an axiom on random small tensors: both sides of every direction, in NumPy.

Where the conditions of a rule hold, the other side must have the same type and the same value, and
be defined exactly where the left side is (`prism.egraph.instances` draws the tensors). Floats are
quick; numbers without rounding (`prism.egraph.exact`) have the last word wherever they can be had,
so that a rule is neither refuted nor kept by rounding. A test can refute an axiom, not prove it;
the same seed gives the same tests. `load_sound` is how whoever proves something reads axioms: files
of the user's own are tested first.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from prism.egraph.axiom import AxiomFile
from prism.egraph.axioms import (
    AxiomSet,
    DirectedRule,
    load_axioms,
    make_axiom_set,
)
from prism.egraph.bank import TermId, TermType
from prism.egraph.exact import (
    ExactMeaning,
    TooLargeError,
    exact,
    finite,
    is_precise,
    is_rational,
)
from prism.egraph.facts import single_dims
from prism.egraph.instances import Draw, Instance
from prism.egraph.meaning import Array
from prism.egraph.poison import find_poison
from prism.egraph.sides import build, fits, type_text
from prism.egraph.signature import PAR_RULES
from prism.errors import AxiomError, GraphError, SizeError
from prism.plugins import SHIPPED_AXIOMS, Group, installed

SMALL_WORK, MOST_WORK = 400, 20_000
"""Numbers in all values of an instance: to look at it exactly anyway, and to do so in doubt."""
EXACT_CASES = 12
SHRINKS = 200
"""Instances among which a small counterexample is looked for."""


@dataclass(frozen=True, slots=True)
class SoundnessReport:
    """What the tests of a rule found.

    `cases`: well-typed instances tried, `exact_cases` of them without rounding; `counterexample`:
    one that fails, in words; `rounding`: an instance in which floats differ where numbers without
    rounding agree, no fault.
    """

    cases: int
    counterexample: str | None
    exact_cases: int = 0
    rounding: str | None = None


def check_rule(
    rule: DirectedRule, *, seed: int = 0, cases: int = 50, attempts: int = 8_000
) -> SoundnessReport:
    """Try `rule` on up to `cases` random instances of its left side."""
    draw = Draw(rule, random.Random(seed), np.random.default_rng(seed))
    done = exact_done = 0
    rounding: str | None = None
    for _ in range(attempts):
        if done == cases:
            break
        instance = draw.instance()
        if instance is None:
            continue
        done += 1
        found = _judge(instance, exactly=exact_done < EXACT_CASES)
        exact_done += found.is_exact
        rounding = rounding or found.rounding
        if found.fault is not None:
            return SoundnessReport(done, _smallest(draw, instance, found.fault), exact_done)
    if not done:
        return SoundnessReport(0, "no well-typed instance of the left side was found")
    return SoundnessReport(done, None, exact_done, rounding)


def _smallest(draw: Draw, instance: Instance, fault: str) -> str:
    """The words for a counterexample, or for a smaller one if another draw has it."""
    draw.is_plain = True
    for _ in range(SHRINKS):
        other = draw.instance()
        if other is None or other.weight >= instance.weight:
            continue
        found = _judge(other, exactly=True).fault
        if found is not None:
            instance, fault = other, found
    return f"{fault} with {instance}"


def faults_of(axioms: AxiomSet, files: Sequence[AxiomFile], *, seed: int = 0) -> dict[str, str]:
    """The rules of these files of a set that a test refutes: place and name -> counterexample.

    Rules about helper constructors have no meaning in NumPy: they are judged by the poison they
    show with all others. Those of the shipped set, in whichever file they stand, have been tested.
    """
    helpers = {helper.name for helper in axioms.helpers}
    families = {file.family for file in files}
    shipped = {rule.text for rule in load_axioms().rules}
    own = [r for r in axioms.rules if r.axiom.family in families and r.text not in shipped]
    unclear = {rule.name: rule for rule in own if helpers & (rule.needs | rule.makes)}
    found: dict[str, str] = {}
    for rule in own:
        if rule.name in unclear:
            continue
        report = check_rule(rule, seed=seed)
        if report.counterexample is not None:
            found[_place(rule)] = report.counterexample
    for _, poison in find_poison(axioms, [*unclear.values()]) if not found else ():
        if poison is not None:
            found |= {_place(unclear[name]): f"it proves {poison.claim}" for name in poison.rules}
    return found


def _place(rule: DirectedRule) -> str:
    return f"{rule.axiom.place}: rule {rule.name!r}"


def own_files(axioms: AxiomSet, specs: Sequence[str]) -> tuple[AxiomFile, ...]:
    """The files of a set that no installed plug-in brings: `specs` are what it was loaded from."""
    sets = installed(Group.AXIOMS)
    known = load_axioms([spec for spec in specs if spec in sets]).files
    return tuple(file for file in axioms.files if file not in known)


def load_sound(specs: Sequence[str] = (SHIPPED_AXIOMS,), *, seed: int = 0) -> AxiomSet:
    """The axioms that `specs` name, to prove with; `seed` is that of the tests.

    Installed sets were tested when they were made (`prism axioms check`).

    Raises:
        AxiomError: see `load_axioms`; also a rule of an own file that a test refutes.
        PluginError: a name that is not installed.
    """
    axioms = load_axioms(specs)
    for rule, why in _faults(axioms.files, own_files(axioms, specs), seed):
        raise AxiomError(f"{rule} is unsound, so nothing can be proved with it: {why}")
    return axioms


@lru_cache(maxsize=8)
def _faults(
    files: tuple[AxiomFile, ...], own: tuple[AxiomFile, ...], seed: int
) -> tuple[tuple[str, str], ...]:
    """`faults_of`, once per process."""
    return tuple(faults_of(make_axiom_set(files), own, seed=seed).items())


@dataclass(frozen=True, slots=True)
class _Finding:
    """What one instance says. `rounding`: floats differ, exact numbers agree."""

    fault: str | None
    is_exact: bool = False
    rounding: str | None = None


def _judge(instance: Instance, *, exactly: bool) -> _Finding:
    """Whether the right side equals the left; `exactly`: without rounding if it is small."""
    bank = instance.meaning.bank
    try:
        right = build(bank, instance.rule.right, instance.binding)
        a, b = instance.meaning.value(instance.left), instance.meaning.value(right)
    except (GraphError, SizeError) as error:
        return _Finding(f"the result does not fit together ({error})")
    right_kind, left_kind = (_telling(instance, bank.type_of(t)) for t in (right, instance.left))
    if not fits(right_kind, left_kind, is_algebra=instance.rule.ruleset != PAR_RULES):
        return _Finding(
            f"the result is over {type_text(right_kind)}, not over {type_text(left_kind)},"
        )
    fault = _float_fault(a, b)
    work = instance.meaning.work()
    if work > MOST_WORK or (fault is None and not (exactly and work <= SMALL_WORK)):
        return _Finding(fault)
    return _referee(instance, right, fault)


def _telling(instance: Instance, kind: TermType) -> TermType:
    """A type without the dimensions that the rule wants of size one: nothing varies there."""
    single = {instance.binding[name] for name in single_dims(instance.rule.axiom.conditions)}
    splits = {dim: split for dim, split in kind.splits.items() if dim not in single}
    return TermType(splits, kind.pars)


def _referee(instance: Instance, right: TermId, float_fault: str | None) -> _Finding:
    """The judgement without rounding, if there is one."""
    heads = instance.rule.needs | instance.rule.makes
    if not is_precise(heads):
        return _Finding(float_fault)
    inputs = {name: exact(value) for name, value in instance.meaning.inputs.items()}
    meaning = ExactMeaning(instance.meaning.bank, instance.meaning.sizes, inputs)
    try:
        a, b = (meaning.value(term) for term in (instance.left, right))
    except TooLargeError:
        return _Finding(float_fault)
    fault = _exact_fault(a, b, is_rational=is_rational(heads))
    if fault is None:
        return _Finding(None, is_exact=True, rounding=float_fault)
    hint = "" if float_fault else " (rounding to float64 hides it)"
    return _Finding(f"{fault}{hint}", is_exact=True)


def _float_fault(a: Array, b: Array) -> str | None:
    a, b = np.broadcast_arrays(a, b)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return _undefined_fault(np.isfinite(a), np.isfinite(b))
    wrong = np.isfinite(a) & ~np.isclose(a, b, rtol=1e-9, atol=1e-9)
    if not wrong.any():
        return None
    place = tuple(np.argwhere(wrong)[0])
    return _differ_text(*(Fraction(float(side[place])) for side in (a, b)))


def _exact_fault(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], *, is_rational: bool
) -> str | None:
    a, b = np.broadcast_arrays(a, b)
    if not np.array_equal(finite(a), finite(b)):
        return _undefined_fault(finite(a), finite(b))
    for x, y in zip(a[finite(a)], b[finite(b)], strict=True):
        size = 0 if is_rational else max(1, abs(x.value), abs(y.value))
        if abs(x.value - y.value) > Fraction(1, 10**20) * size:
            return _differ_text(x.value, y.value)
    return None


def _differ_text(left: Fraction, right: Fraction) -> str:
    """Both values, with as many digits as it takes to see that they differ."""
    one, other = (_number_text(value, 6) for value in (left, right))
    if one == other:
        one, other = (_number_text(value, 17) for value in (left, right))
    if one == other:
        other = f"{_number_text(right - left, 6)} more"
    return f"the left side is {one} and the right side {other}"


def _number_text(value: Fraction, digits: int) -> str:
    try:
        return f"{float(value):.{digits}g}"
    except OverflowError:
        return "too large for a float"


def _undefined_fault(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> str:
    side = "right" if a[tuple(np.argwhere(a != b)[0])] else "left"
    return f"the sides are not defined at the same places (the {side} side is undefined somewhere)"
