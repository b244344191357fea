"""torch and onnxruntime as contestants, where they are installed: right in every form."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from strategies import random_arrays, random_program, random_sizes
from test_bench_rivals import USED, program_with

from prism.bench import BenchOptions, Task, run_bench
from prism.bench.accuracy import allowed_error, norm_error, reference_of
from prism.frontend import load_program
from prism.ir import OPS, Apply, evaluate, format_program
from prism.plugins import Group, installed
from prism_experiments.rivals.composites import find_attention, find_composites
from prism_experiments.rivals.contestants import (
    Case,
    OnnxRuntimeContestant,
    SdpaContestant,
    TorchCompileContestant,
    TorchContestant,
    as_tensor,
    eager,
    session,
)
from prism_experiments.rivals.torch_source import torch_source
from prism_experiments.sizes import SHAPES

# a fresh interpreter imports torch in seconds, and its compiler takes more
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def torch():
    """The library, its own warnings let through."""
    return pytest.importorskip("torch", reason="not installed: the extra `bench`")


@pytest.fixture(scope="module")
def onnxruntime():
    pytest.importorskip("onnx", reason="not installed: the extra `bench`")
    return pytest.importorskip("onnxruntime", reason="not installed: the extra `bench`")


def task_of(program, sizes, dtype="float32"):
    text = format_program(program)
    return Task(program.name, tuple(sizes.items()), dtype, 0, 1, "", text=text)


def workload_task(name, dtype="float32"):
    _, program = load_program(name)
    return task_of(program, SHAPES[name]["tiny"], dtype)


def error_of(prepared, task):
    case = Case.of(task)
    outputs = prepared.outputs(prepared.call())
    return norm_error(outputs, reference_of(case.program, task), task.dtype)


def forms(case):
    attention = find_attention(case.program, case.sizes)
    return [*case.forms.values(), *([attention] if attention else [])]


WORKLOADS = [w for w in installed(Group.WORKLOAD) if w in SHAPES]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_torch_computes_every_workload_in_every_form(torch, dtype):
    for name in WORKLOADS:
        task = workload_task(name, dtype)
        case = Case.of(task)
        for form in forms(case):
            source = torch_source(case.program, case.sizes, form)
            tensors = [as_tensor(torch, array) for array in case.inputs]
            error = error_of(eager(torch, source, tensors), task)
            # half types overflow or round where the form is not the library's own function
            assert error <= 4 * allowed_error(dtype) or dtype in {"float16", "bfloat16"}, name


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_onnxruntime_computes_every_workload_in_every_form(onnxruntime, dtype):
    import onnx  # noqa: PLC0415 - an extra

    for name in WORKLOADS:
        task = workload_task(name, dtype)
        case = Case.of(task)
        errors = [error_of(session(onnxruntime, onnx, case, f, 1), task) for f in forms(case)]
        # ONNX has attributes (eps, scale) in float32, so float64 needs the form without them; and
        # in float16 steps may overflow that kernels of ours take in float32
        if dtype == "float32":
            assert max(errors) <= allowed_error(dtype), name
        assert min(errors) <= allowed_error(dtype) or dtype == "float16", name


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_generated_programs_are_right_in_torch_and_onnxruntime(torch, onnxruntime, seed):
    import onnx  # noqa: PLC0415 - an extra

    program = random_program(seed)
    task = task_of(program, random_sizes(program, Random(seed)), "float64")
    case = Case.of(task)
    arrays = tuple(random_arrays(program, case.sizes, seed).values())
    reference = evaluate(
        program, dict(zip((a.name for a in program.arguments), arrays, strict=True))
    )
    composites = find_composites(program, case.sizes)
    tensors = [as_tensor(torch, array) for array in arrays]
    by_torch = eager(torch, torch_source(program, case.sizes, composites), tensors)
    assert norm_error(by_torch.outputs(by_torch.call()), reference, "float64") < 1e-12
    # onnxruntime lacks functions in float64
    narrow = replace(case, inputs=tuple(array.astype(np.float32) for array in arrays))
    by_onnx = session(onnxruntime, onnx, narrow, composites, 1)
    assert norm_error(by_onnx.outputs(by_onnx.call()), reference, "float32") < 1e-3


@pytest.mark.parametrize("line", list(USED))
def test_users_operators_run_in_both(torch, onnxruntime, line):
    import onnx  # noqa: PLC0415 - an extra

    program = program_with(line)
    task = task_of(program, {"n": 3, "d": 6})
    case = Case.of(task)
    source = torch_source(program, case.sizes, {})
    tensors = [as_tensor(torch, array) for array in case.inputs]
    assert error_of(eager(torch, source, tensors), task) < 1e-6
    assert error_of(session(onnxruntime, onnx, case, {}, 1), task) < 1e-6
    assert any(isinstance(n, Apply) and OPS[n.op].definition for n in program.nodes)


def test_torch_offers_each_form_in_each_layout(torch):
    ways = [way.name for way in TorchContestant().prepare(workload_task("rmsnorm"))]
    assert ways == [
        "fused functions, as given",
        "operators, as given",
        "fused functions, weights transposed",
        "operators, weights transposed",
    ]
    for way in TorchContestant().prepare(workload_task("rmsnorm")):
        assert error_of(way.make(), workload_task("rmsnorm")) < 1e-6


def test_sdpa_says_where_there_is_no_attention(torch):
    with pytest.raises(Exception, match="the program holds no attention"):
        SdpaContestant().prepare(workload_task("rmsnorm"))
    ways = SdpaContestant().prepare(workload_task("attention"))
    prepared = ways[0].make()
    assert "scaled_dot_product_attention" in prepared.source
    assert error_of(prepared, workload_task("attention")) < 1e-6


def test_onnxruntime_has_weights_as_constants(onnxruntime):
    task = workload_task("rmsnorm")
    ways = {way.name: way.make() for way in OnnxRuntimeContestant().prepare(task)}
    assert list(ways) == ["fused functions", "operators"]
    assert "RMSNormalization" in ways["fused functions"].source
    assert "RMSNormalization" not in ways["operators"].source
    assert all(error_of(prepared, task) < 1e-6 for prepared in ways.values())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # torch has its own
def test_compiled_forms_are_right_in_every_mode(torch):
    task = workload_task("rmsnorm")
    for way in TorchCompileContestant().prepare(task):
        assert error_of(way.make(), task) < 1e-6, way.name


@pytest.mark.slow
def test_the_libraries_take_turns_with_numpy(torch, onnxruntime):
    task = workload_task("softmax_matmul")
    against = ["torch", "onnxruntime", "sdpa"]
    options = BenchOptions(rounds=2, calls=2, ours="numpy")
    task = replace(task, program="softmax_matmul")
    result = run_bench(Case.of(task).program, task, against, options)
    rows = {row.name: row for row in result.contestants}
    assert rows["sdpa"].failure == "the program holds no attention: softmax(q k^T) v"
    for name in ("torch", "onnxruntime"):
        assert rows[name].failure is None
        assert rows[name].ratio > 0
        assert rows[name].way in dict(rows[name].ways)
