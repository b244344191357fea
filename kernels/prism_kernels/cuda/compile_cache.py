"""Machine code kept from run to run, by the content of everything it depends on.

An entry is one JSON file, sealed with the user's key (`prism_kernels.seal`) and vetted when read:
one that is broken, of a stranger, or too large is a miss with a warning.
"""

from __future__ import annotations

import base64
import hmac
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from prism.cache import CacheWarning, entry_path, write_atomically
from prism.errors import KernelError, UsageError
from prism.files import read_regular_text
from prism.record import digest
from prism_kernels.cuda.compile import Compiled, compile_kernel
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.cuda.toolchain import toolchain_versions
from prism_kernels.seal import seal

SCHEMA = 3
MAX_BYTES = 64 << 20
"""More than any kernel's machine code."""


def cache_path(text: str, launch: Mapping[str, Any], arch: str) -> Path:
    """The file of the machine code of one kernel of this text for this architecture.

    Raises:
        KernelError: the `cuda` extra is missing.
    """
    key = {
        "schema": SCHEMA,
        "text": digest(text),
        "kernel": launch["kernel"],
        "parameters": launch["parameters"],
        "threads": launch["threads"],
        "arch": arch,
        "runtime": runtime_digest(),
        "versions": toolchain_versions(),
    }
    return entry_path("cubins", key)


def read(path: Path) -> Compiled | None:
    """The machine code in a file of the cache, if it is there and can be trusted."""
    if not path.exists():
        return None
    try:
        return _parse(read_regular_text(path, MAX_BYTES), path.name)
    except (OSError, ValueError, KeyError, RecursionError, KernelError) as error:
        warnings.warn(f"{path} is not used: {error}", CacheWarning, stacklevel=2)
        return None


def write(path: Path, compiled: Compiled) -> None:
    """Keep machine code; where that fails, only a warning says so."""
    facts = asdict(compiled)
    text = base64.b64encode(facts.pop("cubin")).decode()
    entry = {**facts, "schema": SCHEMA, "cubin": text}
    try:
        entry["seal"] = _seal(entry, path.name)
        write_atomically(path, json.dumps(entry))
    except (KernelError, UsageError) as error:
        warnings.warn(f"the compiled kernel is not kept: {error}", CacheWarning, stacklevel=2)


def _seal(entry: Mapping[str, Any], name: str) -> str:
    """The seal of an entry under its file's name: one entry cannot stand in for another."""
    facts = {k: v for k, v in entry.items() if k not in {"cubin", "seal"}}
    return seal(str(entry.get("cubin")), {**facts, "entry of": name})


def _parse(text: str, name: str) -> Compiled:
    entry = json.loads(text)
    if not isinstance(entry, dict) or entry.get("schema") != SCHEMA:
        raise ValueError("it is not an entry of this version")
    if not hmac.compare_digest(str(entry.get("seal")).encode(), _seal(entry, name).encode()):
        raise ValueError("it is not sealed by this user, or changed since")
    facts = {field.name: entry[field.name] for field in fields(Compiled)}
    return Compiled(**{**facts, "cubin": base64.b64decode(facts["cubin"], validate=True)})


def compile_cached(
    text: str, launch: Mapping[str, Any], arch: str, path: Path | None = None
) -> Compiled:
    """`compile_kernel`, unless the cache has the machine code.

    Raises:
        KernelError: the `cuda` extra is missing, or the kernel does not compile.
    """
    entry = cache_path(text, launch, arch)
    known = read(entry)
    if known is not None:
        return known
    compiled = compile_kernel(text, launch, arch, path)
    write(entry, compiled)
    return compiled
