"""What the tests of the driver share: targets without a machine, and what a search has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tune.graphs import MATMUL, matmul_graph

from prism.ir import SGraph
from prism.scope import Scope
from prism.verdict import Verdict

FAKE = f"{Path(__file__).parent.parent / 'tune' / 'fake_target.py'}:FakeTarget"
BROKEN = FAKE.replace("FakeTarget", "BrokenTarget")
UNSTARTABLE = FAKE.replace("FakeTarget", "UnstartableTarget")
UNKNOWN = FAKE.replace("FakeTarget", "NoSuchTarget")
SIZES = {"n": 4, "d": 12, "h": 10}


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


SMALL = Found(MATMUL, (Graph("g0", matmul_graph(grid=0, loop=False)),))


def call(made):
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(4, 12)
    w = np.linspace(2, -1, 120, dtype=np.float32).reshape(12, 10)
    np.testing.assert_allclose(made(x, w), x @ w, rtol=1e-5, atol=1e-5)
