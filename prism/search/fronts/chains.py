"""Lower bounds that look below the next operator: what a needed class must still pay for.

Two needed classes may share whatever is below them, so what they need cannot simply be added up.
Two parts of it can:

  must    the classes that every op DAG of a needed class contains count once, whoever needs them
  chains  what depends on an input is shared only by classes that may depend on it too: where just
          one of the classes needed may read input T, and cannot do without, the operators on the
          way from it down to T are its own; the cheapest way counts in full

  last    nothing needed lies below the lowest of the classes needed: its cheapest way counts too
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prism.ir import Input
from prism.search.cone import Cone
from prism.search.dags import DagTable
from prism.search.macros import ClassId
from prism.search.wiring import Arena


@dataclass(frozen=True, slots=True)
class Dependence:
    """What lies below a class in some or in all op DAGs: inputs and classes, as bits."""

    may: int
    must: int
    below: int
    classes: int


def dependences(arena: Arena, cone: Cone, table: DagTable) -> Mapping[ClassId, Dependence]:
    """The dependence of every class and leaf."""
    out: dict[ClassId, Dependence] = {}
    for cls, leaf in cone.leaves.items():
        bit = 1 << arena.input_names.index(leaf.name) if isinstance(leaf, Input) else 0
        out[cls] = Dependence(bit, bit, 0, 0)
    for index, (cls, choices) in enumerate(zip(table.classes, table.choices, strict=True)):
        below = [
            _joined([out[c] for c in operator.children])
            for operator, _ in choices
            if out.keys() >= set(operator.children)
        ]
        if below:
            out[cls] = _alternatives(below, 1 << index)
    return out


def _joined(parts: Sequence[Dependence]) -> Dependence:
    may = must = below = classes = 0
    for part in parts:
        may |= part.may
        must |= part.must
        below |= part.below
        classes |= part.classes
    return Dependence(may, must, below, classes)


def _alternatives(parts: Sequence[Dependence], own: int) -> Dependence:
    may, must, below, classes = 0, parts[0].must, 0, parts[0].classes
    for part in parts:
        may |= part.may
        must &= part.must
        below |= part.below
        classes &= part.classes
    return Dependence(may, must, below | own, classes | own)


ANY = -1
"""The way to any input: for the lowest class needed."""


@dataclass(frozen=True, slots=True)
class Part:
    """One summand of a bound: a class, and the input its way leads to (None: its operator only)."""

    index: int
    way: int | None


def parts_of(need: int, known: Sequence[Dependence]) -> list[Part]:
    """The summands of what the classes needed still cost; `known` by class number."""
    once = twice = must = 0
    lowest = (need & -need).bit_length() - 1
    indices = bits(need)
    for i in indices:
        twice |= once & known[i].may
        once |= known[i].may
        must |= known[i].classes
    once &= ~twice
    out: list[Part] = []
    used = covered = 0
    for i in indices:
        alone = once & known[i].must
        if i == lowest:
            out.append(Part(i, ANY))
            covered = known[i].below
        elif alone:
            # of several the first: the ways differ little
            way = (alone & -alone).bit_length() - 1
            out.append(Part(i, way))
            used |= 1 << way
        else:
            out.append(Part(i, None))
    rest = bits(must & ~need & ~covered)
    return [*out, *(Part(i, None) for i in rest if not known[i].may & used)]


def bits(mask: int) -> list[int]:
    """The places of the bits that are set."""
    out: list[int] = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return out
