"""What the tuner asks of a strategy, and what a strategy is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from prism.tune.space import Config

Estimate = Callable[[Config], float]
"""Predicted seconds of a config; infinite for one the target refuses."""


class Strategy(Protocol):
    """Chooses the next config. Constructed with (space, estimate, seed)."""

    def ask(self) -> Config | None:
        """A config not asked before, or None when there is nothing more worth trying.

        A config may be asked without being told of: what another config runs too is passed by.
        """

    def tell(self, config: Config, seconds: float | None) -> None:
        """The median time of a config; None when it failed.

        Configs of the space that were never asked may be told, too.
        """


@runtime_checkable
class Learner(Strategy, Protocol):
    """A strategy that can use what trials at other sizes say."""

    def hint(self, config: Config, ratio: float) -> None:
        """A config like this took `ratio` times its estimate at other sizes."""
