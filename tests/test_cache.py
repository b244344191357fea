"""The cache: where it lies, what an entry depends on, and that no reader sees half a file."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from prism.cache import (
    CacheWarning,
    cache_folder,
    entry_path,
    kernel_folder,
    warn_if_unwritable,
    writable_folder,
    write_atomically,
)
from prism.errors import KernelError, UsageError
from prism.files import check_writable


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


def test_an_existing_file_keeps_its_mode(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text("old")
    path.chmod(0o600)
    write_atomically(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link.py").symlink_to("real/kernel.py")
    for text in ("made", "again"):
        write_atomically(tmp_path / "link.py", text)
        assert (tmp_path / "link.py").is_symlink()
        assert (tmp_path / "real" / "kernel.py").read_text() == text


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_fifo_is_refused_and_stays(is_linked, tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    given = path
    if is_linked:
        given = tmp_path / "link"
        given.symlink_to(path)
    for attempt in (check_writable, lambda p: write_atomically(p, "text")):
        with pytest.raises(UsageError, match="not a regular file"):
            attempt(given)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_text_that_is_no_utf8_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(UsageError, match="surrogates"):
        write_atomically(tmp_path / "kernel.py", "\ud800")
    assert list(tmp_path.iterdir()) == []


def test_without_a_cache_kernels_lie_in_the_temporary_folder_and_one_warning_says_so(no_cache):
    with pytest.warns(CacheWarning, match="cannot be written"):
        warn_if_unwritable()
    warn_if_unwritable()  # a second warning would be an error
    assert kernel_folder().is_relative_to(no_cache)
    assert entry_path("tuned", {}).is_relative_to(no_cache)


def test_a_cache_that_is_there_to_read_serves_entries(cache, monkeypatch, tmp_path):
    path = entry_path("tuned", {})
    write_atomically(path, "{}")
    monkeypatch.setattr("prism.cache.writable_folder", lambda: tmp_path)
    assert entry_path("tuned", {}) == path
