"""Experiments: workloads, sweeps over grids, reports."""

from __future__ import annotations
