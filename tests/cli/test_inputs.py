"""Programs and sizes that cannot be used: one message, whichever command gets them."""

from __future__ import annotations

import pytest
from cli_checks import assert_refused


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("rmsnrom", ["rmsnrom", "rmsnorm"]),
        ("nowhere.py:f", ["nowhere.py"]),
        ("{file}:missing", ["'missing'", "doubled"]),
        ("{file}:value", ["not a function"]),
        ("{file}:unannotated", ["unannotated", "x"]),
        ("{file}:half", ["half", "w"]),
        ("{file}:alien", ["mine.py"]),
        ("{file}:branchy", ["mine.py"]),
        ("{file}:clash", ["mine.py", "3", "4"]),
        ("{folder}/syntax.py:f", ["syntax.py", "SyntaxError"]),
        ("{folder}/raises.py:f", ["raises.py", "ZeroDivisionError"]),
        ("{folder}/exits.py:f", ["sys.exit"]),
        ("{folder}:f", ["workload"]),
    ],
)
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_bad_program_is_one_message(prism, user_file, spec, parts, as_json):
    folder = user_file.parent
    (folder / "syntax.py").write_text("def f(x: 'n d'):\n    return x +\n")
    (folder / "raises.py").write_text("1 / 0\n")
    (folder / "exits.py").write_text("import sys\nsys.exit(0)\n")
    spec = spec.format(file=user_file, folder=folder)
    assert_refused(prism("search", spec, *as_json), *parts)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ("", ["'n'"]),
        ("n=4,d=8", ["'h'"]),
        ("n=4,d=8,h=8,k=2", ["'k'", "n, d, h"]),
        ("n=0,d=8,h=8", ["'n'", "'0'"]),
        ("n=-4,d=8,h=8", ["'n'", "'-4'"]),
        ("n=4.5,d=8,h=8", ["'n'", "'4.5'"]),
        ("n=four,d=8,h=8", ["'n'", "'four'"]),
        ("n=,d=8,h=8", ["'n'", "''"]),
        ("n4,d=8,h=8", ["'n4'", "DIM=SIZE"]),
        ("n=4,n=5,d=8,h=8", ["'n'", "twice"]),
        (f"n={10**30},d=8,h=8", ["'n'", "2^40"]),
        (f"n={10**9},d={10**9},h=8", ["GiB", "smaller sizes"]),
    ],
)
@pytest.mark.parametrize("command", ["optimize", "bench"])
def test_bad_sizes_are_one_message(prism, command, sizes, parts):
    assert_refused(prism(command, "matmul", "--sizes", sizes, "--json"), *parts)


@pytest.mark.parametrize("sizes", ["n=" + "9" * 9000, "n" * 9000 + "=0", "9" * 9000])
def test_long_sizes_are_not_echoed_whole(prism, sizes):
    result = prism("optimize", "matmul", "--sizes", sizes)
    assert_refused(result, "...")
    assert len(result.stderr) < 300


@pytest.mark.parametrize("command", ["optimize", "bench", "tune"])
def test_sizes_are_needed(prism, command):
    assert_refused(prism(command, "matmul"), "--sizes")
