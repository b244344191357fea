"""Shipped grids for `prism sweep`: what the paper's evaluation did, and more of its kind."""

from __future__ import annotations
