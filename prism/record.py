"""What a tuning run leaves behind: one JSON line per trial, enough to repeat it and to resume.

A record file only ever grows. Each line is written by a single `write` on a descriptor opened with
O_APPEND, which a local file system does not interleave with other writers' lines, so no lock is
needed and a killed run costs at most its last line. Reading skips what is not a record (a line cut
off by a kill, a line of another schema) with one warning that names it.

A trial's outcome is one of a fixed taxonomy (`Outcome`); only `ok` trials compete.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import platform
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from prism.errors import ParseError, UsageError
from prism.files import check_writable, read_regular, require_regular

SCHEMA = "prism.trial/2"
MAX_BYTES = 2**30
"""A larger file is no record of ours."""

Counts = tuple[tuple[str, int], ...]
"""Named integers: the sizes of dimensions, of parallelization dimensions, or a schedule."""


class RecordWarning(UserWarning):
    """Lines of a record file that were skipped."""


class Outcome(Enum):
    """How a trial ended."""

    OK = "ok"
    """Compiled, right, and timed; only compiled where the target cannot run its kernels."""
    REFUSED = "refused"
    """The target cannot run this muGraph (resources, an unsupported operator)."""
    COMPILE = "compile"
    """The emitted source does not compile."""
    TIMEOUT_COMPILE = "timeout-compile"
    TIMEOUT_RUN = "timeout-run"
    CRASH = "crash"
    """The worker process died."""
    WRONG = "wrong"
    """Differs from the float64 reference, or wrote into its inputs."""
    INACCURATE = "inaccurate"
    """Close to the reference, but not within the tolerance of the dtype."""
    ERROR = "error"
    """Any other exception while emitting or running."""


@dataclass(frozen=True, slots=True)
class TrialKey:
    """What makes two trials the same trial; the seed and the wall clock do not."""

    program: str
    """SHA-256 of the program's text."""
    graph: str
    """SHA-256 of the sGraph's text."""
    sizes: Counts
    par_sizes: tuple[Counts, ...]
    schedule: Counts
    dtype: str
    target: str
    device: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Trial:
    """One config measured once. Times in seconds; None where the trial did not get that far.

    Where the target cannot run its kernels an `ok` trial has a prediction and no measured times.
    """

    key: TrialKey
    program_name: str
    graph_id: str
    seed: int
    outcome: Outcome
    median_s: float | None = None
    min_s: float | None = None
    max_error: float | None = None
    compile_s: float | None = None
    source: str | None = None
    """SHA-256 of the kernel's source."""
    detail: str = ""
    at: str = ""
    """When it ended, ISO 8601, UTC."""
    predicted_s: float | None = None
    facts: Mapping[str, int | float | str] = field(default_factory=dict, hash=False)
    """What the kernel said about itself: registers, shared memory, spills on a GPU."""
    host: str = ""
    """The machine of a cluster where it ran; empty where it was the tuner's own."""
    at_once: int = 1
    """How many trials the strategy had out at once: it chose them without knowing each other."""


def digest(text: str) -> str:
    """SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def now() -> str:
    """The time of day for a record, ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> tuple[tuple[str, str], ...]:
    """The versions a measurement depends on; nothing is imported to find them."""
    out = [("python", platform.python_version())]
    for name in ("prism-superopt", "numpy", "numba", "llvmlite", "numba-cuda"):
        try:
            out.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(out)


def to_line(trial: Trial) -> str:
    """The JSON line of a trial, without the newline."""
    key = trial.key
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "program": trial.program_name,
        "program_sha256": key.program,
        "graph": trial.graph_id,
        "graph_sha256": key.graph,
        "sizes": dict(key.sizes),
        "par_sizes": [dict(counts) for counts in key.par_sizes],
        "schedule": dict(key.schedule),
        "dtype": key.dtype,
        "target": key.target,
        "device": key.device,
        "versions": dict(key.versions),
        "seed": trial.seed,
        "outcome": trial.outcome.value,
        "median_s": trial.median_s,
        "min_s": trial.min_s,
        "max_error": trial.max_error,
        "compile_s": trial.compile_s,
        "source_sha256": trial.source,
        "detail": trial.detail,
        "at": trial.at,
        "predicted_s": trial.predicted_s,
        "facts": dict(trial.facts),
        "host": trial.host,
        "at_once": trial.at_once,
    }
    return json.dumps(data, allow_nan=False)


def from_line(line: str) -> Trial:
    """The trial of a JSON line.

    Raises:
        ParseError: the line is not a whole record of this schema.
    """
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ParseError(f"not a {SCHEMA} record")
    try:
        return _trial(data)
    except KeyError as error:
        raise ParseError(f"a {SCHEMA} record without {error}") from error
    except (TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise ParseError(f"a {SCHEMA} record with a bad value: {error}") from error


def _trial(data: dict[str, Any]) -> Trial:
    key = TrialKey(
        program=_text(data["program_sha256"]),
        graph=_text(data["graph_sha256"]),
        sizes=counts_of(data["sizes"]),
        par_sizes=tuple(counts_of(counts) for counts in data["par_sizes"]),
        schedule=counts_of(data["schedule"]),
        dtype=_text(data["dtype"]),
        target=_text(data["target"]),
        device=_text(data["device"]),
        versions=tuple((_text(k), _text(v)) for k, v in data["versions"].items()),
    )
    outcome = Outcome(data["outcome"])
    median_s, min_s = _number(data["median_s"]), _number(data["min_s"])
    predicted_s = _number(data["predicted_s"])
    is_timed = median_s is not None and min_s is not None
    is_predicted = median_s is None and min_s is None and predicted_s is not None
    if outcome is Outcome.OK and not is_timed and not is_predicted:
        raise ValueError("an ok trial without its times")
    return Trial(
        key=key,
        program_name=_text(data["program"]),
        graph_id=_text(data["graph"]),
        seed=_integer(data["seed"]),
        outcome=outcome,
        median_s=median_s,
        min_s=min_s,
        max_error=_number(data["max_error"]),
        compile_s=_number(data["compile_s"]),
        source=None if data["source_sha256"] is None else _text(data["source_sha256"]),
        detail=_text(data["detail"]),
        at=_text(data["at"]),
        predicted_s=predicted_s,
        facts={_text(name): _scalar(value) for name, value in data["facts"].items()},
        # lines from before trials ran on clusters have neither
        host=_text(data.get("host", "")),
        at_once=_integer(data.get("at_once", 1)),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    value.encode()  # a lone surrogate is a ValueError: no file and no terminal takes it
    return value


def _integer(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise TypeError(f"{value!r} is not a number that is zero or more")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return number


def _scalar(value: object) -> int | float | str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    number = _number(value)
    if number is None:
        raise TypeError("a fact is a number or a text")
    return number


def counts_of(value: object) -> Counts:
    """Named integers from a JSON object.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is not an object")
    items = cast("Iterable[tuple[str, object]]", value.items())
    return tuple((name, _integer(count)) for name, count in items)


def append_line(path: Path, text: str) -> None:
    """Add one line to a JSON-lines file, whole or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    line = text.encode() + b"\n"
    try:
        descriptor = _open(path)
        try:
            # a line that a kill cut off must not swallow this one
            end = os.lseek(descriptor, 0, os.SEEK_END)
            if end > 0 and os.pread(descriptor, 1, end - 1) != b"\n":
                line = b"\n" + line
            if (written := os.write(descriptor, line)) < len(line):
                raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes were written")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(f"cannot write the record file {path}: {error}") from error


def _open(path: Path) -> int:
    """A descriptor to append to a regular file, which is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        require_regular(path.stat())  # opening some devices has effects
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        require_regular(os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_warned: set[Path] = set()


@dataclass(frozen=True, slots=True)
class RecordFile:
    """A JSON-lines file of trials."""

    path: Path

    def append(self, trial: Trial) -> None:
        """Add one trial, whole or not at all; on a full disk the trial is lost with one warning.

        Raises:
            UsageError: the file cannot be written.
        """
        try:
            append_line(self.path, to_line(trial))
        except UsageError as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno in _FULL):
                raise
            if self.path not in _warned:
                _warned.add(self.path)
                warnings.warn(
                    f"trials are no longer recorded: {error}", RecordWarning, stacklevel=2
                )

    def require_writable(self) -> None:
        """Refuse a file that could not be appended to, before any work is done for it.

        None is made yet.

        Raises:
            UsageError: the file cannot be written.
        """
        try:
            if self.path.exists():
                os.close(_open(self.path))
            else:
                check_writable(self.path)
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot write the record file {self.path}: {error}") from error

    def read(self) -> tuple[Trial, ...]:
        """Every trial in the file, in order; none when there is no file.

        Lines that are no record are skipped with one warning.

        Raises:
            UsageError: the file is there but cannot be read.
        """
        try:
            content = read_regular(self.path, MAX_BYTES)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            raise UsageError(f"cannot read the record file {self.path}: {error}") from error
        trials: list[Trial] = []
        skipped: list[str] = []
        for number, line in enumerate(content.split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                trials.append(from_line(line.decode()))
            except (ParseError, UnicodeDecodeError) as error:
                skipped.append(f"line {number} ({error})")
        if skipped:
            more = f" and {len(skipped) - 1} more" if len(skipped) > 1 else ""
            warnings.warn(f"{self.path}: skipped {skipped[0]}{more}", RecordWarning, stacklevel=2)
        return tuple(trials)
