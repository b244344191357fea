"""The seal of kernel files: proof that this user's Prism wrote a file before a line of it runs.

A kernel file is Python code: loading it runs it. Emitted files are therefore sealed with a key that
only this user has (an HMAC over text and metadata); a file or metadata from anyone else, or one
edited by hand, is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import warnings
from functools import cache
from pathlib import Path
from typing import Any

from prism.cache import CacheWarning, temporary_folder, writable_folder
from prism.errors import KernelError

KEY_BYTES = 32
KEY_FILE = "kernel-seal.key"


@cache
def _key() -> bytes:
    """This user's secret; where the cache cannot keep one, a temporary folder does.

    Raises:
        KernelError: that cannot keep one either.
    """
    path = writable_folder() / KEY_FILE
    try:
        return _kept_key(path)
    except OSError as error:
        instead = temporary_folder() / KEY_FILE
        warnings.warn(
            f"the key that seals kernels cannot be kept in {path} ({error}); {instead} is used. "
            "Remove what lies there, or set PRISM_CACHE_DIR",
            CacheWarning,
            stacklevel=2,
        )
    try:
        return _kept_key(instead)
    except OSError as error:
        raise KernelError(
            f"cannot keep a key in {path} or {instead}: {error}; set PRISM_CACHE_DIR"
        ) from error


def _kept_key(path: Path) -> bytes:
    """The key in a file, made on first use; of processes that start at once the first wins.

    Raises:
        OSError: the file can be neither read nor replaced.
    """
    for _ in range(10):
        if not path.exists():
            _make_key(path)
        key = path.read_bytes()
        if len(key) == KEY_BYTES:
            return key
        path.unlink(missing_ok=True)  # broken: files sealed with it are lost, and made again
    raise FileExistsError(f"{path} is written by something else")


def _make_key(path: Path) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    fresh.touch(mode=0o600)
    fresh.write_bytes(secrets.token_bytes(KEY_BYTES))
    try:
        path.hardlink_to(fresh)  # unlike `replace`, this keeps a key that is there by now
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        fresh.replace(path)
    fresh.unlink(missing_ok=True)


def seal(text: str, meta: dict[str, Any]) -> str:
    """The seal of a kernel file and its metadata."""
    facts = {k: v for k, v in meta.items() if k != "seal"}
    payload = json.dumps(facts, sort_keys=True).encode() + b"\0" + text.encode()
    return hmac.new(_key(), payload, hashlib.sha256).hexdigest()


def read_sealed(path: Path, meta: dict[str, Any], runtime: str) -> str:
    """The text of a kernel file that this user's Prism, with these modules, wrote.

    `runtime` is the digest of the modules that the file imports.

    Raises:
        KernelError: it is not sealed by this user, was changed, or is of another version.
    """
    try:
        text = path.read_text(encoding="utf-8")
        given, expected = str(meta["seal"]), seal(text, meta)
    except (OSError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise KernelError(f"{path}: not a kernel file with its metadata: {error!r}") from error
    if not hmac.compare_digest(given.encode(), expected.encode()):
        raise KernelError(
            f"{path}: not a file this user's Prism wrote, or changed since; it was not run. "
            "Emit the kernel again here"
        )
    if meta["runtime"] != runtime:
        raise KernelError(f"{path}: written by another version of Prism; emit the kernel again")
    return text
