"""float16 and bfloat16 on the command line: optimized and timed beside NumPy, on this CPU."""

from __future__ import annotations

import numpy as np
import pytest

from prism.bench import Task
from prism.bench.contestants import NumpyContestant
from prism.dtypes import TOLERANCES

DTYPES = ["float16", "bfloat16"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_gets_float32_copies_and_the_table_says_so(dtype):
    task = Task("matmul", (("n", 3), ("d", 8), ("h", 5)), dtype, seed=1, threads=1, kernel="unused")
    prepared = NumpyContestant().prepare(task)
    (out,) = prepared.outputs(prepared.call())
    assert out.dtype == np.float32
    assert "float32 copies" in prepared.note
    assert dtype in prepared.note


def test_numpy_gets_float32_arrays_as_they_are():
    sizes = (("n", 3), ("d", 8), ("h", 5))
    assert not NumpyContestant().prepare(Task("matmul", sizes, "float32", 1, 1, "unused")).note


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_is_tuned_saved_and_timed(prism_json, tmp_path, dtype):
    sizes = ["--sizes", "n=3,d=40,h=24", "--dtype", dtype]
    saved = str(tmp_path / "saved")
    made = prism_json("optimize", "matmul", *sizes, "--budget", "30", "--save", saved)
    assert not made["is_fallback"]
    options = ["--kernel", saved, "--rounds", "1", "--threads", "1"]
    data = prism_json("bench", "matmul", *sizes, *options)
    ours, numpy = data["contestants"]
    assert data["byte_count"] == 2 * (3 * 40 + 40 * 24 + 3 * 24)
    assert ours["failure"] is numpy["failure"] is None
    assert ours["error"] < TOLERANCES[dtype]
    assert any("float32 copies" in warning for warning in data["warnings"])
