"""A strategy that is made when it is first asked.

Making one may take seconds, as thousands of estimates do; by then the workers are starting up.
"""

from __future__ import annotations

from collections.abc import Callable

from prism.tune.space import Config
from prism.tune.strategies.protocol import Strategy


class DeferredStrategy:
    """What `make` gives: a strategy, and notes on how it was made."""

    def __init__(self, make: Callable[[], tuple[Strategy, tuple[str, ...]]]) -> None:
        self._make = make
        self._made: Strategy | None = None
        self.notes: tuple[str, ...] = ()

    def _strategy(self) -> Strategy:
        if self._made is None:
            self._made, self.notes = self._make()
        return self._made

    def ask(self) -> Config | None:
        """See `Strategy`."""
        return self._strategy().ask()

    def tell(self, config: Config, seconds: float | None) -> None:
        """See `Strategy`."""
        self._strategy().tell(config, seconds)
