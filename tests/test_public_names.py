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


def test_a_name_that_is_not_there_is_answered_with_those_near_to_it():
    with pytest.raises(AttributeError, match="no attribute 'sofmax'; near to it: softmax"):
        _ = prism.sofmax
    with pytest.raises(AttributeError, match=r"no attribute 'cumsum_of'; dir\(prism\) lists"):
        _ = prism.cumsum_of
