"""The cache: where it lies, what an entry depends on, and that no reader sees half a file."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from prism.cache import cache_folder, entry_path, writable_folder, write_atomically
from prism.errors import KernelError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_cache(tmp_path, monkeypatch):
    """A cache folder that cannot be made; returns the private one in its place."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRISM_CACHE_DIR", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"prism-superopt-{os.getuid()}"


def test_concurrent_writers_leave_one_whole_file(tmp_path):
    path = tmp_path / "deep" / "entry.json"
    texts = [str(i) * 200_000 for i in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda text: write_atomically(path, text), texts * 5))
    assert path.read_text() in texts
    assert list(path.parent.iterdir()) == [path]


def test_an_entry_depends_on_all_of_its_key(cache):
    key = {"program": "p", "sizes": {"n": 1}}
    paths = {entry_path("tuned", k) for k in (key, key | {"dtype": "float32"}, {"program": "p"})}
    assert len(paths) == 3
    assert all(path.is_relative_to(cache) for path in paths)
    assert entry_path("tuned", {"sizes": {"n": 1}, "program": "p"}) in paths


def test_the_cache_lies_in_the_users_folder_by_default(monkeypatch):
    monkeypatch.delenv("PRISM_CACHE_DIR", raising=False)
    assert "prism" in cache_folder().name


def test_the_writable_folder_is_the_cache_itself(cache):
    assert writable_folder() == cache
    assert cache.is_dir()


def test_without_a_cache_a_private_temporary_folder_serves(no_cache):
    assert writable_folder() == no_cache
    assert no_cache.stat().st_mode & 0o077 == 0


def test_a_temporary_folder_that_others_can_write_is_refused(no_cache):
    no_cache.mkdir()
    no_cache.chmod(0o777)
    with pytest.raises(KernelError, match="set PRISM_CACHE_DIR"):
        writable_folder()
