"""How files of strangers are read and files of the user are replaced.

Only regular files: a device or FIFO may have no end, and renaming over one would replace it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import stat
import tempfile
import uuid
from pathlib import Path

from prism.errors import ParseError, UsageError

MAX_DEPTH = 60
"""JSON of ours is flat; deeper nesting would end in a RecursionError somewhere."""

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (escape codes), direction overrides and lone surrogates."""


MAX_TEXT_BYTES = 16 * 2**20
"""More than any axiom file or graph a person writes."""


def read_regular(path: Path, most: int) -> bytes:
    """All of a regular file of at most `most` bytes.

    Raises:
        OSError: it cannot be read, is no regular file (EINVAL, EISDIR), or is larger (EFBIG).
    """
    require_regular(path.stat())
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        require_regular(os.fstat(file.fileno()))
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most >> 20} MiB")
    return content


def read_regular_text(path: Path, most: int) -> str:
    """The text of a regular file, as `Path.read_text` gives it; see `read_regular`.

    Raises:
        OSError: as `read_regular`.
        UnicodeDecodeError: it is not UTF-8.
    """
    with io.TextIOWrapper(io.BytesIO(read_regular(path, most)), encoding="utf-8") as text:
        return text.read()


def require_regular(status: os.stat_result) -> None:
    """Refuse what is no regular file.

    Raises:
        OSError: it is a folder, device, FIFO or socket.
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file (a device, FIFO or socket)")


def check_writable(path: Path) -> None:
    """Refuse a place where `write_atomically` would fail; makes its folder.

    Asking for permission says little (root has it everywhere), so a file is made there.

    Raises:
        UsageError: the path is a folder or special file, or nothing can be written beside it.
    """
    try:
        target, _ = _target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=target.parent):
            pass
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {path}: {_reason(error)}") from error


def write_atomically(path: Path, text: str | bytes) -> None:
    """Write a file so that a reader sees all of it or the old one, whoever else writes.

    A link stays one: the file it leads to is written. An existing file keeps its mode.

    Raises:
        UsageError: the file cannot be written.
    """
    draft = None
    try:
        content = text.encode() if isinstance(text, str) else text
        target, mode = _target(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name[:100]}.{uuid.uuid4().hex}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        with os.fdopen(os.open(draft, flags, 0o666 if mode is None else mode), "wb") as file:
            file.write(content)
        if mode is not None:
            draft.chmod(mode)
        draft.replace(target)
    except (OSError, ValueError) as error:
        if draft is not None:
            with contextlib.suppress(OSError):
                draft.unlink()
        raise UsageError(f"cannot write {path}: {_reason(error)}") from error


def _target(path: Path) -> tuple[Path, int | None]:
    """The file behind a path, links followed, and its mode if it is there already."""
    target = Path(os.path.realpath(path))
    try:
        status = target.stat()
    except FileNotFoundError:
        return target, None
    require_regular(status)
    return target, stat.S_IMODE(status.st_mode) & 0o777


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def require_printable(value: object, where: str = "", depth: int = 0) -> None:
    """Refuse JSON with texts that must not reach a terminal, or nested too deep.

    Raises:
        ParseError: names the place.
    """
    if depth > MAX_DEPTH:
        raise ParseError(f"{where[:80]}: nested too deep")
    match value:
        case str() if _UNPRINTABLE.search(value):
            raise ParseError(f"{where or 'the text'}: a control character or lone surrogate")
        case dict():
            for name, item in value.items():
                require_printable(name, where or "a name", depth)
                require_printable(item, f"{where}.{name}" if where else name, depth + 1)
        case list():
            for i, item in enumerate(value):
                require_printable(item, f"{where}[{i}]", depth + 1)
        case _:
            pass
