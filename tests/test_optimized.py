from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tune.fake_target import FAULTS
from tune.graphs import MATMUL, SQUARED, matmul_graph

from prism.dtypes import dtype_of
from prism.errors import KernelError, ParseError, SizeError, UsageError
from prism.ir import MuGraph, format_program
from prism.optimized import Optimized, Winner, compiled
from prism.plugins import Group, load
from prism.record import digest

FAKE = f"{Path(__file__).parent / 'tune' / 'fake_target.py'}:FakeTarget"
SIZES = {"n": 4, "d": 12, "h": 10}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(fault="none", dtype="float32"):
    """x @ w on the fake target."""
    schedule = (("fault", FAULTS.index(fault)), ("delay_ms", 0))
    mu = MuGraph(matmul_graph(), tuple(sorted(SIZES.items())), ((("x", 2), ("i", 3)),), schedule)
    source = load(Group.TARGET, FAKE)().emit(mu, dtype).text
    facts = {"search": {"graphs": 1}, "tune": {"trials": {"ok": 1}}}
    return compiled(Optimized(MATMUL, SIZES, dtype, FAKE, Winner("g0", mu, source), facts))


@pytest.fixture
def made():
    return make()


@pytest.fixture
def arrays(rng):
    x, w = rng.standard_normal((4, 12)), rng.standard_normal((12, 10))
    return x.astype(np.float32), w.astype(np.float32)


def assert_right(result, arrays):
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, arrays[0] @ arrays[1], rtol=1e-4, atol=1e-5)


def test_a_call_computes_the_program_and_gives_one_array(made, arrays):
    assert not made.is_fallback
    assert_right(made(*arrays), arrays)


def test_arguments_may_be_given_by_name(made, arrays):
    assert_right(made(w=arrays[1], x=arrays[0]), arrays)
    assert_right(made(arrays[0], w=arrays[1]), arrays)


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"y": 1}, "'y' is unknown: matmul takes x, w"),
        ({"x": 1}, "'x' is given twice"),
        ({}, "takes 2 arrays"),
    ],
)
def test_names_that_do_not_fit_are_refused(named, message, made, arrays):
    with pytest.raises(UsageError, match=message):
        made(arrays[0], **named)


def test_its_repr_is_one_line(made):
    assert repr(made) == "<Optimized matmul(n=4, d=12, h=10) float32, " + FAKE + " kernel>"


STRIDES = {
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "every other": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "backwards": lambda a: a[::-1].copy()[::-1],
    "unaligned": lambda a: (
        np.frombuffer(b"_" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape)
    ),
    "read-only": lambda a: np.broadcast_to(a, a.shape),
    "subclass": lambda a: a.view(np.matrix),
}


@pytest.mark.parametrize("strides", STRIDES)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_any_strides_are_taken(strides, made, arrays):
    given = [STRIDES[strides](a) for a in arrays]
    assert_right(made(*given), arrays)


class OnlyDlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OnlyArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class Elsewhere(OnlyArray):
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("this tensor is on another device")


@pytest.mark.parametrize("wrapper", [OnlyDlpack, OnlyArray])
def test_anything_with_an_array_inside_is_taken(wrapper, made, arrays):
    assert_right(made(*map(wrapper, arrays)), arrays)


def test_inputs_are_not_written_to(made, arrays):
    before = [a.copy() for a in arrays]
    made(*arrays)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before, strict=True))


BAD = {
    "one array": (lambda x, w: (x,), UsageError, r"takes 2 arrays \(x, w\), not 1"),
    "three arrays": (lambda x, w: (x, w, w), UsageError, "not 3"),
    "float64": (
        lambda x, w: (x, w.astype(float)),
        UsageError,
        r"'w' of matmul has dtype float64, .* cast it .* or optimize with dtype='float64'",
    ),
    "integers": (lambda x, w: (x.astype(int), w), UsageError, r"has dtype int64.*'float32'\)\)$"),
    "other byte order": (lambda x, w: (x.astype(">f4"), w), UsageError, "has dtype >f4"),
    "shape": (lambda x, w: (x[:, :11], w), SizeError, r"shape \(4, 11\), .* \(4, 12\) \(n, d\)"),
    "rank": (lambda x, w: (x[0], w), SizeError, r"shape \(12,\)"),
    "swapped": (lambda x, w: (w, x), SizeError, "argument 'x'"),
    "list": (lambda x, w: (x.tolist(), w), UsageError, "must be an array, not list"),
    "None": (lambda x, w: (None, w), UsageError, "must be an array, not NoneType"),
    "number": (lambda x, w: (1.0, w), SizeError, r"shape \(\)"),
    "masked": (lambda x, w: (np.ma.masked_array(x, x > 0), w), UsageError, "masked array"),
    "elsewhere": (lambda x, w: (Elsewhere(x), w), UsageError, "on another device"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("is_fallback", [False, True])
def test_arguments_that_do_not_fit_are_refused_with_what_to_do(case, is_fallback, made, arrays):
    if is_fallback:
        made = Optimized(MATMUL, SIZES, "float32", FAKE, None, {})
    spoil, error, message = BAD[case]
    with pytest.raises(error, match=message):
        made(*spoil(*arrays))


def test_without_a_winner_the_program_itself_is_evaluated(arrays):
    fallback = Optimized(MATMUL, SIZES, "float32", FAKE, None, {})
    assert fallback.is_fallback
    assert_right(fallback(*arrays), arrays)
    assert "NumPy evaluates the program itself" in fallback.report()
    assert fallback.source.startswith("# No kernel")


def test_a_winner_that_does_not_compile_here_gives_way_to_the_program(arrays):
    with pytest.warns(UserWarning, match="does not load here"):
        made = make("does not compile")
    assert made.is_fallback
    assert_right(made(*arrays), arrays)
    assert "no kernel passed" in made.report()


def test_the_report_tells_the_whole_story(made):
    report = made.report()
    for words in (
        "n = 4, d = 12, h = 10",
        "1 verified graphs",
        "trials: 1 ok",
        "m[w,h,x]",
        str(made.path),
    ):
        assert words in report


def test_a_saved_kernel_loads_and_is_the_same(made, arrays, tmp_path):
    made.save(tmp_path / "saved")
    again = Optimized.load(tmp_path / "saved", target=FAKE)
    assert again == made
    assert not again.is_fallback
    assert_right(again(*arrays), arrays)


def test_a_saved_fallback_loads(arrays, tmp_path):
    Optimized(MATMUL, SIZES, "float32", FAKE, None, {}).save(tmp_path)
    assert_right(Optimized.load(tmp_path, target=FAKE)(*arrays), arrays)


def spoil_json(folder, **change):
    path = folder / "optimized.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def spoil_winner(folder, **change):
    spoil_json(
        folder, winner=json.loads((folder / "optimized.json").read_text())["winner"] | change
    )


def forge(folder):
    """A modified kernel whose recorded hash was made to fit."""
    kernel = folder / "kernel.py"
    kernel.write_text(kernel.read_text() + "import os; os.abort()\n")
    spoil_json(folder, source_sha256=digest(kernel.read_text()))


BAD_FACTS = (
    {"tune": 7},
    {"tune": {"best": {}}},
    {"tune": {"trials": {"ok": "many"}}},
    {"tune": {"stopped": "\x1b[2J"}},
    {"tune": {"stopped": "\ud800"}},
    {"tune": {"elapsed_s": float("inf")}},
    {"search": {"search_s": "long"}},
    {"search": {"counters": {"pruners": {"p": {}}}}},
    {"search": {"graphs": True}},
    {"other": {}},
)

SPOILT = {
    "kernel modified": (lambda f: (f / "kernel.py").write_text("x = 1"), ParseError, "modified"),
    "kernel forged": (forge, KernelError, "emits another kernel"),
    "kernel missing": (lambda f: (f / "kernel.py").unlink(), UsageError, "no saved kernel"),
    "not JSON": (lambda f: (f / "optimized.json").write_text("{"), ParseError, "not JSON"),
    "not UTF-8": (lambda f: (f / "optimized.json").write_bytes(b"\xff"), UsageError, "utf-8"),
    "other schema": (lambda f: spoil_json(f, schema="prism.optimized/9"), ParseError, "schema"),
    "other dtype": (lambda f: spoil_json(f, dtype="int8"), UsageError, "unknown dtype"),
    "no such size": (lambda f: spoil_json(f, sizes={"z": 4}), ParseError, "no dimension 'z'"),
    "other type": (lambda f: spoil_json(f, sizes=[1]), ParseError, "'sizes'"),
    "other sizes": (
        lambda f: spoil_json(f, sizes={"n": 4, "d": 12, "h": 11}),
        KernelError,
        "another",
    ),
    "bad program": (lambda f: spoil_json(f, program="import os"), ParseError, "program"),
    "bad graph": (
        lambda f: spoil_winner(f, graph="sgraph"),
        ParseError,
        "optimized.json has a bad value: line 2",
    ),
    "other program": (
        lambda f: spoil_json(f, program=format_program(SQUARED), sizes={"n": 4}),
        ParseError,
        "another program",
    ),
    "illegal counts": (
        lambda f: spoil_winner(f, par_sizes=[{"x": 99, "i": 1}]),
        ParseError,
        "x=99",
    ),
    "odd counts": (lambda f: spoil_winner(f, par_sizes=[{"x": "2"}]), ParseError, "not an integer"),
    "nested deep": (
        lambda f: (f / "optimized.json").write_text("[" * 100_000),
        ParseError,
        "not JSON",
    ),
    "a FIFO": (
        lambda f: ((f / "kernel.py").unlink(), os.mkfifo(f / "kernel.py")),
        UsageError,
        "not a regular file",
    ),
    "huge sizes": (
        lambda f: spoil_json(f, sizes=dict.fromkeys(SIZES, 2**39)),
        ParseError,
        "this machine has",
    ),
    **{
        f"facts {i}": (lambda f, facts=facts: spoil_json(f, facts=facts), ParseError, "facts")
        for i, facts in enumerate(BAD_FACTS)
    },
    "no counts": (lambda f: spoil_winner(f, par_sizes=None), ParseError, "bad value"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_a_spoilt_kernel_folder_is_refused_and_never_run(case, made, tmp_path):
    made.save(tmp_path)
    spoil, error, message = SPOILT[case]
    spoil(tmp_path)
    with pytest.raises(error, match=message):
        Optimized.load(tmp_path, target=FAKE)


def test_a_saved_kernel_cannot_choose_a_file_to_run(made, tmp_path):
    made.save(tmp_path)
    with pytest.raises(UsageError, match="name that target"):
        Optimized.load(tmp_path)


def test_a_missing_folder_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no saved kernel"):
        Optimized.load(tmp_path / "nowhere")


@pytest.mark.parametrize("fault", ["nan", "wrong tile", "writes input", "raises in run"])
def test_a_saved_kernel_that_does_not_compute_its_program_is_refused(fault, tmp_path):
    make(fault).save(tmp_path)
    with pytest.raises(KernelError, match=r"does not compute its program|cannot be checked"):
        Optimized.load(tmp_path, target=FAKE)


@pytest.mark.parametrize(
    "spoil", [lambda p: p.write_bytes(b"\xff"), lambda p: (p.unlink(), p.mkdir())]
)
def test_a_spoilt_kernel_file_in_the_cache_does_no_harm(spoil, made, arrays):
    spoil(made.path)
    again = make()
    assert not again.is_fallback
    assert_right(again(*arrays), arrays)


OFFLINE = FAKE.replace("FakeTarget", "OfflineTarget")


def test_a_kernel_for_another_machine_is_kept_and_numpy_answers(arrays, tmp_path):
    schedule = (("fault", 0), ("delay_ms", 2))
    mu = MuGraph(matmul_graph(), tuple(sorted(SIZES.items())), ((("x", 2), ("i", 3)),), schedule)
    source = load(Group.TARGET, OFFLINE)().emit(mu, "float32").text
    made = compiled(Optimized(MATMUL, SIZES, "float32", OFFLINE, Winner("g0", mu, source), {}))
    assert made.is_fallback
    assert_right(made(*arrays), arrays)
    assert made.path.read_text() == made.source == source
    assert "which cannot run here: calls evaluate the program in NumPy" in made.report()
    made.save(tmp_path / "saved")
    again = Optimized.load(tmp_path / "saved", target=OFFLINE)
    assert again == made
    assert again.is_fallback


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("is_fallback", [False, True])
def test_half_types_go_in_and_come_out(dtype, is_fallback, arrays, tmp_path):
    made = make(dtype=dtype)
    made.save(tmp_path)
    made = Optimized.load(tmp_path, target=FAKE)
    if is_fallback:
        made = Optimized(MATMUL, SIZES, dtype, FAKE, None, {})
    x, w = (a.astype(dtype_of(dtype)) for a in arrays)
    result = made(x[:, ::1], w)
    assert result.dtype == dtype_of(dtype)
    expected = x.astype(float) @ w.astype(float)
    np.testing.assert_allclose(result.astype(float), expected, rtol=0.01, atol=0.01)
    with pytest.raises(UsageError, match=rf"dtype float32, the kernel is made for {dtype}"):
        made(arrays[0], w)


def test_a_bfloat16_array_is_told_the_dtype_to_optimize_with(made, arrays):
    given = arrays[0].astype(dtype_of("bfloat16"))
    with pytest.raises(UsageError, match="or optimize with dtype='bfloat16'"):
        made(given, arrays[1])


class OnGpu:
    """An array where the kernel runs."""

    def __init__(self, array):
        self.array = array


def test_arrays_that_the_kernel_takes_are_handed_to_it_as_they_are(made, arrays):
    class GpuKernel:
        def takes(self, value):
            return isinstance(value, OnGpu)

        def direct(self, given):
            return None

        def __call__(self, x, w):
            return (OnGpu(x.array @ w.array),)

    on_gpu = replace(made, _kernel=GpuKernel())
    x, w = map(OnGpu, arrays)
    result = on_gpu(w=w, x=x)
    assert isinstance(result, OnGpu)
    assert_right(result.array, arrays)
    with pytest.raises(UsageError, match="must be an array, not OnGpu"):
        made(x, w)
