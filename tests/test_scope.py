"""A search that was told sizes or a device says so, and is tuned for nothing else."""

from __future__ import annotations

import json

import pytest
import search_programs as programs

from prism.artifact import format_artifact, parse_artifact, save_artifact
from prism.driver import tune
from prism.errors import ParseError, SizeError, UsageError
from prism.scope import Scope
from prism.search import SearchOptions, search
from prism_kernels.cpu.target import CpuTarget

SIZES = {"n": 3, "d": 8, "h": 5}


@pytest.fixture(scope="module")
def result():
    options = SearchOptions(sizes=tuple(SIZES.items()), device=CpuTarget().device(), grid_dims=1)
    return search(programs.trace(programs.matmul), options)


@pytest.fixture(scope="module")
def text(result):
    return format_artifact(result)


def test_a_search_without_is_for_everything():
    result = search(programs.trace(programs.matmul), SearchOptions(grid_dims=0))
    assert result.scope == parse_artifact(format_artifact(result)).scope == Scope()
    assert str(result.scope) == "at all sizes, on every device"
    result.scope.require({"n": 1}, "any", "it")


def test_the_artifact_says_what_the_search_was_told(result, text):
    scope = parse_artifact(text).scope
    assert scope == result.scope
    assert dict(scope.sizes) == SIZES
    assert scope.device == CpuTarget().device().text
    assert str(scope).startswith("at n=3,d=8,h=5, on ")


def test_sizes_that_do_not_fit_the_program_are_refused():
    program = programs.trace(programs.matmul)
    with pytest.raises(SizeError, match="no size given for dimension 'h'"):
        search(program, SearchOptions(sizes=(("n", 1), ("d", 2))))
    with pytest.raises(SizeError, match="no dimension 'q'"):
        search(program, SearchOptions(sizes=(*SIZES.items(), ("q", 2))))


def test_it_is_tuned_at_these_sizes_on_this_device(result):
    assert tune(result, SIZES, budget_s=100.0, trials=1).best is not None


def test_other_sizes_are_refused_before_anything_runs(result, tmp_path):
    path = tmp_path / "art.json"
    save_artifact(result, path)
    with pytest.raises(UsageError) as caught:
        tune(path, SIZES | {"n": 4}, budget_s=100.0)
    message = str(caught.value)
    assert message.startswith(f"{path} was searched for n=3,d=8,h=5 alone, not for n=4")
    assert "search again" in message


def test_another_device_is_refused(result):
    with pytest.raises(
        UsageError, match=r"the artifact was searched for .* alone, not for .*sm_90"
    ):
        tune(result, SIZES, target="lockstep", budget_s=100.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": {"n": 3, "d": 8}}, "sizes: the program's are n, d, h, not n, d"),
        ({"sizes": {"n": 3, "d": 8, "h": 0}}, "sizes: a size must be at least 1"),
        ({"sizes": {"n": 3, "d": 8, "h": "5"}}, "sizes.h: an integer was expected, not text"),
        ({"sizes": [3]}, "sizes: an object was expected, not a list"),
        ({"device": 3}, "device: text was expected, not an integer"),
    ],
)
def test_damage_is_named(text, change, message):
    with pytest.raises(ParseError, match=message):
        parse_artifact(json.dumps(json.loads(text) | change))


def test_an_artifact_that_says_nothing_is_for_everything(text):
    content = json.loads(text)
    del content["sizes"], content["device"]
    assert parse_artifact(json.dumps(content)).scope == Scope()
