"""What the CUDA targets say of graphs of several kernels, and how a GPU launches them."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from kernels.fake_gpu import TORCH, FakeNumba, HostGpu, Tensor
from kernels.kernel_chains import (
    CHAINS,
    FFN,
    FLASH_DECODING,
    SPLIT_K,
    SPLIT_K_RMSNORM,
    TWO_OUTPUTS,
    by_name,
    chain,
    drawn,
    random_chain,
)
from kernels.simulated import SHARED_LIMIT

from prism.dtypes import TOLERANCES
from prism.ir import all_sizes, check_mugraph, evaluate_graph, stack_dims
from prism_kernels.cuda import cost
from prism_kernels.cuda.devices import GPUS
from prism_kernels.cuda.emit import emit, plan_kernels
from prism_kernels.cuda.gpu import GpuBackend
from prism_kernels.cuda.kernel import load_cuda_kernel
from prism_kernels.cuda.rehearsal import smaller
from prism_kernels.cuda.simulated import SimulatedBackend
from prism_kernels.cuda.target import LockstepTarget, OfflineTarget

DTYPES = ("float32", "float16", "bfloat16")
LARGE = {
    "split-K": chain(
        SPLIT_K, {"n": 8, "d": 4096, "h": 2048}, {"x": 8, "y": 32, "i": 8}, {"x": 64}
    ),
    "split-K RMSNorm": chain(
        SPLIT_K_RMSNORM, {"n": 8, "d": 4096, "h": 512}, {"x": 128, "y": 4}, {"x": 8, "i": 8}
    ),
    "flash decoding": chain(
        FLASH_DECODING,
        {"b": 8, "g": 8, "l": 4096, "d": 128, "e": 128},
        {"x": 16, "y": 8, "i": 8},
        {"x": 8},
    ),
    "FFN": chain(
        FFN,
        {"n": 8, "d": 2048, "f": 4096, "h": 2048},
        {"x": 128, "i": 16},
        {"x": 4, "y": 32, "i": 8},
        {"x": 64},
    ),
    "two outputs": chain(TWO_OUTPUTS, {"n": 64, "d": 4096}, {"x": 64}, {"x": 8, "y": 16}),
}  # fmt: skip


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "cache"))


def source_of(mu, dtype="float32"):
    return emit(mu, dtype, SHARED_LIMIT, "lockstep")


def loaded(mu, tmp_path, backend, dtype="float32"):
    source = source_of(mu, dtype)
    path = tmp_path / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    return load_cuda_kernel(path, source.meta, backend)


@pytest.mark.usefixtures("cuda_extra")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", LARGE)
def test_all_kernels_of_a_file_compile_without_spills(name, arch, tmp_path):
    mu, target = LARGE[name], OfflineTarget(arch)
    source = target.emit(mu, "float16")
    path = tmp_path / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    kernel = target.load(path, source.meta)
    assert kernel.facts["spills"] == 0
    assert kernel.facts["occupancy"] >= 1
    assert kernel.facts["shared_bytes"] == max(
        launch["shared_bytes"] for launch in source.meta["launches"]
    )
    assert kernel.predicted_s > len(mu.graph.kernels) * GPUS[arch].launch_s


@pytest.mark.parametrize("name", LARGE)
def test_an_estimate_is_the_sum_over_the_kernels_with_a_launch_each(name):
    mu, gpu = LARGE[name], GPUS["sm_90"]
    planned = plan_kernels(mu, "float16", gpu.shared_bytes_block)
    parts = [cost.seconds(kernel.work(), gpu) for kernel in planned.kernels]
    assert OfflineTarget("sm_90").estimate(mu, "float16") == sum(parts)
    assert min(parts) > gpu.launch_s
    assert len(parts) == len(mu.graph.kernels)


def test_what_the_last_kernel_left_is_not_read_from_dram_again():
    first, second = (
        kernel.work() for kernel in plan_kernels(LARGE["split-K"], "float16", SHARED_LIMIT).kernels
    )
    n, d, h, s = 8, 4096, 2048, 8
    assert first.dram_bytes_total == 2 * (n * d + d * h)
    assert second.dram_bytes_total == 2 * n * h
    between = 4 * s * n * h
    for work in (first, second):
        assert work.kept_bytes_total == work.kept_footprint == between


def test_splitting_the_reduced_dim_pays_where_there_are_few_blocks():
    sizes = {"n": 8, "d": 16384, "h": 256}
    target = OfflineTarget("h200")

    def estimate(splits):
        mu = chain(SPLIT_K, sizes, {"x": splits, "y": 4, "i": 128 // splits}, {"x": 4})
        return target.estimate(mu, "float16")

    assert estimate(16) < estimate(2) / 2


@pytest.mark.parametrize("name", LARGE)
def test_a_rehearsal_keeps_every_kernel_and_its_stacks(name):
    found = OfflineTarget("sm_90").rehearsal(LARGE[name], "float16")
    assert found.mu.graph == LARGE[name].graph
    check_mugraph(found.mu)
    assert all(all_sizes(found.mu)[dim] == 2 for dim in stack_dims(found.mu.graph))


@pytest.mark.parametrize("seed", range(30))
def test_rehearsals_of_chains_are_legal(seed):
    for small in smaller(random_chain(seed)):
        check_mugraph(small)


def test_the_simulator_refuses_by_the_work_of_all_kernels():
    target = LockstepTarget()
    assert target.refusal(CHAINS["FFN"], "float32") is None
    assert "use smaller sizes" in target.refusal(LARGE["FFN"], "float32")


def test_intermediates_too_large_to_keep_are_refused():
    counts = {"x": 1024, "y": 1024, "i": 1}, {"x": 1024}
    mu = chain(SPLIT_K, {"n": 64, "d": 65536, "h": 8192}, *counts)
    reason = OfflineTarget("sm_90").refusal(mu, "float16")
    assert "the tensors between the kernels take 2048 MB, more than 1024 MB" in reason


@pytest.mark.parametrize("name", ["ragged flash decoding", "ragged two outputs"])
def test_a_loaded_chain_runs_on_numpy_arrays_again_and_again(name, tmp_path, rng):
    mu = CHAINS[name]
    kernel = loaded(mu, tmp_path, SimulatedBackend(seed=1), "float16")
    for _ in range(2):
        arguments = drawn(mu, rng, "float16")
        expected = evaluate_graph(mu, by_name(mu, arguments))
        for out, reference in zip(kernel(*arguments), expected, strict=True):
            assert out.dtype == np.float16
            error = np.linalg.norm(out - reference)
            assert error <= TOLERANCES["float16"] * np.linalg.norm(reference)


def test_arrays_on_a_gpu_go_through_memory_between_the_kernels(tmp_path, rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", TORCH)
    mu, gpu = CHAINS["FFN"], HostGpu()
    kernel = loaded(mu, tmp_path, gpu)
    arguments = drawn(mu, rng)
    (out,) = kernel(*map(Tensor, arguments))
    (expected,) = evaluate_graph(mu, by_name(mu, arguments))
    np.testing.assert_allclose(out.array, expected, rtol=1e-4, atol=1e-4)
    (scratch,) = kernel._scratch.values()
    assert [memory.array.shape for memory in scratch] == [(4, 16), (2, 4, 8)]


def test_the_gpu_launches_all_kernels_between_one_pair_of_events(tmp_path, rng):
    mu, numba = replace(CHAINS["FFN"], schedule=(("T", 64),)), FakeNumba()
    backend = GpuBackend(numba.api)
    kernel = loaded(mu, tmp_path, backend)
    places, allocate = [], backend.allocate
    backend.allocate = lambda *given: places.append(allocate(*given)) or places[-1]
    bound = kernel.bind(drawn(mu, rng), [np.empty((4, 8), np.float32)])
    numba.log.clear()
    bound.run_timed()
    path = str(tmp_path / "kernel.py")
    assert [entry[:2] for entry in numba.log] == [
        ("launch", "hold"),
        ("record", "event 1"),
        *[("launch", f"{path}:kernel{k}") for k in range(3)],
        ("record", "event 2"),
        ("await event", "event 2"),
        ("elapsed", "event 1"),
    ]
    x, gate, up, down, out, t0, t1 = [place.address for place in places]
    assert [entry[-1] for entry in numba.log[2:5]] == [(x, gate, up, t0), (down, t0, t1), (out, t1)]
    assert {entry[3:5] for entry in numba.log[2:5]} == {(64, backend.stream)}


def test_facts_are_those_of_the_neediest_kernel(tmp_path):
    mu = CHAINS["split-K RMSNorm"]
    kernel = loaded(mu, tmp_path, GpuBackend(FakeNumba().api))
    shared = [launch["shared_bytes"] for launch in source_of(mu).meta["launches"]]
    assert len(set(shared)) > 1
    assert kernel.facts["shared_bytes"] == max(shared) + 16
    assert (kernel.facts["registers"], kernel.facts["spills"]) == (40, 8)
