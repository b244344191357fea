"""The generators by name, and what may be asked of each."""

from __future__ import annotations

from collections.abc import Sequence

from prism.errors import UsageError
from prism.search.forward import CONCRETE, ForwardGenerator
from prism.search.generate import ConeGenerator, Generator, Materials

GENERATORS = ("cone", "forward")
"""Backwards from the outputs through the e-graph, or forwards from the inputs as the paper does."""


def check_generator(name: str, concrete: Sequence[str]) -> None:
    """Refuse a generator that is not there, or that cannot do this.

    Raises:
        UsageError: an unknown name, or maps that only the other generator enumerates.
    """
    if name not in GENERATORS:
        raise UsageError(f"there is no generator {name!r}; there are {', '.join(GENERATORS)}")
    for kind in concrete:
        if kind not in CONCRETE:
            raise UsageError(
                f"there is no kind of map {kind!r} to make concrete; there are "
                f"{', '.join(CONCRETE)}"
            )
    if concrete and name != "forward":
        raise UsageError(
            f"--concrete {','.join(concrete)} needs --generator forward: the cone generator "
            "takes every map from the encoding"
        )


def make_generator(name: str, concrete: Sequence[str], materials: Materials) -> Generator:
    """The generator called `name`."""
    if name == "forward":
        return ForwardGenerator(materials, concrete)
    return ConeGenerator(materials)
