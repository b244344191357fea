"""Programs by name, and the shipped workloads: traced and as plain NumPy they mean the same."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from strategies import random_arrays, random_sizes

from prism.errors import PluginError, TraceError, UsageError
from prism.frontend import load_program
from prism.ir import evaluate
from prism.plugins import Group, installed


def outputs(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("name", sorted(installed(Group.WORKLOAD)))
def test_a_workload_is_its_own_numpy_baseline(name):
    fn, program = load_program(name)
    assert program.name == name
    for seed in range(3):
        sizes = random_sizes(program, Random(seed))
        arrays = random_arrays(program, sizes, seed)
        expected = outputs(fn(*arrays.values()))
        for got, wanted in zip(evaluate(program, arrays), expected, strict=True):
            assert np.allclose(got, wanted, rtol=1e-12)
        single = outputs(fn(*(a.astype(np.float32) for a in arrays.values())))
        assert all(array.dtype == np.float32 for array in single)


def test_a_users_file_is_loaded_by_path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text('def double(x: "n"):\n    return x * 2\n\nother = 3\n')
    fn, program = load_program(f"{path}:double")
    assert fn(4) == 8
    assert program.name == "double"
    with pytest.raises(UsageError, match="is int, not a function"):
        load_program(f"{path}:other")
    with pytest.raises(PluginError, match="has no 'triple'; it defines double, other"):
        load_program(f"{path}:triple")


def test_an_error_in_a_users_file_names_its_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text('def bad(x: "n"):\n    y = x * 2\n    return y if y > 0 else x\n')
    with pytest.raises(TraceError) as caught:
        load_program(f"{path}:bad")
    assert str(caught.value).startswith(f"{path}:3: ")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(PluginError, match=r"no workload named 'nothing'; known: .*rmsnorm"):
        load_program("nothing")
