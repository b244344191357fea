"""The search artifact: a round trip, and every kind of damage met with one clear message."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import search_programs as programs

from prism.artifact import SCHEMA, format_artifact, load_artifact, parse_artifact, save_artifact
from prism.errors import ParseError, UsageError
from prism.search import SearchOptions, search
from prism.verdict import ProofAxioms


@pytest.fixture(scope="module")
def result():
    options = SearchOptions(max_graphs=12, seed=7, without=("expression",))
    return search(programs.trace(programs.softmax_matmul), options)


@pytest.fixture(scope="module")
def text(result):
    return format_artifact(result)


def changed(text, change):
    content = json.loads(text)
    change(content)
    return json.dumps(content)


def test_what_is_saved_is_loaded(result, tmp_path):
    path = tmp_path / "new" / "art.json"
    save_artifact(result, path)
    loaded = load_artifact(path)
    assert loaded.program == result.program
    fields = ("id", "graph", "verdict", "op_count", "accumulator_count", "stages", "is_fallback")
    for name in fields:
        assert [getattr(g, name) for g in loaded.graphs] == [
            getattr(g, name) for g in result.graphs
        ]
    assert loaded.counters == result.counters
    assert (loaded.complete, loaded.cuts) == (result.complete, result.cuts)
    assert loaded.fingerprint == result.fingerprint
    assert (loaded.seed, loaded.encoding) == (7, "boolean")
    assert loaded.options["without"] == ["expression"]
    assert [p.name for p in path.parent.iterdir()] == ["art.json"]  # no draft is left


def test_saving_where_nothing_can_be_written_says_so(result, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot write"):
        save_artifact(result, tmp_path / "file" / "art.json")


def test_it_loads_where_the_search_half_cannot_be_imported(result, tmp_path):
    path = tmp_path / "art.json"
    save_artifact(result, path)
    code = """
import sys
blocked = ("ortools", "egglog", "z3", "prism.search", "prism.egraph", "prism.verify",
           "prism_constraints", "prism_axioms")
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(blocked):
            raise ImportError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
from prism.artifact import load_artifact
print(len(load_artifact(sys.argv[1]).graphs))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert int(done.stdout) == len(result.graphs)


DAMAGE = {
    "a field is missing": (lambda c: c.pop("program"), "program is missing"),
    "another schema": (lambda c: c.update(schema="acme/1"), "'acme/1' is no search artifact"),
    "another version": (
        lambda c: c.update(schema="prism.search/99"),
        f"version prism.search/99, this Prism reads {SCHEMA}; search again",
    ),
    "graphs are no list": (lambda c: c.update(graphs={}), "graphs: a list was expected"),
    "a graph is no object": (lambda c: c["graphs"].insert(2, 5), r"graphs\[2\]: an object was"),
    "complete is a number": (lambda c: c.update(complete=1), "complete: true or false was"),
    "the seed is text": (lambda c: c.update(seed="7"), "seed: an integer was expected, not text"),
    "a negative duration": (lambda c: c.update(search_s=-1), "search_s: -1.0 is no duration"),
    "an endless duration": (lambda c: c.update(search_s=10**400), "search_s: inf is no duration"),
    "cuts hold a number": (lambda c: c.update(cuts=["a", 3]), r"cuts\[1\]: text was expected"),
    "the program is nonsense": (lambda c: c.update(program="program"), "program: "),
    "a verdict of its own": (
        lambda c: c["graphs"][0].update(verdict="certainly"),
        r"graphs\[0\].verdict: 'certainly' is no verdict; there are proved",
    ),
    "a negative count": (lambda c: c["graphs"][0].update(op_count=-1), "-1 is no count"),
    "another id": (
        lambda c: c["graphs"][1].update(id="0123456789"),
        r"graphs\[1\].id: '0123456789' is not the id of this graph",
    ),
    "a graph twice": (lambda c: c["graphs"].insert(1, c["graphs"][0]), r"graphs\[1\].id.*twice"),
    "other stages": (
        lambda c: c["graphs"][0].update(stages=["body"]),
        r"graphs\[0\].stages: the stages are not those of the graph",
    ),
    "a graph that was edited": (
        lambda c: c["graphs"][0].update(text=c["graphs"][0]["text"].replace("exp(", "log(")),
        r"graphs\[0\].text",
    ),
    "a graph that is malformed": (
        lambda c: c["graphs"][0].update(text=c["graphs"][0]["text"].replace("save %", "save %9")),
        r"graphs\[0\].text: line",
    ),
    "null where a graph was": (
        lambda c: c["graphs"][0].update(text=None),
        "text was expected, not nothing",
    ),
}


@pytest.mark.parametrize(("change", "message"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named_with_its_place(text, change, message):
    with pytest.raises(ParseError, match=message):
        parse_artifact(changed(text, change))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_a_truncated_file_is_refused(text, share):
    with pytest.raises(ParseError, match="not JSON at line"):
        parse_artifact(text[: int(len(text.rstrip()) * share)])


@pytest.mark.parametrize("hostile", ["[" * 100_000, "1" * 10_000, '"x"', "null", "[]", "NaN"])
def test_hostile_json_is_refused(hostile):
    with pytest.raises(ParseError):
        parse_artifact(hostile)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path):
    with pytest.raises(ParseError, match=r"none\.json cannot be read: No such file"):
        load_artifact(tmp_path / "none.json")
    with pytest.raises(ParseError, match="cannot be read"):
        load_artifact(tmp_path)
    binary = tmp_path / "art.json"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParseError, match="not text in UTF-8"):
        load_artifact(binary)


def test_the_message_names_the_file(text, tmp_path):
    path = tmp_path / "art.json"
    path.write_text(changed(text, lambda c: c.pop("seed")))
    with pytest.raises(ParseError, match=r"art\.json: seed is missing"):
        load_artifact(path)


def test_special_and_large_files_are_refused(text, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(ParseError, match="not a regular file"):
        load_artifact(tmp_path / "fifo")
    path = tmp_path / "art.json"
    path.write_text(text)
    monkeypatch.setattr("prism.artifact.MAX_BYTES", 100)
    with pytest.raises(ParseError, match="too large for a search artifact"):
        load_artifact(path)


def test_escape_codes_and_deep_nesting_are_refused(text):
    for hostile in ("\x1b[2J", "\ud800", json.loads("[" * 200 + "]" * 200)):
        with pytest.raises(ParseError, match=r"counters\.x.*(control|deep)"):
            parse_artifact(changed(text, lambda c, h=hostile: c["counters"].update(x=h)))


def test_axioms_of_a_proof_come_back_and_nonsense_is_refused(text):
    def said(axioms, *, minimal=True):
        data = json.loads(text)
        data["graphs"][0].update(axioms_used=axioms, axioms_used_minimal=minimal)
        return parse_artifact(json.dumps(data)).graphs[0].proof

    assert parse_artifact(text).graphs[0].proof is None
    assert said(["sum-mul"]) == ProofAxioms(("sum-mul",), is_minimal=True)
    assert said([], minimal=False) == ProofAxioms((), is_minimal=False)
    for axioms in ([""], ["a b"], [3], "sum-mul", ["x" * 300], ["x"] * 20_000):
        with pytest.raises(ParseError, match=r"graphs\[0\]\.axioms_used"):
            said(axioms)
