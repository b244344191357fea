"""Prism: a symbolic superoptimizer for tensor programs."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("prism-superopt")
