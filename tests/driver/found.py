"""What the tests of the driver share: targets without a machine, and what a search has found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from found_graphs import Found, Graph
from tune.graphs import MATMUL, matmul_graph

FAKE = f"{Path(__file__).parent.parent / 'tune' / 'fake_target.py'}:FakeTarget"
BROKEN = FAKE.replace("FakeTarget", "BrokenTarget")
UNSTARTABLE = FAKE.replace("FakeTarget", "UnstartableTarget")
UNKNOWN = FAKE.replace("FakeTarget", "NoSuchTarget")
SIZES = {"n": 4, "d": 12, "h": 10}


SMALL = Found(MATMUL, (Graph("g0", matmul_graph(grid=0, loop=False)),))


def call(made):
    x = np.linspace(-1, 1, 48, dtype=np.float32).reshape(4, 12)
    w = np.linspace(2, -1, 120, dtype=np.float32).reshape(12, 10)
    np.testing.assert_allclose(made(x, w), x @ w, rtol=1e-5, atol=1e-5)
