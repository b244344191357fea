"""The CPU target's contract: refusals, sealed files, calls, device, schedules, estimates."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from importlib.metadata import entry_points
from multiprocessing import get_context

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import (
    LINEAR,
    MATMUL,
    RMSNORM,
    RMSNORM_DIVIDED_LAST,
    SOFTMAX,
    TOLERANCE,
    assert_computes,
    random_arguments,
)

from prism.cache import CacheWarning
from prism.errors import KernelError
from prism.protocols import Device, Target
from prism_kernels import seal as seal_module
from prism_kernels.cpu import device as device_module
from prism_kernels.cpu.emit_file import emit_file
from prism_kernels.cpu.places import plan
from prism_kernels.cpu.registers import Registers
from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cpu.widths import Widths
from prism_kernels.lower import lower

SIZES = {"n": 4, "d": 20, "h": 12}


@pytest.fixture
def matmul(compiled):
    return compiled(mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 3}))


@pytest.fixture
def arguments(rng):
    return random_arguments(MATMUL, SIZES, rng)


def written(cpu, mu, folder, dtype="float32"):
    source = cpu.emit(mu, dtype)
    path = folder / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    return path, source.meta


# -- the plug-in and what it refuses


def test_the_target_is_installed_under_its_name(cpu):
    (entry,) = entry_points(group="prism.targets", name="cpu")
    assert entry.load() is CpuTarget
    assert all(hasattr(cpu, name) for name in vars(Target) if not name.startswith("_"))


@pytest.mark.parametrize("dtype", ["float8", "int32", "nonsense"])
def test_other_dtypes_are_refused_by_name(cpu, dtype):
    mu = mugraph(MATMUL, SIZES)
    assert f"float64, float32, float16, bfloat16, not {dtype}" in cpu.refusal(mu, dtype)
    with pytest.raises(KernelError, match=dtype):
        cpu.emit(mu, dtype)


def test_tiles_too_large_for_memory_are_refused(cpu):
    mu = mugraph(SOFTMAX, {"n": 1 << 16, "d": 1 << 16})
    assert "MB" in cpu.refusal(mu, "float32")
    assert cpu.refusal(mugraph(MATMUL, SIZES), "float32") is None


def test_arrays_past_64_bit_offsets_are_refused(cpu):
    mu = mugraph(MATMUL, {"n": 1 << 40, "d": 1 << 23, "h": 1}, {"x": "n"}, None, {"x": 1 << 40})
    assert "64-bit offsets overflow" in cpu.refusal(mu, "float32")


# -- files


def test_meta_is_json_and_says_what_the_kernel_takes(cpu, tmp_path):
    _, meta = written(cpu, mugraph(MATMUL, SIZES), tmp_path)
    assert json.loads(json.dumps(meta)) == meta
    assert [a["name"] for a in meta["arguments"]] == ["x", "w"]
    assert meta["outputs"] == [{"name": "out0", "shape": [4, 12]}]


def test_the_file_shows_the_graph_sizes_and_schedule(cpu, tmp_path):
    mu = mugraph(RMSNORM, SIZES, {"x": "h"}, None, {"x": 3}, schedule=[("KB", 16)])
    path, _ = written(cpu, mu, tmp_path)
    text = path.read_text(encoding="utf-8")
    for shown in ("program rmsnorm", "n = 4, d = 20, h = 12", "x = 3", "KB = 16", "m[w,h,x]"):
        assert shown in text
    compile(text, str(path), "exec")


@pytest.mark.parametrize("part", ["text", "meta", "seal", "no seal", "no meta", "no file"])
def test_a_file_that_is_not_exactly_ours_is_never_run(cpu, tmp_path, part):
    path, meta = written(cpu, mugraph(MATMUL, SIZES), tmp_path)
    trap = tmp_path / "trap"
    match part:
        case "text":
            attack = f"\nimport pathlib; pathlib.Path({str(trap)!r}).touch()\n"
            path.write_text(path.read_text(encoding="utf-8") + attack, encoding="utf-8")
        case "meta":
            meta = {**meta, "workspace_elements": 10**6}
        case "seal":
            meta = {**meta, "seal": "0" * 64}
        case "no seal":
            meta = {k: v for k, v in meta.items() if k != "seal"}
        case "no meta":
            meta = {}
        case "no file":
            path.unlink()
    with pytest.raises(KernelError, match=r"kernel\.py"):
        cpu.load(path, meta)
    assert not trap.exists()


@pytest.mark.parametrize("content", [None, b"", b"short", b"x" * 33])
def test_a_missing_or_broken_key_is_made_anew_and_kept(tmp_path, monkeypatch, content):
    monkeypatch.setattr(seal_module, "writable_folder", lambda: tmp_path)
    path = tmp_path / "kernel-seal.key"
    if content is not None:
        path.write_bytes(content)
    make = seal_module._key.__wrapped__
    key = make()
    assert len(set(key)) > 8
    assert make() == key == path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_that_cannot_be_kept_in_the_cache_lies_in_a_temporary_folder(tmp_path, monkeypatch):
    spoilt, instead = tmp_path / "cache", tmp_path / "temporary"
    (spoilt / "kernel-seal.key").mkdir(parents=True)
    instead.mkdir()
    monkeypatch.setattr(seal_module, "writable_folder", lambda: spoilt)
    monkeypatch.setattr(seal_module, "temporary_folder", lambda: instead)
    make = seal_module._key.__wrapped__
    with pytest.warns(CacheWarning, match=r"kernel-seal\.key .*Remove what lies there") as seen:
        key = make()
    assert len(seen) == 1
    assert (instead / "kernel-seal.key").read_bytes() == key
    (instead / "kernel-seal.key").unlink()
    (instead / "kernel-seal.key").mkdir()
    with pytest.warns(CacheWarning), pytest.raises(KernelError, match="set PRISM_CACHE_DIR"):
        make()


def test_a_file_of_another_runtime_is_refused(cpu, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("prism_kernels.cpu.target.runtime_digest", lambda: "older")
        path, meta = written(cpu, mugraph(MATMUL, SIZES), tmp_path)
    with pytest.raises(KernelError, match="another version"):
        cpu.load(path, meta)


def test_nothing_beside_a_kernel_is_read_or_written(cpu, tmp_path, arguments):
    """Numba's cache on disk is a pickle: whoever can write it could run code."""
    path, meta = written(cpu, mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 3}), tmp_path)
    folder, trap = tmp_path / "__pycache__", tmp_path / "trap"
    folder.mkdir()
    names = [f"kernel.block-{line}.py3{minor}" for line in range(200) for minor in (11, 12, 13)]
    planted = pickle.dumps(Planted(str(trap)))
    for name in names:
        (folder / f"{name}.nbi").write_bytes(planted)
    kernel = cpu.load(path, meta)
    assert not trap.exists()
    assert len(list(folder.iterdir())) == len(names)
    assert kernel(*arguments)[0].shape == (4, 12)
    assert "cache=True" not in path.read_text(encoding="utf-8")


class Planted:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_a_lost_key_makes_kernels_anew_and_they_load(cpu, tmp_path, monkeypatch):
    monkeypatch.setattr(seal_module, "writable_folder", lambda: tmp_path)
    names = []
    for _ in range(2):
        seal_module._key.cache_clear()
        (tmp_path / "kernel-seal.key").unlink(missing_ok=True)
        path, meta = written(cpu, mugraph(MATMUL, SIZES), tmp_path)
        names.append((meta["seal"], cpu.load(path, meta)._module.__name__))
    seal_module._key.cache_clear()
    assert names[0][0] != names[1][0]
    assert names[0][1] == names[1][1]


@pytest.mark.parametrize(("setting", "value"), [("NUMBA_NUM_THREADS", "0")])
def test_a_number_of_threads_that_cannot_be_is_a_message(setting, value):
    code = "from prism.plugins import Group, load; load(Group.TARGET, 'cpu')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, setting: value},
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("prism.errors.KernelError: Numba ")
    assert setting in last


def test_a_kernel_compiled_here_runs_in_another_process(cpu, tmp_path, arguments):
    path, meta = written(cpu, mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 3}), tmp_path)
    (here,) = cpu.load(path, meta)(*arguments)
    with get_context("spawn").Pool(1) as pool:
        (there,) = pool.apply(load_and_run, (path, meta, arguments))
    np.testing.assert_array_equal(here, there)


def load_and_run(path, meta, arguments):
    return CpuTarget().load(path, meta)(*arguments)


# -- calls


def test_results_are_fresh_arrays_on_cache_lines(matmul, arguments):
    (first,), (second,) = matmul(*arguments), matmul(*arguments)
    assert first.ctypes.data % 64 == 0
    assert not np.shares_memory(first, second)
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, w: (x,), "1 arguments given, the kernel has 2"),
        (lambda x, w: (x, w.T), "argument w has shape"),
        (lambda x, w: (x[:2], w), "argument x has shape"),
        (lambda x, w: (x.astype(np.float64), w), "argument x must be a NumPy array of float32"),
        (lambda x, w: (x.tolist(), w), "argument x must be a NumPy array of float32, not list"),
        (lambda x, w: (np.asfortranarray(x), w), "argument x must be C-contiguous"),
    ],
)
def test_arguments_that_do_not_fit_are_named(matmul, arguments, change, message):
    with pytest.raises(KernelError, match=message):
        matmul(*change(*arguments))


def test_outputs_that_overlap_or_cannot_be_written_are_refused(matmul, arguments):
    memory = np.zeros(200, np.float32)
    x = memory[:80].reshape(4, 20)
    with pytest.raises(KernelError, match="shares memory"):
        matmul.run_into((x, arguments[1]), [memory[60:108].reshape(4, 12)])
    locked = np.zeros((4, 12), np.float32)
    locked.flags.writeable = False
    with pytest.raises(KernelError, match="cannot be written"):
        matmul.run_into(arguments, [locked])


def test_calls_from_several_threads_do_not_disturb_each_other(compiled, rng):
    sizes = {"n": 8, "d": 300, "h": 2500}
    kernel = compiled(mugraph(RMSNORM_DIVIDED_LAST, sizes, {"x": "h"}, "d", {"x": 4, "i": 3}))
    arguments = random_arguments(RMSNORM_DIVIDED_LAST, sizes, rng)
    (expected,) = kernel(*arguments)
    wrong = []

    def work():
        results = [kernel(*arguments)[0] for _ in range(20)]
        wrong.extend(r for r in results if not np.array_equal(r, expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_runs_kernels_and_flushes(cpu, matmul, arguments):
    (expected,) = matmul(*arguments)
    child = os.fork()
    if child == 0:
        cpu.flush()
        same = np.array_equal(matmul(*arguments)[0], expected)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# -- the machine


def test_the_device_describes_this_machine(cpu):
    device = cpu.device()
    assert device.threads >= 1
    assert device.vector_bits in {128, 256, 512}
    assert 0 < device.l1_bytes <= device.l2_bytes
    assert 0.1 < device.stream_gbps < 10_000
    cpu.flush()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"x": "y"}', '{"x": null}', "\0"])
def test_a_broken_device_cache_is_measured_anew(tmp_path, monkeypatch, content):
    monkeypatch.setattr(device_module, "writable_folder", lambda: tmp_path)
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (12.5, True))
    (tmp_path / "device.json").write_text(content, encoding="utf-8")
    assert device_module._stream_gbps(3) == 12.5
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (99.0, True))
    assert device_module._stream_gbps(3) == 12.5


def test_the_key_and_the_bandwidth_follow_the_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (12.5, True))
    seal_module._key.__wrapped__()
    device_module._stream_gbps(3)
    kept = {path.name for path in (tmp_path / "cache").iterdir()}
    assert kept == {"kernel-seal.key", "device.json"}


def test_a_bandwidth_measured_on_a_busy_machine_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(device_module, "writable_folder", lambda: tmp_path)
    monkeypatch.setattr(device_module, "_measure_stream", lambda threads: (3.0, False))
    assert device_module._stream_gbps(2) == 3.0
    assert not (tmp_path / "device.json").exists()


@pytest.mark.parametrize(("bits", "registers"), [(256, 16), (128, 32)])
@pytest.mark.parametrize("program", [RMSNORM_DIVIDED_LAST, LINEAR, MATMUL])
def test_code_for_machines_with_shorter_vectors_is_right(  # noqa: PLR0917 - fixtures
    compiled, rng, monkeypatch, bits, registers, program
):
    monkeypatch.setattr(device_module, "vector_bits", lambda: bits)
    monkeypatch.setattr(device_module, "vector_registers", lambda: registers)
    sizes = {"n": 13, "d": 75, "h": 203}
    mu = mugraph(program, sizes, {"x": "h"}, "d", {"x": 2, "i": 2})
    arguments = random_arguments(program, sizes, rng)
    assert_computes(compiled(mu), program, arguments, TOLERANCE["float32"])


# -- schedules and estimates

BIG = {"n": 8, "d": 4096, "h": 4096}
MACHINE = Device("a machine", 2, 512, 32 << 10, 1 << 20, 32 << 20, 34.0)


def test_schedules_name_the_options_that_matter_default_first(cpu):
    streamed = mugraph(MATMUL, BIG, {"x": "h"})
    options = cpu.schedules(streamed.graph, BIG)
    assert set(options) == {"KB"}
    assert options["KB"][0] == 16
    assert set(cpu.schedules(mugraph(LINEAR, BIG).graph, BIG)) == {"U"}
    assert cpu.schedules(mugraph(MATMUL, SIZES).graph, SIZES) == {}


@pytest.fixture
def estimated(cpu, monkeypatch):
    """`estimated(program, ...)`: predicted seconds on one known machine."""
    monkeypatch.setattr(device_module, "device", lambda: MACHINE)
    return lambda *graph, **schedule: cpu.estimate(
        mugraph(*graph, schedule=schedule.items()), "float32"
    )


def test_wide_pieces_of_the_stream_are_predicted_faster_than_narrow_ones(estimated):
    times = [
        estimated(RMSNORM_DIVIDED_LAST, BIG, {"x": "h"}, "d", {"x": x, "i": 8}) for x in (2, 8, 32)
    ]
    assert times == sorted(times)
    # the stream bounds what is possible: 67 MB at 34 GB/s
    assert 1.9e-3 < times[0] < 5e-3


def test_one_block_is_predicted_slower_than_one_per_thread(estimated):
    one, two = (estimated(MATMUL, BIG, {"x": "h"}, "d", {"x": x, "i": 8}) for x in (1, 2))
    assert one > two


def test_blocks_that_each_read_the_whole_weight_are_predicted_slower(estimated):
    by_rows = estimated(MATMUL, BIG, {"x": "n"}, None, {"x": 2})
    by_columns = estimated(MATMUL, BIG, {"x": "h"}, None, {"x": 2})
    assert by_rows > by_columns


def test_a_softmax_of_whole_tiles_is_predicted_slower_than_row_by_row(estimated):
    sizes = {"n": 4096, "d": 4096}
    whole = estimated(SOFTMAX, sizes, {"x": "n"}, None, {"x": 2})
    by_rows = estimated(SOFTMAX, sizes, {"x": "n"}, None, {"x": 256})
    assert whole > by_rows


def test_an_accumulator_that_is_read_more_often_is_predicted_slower(estimated):
    grid, counts = {"x": "h"}, {"x": 2, "i": 8}
    few, many = (estimated(MATMUL, BIG, grid, "d", counts, KB=kb) for kb in (4, 16))
    assert few > many


def test_rows_of_a_k_block_that_share_sets_of_the_cache_are_predicted_slower(estimated):
    """Rows of 16 KB do, in blocks of more rows than L1 has ways; rows of 16 KB + 4 do not."""
    grid, counts = {"x": "h"}, {"x": 2, "i": 8}
    few, more, most = (estimated(MATMUL, BIG, grid, "d", counts, KB=kb) for kb in (8, 16, 32))
    assert few < more < most
    odd = BIG | {"h": 4097}
    few, more, most = (estimated(MATMUL, odd, grid, "d", counts, KB=kb) for kb in (8, 16, 32))
    assert few > more > most


# -- the text


GOLDEN = {
    "rmsnorm": mugraph(
        RMSNORM_DIVIDED_LAST,
        {"n": 8, "d": 1024, "h": 2050},
        {"x": "h"},
        "d",
        {"x": 2, "i": 4},
    ),
    "softmax": mugraph(SOFTMAX, {"n": 100, "d": 300}, {"x": "n"}, "d", {"x": 3, "i": 2}),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_emitted_source_is_as_reviewed(golden, monkeypatch, name):
    monkeypatch.setattr("prism_kernels.cpu.emit_file.runtime_digest", lambda: "of some version")
    made = [plan(tile, Widths(4, 4)) for tile in lower(GOLDEN[name]).programs]
    golden(
        f"kernels/{name}",
        emit_file(made, "float32", Registers(32, 16, Widths(4, 4)), name, ["header"]),
    )


def test_emission_is_deterministic(cpu):
    mu = GOLDEN["rmsnorm"]
    first, second = cpu.emit(mu, "float32"), CpuTarget().emit(replace(mu), "float32")
    assert first.text == second.text
    assert first.meta == second.meta
