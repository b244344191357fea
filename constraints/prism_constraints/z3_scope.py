"""Which rules the Z3 prover can read: those to which dimensions they do not name are but places."""

from __future__ import annotations

import re

from prism.egraph import PAR_RULES, Sort
from prism.egraph.axioms import DirectedRule
from prism.egraph.facts import About, facts_about, named
from prism.egraph.sexpr import Form
from prism.errors import PrismError


class BeyondError(PrismError):
    """The rule is beyond this prover."""


_BIT_TEST = re.compile(r"\(\S+ 0 \(& \((dims|pars) \w+\) \(<< 1 \w+\)\)\)")
_DIMENSIONS = re.compile(r"\(\S+ [a-z]\w* [a-z]\w*\)")


def check_scope(rule: DirectedRule) -> None:
    """Refuse rules for which dimensions that they do not name are more than further places.

    Raises:
        BeyondError: the rule is one.
    """
    if rule.ruleset == PAR_RULES and "Size" in rule.needs | rule.makes:
        raise BeyondError("a whole size among tiles, which any other dimension may make smaller")
    if rule.ruleset == PAR_RULES and any(facts_about(About.SIZE, rule.axiom.conditions)):
        raise BeyondError("a dimension of size one among tiles")
    for condition in rule.axiom.conditions:
        if is_plain(condition):
            continue
        text = str(condition)
        if "(pars " in text or re.search(r"[ (]-?[0-9]", text):
            raise BeyondError(f"the condition {condition}")


def is_plain(condition: Form) -> bool:
    """Whether a condition speaks of the dimensions alone that the rule names, or of entries."""
    fact, text = named(condition), str(condition)
    if fact is not None:
        return fact.arguments.count(Sort.TERM) < 2
    return bool(_BIT_TEST.fullmatch(text) or _DIMENSIONS.fullmatch(text))
