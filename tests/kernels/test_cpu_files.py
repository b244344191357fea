"""Files of CPU kernels: what they show, and that nothing else than what was emitted ever runs."""

from __future__ import annotations

import json
import pickle
from multiprocessing import get_context

import numpy as np
import pytest
from kernels.legal import mugraph
from kernels.programs import MATMUL, RMSNORM, random_arguments

from prism.cache import CacheWarning
from prism.errors import KernelError
from prism_kernels import seal as seal_module
from prism_kernels.cpu.target import CpuTarget

SIZES = {"n": 4, "d": 20, "h": 12}


@pytest.fixture
def arguments(rng):
    return random_arguments(MATMUL, SIZES, rng)


def written(cpu, mu, folder, dtype="float32"):
    source = cpu.emit(mu, dtype)
    path = folder / "kernel.py"
    path.write_text(source.text, encoding="utf-8")
    return path, source.meta


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


def test_a_kernel_compiled_here_runs_in_another_process(cpu, tmp_path, arguments):
    path, meta = written(cpu, mugraph(MATMUL, SIZES, {"x": "h"}, None, {"x": 3}), tmp_path)
    (here,) = cpu.load(path, meta)(*arguments)
    with get_context("spawn").Pool(1) as pool:
        (there,) = pool.apply(load_and_run, (path, meta, arguments))
    np.testing.assert_array_equal(here, there)


def load_and_run(path, meta, arguments):
    return CpuTarget().load(path, meta)(*arguments)
