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
import warnings
from pathlib import Path
from typing import Any

from prism.errors import KernelError
from prism.files import write_atomically
from prism.record import digest

__all__ = [
    "CacheWarning",
    "cache_folder",
    "entry_path",
    "kernel_folder",
    "temporary_folder",
    "warn_if_unwritable",
    "writable_folder",
    "write_atomically",
]


class CacheWarning(UserWarning):
    """A cache entry that could not be used, or not be written."""


def cache_folder() -> Path:
    """The root of the cache; it need not exist."""
    chosen = os.environ.get("PRISM_CACHE_DIR")
    if chosen:
        return Path(chosen)
    from platformdirs import user_cache_path  # noqa: PLC0415 - a chosen folder does without it

    return user_cache_path("prism-superopt")


def writable_folder() -> Path:
    """The root of the cache, made if need be; where that fails, a private temporary folder.

    For what a process cannot do without, such as the key that seals kernels.

    Raises:
        KernelError: neither can be written.
    """
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # asking for permission says little: root has it on a read-only file system too
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, ValueError):
        return temporary_folder()


_warned: set[Path] = set()


def warn_if_unwritable() -> None:
    """Say, once per folder, that a temporary folder stands in for the cache.

    Raises:
        KernelError: that cannot be written either.
    """
    folder, used = cache_folder(), writable_folder()
    if used != folder and folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"the cache {folder} cannot be written; {used} is used instead "
            "(PRISM_CACHE_DIR chooses another)",
            CacheWarning,
            stacklevel=3,
        )


def temporary_folder() -> Path:
    """A folder that all processes of this user share, and nobody else can write.

    Raises:
        KernelError: there is none.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"prism-superopt-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise KernelError(
            f"no folder to write to: neither {cache_folder()} nor {folder} ({error}); "
            "set PRISM_CACHE_DIR"
        ) from error
    if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o022:
        return folder
    raise KernelError(
        f"no folder to write to: neither {cache_folder()} nor {folder}; set PRISM_CACHE_DIR"
    )


def kernel_folder() -> Path:
    """Where emitted kernels lie."""
    return writable_folder() / "kernels"


def entry_path(kind: str, key: dict[str, Any]) -> Path:
    """The file of an entry, by everything it depends on; a cache that is read-only still serves."""
    name = f"{digest(json.dumps(key, sort_keys=True))}.json"
    path = cache_folder() / kind / name
    with contextlib.suppress(OSError):
        if path.is_file():
            return path
    return writable_folder() / kind / name
