from __future__ import annotations

import sys

import numpy as np
import pytest

from prism.dtypes import HALF, TOLERANCES, computed_in, dtype_of, limits_of
from prism.errors import UsageError


@pytest.mark.parametrize("name", TOLERANCES)
def test_every_dtype_has_a_numpy_dtype_of_its_name_and_limits(name):
    dtype = dtype_of(name)
    assert dtype.name == name
    assert np.ones(3, dtype).astype(np.float64).sum() == 3
    limits = limits_of(name)
    with np.errstate(over="ignore"):
        assert float(np.float64(limits.largest).astype(dtype)) == limits.largest
        assert np.isinf(np.float64(limits.largest * (1 + limits.eps)).astype(dtype).astype(float))
    assert float(np.float64(1 + limits.eps).astype(dtype)) == 1 + limits.eps
    assert float(np.float64(1 + limits.eps / 4).astype(dtype)) == 1


def test_tolerances_leave_room_for_storing_a_result():
    for name, tolerance in TOLERANCES.items():
        assert limits_of(name).eps / 2 < tolerance


def test_half_types_are_computed_in_float32():
    assert {name: computed_in(name) for name in HALF} == dict.fromkeys(HALF, "float32")
    assert computed_in("float64") == "float64"


def test_unknown_dtypes_are_refused():
    with pytest.raises(UsageError, match="unknown dtype 'int8'; known: float64, float32"):
        dtype_of("int8")


def test_bfloat16_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(UsageError, match="pip install ml-dtypes"):
        dtype_of("bfloat16")
    assert dtype_of("float16") == np.float16
