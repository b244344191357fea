"""What verification says about a graph: the one enum every half of the pipeline shares.

It stands apart from `prism.verify` (which re-exports it) because artifacts carry verdicts to
machines without egglog.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

MAX_AXIOMS = 10_000
AXIOM_NAME = re.compile(r"[\w./-]{1,200}")


class Verdict(Enum):
    """The answer to "does this graph compute the program, for every size and tile?"."""

    PROVED = "proved"
    """The axioms put graph and program in one e-class."""
    ADMITTED = "admitted"
    """Follows from local lemmas by induction: enough to count a graph, not to run it."""
    NOT_PROVED = "not proved"
    """The e-graph saturated and they differ."""
    GAVE_UP = "gave up"
    """A limit was reached first."""


@dataclass(frozen=True, slots=True)
class ProofAxioms:
    """The axioms that a proof needs; `is_minimal`: none of them can be left out."""

    names: tuple[str, ...]
    is_minimal: bool

    def __str__(self) -> str:
        """In words, to follow `proved`."""
        if not self.names:
            return "without any axiom"
        rest = "none can be left out" if self.is_minimal else "fewer might do"
        return f"with {', '.join(self.names)} ({rest})"


def proof_json(proof: ProofAxioms | None) -> dict[str, Any]:
    """The axioms of a proof as JSON-able data; no fields where they are not known."""
    if proof is None:
        return {}
    return {"axioms_used": list(proof.names), "axioms_used_minimal": proof.is_minimal}


def are_axiom_names(names: Sequence[str]) -> bool:
    """Whether these texts of a stranger can be names of axioms."""
    return len(names) <= MAX_AXIOMS and all(map(AXIOM_NAME.fullmatch, names))
