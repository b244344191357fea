"""The page of a report: what it shows, escapes and leaves out, and that it is whole."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from report_cells import BENCH, BEST, COUNTERS, GRAPH, SEARCH, cell, searched, write_lines

from prism.errors import UsageError
from prism.report_page import find_baseline, make_page, read_runs, write_csv, write_figures

VOID = ("meta", "br", "hr", "img", "link", "input")
FORBIDDEN = ("script", "link", "iframe", "object", "embed", "img", "base", "form")
HOSTILE = "<script>alert(1)</script>\"'&"


class Page(HTMLParser):
    """Checks that elements nest, and collects what tests ask about."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.ids, self.texts, self.links = [], [], [], [], []
        self.attributes, self.headings = [], []
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [v for name, v in attrs if name in ("href", "xlink:href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data):
        self.texts.append(data)
        if self.open and self.open[-1] == "h4":
            self.headings.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture
def read(tmp_path):
    """Lines -> the runs in a file of them."""
    return lambda *lines: read_runs([write_lines(tmp_path / "run.jsonl", *lines)])


@pytest.fixture
def page(read):
    """Lines -> the page about them."""
    return lambda *lines, **options: Page(make_page(read(*lines), **options))


def test_the_chain_of_a_cell_goes_from_program_to_trials(page):
    trial = {
        "schema": "prism.trial/2", "program": "linear", "program_sha256": "p", "graph": "c0ffee",
        "graph_sha256": "g", "sizes": {"n": 8}, "par_sizes": [{"x": 2}], "schedule": {},
        "dtype": "float32", "target": "cpu", "device": "a machine", "versions": {}, "seed": 0,
        "outcome": "ok", "median_s": 2e-4, "min_s": 1e-4, "max_error": 1e-7, "compile_s": 0.5,
        "source_sha256": None, "detail": "", "at": "", "predicted_s": None, "facts": {},
    }  # fmt: skip
    files = {"kernel.py": "def block0():\n    pass\n", "trials.jsonl": json.dumps(trial)}
    results = {"search": SEARCH, "tune": {"best": BEST, "trials": {"ok": 1}, "space_size": 12}}
    made = page(cell(results=results, files=files))
    assert made.headings == [
        "Program", "sGraph", "Proof", "Pruners", "Parameters", "Kernel source", "Trials",
        "To repeat it",
    ]  # fmt: skip
    for told in (
        "program linear", "m[x,n,x]", "proved", "kernel 0: x = 2, i = 16; threads = 128",
        "def block0():", "1 trials, fastest first", "python -m prism search linear", "12 configs",
    ):  # fmt: skip
        assert told in made.text


def test_the_page_fetches_and_runs_nothing(page):
    made = page(cell(), cell(1, {"program": "other"}, results={"optimize": {}, "bench": BENCH}))
    assert not set(made.tags) & set(FORBIDDEN)
    assert all(link.startswith("#") for link in made.links)
    assert not [name for name, _ in made.attributes if name.startswith("on")]
    assert ("http-equiv", "Content-Security-Policy") in made.attributes


def test_ids_are_unique_and_links_lead_somewhere(page):
    made = page(
        searched(0, 0.1, encoding="boolean"),
        searched(1, 0.2, encoding="integer"),
        cell(2, grid="other", key="other"),
    )
    assert len(made.ids) == len(set(made.ids))
    assert {link.removeprefix("#") for link in made.links} <= set(made.ids)


def test_every_text_of_a_record_stays_text(page):
    operators = [
        {"op": HOSTILE, "operands": [], "dim": HOSTILE},
        {"op": "save", "operands": [0], "tensor": HOSTILE, "dims": [HOSTILE]},
    ]
    kernel = {"grid": [HOSTILE], "operators": operators, "omap": {HOSTILE: {HOSTILE: HOSTILE}}}
    graph = {"id": HOSTILE, "verdict": HOSTILE, "kernels": [kernel]}
    pruner = {"seen": 1, "dropped": 1, "example": HOSTILE}
    search = {
        **SEARCH, "program": HOSTILE, "program_text": HOSTILE, "graphs": [graph],
        "encoding": HOSTILE,
        "counters": {**COUNTERS, "pruners": {HOSTILE: pruner}},
    }  # fmt: skip
    tune = {"best": {**BEST, "graph": HOSTILE, "clock": HOSTILE}, "trials": {HOSTILE: 1}}
    bench = {"contestants": [{"name": HOSTILE, "median_s": 1.0, "failure": HOSTILE}]}
    hostile = [
        cell(
            index, {HOSTILE: f"{HOSTILE}{index}"}, {"search": search, "tune": tune, "bench": bench},
            grid=HOSTILE, title=HOSTILE, message=HOSTILE, files={"kernel.py": HOSTILE},
            commands=[[HOSTILE]], versions={HOSTILE: HOSTILE}, device={HOSTILE: HOSTILE},
            started=HOSTILE,
        )
        for index in range(2)
    ]  # fmt: skip
    made = page(*hostile, HOSTILE)
    assert "script" not in made.tags
    assert HOSTILE in made.text


@pytest.mark.parametrize(
    ("results", "said"),
    [
        (
            {"search": {**SEARCH, "search_s": "fast"}},
            "results.search.search_s: a number was expected",
        ),
        ({"search": {**SEARCH, "graphs": [1]}}, "results.search.graphs[0]: an object was expected"),
        (
            {"search": {**SEARCH, "counters": {"states": -1}}},
            "counters.states: a count was expected",
        ),
        ({"tune": {"best": {"par_sizes": [3]}}}, "best.par_sizes[0]: named counts was expected"),
        ({"bench": {"contestants": [{"name": 3}]}}, "contestants[0].name: a text was expected"),
    ],
)
def test_a_field_of_another_type_leaves_the_line_out_and_names_it(read, results, said):
    runs = read(cell(0, results=results), cell(1))
    assert len(runs.views) == 1
    assert len(runs.skipped) == 1
    assert "run.jsonl:1: " in runs.skipped[0]
    assert said in runs.skipped[0]


@pytest.mark.parametrize(
    "operators",
    [
        [{"op": "add", "operands": [0]}],
        [{"op": "add", "operands": [1]}, {"op": "load"}],
        [{"op": "add", "operands": [-1]}],
        [{"op": "add", "operands": [True]}],
        [{"op": "add", "stage": "never"}],
        [{"op": "const", "value": "1"}],
        [{"op": "load"}] * 401,
    ],
)
def test_a_graph_that_is_none_is_not_drawn(read, operators):
    graph = {**GRAPH, "kernels": [{"operators": operators}]}
    runs = read(cell(0, results={"search": {**SEARCH, "graphs": [graph]}}), cell(1))
    assert "graphs[0].kernels[0].operators" in runs.skipped[0]


def test_missing_fields_are_shown_as_missing(page):
    made = page(
        cell(0, results={}, outcome="failed", message="no such thing"),
        cell(1, results={"search": {}}),
        cell(2, results={"optimize": {"best": None, "search": {}}}),
        cell(3, results={"bench": {}}),
        cell(4, results={"search": {"graphs": [{}]}}),
        cell(5, results={"verify": {"verdict": "proved", "axioms_used": ["matmul/assoc"]}}),
    )
    assert "6 cells: 5 ok, 1 failed." in made.text
    assert "no such thing" in made.text
    assert "matmul/assoc" in made.text


def test_what_proofs_need_is_said_and_what_was_not_asked_is_not_none(page):
    used = {"axioms_used": ["sum-mul", "mul-comm"], "axioms_used_minimal": True}
    graphs = [
        {**GRAPH, **used},
        {**GRAPH, "id": "b", "verdict": "admitted", **used, "axioms_used_minimal": False},
        {**GRAPH, "id": "c", "axioms_used": [], "axioms_used_minimal": True},
        {**GRAPH, "id": "d"},
    ]
    made = page(cell(results={"search": {**SEARCH, "graphs": graphs[:3]}}))
    assert "proved with sum-mul, mul-comm (none can be left out)" in made.text
    assert (
        "admitted by the search; then proved with sum-mul, mul-comm (fewer might do)" in made.text
    )
    assert "proved without any axiom" in made.text
    unasked = page(cell(results={"search": {**SEARCH, "graphs": graphs[3:]}}))
    assert "which axioms that takes was not asked, or time was over" in unasked.text


def test_the_kernel_that_won_is_said_to_be_proved_by_verify(page):
    verify = {"verdict": "proved", "axioms_used": ["sum-mul"], "axioms_used_minimal": True}
    tune = {"best": {**BEST, "graph": GRAPH["id"]}}
    made = page(cell(results={"search": SEARCH, "tune": tune, "verify": verify}))
    assert "after all was measured: proved with sum-mul (none can be left out)" in made.text


def test_cells_of_different_code_are_said_to_be(page):
    for second, is_said in (("a", False), ("b", True)):
        made = page(
            cell(0, versions={"prism source": "a"}), cell(1, versions={"prism source": second})
        )
        assert ("2 states of the code" in made.text) == is_said


def test_cells_that_run_other_code_have_other_states_of_it(page):
    named = {"do": "search", "program": "matmul"}
    made = page(
        cell(0, settings=named, versions={"prism source": "a"}),
        cell(1, settings={**named, "target": "cpu"}, versions={"prism source": "b"}),
        cell(2, settings=named, inputs={"mine.py:f": "0"}, versions={"prism source": "c"}),
    )
    assert "states of the code" not in made.text


def test_the_list_of_graphs_says_how_many_there_are(page):
    graphs = [{**GRAPH, "id": f"{i}", "is_fallback": i == 0} for i in range(3)]
    all_in = page(cell(results={"search": {**SEARCH, "graphs": graphs}}))
    assert "all graphs of the search and the program itself" in all_in.text
    cut = page(cell(results={"search": {**SEARCH, "graphs": graphs, "graph_count": 1234}}))
    assert "the first 2 of 1,234 graphs of the search and the program itself" in cut.text


def test_lines_of_all_kinds_are_read_together(read):
    runs = read(
        cell(),
        SEARCH,
        {"schema": "prism.cli.bench/1", "program": "linear", **BENCH},
        {"schema": "prism.cli.optimize/1", "program": "p", "shapes": [{"sizes": {"n": 1}}] * 2},
        {"schema": "prism.cli.axioms/1"},
        {"schema": "acme/1"},
        "{not json",
        '{"schema": "prism.cli.search/1", "search_s": NaN}',
        "[]",
    )
    assert [view.cell.grid for view in runs.views] == [
        "grid", "prism search", "prism bench", "prism optimize",
    ]  # fmt: skip
    assert [line.split(": ")[0].rsplit(":")[-1] for line in runs.skipped] == [
        "5",
        "6",
        "7",
        "8",
        "9",
    ]


def test_a_failure_gives_way_to_a_later_answer(read):
    failed = cell(results={}, outcome="failed")
    for lines in ((failed, cell()), (cell(), failed)):
        (view,) = read(*lines).views
        assert view.cell.outcome == "ok"
        assert view.search.search_s == 0.5


def test_with_nothing_to_report_the_reason_is_said(read):
    with pytest.raises(UsageError, match=r"nothing to report in .*run\.jsonl:1: not JSON"):
        read("garbage")


def test_control_characters_leave_a_line_out(read):
    runs = read({**SEARCH, "program": "a\u001b[2J"}, cell())
    assert "control character" in runs.skipped[0]


def test_the_same_records_give_the_same_bytes(read, tmp_path):
    lines = [searched(i, 0.1 * (i + 1), encoding=str(i)) for i in range(4)]
    assert make_page(read(*lines)) == make_page(read(*lines))
    write_csv(read(*lines), tmp_path / "one")
    write_csv(read(*lines), tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_no_text_of_a_record_is_a_formula_in_csv(read, tmp_path):
    write_csv(read(cell(0, {"program": "=HYPERLINK(1)"})), tmp_path)
    assert ",'=HYPERLINK(1)," in (tmp_path / "cells.csv").read_text()


def test_numbers_in_csv_are_whole(read, tmp_path):
    write_csv(read(searched(0, 0.123456789, encoding="a")), tmp_path)
    assert "0.123456789" in (tmp_path / "cells.csv").read_text()
    funnel = (tmp_path / "funnel.csv").read_text()
    assert "pruner placement,90,60,30" in funnel


def test_a_saved_kernel_brings_its_program_and_graph(page):
    program = (
        "program scale\n  dims n\n  args x[n]\n  x = input x[n]\n  %1 = exp(x)\n  return %1[n]\n"
    )
    kernel = "kernel 0\n  once:\n    x = load x[n]\n    %1 = exp(x)\n    save %1 as out0[n]\n"
    winner = {"graph_id": "abc123", "graph": f"sgraph\n{program}{kernel}"}
    saved = json.dumps({"program": program, "winner": winner})
    made = page(cell(results={"optimize": {"best": BEST}}, files={"optimized.json": saved}))
    assert made.headings[:3] == ["Program", "sGraph", "Proof"]
    assert "sGraph abc123 (proved)" in made.text


@pytest.mark.parametrize(
    "saved", ["", "[]", "{}", '{"winner": 3}', '{"winner": {"graph": "no graph"}}', "[" * 9999]
)
def test_a_saved_kernel_that_is_none_takes_only_its_drawing_along(page, saved):
    made = page(cell(files={"optimized.json": saved}))
    assert "sGraph" in made.headings
    assert ("cannot be drawn" in made.text) == (saved != "{}")


CHROMIUM = shutil.which("chromium")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on the path")
def test_a_browser_without_a_network_shows_the_page(read, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(make_page(read(cell(), cell(1, {"program": HOSTILE}))), encoding="utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    flags += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={tmp_path / 'profile'}"]
    done = subprocess.run(
        [CHROMIUM, *flags, "--dump-dom", path.as_uri()],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    shown = Page(done.stdout)
    assert shown.headings.count("sGraph") == 2
    assert shown.tags.count("svg") >= 2
    assert "CONSOLE" not in done.stderr


def test_ratios_are_to_the_chosen_contestant(read):
    runs = read(cell(0, results={"bench": BENCH}))
    for name, ratio in ((None, "2.00x"), ("numpy", "4.00x"), ("torch", "2.00x")):
        chosen = find_baseline(name, runs.views)
        rows = Page(make_page(runs, baseline=chosen)).text
        heading = f"times faster than {name or 'the best rival'}"
        assert heading in rows
        assert f" {ratio} " in rows[rows.index(heading) :]


def test_without_matplotlib_there_is_a_page_without_charts(page, read, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    made = page(searched(0, 0.1, encoding="a"), searched(1, 0.2, encoding="b"))
    assert "No charts: matplotlib is not installed (in Prism's checkout, pip inst" in made.text
    assert "chart" not in [value for name, value in made.attributes if name == "class"]
    with pytest.raises(UsageError, match="figures need matplotlib"):
        write_figures(read(cell()), tmp_path, 1)
