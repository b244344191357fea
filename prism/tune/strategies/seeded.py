"""A strategy that begins with given configs: what won for other sizes (`prism.tune.transfer`)."""

from __future__ import annotations

from collections.abc import Sequence

from prism.tune.space import Config
from prism.tune.strategies.protocol import Strategy


class SeededStrategy:
    """Asks `first` in order, then whatever another strategy asks, which is told of all."""

    def __init__(self, first: Sequence[Config], then: Strategy) -> None:
        self._first = list(dict.fromkeys(first))
        self._known = frozenset(first)
        self._then = then

    def ask(self) -> Config | None:
        """The next of the first, or of the other strategy those that were not among them."""
        if self._first:
            return self._first.pop(0)
        while (config := self._then.ask()) is not None:
            if config not in self._known:
                return config
        return None

    def tell(self, config: Config, seconds: float | None) -> None:
        """The other strategy learns from it."""
        self._then.tell(config, seconds)
