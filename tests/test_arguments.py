"""Numbers given where a program takes a scalar."""

from __future__ import annotations

import numpy as np
import pytest

from prism.arguments import _read
from prism.dtypes import dtype_of
from prism.errors import UsageError


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("value", [2, 2.0, True, np.float32(2), np.int64(2), np.float64("inf")])
def test_a_number_of_any_kind_is_taken_in_the_dtype_of_the_kernel(value, dtype):
    array = _read(value, "s", dtype_of(dtype))
    assert array.shape == ()
    assert array.dtype == dtype_of(dtype)
    assert float(array) == float(value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1e9, "float16"), (-70000, "float16"), (1e39, "float32"), (10**400, "float64")],
)
def test_a_number_that_the_dtype_cannot_hold_is_refused(value, dtype):
    with pytest.raises(UsageError, match=f"more than {dtype} holds"):
        _read(value, "s", dtype_of(dtype))
