"""Drawn graphs: where the layout puts things, and what a drawing says."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_cells import GRAPH, KERNEL, OPERATORS

from prism.describe import graph_json
from prism.ir import parse_sgraph
from prism.report_page import Facts, draw, read_graph
from prism.report_page.layout import GAP_X, lay_out


def shape(graph):
    return read_graph(Facts(graph, "graph"))


@st.composite
def layered_graphs(draw):
    """Boxes, layers, and edges from earlier layers to later ones."""
    layers = draw(st.lists(st.integers(0, 4), min_size=1, max_size=12))
    nodes = range(len(layers))
    pairs = [(a, b) for a in nodes for b in nodes if layers[a] < layers[b]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    boxes = [(draw(st.integers(10, 90)), draw(st.integers(10, 40))) for _ in nodes]
    return boxes, edges, layers


@given(layered_graphs())
def test_boxes_do_not_overlap_and_edges_run_downwards(graph):
    boxes, edges, layers = graph
    made = lay_out(boxes, edges, layers)
    for (upper, lower), route in zip(edges, made.routes, strict=True):
        assert route[0] == made.centres[upper]
        assert route[-1] == made.centres[lower]
        assert [y for _, y in route] == sorted(y for _, y in route)
        for x, y in route[1:-1]:
            row = next(i for i, (top, bottom) in enumerate(made.rows) if top <= y <= bottom)
            beside = [n for n in range(len(boxes)) if layers[n] == row]
            assert all(abs(x - made.centres[n][0]) > boxes[n][0] / 2 for n in beside)
    for a in range(len(boxes)):
        assert made.centres[a][0] - boxes[a][0] / 2 >= -1e-6
        assert made.centres[a][0] + boxes[a][0] / 2 <= made.width + 1e-6
        for b in range(a):
            if layers[a] == layers[b]:
                apart = abs(made.centres[a][0] - made.centres[b][0])
                assert apart >= (boxes[a][0] + boxes[b][0]) / 2 + GAP_X - 1e-6


def test_a_crossing_that_can_be_avoided_is():
    boxes = [(20.0, 10.0)] * 4
    made = lay_out(boxes, [(0, 3), (1, 2)], [0, 0, 1, 1])
    xs = [x for x, _ in made.centres]
    assert (xs[0] < xs[1]) == (xs[3] < xs[2])


def test_a_small_graph_is_drawn_as_ever(golden):
    svg = draw(shape(GRAPH), standalone=True)
    ET.fromstring(svg)
    golden("report/small_graph", svg.replace("><", ">\n<"))


def words(svg):
    return [element.text for element in ET.fromstring(svg).iter() if element.text]


def test_a_drawing_says_maps_stages_and_constants():
    said = words(draw(shape(GRAPH), standalone=True))
    for text in (
        "kernel 0", "x [n, d]", "imap x→n", "imap x→φ", "fmap i→d", "omap x→n", "matmul[d]",
        "accumulate-sum over i", "add(., 1e-05)", "for i", "kernel 0: grid x, loop i",
    ):  # fmt: skip
        assert text in said


def test_the_loop_frame_holds_what_every_iteration_runs():
    svg = ET.fromstring(draw(shape(GRAPH), standalone=True))
    rects = {
        rect.get("class"): (float(rect.get("y", "0")), float(rect.get("height")))
        for rect in svg.iter("{http://www.w3.org/2000/svg}rect")
    }
    top, height = rects["sg-loop"]
    shift = 16 + 24  # of the block graph in its frame
    load, accumulator = rects["sg-load"][0] + shift, rects["sg-acc"][0] + shift
    assert top < load < top + height < accumulator


def test_a_loop_in_a_loop_has_a_frame_in_a_frame():
    stages = ["once", "outer", "body", "body", "between", "after", "after"]
    nested = [{**op, "stage": stage} for op, stage in zip(OPERATORS, stages, strict=True)]
    drawn = draw(
        shape({**GRAPH, "kernels": [{**KERNEL, "loops": ["i", "j"], "operators": nested}]})
    )
    root = ET.fromstring(str(drawn))
    frames = [e for e in root.iter() if e.get("class") == "sg-loop"]
    spans = [(float(e.get("y")), float(e.get("y")) + float(e.get("height"))) for e in frames]
    (top, bottom), (inner_top, inner_bottom) = spans
    assert top < inner_top < inner_bottom < bottom
    assert [e.text for e in root.iter() if (e.text or "").startswith("for ")] == ["for i", "for j"]


def test_of_several_kernels_what_one_writes_stands_above_who_reads_it():
    first = {**KERNEL, "operators": [*OPERATORS[:-1], {**OPERATORS[-1], "tensor": "middle"}]}
    second = {
        "operators": [
            {"op": "load", "operands": [], "tensor": "middle"},
            {"op": "exp", "operands": [0]},
            {"op": "save", "operands": [1], "tensor": "out0"},
        ]
    }
    svg = ET.fromstring(draw(shape({**GRAPH, "kernels": [first, second]}), standalone=True))
    places = {t.text: float(t.get("y")) for t in svg.iter("{http://www.w3.org/2000/svg}text")}
    order = ["kernel 0", "middle", "kernel 1", "out0"]
    tops = svg.find("{http://www.w3.org/2000/svg}g")
    places = {t.text: float(t.get("y")) for t in tops.iter("{http://www.w3.org/2000/svg}text")}
    assert sorted(order, key=places.__getitem__) == order


@pytest.mark.parametrize("kernels", [[], [{}], [{"operators": [{"op": "const"}]}]])
def test_an_empty_graph_is_drawn_or_left_out(kernels):
    made = shape({"id": "e", "kernels": kernels})
    ET.fromstring(draw(made, standalone=True))


def test_a_graph_of_ours_is_drawn():
    text = """sgraph
program scale
  dims n, d
  args x[n, d]
  x = input x[n, d]
  %1 = exp(x)  # [n, d]
  return %1[n, d]
kernel 0
  grid x
  map m[x,n,x] m[out0,n,x]
  once:
    x = load x[n, d]  # tile [n/x, d]
    %1 = exp(x)  # [n, d]
    save %1 as out0[n, d]
"""
    graph = parse_sgraph(text)
    said = words(draw(shape(graph_json("g", graph, "proved")), standalone=True))
    assert "exp" in said
    assert "kernel 0: grid x, no loop" in said
