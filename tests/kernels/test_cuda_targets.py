"""The CUDA targets' contract: what each emits, refuses, loads and says of a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from kernels.cases import GRAM
from kernels.legal import mugraph, random_mugraph
from kernels.programs import MATMUL, RMSNORM_DIVIDED_LAST, STABLE_SOFTMAX, random_arguments
from kernels.simulated import assert_computes
from strategies import random_program

from prism.errors import KernelError
from prism.ir import bind_sizes, evaluate
from prism.plugins import Group, installed, make
from prism_kernels.cuda import target as target_module
from prism_kernels.cuda.devices import GPUS
from prism_kernels.cuda.gpu_api import gpu_problem
from prism_kernels.cuda.rehearsal import smaller
from prism_kernels.cuda.target import CudaTarget, LockstepTarget, OfflineTarget
from prism_kernels.lower import tile_programs

SIZES = {"n": 8, "d": 4096, "h": 4096}


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def rmsnorm(x=128, i=8, sizes=SIZES):
    return mugraph(RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": x, "i": i})


def loaded(target, mu, dtype, folder):
    source = target.emit(mu, dtype)
    path = folder / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    return target.load(path, source.meta)


def test_without_the_toolchain_an_offline_target_says_what_to_install(monkeypatch):
    def missing():
        raise KernelError("CUDA kernels need numba-cuda: pip install")

    monkeypatch.setattr(target_module, "require_cuda", missing)
    with pytest.raises(KernelError, match="pip install"):
        make(Group.TARGET, "sm_90")


@pytest.mark.usefixtures("cuda_extra")
@pytest.mark.parametrize("name", GPUS)
def test_every_gpu_of_the_table_is_an_installed_target(name):
    assert name in installed(Group.TARGET)
    target = make(Group.TARGET, name)
    device = target.device()
    assert not target.measures
    assert (device.kind, device.blocks) == ("gpu", device.multiprocessors)
    assert (device.name, device.arch) == (GPUS[name].name, GPUS[name].arch)


@pytest.mark.usefixtures("cuda_extra")
@pytest.mark.parametrize("name", ["sm_80", "sm_90"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_kernel_for_another_machine_has_facts_and_a_prediction_but_does_not_run(
    name, dtype, tmp_path
):
    kernel = loaded(OfflineTarget(name), rmsnorm(), dtype, tmp_path)
    assert kernel.facts["spills"] == 0
    assert 16 <= kernel.facts["registers"] <= 255
    assert kernel.facts["occupancy"] >= 1
    assert 1e-6 < kernel.predicted_s < 1e-3
    for call in (kernel, kernel.run_into, kernel.bind):
        with pytest.raises(KernelError, match="which is not here"):
            call((), ())


def test_shared_memory_and_dtypes_decide_what_is_refused():
    big = mugraph(MATMUL, {"n": 256, "d": 4096, "h": 4096})
    for target in map(OfflineTarget, GPUS):
        assert target.refusal(rmsnorm(), "float16") is None
        assert "float64" in target.refusal(rmsnorm(), "float64")
        assert target.estimate(rmsnorm(), "float16") < target.estimate(big, "float16")


def test_the_simulator_refuses_what_would_take_it_hours():
    target = LockstepTarget()
    assert target.refusal(rmsnorm(2, 2, {"n": 2, "d": 32, "h": 16}), "float32") is None
    assert "use smaller sizes" in target.refusal(rmsnorm(), "float32")


def test_a_kernel_in_the_simulator_computes_its_program(tmp_path, rng):
    sizes = {"n": 3, "d": 20, "h": 10}
    mu = rmsnorm(2, 2, sizes)
    kernel = loaded(LockstepTarget(), mu, "float16", tmp_path)
    arguments = random_arguments(RMSNORM_DIVIDED_LAST, sizes, rng, "float16")
    (out,) = kernel(*arguments)
    names = (a.name for a in RMSNORM_DIVIDED_LAST.arguments)
    (expected,) = evaluate(RMSNORM_DIVIDED_LAST, dict(zip(names, arguments, strict=True)))
    assert out.dtype == np.float16
    assert np.linalg.norm(out - expected) < 2e-3 * np.linalg.norm(expected)


@pytest.mark.skipif(gpu_problem() is None, reason="there is a GPU here")
def test_without_a_gpu_the_message_names_the_targets_that_do_without():
    with pytest.raises(KernelError, match=r"sm_90.*lockstep"):
        CudaTarget()


def test_staging_is_an_option_only_where_there_is_a_contraction():
    target = OfflineTarget("sm_90")
    assert set(target.schedules(rmsnorm().graph, SIZES)) == {"T", "S", "C"}
    softmax = mugraph(STABLE_SOFTMAX, {"n": 4, "d": 8}).graph
    assert set(target.schedules(softmax, {"n": 4, "d": 8})) == {"T"}


def test_a_rehearsal_keeps_the_graph_and_its_loops_at_sizes_for_the_simulator():
    found = OfflineTarget("sm_90").rehearsal(rmsnorm(), "float16")
    assert found.mu.graph == rmsnorm().graph
    assert dict(found.mu.par_sizes[0]) == {"x": 2, "i": 2}
    assert max(dict(found.mu.sizes).values()) <= 48
    assert found.target.measures


def test_a_rehearsal_keeps_dims_of_one_size_alike():
    mu = mugraph(GRAM, {"n": 1000, "d": 64}, {"x": "m"}, None, {"x": 7})  # m = n, and is ragged
    for small in smaller(mu):
        sizes = dict(small.sizes)
        assert sizes["n"] == sizes["m"] < 1000


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_rehearsals_of_random_graphs_are_legal(first):
    for seed in range(first, first + 50):
        program = random_program(seed, 6)
        sizes = bind_sizes(program, dict.fromkeys(program.size_names, 64 + seed % 3))
        for small in smaller(random_mugraph(program, sizes, seed)):
            tile_programs(small)


@pytest.mark.parametrize("rows", [8, 256])
def test_a_rehearsal_uses_tensor_cores_where_the_kernel_does(rows):
    sizes = {"n": rows, "d": 4096, "h": 4096}
    grid = {"x": "h", "y": "n"} if rows > 64 else {"x": "h"}
    mu = mugraph(MATMUL, sizes, grid, "d", {"x": 64, "y": 2, "i": 4})
    target = OfflineTarget("sm_90")
    found = target.rehearsal(mu, "float16")
    assert target._by_cores(mu, "float16")
    assert target._by_cores(found.mu, "float16") == target._by_cores(mu, "float16")
    assert target._by_cores(target.rehearsal(mu, "float32").mu, "float32") == set()
    arguments = random_arguments(MATMUL, dict(found.mu.sizes), np.random.default_rng(0))
    assert_computes(found.mu, arguments, "float16")
