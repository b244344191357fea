"""Graphs of several kernels: cuts of op DAGs, kernels as pieces, plans (see `generator`)."""

from __future__ import annotations

from prism.search.plans.generator import PlanGenerator

__all__ = ["PlanGenerator"]
