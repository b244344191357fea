"""Kernels: tile programs, their emitters and profilers."""

from __future__ import annotations
