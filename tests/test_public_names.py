"""`import prism` gives every public name, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

import prism

SHOWN = ("search.SearchOptions", "optimize", "Optimized.load", "errors.PrismError", "ops.__dir__")
"""What a user writes after `prism.`."""


@pytest.mark.parametrize("name", SHOWN)
def test_a_public_name_needs_no_other_import(name):
    code = f"import prism; prism.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there():
    assert all(hasattr(prism, name) for name in prism.__all__)
    assert sorted(prism.__all__) == prism.__all__
