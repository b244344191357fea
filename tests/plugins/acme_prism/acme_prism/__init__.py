"""Plug-ins for Prism from somebody else."""

from __future__ import annotations
