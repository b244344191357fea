"""Shipped grids for `prism sweep`: what the paper's evaluation did, and more of its kind.

Each name is the path of a file here; `prism sweep NAME` finds it through the group `prism.grids`.
"""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent

axioms = _HERE / "axioms.toml"
encodings = _HERE / "encodings.toml"
figure6 = _HERE / "figure6.toml"
figure6_gpu = _HERE / "figure6_gpu.toml"
pruners = _HERE / "pruners.toml"
scaling = _HERE / "scaling.toml"
table2 = _HERE / "table2.toml"
table3 = _HERE / "table3.toml"
table4 = _HERE / "table4.toml"
tuning = _HERE / "tuning.toml"

published = _HERE / "published.toml"
"""The paper's figures, for `prism report --published paper`."""
