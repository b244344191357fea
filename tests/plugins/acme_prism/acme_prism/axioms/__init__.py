"""Each .egg file here is an axiom file."""

from __future__ import annotations
