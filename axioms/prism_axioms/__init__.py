"""Axiom files: equations between tensor expressions, by family."""

from __future__ import annotations
