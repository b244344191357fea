"""Programs as other libraries would run them: what is recognised, and that axes end up right."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy_writer import computed
from strategies import random_arrays, random_program, random_sizes

import prism as pr
from prism.bench import NotAvailableError, Task
from prism.frontend import load_program
from prism.ir import (
    OPS,
    Apply,
    Argument,
    DimInfo,
    Input,
    OpKind,
    Output,
    Program,
    bind_sizes,
    define,
    format_program,
)
from prism.ir.operators import definition_of_line
from prism.ir.ops import BUILT_IN
from prism.plugins import Group, installed
from prism_experiments.rivals import contestants, onnx_model, torch_source
from prism_experiments.rivals.composites import (
    Attention,
    Norm,
    Softmax,
    find_attention,
    find_composites,
)
from prism_experiments.rivals.weights import weights_of
from prism_experiments.sizes import SHAPES

SIZES = {"n": 3, "d": 4, "h": 5, "k": 6, "b": 2, "s": 7, "e": 4, "f": 5, "g": 2}


def traced(function):
    program = pr.trace(function)
    sizes = bind_sizes(program, {name: SIZES[name] for name in program.size_names})
    return program, sizes, random_arrays(program, sizes, seed=1)


def composites_of(function):
    program, sizes, _ = traced(function)
    return list(find_composites(program, sizes).values())


def node_named(program, i):
    """The name of an input, or the operator."""
    node = program.nodes[i]
    return node.op if isinstance(node, Apply) else node.name


# --- what is recognised --------------------------------------------------------------------------


def plain_softmax(x: "n d"):
    e = pr.exp(x)
    return e / pr.sum(e, axis=0, keepdims=True)


def softmax_by_reciprocal(x: "n d"):
    return pr.exp(x) * pr.reciprocal(pr.sum(pr.exp(x), axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("function", "dim"),
    [
        (plain_softmax, "n"),
        (softmax_by_reciprocal, "d"),
        (lambda x: pr.softmax(x, axis=-1), "d"),
        (lambda x: pr.softmax(x, axis=0), "n"),
    ],
)
def test_a_softmax_is_found_however_it_is_written(function, dim):
    program = pr.trace(function, x="n d")
    (found,) = find_composites(program, {"n": 3, "d": 4}).values()
    assert found == Softmax(0, dim)


NOT_SOFTMAX = [
    lambda x: pr.exp(x) / pr.sum(x, axis=1, keepdims=True),
    lambda x: pr.exp(x) / pr.sum(pr.exp(2.0 * x), axis=1, keepdims=True),
    lambda x: pr.sum(pr.exp(x), axis=1, keepdims=True) / pr.exp(x),
    lambda x: x / pr.sqrt(pr.mean(x, axis=1, keepdims=True)),
    lambda x: x / pr.sqrt(pr.sum(x**2, axis=1, keepdims=True)),
    lambda x: x / pr.rsqrt(pr.mean(x**2, axis=1, keepdims=True)),
    lambda x: x * pr.sqrt(pr.mean(x**2, axis=1, keepdims=True)),
    lambda x: (x + 1.0) / pr.sqrt(pr.mean(x**2, axis=1, keepdims=True)),
]


@pytest.mark.parametrize("function", NOT_SOFTMAX)
def test_what_only_looks_like_one_is_left_alone(function):
    program = pr.trace(function, x="n d")
    assert find_composites(program, {"n": 3, "d": 4}) == {}


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, g, b: pr.rms_norm(x, g, eps=0.5), ("rms", "g", None)),
        (lambda x, g, b: pr.rms_norm(x), ("rms", None, None)),
        (lambda x, g, b: pr.layer_norm(x, g, b, eps=0.5), ("layer", "g", "b")),
        (lambda x, g, b: pr.layer_norm(x, g), ("layer", "g", None)),
        (
            lambda x, g, b: (x * g) / pr.sqrt(pr.mean(x * x, axis=1, keepdims=True)),
            ("rms", "g", None),
        ),
        (
            lambda x, g, b: x * pr.rsqrt(0.5 + pr.mean(x**2, axis=1, keepdims=True)),
            ("rms", None, None),
        ),
        (
            lambda x, g, b: x / pr.sqrt(pr.sum(x**2, axis=1, keepdims=True) / x.shape[1]),
            ("rms", None, None),
        ),
    ],
)  # fmt: skip
def test_norms_are_found_with_their_weight_and_bias(function, expected):
    program = pr.trace(lambda x, g, b: (function(x, g, b), g + b), x="n d", g="d", b="d")
    found = [c for c in find_composites(program, {"n": 3, "d": 4}).values() if isinstance(c, Norm)]
    last = found[-1]
    names = [None if i is None else node_named(program, i) for i in (last.weight, last.bias)]
    assert ("layer" if last.is_centred else "rms", *names) == expected
    assert (node_named(program, last.x), last.dim) == ("x", "d")


def test_a_norm_along_another_axis_keeps_its_factors_out():
    def turned(x: "n d", g: "d"):
        return pr.rms_norm(x, None, axis=0) * g

    (found,) = composites_of(turned)
    assert (found.dim, found.weight) == ("n", None)


def masked(q: "b n e", k: "b s e", v: "b s f", m: "n s"):
    return pr.softmax(0.5 * (q @ k.mT) + m) @ v


def divided_late(q: "n e", k: "s e", v: "s f"):
    e = pr.exp(q @ k.T)
    return (e @ v) / pr.sum(e, axis=-1, keepdims=True)


def grouped(q: "b h g e", k: "b h s e", v: "b h s e"):
    return pr.softmax(q @ k.mT / pr.sqrt(q.shape[-1])) @ v


@pytest.mark.parametrize(
    ("function", "scale", "mask"),
    [(masked, 0.5, "m"), (divided_late, 1.0, None), (grouped, 0.5, None)],
)
def test_attention_is_found_with_its_scale_and_mask(function, scale, mask):
    program, sizes, arrays = traced(function)
    found = find_attention(program, sizes)
    (attention,) = (c for c in found.values() if isinstance(c, Attention))
    assert [node_named(program, i) for i in (attention.q, attention.k, attention.v)] == [
        "q",
        "k",
        "v",
    ]
    assert attention.inner in {"e", "e'"}
    assert attention.keys == "s"
    assert attention.scale == pytest.approx(scale)
    assert (attention.mask and node_named(program, attention.mask)) == mask
    called, error = computed(program, sizes, found, arrays)
    assert "attention" in called
    assert not {"exp", "matmul", "softmax"} & set(called)
    assert error < 1e-12


def two_products(q: "n e", k: "s e", v: "s f"):
    return pr.softmax((q @ k.T) * (q @ k.T)) @ v


def scale_after_mask(q: "n e", k: "s e", v: "s f", m: "n s"):
    return pr.softmax(2.0 * (q @ k.T + m)) @ v


@pytest.mark.parametrize("function", [two_products, scale_after_mask])
def test_what_is_not_quite_attention_is_none(function):
    program, sizes, _ = traced(function)
    assert find_attention(program, sizes) == {}


# --- axes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("workload", [w for w in installed(Group.WORKLOAD) if w in SHAPES])
def test_every_workload_is_right_in_every_form(workload):
    _, program = load_program(workload)
    sizes = bind_sizes(program, SHAPES[workload]["tiny"])
    arrays = random_arrays(program, sizes, seed=0)
    finders = (lambda *_: {}, find_composites, find_attention)
    for finder in finders:
        _, error = computed(program, sizes, finder(program, sizes), arrays)
        assert error < 4e-12


@given(seed=st.integers(0, 10**6))
def test_generated_programs_are_right(seed):
    program = random_program(seed)
    sizes = random_sizes(program, Random(seed))
    arrays = random_arrays(program, sizes, seed)
    _, error = computed(program, sizes, find_composites(program, sizes), arrays)
    assert error < 4e-12


def test_equal_nodes_are_computed_once():
    def twice(x: "n d"):
        return pr.exp(x) + pr.square(pr.exp(x))

    program, sizes, arrays = traced(twice)
    called, _ = computed(program, sizes, {}, arrays)
    assert sorted(called) == ["add", "exp", "square"]


ROPE = (
    "operator bench_rope as BenchRope(x, c, s) along k = "
    "x * c + where(index(k) < size(k) / 2, -1, 1) * roll(x, k, size(k) / 2) * s"
)
STEP = "operator bench_step as BenchStep(x, y) = where(x > y, 1, 0)"
TURN = "operator bench_turn as BenchTurn(x, y) along k = flip(x, k) + flip(y, k)"
FIRST = "operator bench_first as BenchFirst(x, y) = (x + gelu_erf(2)) * y"

USED = {
    ROPE: (("n", "d"), ("d",), ("n",)),
    STEP: (("n", "d"), ("n",)),
    TURN: (("d", "n"), ("d",)),
    FIRST: (("n",), ("d",)),
}


def program_with(line):
    """A program of one operator that a user defined, over operands that lack some dims."""
    definition = definition_of_line(line)
    define(definition)
    operands = list(enumerate(USED[line]))
    dim = "d" if definition.dim else None
    return Program(
        name="mine",
        dims=(DimInfo("n", "n"), DimInfo("d", "d")),
        arguments=tuple(Argument(f"x{i}", dims) for i, dims in operands),
        nodes=(
            *(Input(f"x{i}", f"x{i}", dims) for i, dims in operands),
            Apply(definition.name, tuple(i for i, _ in operands), dim),
        ),
        outputs=(Output(len(operands), ("n", "d")),),
    )


@pytest.mark.parametrize("line", list(USED), ids=["rope", "step", "turn", "first"])
def test_users_operators_are_written_out(line):
    program = program_with(line)
    sizes = {"n": 3, "d": 6}
    arrays = random_arrays(program, sizes, seed=2)
    called, error = computed(program, sizes, {}, arrays)
    assert error < 1e-12
    assert not {op for op in called if op in OPS and OPS[op].definition is not None}


# --- tables and sources --------------------------------------------------------------------------


def test_every_operator_of_the_table_has_a_form_in_each_library():
    elementwise = {row.name for row in BUILT_IN if row.kind is OpKind.ELEMENTWISE}
    reductions = {row.name for row in BUILT_IN if row.kind is OpKind.REDUCE}
    assert set(torch_source.ELEMENTWISE) == elementwise
    assert set(onnx_model.ELEMENTWISE) | {"square", "silu"} == elementwise
    assert set(torch_source.REDUCE) == set(onnx_model.REDUCE) == reductions


def test_a_torch_form_reads_as_a_user_writes_it():
    rms = pr.trace(lambda x, g, w: pr.rms_norm(x, g, eps=1e-5) @ w, x="n d", g="d", w="d h")
    sizes = {"n": 3, "d": 4, "h": 5}
    text = torch_source.torch_source(rms, sizes, find_composites(rms, sizes))
    assert text == (
        "def form(a0, a1, a2):\n"
        "    v0 = functional.rms_norm(a0, (4,), a1, 1e-05)\n"
        "    v1 = torch.matmul(v0, a2)\n"
        "    return v1\n"
    )


def test_numbers_without_a_literal_are_written_as_calls():
    assert torch_source.number(-1.5e-7) == "-1.5e-07"
    assert torch_source.number(float("-inf")) == "float('-inf')"
    assert torch_source.number("v3") == "v3"


@pytest.mark.parametrize(
    ("workload", "weights"),
    [
        ("rmsnorm", {"g", "w"}),
        ("lora", {"w", "a", "b"}),
        ("attention", set()),
        ("residual_rmsnorm", set()),
        ("layernorm_linear", {"g", "b", "w"}),
        ("rmsnorm_mlp", {"g", "w_gate", "w_up", "w_down"}),
    ],
)
def test_weights_are_what_shares_no_row_with_the_first_argument(workload, weights):
    assert weights_of(load_program(workload)[1]) == weights


# --- without the libraries -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("torch", "torch"),
        ("torch-compile", "torch"),
        ("sdpa", "torch"),
        ("onnxruntime", "onnxruntime"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    _, program = load_program("matmul")
    task = Task("matmul", (("n", 2), ("d", 2), ("h", 2)), "float32", 0, 1, "")
    rival = installed(Group.CONTESTANT)[name].load()()
    with pytest.raises(NotAvailableError, match=f"not installed: pip install {module}, or .*bench"):
        rival.prepare(replace(task, text=format_program(program)))


def test_every_installed_contestant_loads_without_its_library(monkeypatch):
    for module in ("torch", "onnx", "onnxruntime"):
        monkeypatch.setitem(sys.modules, module, None)
    assert {"numpy", "torch", "torch-compile", "sdpa", "onnxruntime"} <= set(
        installed(Group.CONTESTANT)
    )
    assert contestants.MODES.keys() == {"default", "max-autotune"}
