"""The saturated e-graph: sound, complete enough for the known graphs, small, deterministic."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import search_programs
from verify.table import PROGRAMS

from prism import frontend as pr
from prism.egraph import Limits, load_axioms, make_axiom_set, saturate
from prism.ir import OPS, OpKind


def layernorm_linear(x: "n d", g: "d", b: "d", w: "d h"):
    return pr.layer_norm(x, g, b) @ w


def lora(x: "n d", w: "d h", a: "d r", b: "r h"):
    return x @ w + (x @ a) @ b


def residual_rmsnorm(x: "n d", y: "n d", g: "d", w: "d h"):
    z = x + y
    return z, pr.rms_norm(z, g) @ w


def attention(q: "b g e", k: "b s e", v: "b s u"):
    return pr.softmax((q @ k.mT) * 0.125, axis=-1) @ v


ALL = PROGRAMS | {
    f.__name__: pr.trace(f)
    for f in (
        layernorm_linear,
        lora,
        residual_rmsnorm,
        attention,
        search_programs.rmsnorm,
    )
}
MOST_NODES = 120


@pytest.fixture(scope="module")
def axioms():
    return load_axioms()


@pytest.mark.parametrize("name", ALL)
def test_saturation_is_small_and_complete(name, axioms):
    found = saturate(ALL[name], axioms)
    assert found.complete
    assert len(found.nodes) <= MOST_NODES


def value(node, operands, order, sizes, dims):
    """The value of an e-node on axes in the order of the program's dimensions."""
    match node.op:
        case "input":
            shape = [sizes[d] if d in dims[node.leaf] else 1 for d in order]
            return np.random.default_rng(zlib.crc32(node.leaf.encode())).normal(0, 1, shape)
        case "const":
            return np.full([1] * len(order), node.leaf)
        case "size":
            return np.full([1] * len(order), float(sizes[node.dim]))
    spec = OPS[node.op]
    if spec.kind is OpKind.ELEMENTWISE:
        return spec.numpy(*operands)
    axis = order.index(node.dim)
    if spec.kind is OpKind.REDUCE:
        return spec.numpy(operands[0], axis=axis, keepdims=True)
    return (operands[0] * operands[1]).sum(axis=axis, keepdims=True)


def class_values(program, saturation):
    """The value of each class, by its first computable e-node; and e-nodes that disagree."""
    order = [d.name for d in program.dims]
    sizes = {d.name: 2 + order.index(d.size) for d in program.dims}
    dims = {i.name: i.dims for i in program.inputs}
    known, wrong = {}, []
    for _ in range(30):  # children may come later in the list
        for node, cls in saturation.nodes:
            if all(c in known for c in node.children):
                with np.errstate(all="ignore"):
                    got = value(node, [known[c] for c in node.children], order, sizes, dims)
                want = known.setdefault(cls, got)
                if not np.allclose(*np.broadcast_arrays(got, want), equal_nan=True):
                    wrong.append(node)
    return known, wrong


@pytest.mark.parametrize("name", ALL)
def test_every_e_node_of_a_class_has_the_same_value(name, axioms):
    """No chain of axioms makes different values equal."""
    found = saturate(ALL[name], axioms)
    known, wrong = class_values(ALL[name], found)
    assert not wrong
    assert set(found.roots) <= known.keys()


def operators(saturation, cls):
    return {(n.op, n.dim) for n, c in saturation.nodes if c == cls}


def test_the_division_moves_past_the_contraction(axioms):
    found = saturate(PROGRAMS["rmsnorm"], axioms)
    assert operators(found, found.roots[0]) >= {("matmul", "d"), ("div", None), ("mul", None)}


def test_a_quotient_with_d_stays_before_the_contraction(axioms):
    found = saturate(PROGRAMS["quotient"], axioms)
    assert ("div", None) not in operators(found, found.roots[0])


def test_a_stable_softmax_contains_the_plain_one(axioms):
    """So that it is searched like one: exp(x) is below the root without the shift."""
    found = saturate(PROGRAMS["stable_softmax_matmul"], axioms)
    inputs = {c for n, c in found.nodes if n.op == "input"}
    plain = {c for n, c in found.nodes if n.op == "exp" and n.children[0] in inputs}
    assert plain
    sums = {c for n, c in found.nodes if n.op == "sum" and n.children[0] in plain}
    assert any(n.op == "div" and c in found.roots and n.children[1] in sums for n, c in found.nodes)


def test_only_operators_of_the_table_come_out(axioms):
    leaves = {"input", "const", "size"}
    for program in ALL.values():
        assert {n.op for n, _ in saturate(program, axioms).nodes} <= leaves | OPS.keys()


def test_every_reduction_is_over_a_dimension_its_operand_has(axioms):
    for program in ALL.values():
        found = saturate(program, axioms)
        for node, _ in found.nodes:
            assert all(
                node.dim in found.dims[c]
                for c in node.children
                if node.op != "size" and node.dim is not None
            )


def test_dims_of_a_class_are_those_of_its_value(axioms):
    found = saturate(PROGRAMS["rmsnorm"], axioms)
    assert found.dims[found.roots[0]] == {"n", "h"}


def test_each_output_has_a_root(axioms):
    found = saturate(PROGRAMS["both"], axioms)
    assert len(found.roots) == 2
    assert found.dims[found.roots[0]] == {"n", "d"}


def test_a_limit_is_reported(axioms):
    assert not saturate(PROGRAMS["rmsnorm"], axioms, Limits(nodes=20)).complete
    assert not saturate(PROGRAMS["rmsnorm"], axioms, Limits(iterations=2)).complete


def test_without_axioms_there_is_the_program_alone():
    found = saturate(PROGRAMS["matmul"], make_axiom_set(()))
    assert sorted(n.op for n, _ in found.nodes) == ["input", "input", "matmul"]


def test_saturation_is_deterministic(axioms):
    code = (
        "from verify.table import PROGRAMS; from prism.egraph import *;"
        "print(saturate(PROGRAMS['rmsnorm'], load_axioms()).nodes)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert out.strip() == str(saturate(PROGRAMS["rmsnorm"], axioms).nodes)
