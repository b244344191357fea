"""What a prover of axioms is: a plug-in (`prism.provers`) that proves a rule, or does not.

A proof speaks of all tensors where the random test speaks of those it drew. That none is found says
nothing: the rule may be beyond the prover, or its time was up.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from prism.egraph.axioms import DirectedRule
from prism.plugins import Group, installed, make


class Proof(Enum):
    """How far a rule is proved."""

    ALL_SIZES = "proved for all sizes"
    SMALL_SIZES = "proved at sizes up to 3"
    NONE = "tested only"


class RuleProver(Protocol):
    """Proves rules over the reals."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    def prove(self, rule: DirectedRule, *, seconds: float) -> Proof:
        """The strongest proof found in about so many seconds."""
        ...


def installed_provers() -> tuple[RuleProver, ...]:
    """All provers that are installed, by name.

    Raises:
        PluginError: one cannot be loaded.
    """
    return tuple(make(Group.PROVER, name) for name in installed(Group.PROVER))


def best_proof(provers: tuple[RuleProver, ...], rule: DirectedRule, seconds: float) -> Proof:
    """The strongest proof that any of the provers finds."""
    order = list(Proof)
    found = [prover.prove(rule, seconds=seconds) for prover in provers]
    return min(found, key=order.index, default=Proof.NONE)
