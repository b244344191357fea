"""Cells as a sweep records them, made up: what tests of reports read."""

from __future__ import annotations

import json

from prism.sweep.cell import Cell

OPERATORS = [
    {"id": 0, "op": "const", "operands": [], "value": 1e-05, "stage": "once"},
    {"id": 1, "op": "load", "operands": [], "tensor": "x", "dims": ["n", "d"], "stage": "body"},
    {"id": 2, "op": "load", "operands": [], "tensor": "w", "dims": ["d", "h"], "stage": "body"},
    {"id": 3, "op": "matmul", "operands": [1, 2], "dim": "d", "stage": "body"},
    {
        "id": 4, "op": "accumulate-sum", "operands": [3], "par": "i", "dim": None,
        "stage": "after",
    },
    {"id": 5, "op": "add", "operands": [4, 0], "stage": "after"},
    {
        "id": 6, "op": "save", "operands": [5], "tensor": "out0", "dims": ["n", "h"],
        "stage": "after",
    },
]  # fmt: skip

KERNEL = {
    "grid": ["x"],
    "loops": ["i"],
    "operators": OPERATORS,
    "imap": {"x": {"x": "n"}, "w": {"x": None}},
    "fmap": {"x": {"i": "d"}, "w": {"i": "d"}},
    "omap": {"out0": {"x": "n"}},
}

GRAPH = {"id": "c0ffee0001", "verdict": "proved", "kernels": [KERNEL], "is_fallback": False}

COUNTERS = {
    "pruners": {"placement": {"seen": 90, "dropped": 60, "seconds": 0.01, "example": "x < y"}},
    "states": 90,
    "dags": 7,
    "candidates": 30,
    "verified": 30,
    "proved": 28,
    "not_proved": 2,
}

SEARCH = {
    "schema": "prism.cli.search/1",
    "prism_version": "0.1.0",
    "seed": 0,
    "elapsed_s": 1.0,
    "program": "linear",
    "program_text": "program linear\n  dims n, d, h\n  %2 = matmul[d](x, w)\n  return %2[n, h]\n",
    "encoding": "boolean",
    "axioms": ["prism"],
    "search_s": 0.5,
    "complete": True,
    "graphs": [GRAPH],
    "counters": COUNTERS,
}

BEST = {
    "graph": "c0ffee0001",
    "par_sizes": [{"x": 2, "i": 16}],
    "schedule": {"threads": 128},
    "median_s": 2e-4,
    "min_s": 1e-4,
    "max_error": 1e-7,
}

BENCH = {
    "contestants": [
        {"name": "prism", "median_s": 1e-4, "min_s": 9e-5, "ratio": 1.0},
        {"name": "numpy", "median_s": 4e-4, "min_s": 3e-4, "ratio": 4.0},
        {"name": "torch", "median_s": 2e-4, "min_s": 2e-4, "ratio": 2.0},
    ]
}


def cell(index=0, labels=None, results=None, **changed) -> Cell:
    """A cell that ended well, but for what is given."""
    fields = {
        "key": f"key{index}",
        "grid": "grid",
        "title": "A grid",
        "index": index,
        "labels": {"program": "linear"} if labels is None else labels,
        "settings": {"do": "search", "program": "linear"},
        "outcome": "ok",
        "message": "",
        "results": {"search": SEARCH} if results is None else results,
        "files": {},
        "commands": [["prism", "search", "linear"]],
        "versions": {"python": "3.12.1"},
        **changed,
    }
    return Cell(**fields)


def searched(index, search_s, settings=None, **labels) -> Cell:
    """A search that took a while."""
    chosen = {"do": "search", "program": "linear", **(settings or {})}
    return cell(
        index, labels, results={"search": {**SEARCH, "search_s": search_s}}, settings=chosen
    )


def write_lines(path, *lines):
    """Write a run file of cells, objects, and raw lines."""
    texts = (
        line.to_line()
        if isinstance(line, Cell)
        else line
        if isinstance(line, str)
        else json.dumps(line)
        for line in lines
    )
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return path
