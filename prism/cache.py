"""Where everything that outlives a run is kept, and how files are written.

The folder is the user's cache folder, or PRISM_CACHE_DIR. A key is the hash of everything the
result depends on; an entry is one file, written whole or not at all, so that concurrent runs can
only overwrite each other's equal work. An entry that cannot be read is a miss with a warning.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import uuid
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from prism.errors import KernelError, UsageError
from prism.record import digest


class CacheWarning(UserWarning):
    """A cache entry that could not be used, or not be written."""


def cache_folder() -> Path:
    """The root of the cache; it need not exist."""
    chosen = os.environ.get("PRISM_CACHE_DIR")
    return Path(chosen) if chosen else user_cache_path("prism-superopt")


def writable_folder() -> Path:
    """The root of the cache, made if need be; where that fails, a private temporary folder.

    For what a process cannot do without, such as the key that seals kernels.

    Raises:
        KernelError: neither can be written.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return _temporary_folder()
    return folder if os.access(folder, os.W_OK) else _temporary_folder()


def _temporary_folder() -> Path:
    """A folder that all processes of this user share, and nobody else can write."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"prism-superopt-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o022:
        return folder
    raise KernelError(
        f"no folder to write to: neither {cache_folder()} nor {folder}; set PRISM_CACHE_DIR"
    )


def kernel_folder() -> Path:
    """Where emitted kernels lie."""
    return cache_folder() / "kernels"


def entry_path(kind: str, key: dict[str, Any]) -> Path:
    """The file of an entry, by everything it depends on."""
    return cache_folder() / kind / f"{digest(json.dumps(key, sort_keys=True))}.json"


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that a reader sees all of it or the old one, whoever else writes.

    Raises:
        UsageError: the file cannot be written.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise UsageError(f"cannot write {path}: {error}") from error
