"""What verification says about a graph: the one enum every half of the pipeline shares.

It stands apart from `prism.verify` (which re-exports it) because artifacts carry verdicts to
machines without egglog.
"""

from __future__ import annotations

from enum import Enum


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
