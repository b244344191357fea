"""Tune mode: the graphs that no other one beats for all sizes and tiles (see `generator`)."""

from __future__ import annotations

from prism.search.fronts.generator import FrontGenerator

__all__ = ["FrontGenerator"]
