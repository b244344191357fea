from __future__ import annotations

import copy
import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tune.fake_target import FAULTS
from tune.graphs import MATMUL, SQUARED, matmul_graph

from prism import optimized_shapes
from prism.errors import KernelError, ParseError, SizeError, UsageError
from prism.ir import MuGraph
from prism.optimized import Optimized, Winner, compiled
from prism.optimized_shapes import OptimizedShapes
from prism.plugins import Group, load
from prism.record import digest

FAKE = f"{Path(__file__).parent / 'tune' / 'fake_target.py'}:FakeTarget"
OFFLINE = FAKE.replace("FakeTarget", "OfflineTarget")
SIZES = {"n": 4, "d": 12, "h": 10}
WIDE = {"n": 4, "d": 24, "h": 40}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))


def make(sizes, *, fault="none", target=FAKE, counts=(("x", 2), ("i", 3))):
    """x @ w at sizes, on the fake target."""
    schedule = (("fault", FAULTS.index(fault)), ("delay_ms", 1))
    mu = MuGraph(matmul_graph(), tuple(sorted(sizes.items())), (counts,), schedule)
    source = load(Group.TARGET, target)().emit(mu, "float32").text
    return compiled(Optimized(MATMUL, sizes, "float32", target, Winner("g0", mu, source), {}))


@pytest.fixture
def made():
    return OptimizedShapes((make(SIZES), make(WIDE, counts=(("x", 4), ("i", 6)))))


def arrays(sizes, rng):
    x = rng.standard_normal((sizes["n"], sizes["d"])).astype(np.float32)
    return x, rng.standard_normal((sizes["d"], sizes["h"])).astype(np.float32)


def assert_right(made, sizes, rng):
    x, w = arrays(sizes, rng)
    np.testing.assert_allclose(made(x, w), x @ w, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made(w=w, x=x), x @ w, rtol=1e-4, atol=1e-5)


def test_a_shape_may_be_a_key_but_is_not_pickled(made):
    one = made.shapes[0]
    assert {one: 1}[one] == 1
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=r"save\(FOLDER\) it, and Optimized.load it"):
            copied(one)


@pytest.mark.parametrize("sizes", [SIZES, WIDE])
def test_a_tuned_shape_runs_the_kernel_that_was_tuned_for_it(sizes, made, rng):
    assert made.for_sizes(sizes) is made.shapes[[SIZES, WIDE].index(sizes)]
    assert_right(made, sizes, rng)


def test_another_shape_runs_the_config_of_the_nearest_one_with_one_warning(made, rng):
    sizes = {"n": 3, "d": 25, "h": 41}
    with pytest.warns(UserWarning, match=r"not tuned for n=3,d=25,h=41: .*n=4,d=24,h=40") as seen:
        assert_right(made, sizes, rng)
    assert len(seen) == 1
    assert seen[0].filename == __file__
    served = made.for_sizes(sizes)
    assert not served.is_fallback
    assert dict(served.winner.mu.sizes) == sizes
    assert dict(served.winner.mu.par_sizes[0])["x"] == 4
    assert dict(served.winner.mu.schedule)["delay_ms"] == 1
    assert "n=3,d=25,h=41: not tuned, graph g0" in made.report()


GIVES_WAY = ("nan", "wrong tile", "overflows", "does not compile", "emitter breaks")


@pytest.mark.parametrize("fault", GIVES_WAY)
def test_a_like_kernel_that_is_not_right_gives_way_to_the_program(fault, rng):
    near = make(SIZES, target=FAKE.replace("FakeTarget", "FaultyTarget"))
    mu = replace(near.winner.mu, schedule=(("fault", FAULTS.index(fault)), ("delay_ms", 1)))
    shapes = OptimizedShapes((replace(near, winner=replace(near.winner, mu=mu)),))
    with pytest.warns(UserWarning, match="NumPy evaluates the program"):
        assert_right(shapes, WIDE, rng)
    assert shapes.for_sizes(WIDE).is_fallback
    assert "NumPy evaluates the program" in shapes.report()


def test_where_kernels_do_not_run_the_program_is_evaluated(rng):
    shapes = OptimizedShapes((make(SIZES, target=OFFLINE),))
    assert shapes.is_fallback
    assert_right(shapes, SIZES, rng)
    with pytest.warns(UserWarning, match="NumPy evaluates the program"):
        assert_right(shapes, WIDE, rng)


def test_only_so_many_kernels_are_made_at_run_time(made, monkeypatch, rng):
    monkeypatch.setattr(optimized_shapes, "MOST_ADAPTED", 1)
    with pytest.warns(UserWarning, match="is adapted"):
        assert_right(made, SIZES | {"n": 2}, rng)
    with pytest.warns(UserWarning, match="with 1 shapes it was not tuned for"):
        assert_right(made, SIZES | {"n": 5}, rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_right(made, SIZES | {"n": 6}, rng)
    assert made.for_sizes(SIZES | {"n": 5}).is_fallback
    assert not made.for_sizes(SIZES | {"n": 2}).is_fallback


BAD = {
    "shapes disagree": (lambda x, w: (x[:, :11], w), SizeError, "dimension d has size"),
    "rank": (lambda x, w: (x[0], w), SizeError, "argument 'x'"),
    "empty": (lambda x, w: (x[:0], w), SizeError, "dimension n has size 0"),
    "float64": (lambda x, w: (x, w.astype(float)), UsageError, "has dtype float64"),
    "list": (lambda x, w: (x.tolist(), w), UsageError, "must be an array, not list"),
    "one array": (lambda x, w: (x,), UsageError, "takes 2 arrays"),
}


@pytest.mark.parametrize("case", BAD)
def test_arguments_that_do_not_fit_are_refused(case, made, rng):
    spoil, error, message = BAD[case]
    with pytest.raises(error, match=message):
        made(*spoil(*arrays(SIZES, rng)))


def test_shapes_that_do_not_belong_together_are_refused(made):
    one = made.shapes[0]
    for others, message in (
        ((), "no shape"),
        ((one, one), "is there twice"),
        ((one, replace(one, program=SQUARED, sizes={"n": 4})), "are not of one program"),
        ((one, replace(one, dtype="float64", sizes=WIDE)), "are not of one program"),
    ):
        with pytest.raises(UsageError, match=message):
            OptimizedShapes(others)


def test_the_report_tells_of_every_shape(made):
    report = made.report()
    for words in ("n=4,d=12,h=10\n===", "n=4,d=24,h=40\n===", "n = 4, d = 24, h = 40"):
        assert words in report
    assert "Other shapes" not in report
    assert repr(made).endswith("n=4,d=12,h=10; n=4,d=24,h=40>")


def test_saved_shapes_load_and_are_the_same(made, tmp_path, rng):
    made.save(tmp_path)
    again = OptimizedShapes.load(tmp_path, target=FAKE)
    assert again == made
    assert_right(again, WIDE, rng)


def emitted_otherwise(folder):
    """A saved kernel as another version of Prism would have emitted it."""
    facts, kernel = folder / "optimized.json", folder / "kernel.py"
    kernel.write_text(kernel.read_text() + "# older\n")
    known = json.loads(facts.read_text()) | {"source_sha256": digest(kernel.read_text())}
    facts.write_text(json.dumps(known))


def test_a_shape_of_another_version_is_left_out_and_the_others_load(made, tmp_path, rng):
    made.save(tmp_path)
    emitted_otherwise(tmp_path / "shape1")
    left_out = r"shape1: .* another kernel .* n=4,d=24,h=40.*optimize .* again .* other shapes are"
    with pytest.warns(UserWarning, match=left_out) as seen:
        again = OptimizedShapes.load(tmp_path, target=FAKE)
    assert (len(seen), seen[0].filename) == (1, __file__)
    assert again.shapes == made.shapes[:1]
    with pytest.warns(UserWarning, match="is adapted"):
        assert_right(again, WIDE, rng)


def test_where_every_shape_is_of_another_version_loading_is_an_error(made, tmp_path):
    made.save(tmp_path)
    for number in range(2):
        emitted_otherwise(tmp_path / f"shape{number}")
    with pytest.raises(KernelError, match=r"shape0: .* emits another kernel"):
        OptimizedShapes.load(tmp_path, target=FAKE)


SPOILT = {
    "missing": (lambda f: f.unlink(), UsageError, "no saved shapes"),
    "not JSON": (lambda f: f.write_text("{"), ParseError, "not JSON"),
    "not text": (lambda f: f.write_bytes(b"\xff"), ParseError, "not JSON"),
    "other schema": (lambda f: f.write_text('{"schema": "x"}'), ParseError, "not of schema"),
    "no object": (lambda f: f.write_text("[]"), ParseError, "not of schema"),
    "too many": (lambda f: spoil(f, 3), UsageError, "no saved kernel"),
    "none": (lambda f: spoil(f, 0), ParseError, "bad count"),
    "no integer": (lambda f: spoil(f, "2"), ParseError, "bad count"),
}


def spoil(file, count):
    file.write_text(json.dumps(json.loads(file.read_text()) | {"count": count}))


@pytest.mark.parametrize("case", SPOILT)
def test_spoilt_shapes_are_refused(case, made, tmp_path):
    made.save(tmp_path)
    change, error, message = SPOILT[case]
    change(tmp_path / "shapes.json")
    with pytest.raises(error, match=message):
        OptimizedShapes.load(tmp_path, target=FAKE)
