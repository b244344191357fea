"""Encodings: each turns a mapping problem into a model and enumerates its assignments.

All of the same strength return the same set on every problem (`tests/encodings`); see README.md
beside this package for how to add one. Nothing is imported here: an encoding is loaded through
the plug-in door, so that choosing `backtracking` never pays for importing ortools.
"""

from __future__ import annotations
