"""`prism show`, and artifacts that are damaged."""

from __future__ import annotations

import json

import pytest
from cli_checks import assert_refused

from prism.ir import format_sgraph, parse_sgraph


def test_show_lists_what_search_saved(prism, prism_json, artifact):
    data = prism_json("show", artifact)
    assert data["program"] == "matmul"
    ids = [g["id"] for g in data["graphs"]]
    assert len(ids) > 1
    text = prism("show", artifact).stdout
    assert all(i in text for i in ids)


def test_show_prints_one_graph_in_the_form_that_parses_back(prism, prism_json, artifact):
    first = prism_json("show", artifact)["graphs"][0]
    text = prism("show", artifact, "--graph", first["id"]).stdout
    assert format_sgraph(parse_sgraph(text)) == text == first["text"]


SCALED_MATMUL = """
def scaled(x: "n d", w: "d h", g: "n"):
    return (x @ w) * g[:, None]
"""


def test_show_prints_thread_graphs_with_their_grid_and_maps(prism, prism_json, tmp_path):
    source, saved = tmp_path / "scaled.py", tmp_path / "scaled.json"
    source.write_text(SCALED_MATMUL)
    assert prism("search", f"{source}:scaled", "--grid-dims", "1", "-o", saved).exit_code == 0
    for graph in prism_json("show", saved)["graphs"]:
        text = prism("show", saved, "--graph", graph["id"]).stdout
        assert text.startswith(graph["text"])
        assert format_sgraph(parse_sgraph(text)) == graph["text"]
        derived = text.removeprefix(graph["text"]).splitlines()
        (found,) = graph["thread_graphs"]
        assert [line for line in derived if "thread graph" in line] == [
            f"# kernel 0, thread graph {n}" for n in range(len(found))
        ]
        for threads in found:
            assert f"#   grid {', '.join(threads['grid'])}" in derived
            assert [*threads["reads"], *threads["writes"]] == list(threads["maps"])
            for value, maps in threads["maps"].items():
                true = [f"m[{value},{dim},{par}]" for par, dim in maps.items() if dim is not None]
                assert any(all(var in line for var in true) for line in derived)
        scaling = next(t for t in found if "g" in t["reads"])
        (written,) = scaling["writes"]
        along = {par: dim for par, dim in scaling["maps"][written].items() if dim != "n"}
        assert along, "the result has another dim than n, along which g is replicated"
        assert all(scaling["maps"]["g"][par] is None for par in along)


def test_a_wrong_graph_id_lists_the_known_ones(prism, artifact):
    assert_refused(prism("show", artifact, "--graph", "nope", "--json"), "'nope'", "program")


@pytest.mark.parametrize("command", [["show"], ["tune", "--sizes", "n=4,d=8,h=8"]])
@pytest.mark.parametrize(
    "damage",
    ["missing", "folder", "empty", "truncated", "other schema", "no json", "bytes", "a list"],
)
def test_a_damaged_artifact_is_one_message(prism, artifact, tmp_path, command, damage):
    path, text = tmp_path / "art.json", artifact.read_text()
    match damage:
        case "folder":
            path.mkdir()
        case "empty":
            path.write_text("")
        case "truncated":
            path.write_text(text[: len(text) // 2])
        case "other schema":
            path.write_text(json.dumps({**json.loads(text), "schema": "acme.search/9"}))
        case "no json":
            path.write_text("graph: yes")
        case "bytes":
            path.write_bytes(b"\x80\xff\x00")
        case "a list":
            path.write_text("[1, 2]")
    assert_refused(prism(command[0], path, *command[1:], "--json"), "art.json")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--dtype", "float31"], ["float31", "float32"]),
        (["--target", "tpu"], ["'tpu'", "cpu"]),
        (["--strategy", "luck"], ["'luck'", "random"]),
        (["--trials", "0"], ["--trials", "0"]),
        (["--records", "{folder}"], ["{folder}"]),
        (["-o", "{folder}"], ["{folder}"]),
    ],
)
def test_a_bad_tuning_option_is_one_message(prism, artifact, tmp_path, options, parts):
    options = [o.format(folder=tmp_path) for o in options]
    parts = [p.format(folder=tmp_path) for p in parts]
    assert_refused(prism("tune", artifact, "--sizes", "n=4,d=8,h=8", *options, "--json"), *parts)
