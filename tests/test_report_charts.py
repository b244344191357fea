"""What is compared in a report: baselines, axes, curves, and published figures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from report_cells import BENCH, COUNTERS, SEARCH, cell, searched, write_lines

import prism_experiments
from prism.errors import ParseError, UsageError
from prism.report_page import find_baseline, load_published, read_runs, write_figures
from prism.report_page.charts import charts_of
from prism.report_page.measures import (
    BY_NAME,
    Baseline,
    baseline_of,
    compared,
    compared_by,
    faster,
    pivot,
)
from prism.report_page.tables import ablation_table, cells_table, worth_table
from prism.report_page.views import view
from prism.units import counted, seconds, times

SEARCH_S = BY_NAME["search_s"]


def views(*cells):
    return tuple(view(each, "here") for each in cells)


@pytest.fixture
def encodings():
    """Two programs, two encodings, two seeds."""
    rows = [
        (program, encoding, seed)
        for program in ("a", "b")
        for encoding in ("old", "new")
        for seed in ("0", "1")
    ]
    cost = {"a": 1.0, "b": 3.0, "old": 1.0, "new": 0.25, "0": 0.9, "1": 1.1}
    return views(
        *(
            searched(i, cost[p] * cost[e] * cost[s], program=p, encoding=e, seed=s)
            for i, (p, e, s) in enumerate(rows)
        )
    )


def test_a_table_by_an_axis_takes_the_median_over_seeds(encodings):
    assert compared(encodings) == ("encoding",)
    rows = dict(pivot(encodings, "encoding", SEARCH_S))
    assert rows["a"] == pytest.approx((1.0, 0.25))
    assert rows["b"] == pytest.approx((3.0, 0.75))


def test_the_ratio_is_to_the_same_cell_with_the_baselines_value(encodings):
    chosen = find_baseline("encoding=old", encodings)
    ratios = [chosen.ratio(each, encodings, SEARCH_S) for each in encodings]
    assert ratios[2:4] == pytest.approx([1 / 0.225, 1 / 0.275])
    assert ratios[6:8] == pytest.approx([3 / 0.675, 3 / 0.825])


def test_the_one_axis_that_says_how_has_its_first_value_as_baseline(encodings):
    assert baseline_of(encodings, Baseline()) == Baseline(axis="encoding", value="old")


def test_an_unknown_baseline_lists_those_there_are(encodings):
    with pytest.raises(UsageError, match="encoding=old, encoding=new"):
        find_baseline("encoding=other", encodings)
    with pytest.raises(UsageError, match="numpy, torch"):
        find_baseline("jax", views(cell(results={"bench": BENCH})))


def test_each_kind_of_cells_has_its_charts(encodings):
    assert [chart.name for chart in charts_of(encodings)] == ["funnel", "by-encoding"]
    timed = views(cell(results={"bench": BENCH}))
    (bars,) = charts_of(timed)
    assert bars.series == (("prism", (1e-4,)), ("numpy", (4e-4,)), ("torch", (2e-4,)))


@pytest.fixture
def pruners():
    """Two programs, each pruner left out in turn: what is counted, and what a limit ended."""
    rows = {
        ("a", "all"): (1.0, 100, 8, True),
        ("a", "none"): (4.0, 400, 8, True),
        ("a", "no x"): (9.0, 900, 0, False),
        ("b", "all"): (2.0, 10, 4, True),
        ("b", "none"): (2.0, 90, 3, True),
        ("b", "no x"): (2.0, 10, 4, True),
    }
    cells = []
    for i, ((program, pruner), (s, states, graphs, complete)) in enumerate(rows.items()):
        search = {
            **SEARCH, "search_s": s, "complete": complete, "graphs": [], "graph_count": graphs,
            "cuts": [] if complete else ["max_graphs: 3 were not judged", "budget: over"],
            "counters": {**COUNTERS, "states": states},
        }  # fmt: skip
        labels = {"program": program, "pruners": pruner}
        cells.append(cell(i, labels, {"search": search}))
    return views(*cells)


def test_an_axis_is_compared_by_what_differs_along_it(pruners, encodings):
    assert [m.name for m in compared_by(pruners, "pruners")] == ["search_s", "states", "graphs"]
    assert [m.name for m in compared_by(encodings, "encoding")] == ["search_s"]


def test_what_each_value_makes_of_all_cells_is_one_row(pruners):
    table = worth_table(pruners, "pruners")
    assert table.columns == ("pruners", ">searches cut by a limit", ">search", ">states", ">graphs")
    assert table.rows == (
        ("all", "0 of 2", "1x", "1x", "12 / 12"),
        ("none", "0 of 2", "2x", "6x", "11 / 12"),
        ("no x", "1 of 2", "\u2265 3x", "\u2265 3x", "\u2265 4 / 12"),
    )


def test_nothing_is_compared_with_a_search_that_a_limit_ended(pruners):
    turned = sorted(pruners, key=lambda v: v.cell.labels["pruners"] != "no x")
    rows = {row[0]: row[1:] for row in worth_table(turned, "pruners").rows}
    assert rows["all"] == ("0 of 2", "1x", "1x", "4 / 4")


def test_of_one_row_no_summary_is_made(pruners):
    assert worth_table(pruners[:3], "pruners") is None


def test_what_a_limit_ended_is_said_where_it_is_compared(pruners):
    table = ablation_table(pruners, "pruners", BY_NAME["states"])
    assert table.rows[0] == ("a", "100 (1x)", "400 (4x)", "\u2265 900 (9x)")
    assert "a limit ended the search" in table.caption
    rows = cells_table(pruners, None, ()).rows
    cut = "cut by max_graphs, budget"
    assert [row[3] for row in rows] == ["complete", "complete", cut, *["complete"] * 3]
    rows = cells_table(pruners, Baseline(axis="pruners", value="all"), ()).rows
    assert [row[-1] for row in rows[:3]] == ["1.00x", "0.25x", "\u2264 0.11x"]


def test_of_an_axis_with_many_values_each_is_a_group_of_bars(pruners):
    charts = {chart.name: chart for chart in charts_of(pruners)}
    graphs = charts["by-pruners-graphs"]
    assert graphs.is_count
    assert graphs.places == ("all", "none", "no x")
    assert graphs.series == (("a", (8, 8, 0)), ("b", (4, 3, 4)))


def test_an_axis_that_says_which_program_is_no_ablation_whatever_its_name():
    cells = [
        searched(i, 1.0, {"program": f"p{n}"}, operators=str(n), mode=mode)
        for i, (n, mode) in enumerate((n, mode) for n in (2, 4) for mode in ("count", "tune"))
    ]
    found = views(*cells)
    assert compared(found) == ("mode",)
    assert [name for name, _ in pivot(found, "mode", SEARCH_S)] == ["operators 2", "operators 4"]


def test_a_lone_time_is_no_chart():
    assert charts_of(views(cell(results={"tune": {"best": {"median_s": 1.0}}}))) == ()


def test_a_size_that_varies_gives_a_curve_for_each_of_the_others():
    cells = [
        searched(i, n * (1 + slow), {"sizes": f"n={n},d=4", "encoding": e}, n=str(n), encoding=e)
        for i, (n, e, slow) in enumerate(
            (n, e, s) for n in (8, 16, 32) for e, s in (("x", 0), ("y", 1))
        )
    ]
    (curve,) = [chart for chart in charts_of(views(*cells)) if chart.points]
    assert curve.x == "size n"
    assert curve.points == (8, 16, 32)
    assert curve.series == (("encoding x", (8, 16, 32)), ("encoding y", (16, 32, 64)))


def test_sizes_that_grow_together_have_one_curve():
    cells = [
        searched(i, n / 10, {"sizes": f"n=8,d={n},h={2 * n}"}, sizes=str(n))
        for i, n in enumerate((1, 2, 4))
    ]
    (curve,) = [chart for chart in charts_of(views(*cells)) if chart.points]
    assert curve.x == "size d"
    assert curve.series == (("all", (0.1, 0.2, 0.4)),)


def test_contestants_are_compared_by_their_paired_ratios():
    (each,) = views(cell(results={"bench": BENCH}))
    prism, numpy, torch = each.contestants
    assert faster(prism, numpy) == 4.0
    assert faster(torch, numpy) == 2.0
    assert faster(numpy, prism) == 0.25


def test_seeds_and_time_limits_are_no_quantities():
    cells = [searched(i, 1.0, {"seed": i, "timeout_s": 10 * i}, seed=str(i)) for i in range(4)]
    assert not [chart for chart in charts_of(views(*cells)) if chart.points]


def test_published_figures_stand_beside_the_cells_they_are_of(tmp_path):
    path = tmp_path / "published.toml"
    path.write_text(
        '[[row]]\ncells = { program = "a" }\nsource = "paper"\nsearch_s = 0.3\ngraphs = 9\n'
    )
    (row,) = load_published(path)
    a, b = views(cell(0, {"program": "a"}), cell(1, {"program": "b"}))
    assert row.figures_of(a) == {"paper: search": "300 ms", "paper: graphs": "9"}
    assert row.figures_of(b) == {}


def test_the_shipped_figures_are_of_the_shipped_grids_cells():
    path = Path(prism_experiments.__file__).parent / "grids" / "published.toml"
    rows = load_published(path)

    def figures(labels, do):
        (each,) = views(cell(0, labels, settings={"do": do}))
        return {k.split(": ")[1]: v for row in rows for k, v in row.figures_of(each).items()}

    assert figures({"workload": "swiglu"}, "search") == {
        "seconds": "1 s", "graphs": "12", "reference seconds": "1.25 s", "reference graphs": "12",
    }  # fmt: skip
    assert figures({"maps": "imap", "pruners": "all"}, "search") == {"seconds": "20.5 s"}
    found = figures({"workload": "rmsnorm_mlp 8"}, "bench")
    assert found["over mirage"] == "1.90x"
    assert found["optimize seconds"] == "1,111 s or 1,180 s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("row = 1", "row is no list of tables"),
        ("", r"it has no \[\[row\]\]"),
        ("search = 1", "search is not a table"),
        ("[search.a]\nseconds = true", "search.a: seconds is not a number"),
        ("[[row]]\nsearch_s = 1", "row 1: it does not say which cells"),
        ('[[row]]\ncells = {a = "b"}\nx = "y"', "row 1: x is not a number"),
        ("[[", "is not TOML"),
    ],
)
def test_bad_published_figures_are_named(tmp_path, text, said):
    path = tmp_path / "published.toml"
    path.write_text(text)
    with pytest.raises(ParseError, match=said):
        load_published(path)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (2.5e-7, "0.25 us"),
        (1.5e-3, "1.5 ms"),
        (2.0, "2 s"),
        (4000.0, "4,000 s"),
    ],
)
def test_durations_are_in_the_unit_that_fits(value, text):
    assert seconds(value) == text


def test_counts_and_ratios_are_short():
    assert counted(1234567) == "1,234,567"
    assert times(2.3456) == "2.35x"
    assert times(0.012345) == "0.012x"


def test_figures_are_written_twice_alike(tmp_path):
    pytest.importorskip("matplotlib")
    lines = [searched(i, 0.1 + i, program="a$b$", encoding=f"_{i}") for i in range(2)]
    runs = read_runs([write_lines(tmp_path / "run.jsonl", *lines)])
    one, two = (write_figures(runs, tmp_path / name, 1) for name in ("one", "two"))
    assert {path.suffix for path in one} == {".svg", ".png"}
    assert [path.name for path in one] == [path.name for path in two]
    for a, b in zip(one, two, strict=True):
        assert a.read_bytes() == b.read_bytes()
    chart = next(path for path in one if path.name == "grid-by-encoding.svg").read_text()
    assert "a$b$" in chart or "_0" in chart
    assert "http://" not in chart.replace("http://www.w3.org/", "").replace(
        "http://purl.org/", ""
    ).replace("http://creativecommons.org/", "")
    assert "matplotlib.pyplot" not in sys.modules
