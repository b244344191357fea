"""Runs `tests/gpu` where pytest is missing: plain functions, parameters, simple fixtures.

A stand-in for the `pytest` module offers what such tests usually take; a test that asks for more is
skipped and says what for. Fixtures of `autouse` are not run: ours choose a cache folder, which the
session has done. Messages are those of `reporter`.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, Never

import numpy as np

from prism_experiments.gpu.channel import Channel, tests_done
from prism_kernels.cuda.gpu_api import gpu_problem

Fixtures = Mapping[str, Callable[..., Any]]


class Skipped(Exception):  # noqa: N818 - an outcome
    """The test says, or we say, that it cannot run."""


@dataclass(frozen=True, slots=True)
class Mark:
    """`@pytest.mark.NAME(...)`."""

    name: str
    arguments: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()

    def __call__(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as pytest has it
        """With arguments another mark; on a function the mark itself."""
        is_decorator = len(arguments) == 1 and not options and callable(arguments[0])
        if not is_decorator:
            return Mark(self.name, arguments, tuple(options.items()))
        arguments[0].prism_marks = (*getattr(arguments[0], "prism_marks", ()), self)
        return arguments[0]


class _Marks:
    def __getattr__(self, name: str) -> Mark:
        return Mark(name)


@dataclass(frozen=True, slots=True)
class Param:
    """`pytest.param(...)`: values of one row."""

    values: tuple[Any, ...]


def stand_in() -> ModuleType:
    """A module that tests may import as `pytest`."""
    module = ModuleType("pytest")
    vars(module).update(
        mark=_Marks(),
        param=lambda *values, **_: Param(values),
        fixture=_fixture,
        skip=_skip,
        fail=_fail,
        raises=_raises,
        importorskip=_import_or_skip,
    )
    return module


def _fixture(*arguments: Any, **_: Any) -> Any:  # noqa: ANN401 - as pytest has it
    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        vars(function)["prism_fixture"] = True
        return function

    return mark(arguments[0]) if arguments else mark


def _skip(reason: str = "", **_: Any) -> Never:  # noqa: ANN401
    raise Skipped(reason)


def _fail(reason: str = "", **_: Any) -> Never:  # noqa: ANN401
    raise AssertionError(reason)


@contextmanager
def _raises(
    expected: type[BaseException] | tuple[type[BaseException], ...], match: str | None = None
) -> Iterator[None]:
    try:
        yield
    except expected as error:
        if match is not None and not re.search(match, str(error)):
            raise AssertionError(f"{match!r} does not match {error}") from error
        return
    raise AssertionError(f"{expected} was not raised")


def _import_or_skip(name: str, **_: Any) -> ModuleType:  # noqa: ANN401
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skipped(str(error)) from error


@dataclass(frozen=True, slots=True)
class Case:
    """One test with one row of parameters."""

    name: str
    function: Callable[..., Any]
    values: Mapping[str, Any]
    fixtures: Fixtures
    skip: str | None


def collect(tests: Path, no_gpu: str | None) -> Iterator[Case]:
    """The cases below tests/gpu marked gpu; a file that does not import is a case that fails."""
    shared = tests / "gpu" / "conftest.py"
    fixtures = _fixtures_of(_import(shared)) if shared.is_file() else {}
    for path in sorted((tests / "gpu").glob("test_*.py")):
        name = path.relative_to(tests).as_posix()
        try:
            module = _import(path)
        except Exception as error:  # whatever a file does when imported
            yield Case(name, _raising(error), {}, {}, None)
            continue
        own = {**fixtures, **_fixtures_of(module)}
        everywhere = _as_list(getattr(module, "pytestmark", ()))
        for title, function in vars(module).items():
            if title.startswith("test_") and callable(function):
                marks = [*everywhere, *getattr(function, "prism_marks", ())]
                if any(mark.name == "gpu" for mark in marks):
                    yield from _cases(f"{name}::{title}", function, marks, own, no_gpu)


def _cases(
    name: str,
    function: Callable[..., Any],
    marks: Sequence[Mark],
    fixtures: Fixtures,
    no_gpu: str | None,
) -> Iterator[Case]:
    skip = no_gpu or _skip_reason(marks)
    rows = [_rows(mark) for mark in marks if mark.name == "parametrize"]
    for number, chosen in enumerate(itertools.product(*rows)):
        values = {key: value for row in chosen for key, value in row.items()}
        yield Case(f"{name}[{number}]" if rows else name, function, values, fixtures, skip)


def _skip_reason(marks: Sequence[Mark]) -> str | None:
    for mark in marks:
        reason = str(dict(mark.options).get("reason", ""))
        if mark.name == "skip" or (mark.name == "skipif" and any(mark.arguments)):
            return reason or mark.name
    return None


def _rows(mark: Mark) -> list[dict[str, Any]]:
    names, values = mark.arguments
    keys = names.replace(",", " ").split() if isinstance(names, str) else list(names)
    out = []
    for value in values:
        row = value.values if isinstance(value, Param) else value if len(keys) > 1 else (value,)
        out.append(dict(zip(keys, row, strict=True)))
    return out


def run_case(case: Case) -> tuple[str, str]:
    """Run a case; its outcome and message."""
    if case.skip is not None:
        return "skipped", case.skip
    opened: list[Generator[Any, None, None]] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            known: dict[str, Any] = {
                "tmp_path": Path(folder),
                "rng": np.random.default_rng(zlib.crc32(case.name.encode())),
                **case.values,
            }
            case.function(**_arguments(case.function, case.fixtures, known, opened))
            for generator in reversed(opened):
                next(generator, None)
    except Skipped as skipped:
        return "skipped", str(skipped)
    except Exception:  # whatever a test raises
        return "failed", traceback.format_exc()[-1500:]
    return "passed", ""


def _arguments(
    function: Callable[..., Any],
    fixtures: Fixtures,
    known: dict[str, Any],
    opened: list[Generator[Any, None, None]],
) -> dict[str, Any]:
    """What a function asks for, fixtures made when first asked for."""
    names = list(signature(function).parameters)
    for name in names:
        if name in known:
            continue
        if name not in fixtures:
            raise Skipped(f"the fallback runner has no fixture {name!r}: install pytest")
        made = fixtures[name](**_arguments(fixtures[name], fixtures, known, opened))
        if isinstance(made, Generator):
            opened.append(made)
            made = next(made)
        known[name] = made
    return {name: known[name] for name in names}


def _fixtures_of(module: ModuleType) -> Fixtures:
    return {
        name: value for name, value in vars(module).items() if getattr(value, "prism_fixture", 0)
    }


def _as_list(value: Any) -> list[Mark]:  # noqa: ANN401 - one mark or several
    return list(value) if isinstance(value, list | tuple) else [value]


def _raising(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def _import(path: Path) -> ModuleType:
    name = f"prism_gpu_tests_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    """Run all tests below the folder given that were not run before."""
    tests = Path(sys.argv[1])
    channel, done = Channel(), tests_done()
    sys.modules["pytest"] = stand_in()
    sys.path[:0] = [str(tests), str(tests / "gpu")]
    cases = list(collect(tests, gpu_problem()))
    channel.send({"collected": [case.name for case in cases]})
    for case in cases:
        if case.name in done:
            continue
        channel.send({"started": case.name})
        start = time.monotonic()
        outcome, message = run_case(case)
        told = {"name": case.name, "outcome": outcome, "message": message}
        channel.send({"case": {**told, "seconds": time.monotonic() - start}})
    channel.send({"end": True})


if __name__ == "__main__":
    main()
