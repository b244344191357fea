"""Are two terms equal by the parallel rules alone, whatever their free operands are?

The algebra is left out: it takes `Size k` for the length of k, and a free operand may itself be a
tile of k. What is equal when a limit is reached is equal; what is not counts as not proved.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from prism.egraph import PAR_RULES, AxiomSet, Limits, Session, TermBank, TermId

MAX_ITERATIONS = 80
NODES_PER_PAIR = 2_000
MAX_SECONDS = 20.0

Key = TypeVar("Key", bound=Hashable)


class PairJudge:
    """Judges pairs of terms of one bank in an e-graph that it keeps from call to call."""

    def __init__(self, bank: TermBank, axioms: AxiomSet) -> None:
        self.bank = bank
        self._axioms = axioms
        self._session: Session | None = None
        self._heads: frozenset[str] = frozenset()
        self._inserted = 0

    def equal(self, pairs: Mapping[Key, tuple[TermId, TermId]]) -> dict[Key, bool]:
        """Whether the two terms of each pair are equal.

        They are judged together; where that reaches a limit, half of them at a time, so that terms
        which grow for ever cost no other pair its proof.
        """
        if not pairs:
            return {}
        found, is_settled = self._together(pairs)
        if is_settled:
            return found
        self._session = None  # it holds what grows for ever
        if len(pairs) == 1:
            return found
        asked = list(pairs.items())
        middle = len(asked) // 2
        return self.equal(dict(asked[:middle])) | self.equal(dict(asked[middle:]))

    def _together(self, pairs: Mapping[Key, tuple[TermId, TermId]]) -> tuple[dict[Key, bool], bool]:
        """What is equal, and whether no limit was reached."""
        if self._session is None or not self.bank.heads <= self._heads:
            self._heads = self.bank.heads
            self._session = Session(self._axioms, frozenset({PAR_RULES}), self._heads)
        session = self._session
        # time may end below, and the e-graph keeps what it was given: no number is used again
        numbers = {key: 2 * (self._inserted + i) for i, key in enumerate(pairs)}
        self._inserted += len(pairs)
        session.insert(
            self.bank,
            [
                (numbers[key] + k, term)
                for key, pair in pairs.items()
                for k, term in enumerate(pair)
            ],
        )
        most = session.node_count() + len(pairs) * NODES_PER_PAIR
        is_settled = session.settle(Limits(most, MAX_ITERATIONS, MAX_SECONDS), PAR_RULES)
        classes = session.roots()
        return {key: classes[n] == classes[n + 1] for key, n in numbers.items()}, is_settled
