"""What a search has found, written by hand: all that the tuner reads of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from prism.ir import SGraph
from prism.scope import Scope
from prism.verdict import Verdict


@dataclass(frozen=True)
class Graph:
    id: str
    graph: SGraph
    verdict: Verdict = Verdict.PROVED


@dataclass(frozen=True)
class Found:
    program: object
    graphs: tuple[Graph, ...]
    scope: Scope = field(default_factory=Scope)
