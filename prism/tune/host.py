"""The far side of a cluster's trials: one machine (or GPU) that holds them, and nothing else there.

It works as the tuner's own machine would: the reference is computed here from the same seed, and
kernels are built, checked and timed in a worker process, so that one that crashes or hangs is a
trial's outcome and never costs the host. It serves only if it has the versions and the device of
the run: times of different devices are never compared.

Files of the run lie in a folder of this machine; the paths in requests are those of the tuner's.
"""

from __future__ import annotations

import os
import pickle
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import assert_never

from prism.errors import KernelError, PrismError
from prism.ir import Program, adopt, as_lines
from prism.plugins import Group, make
from prism.record import versions
from prism.tune.cases import CheckData, prepare
from prism.tune.pool import Answer
from prism.tune.runner import Attempt, Ended, LocalRunner
from prism.tune.task import Task
from prism.tune.worker import Build, Check, Drop, Rehearse, Request, Setup, Time

THREADS = "OMP_NUM_THREADS"
"""Ray sets it to what a task asks for; kernels shall find what the tuner has."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a host has to know of a run."""

    program: Program
    sizes: Mapping[str, int]
    target: str
    dtype: str
    seed: int
    measures: bool
    device: str
    operators: tuple[str, ...]
    threads: str | None

    @classmethod
    def of(cls, task: Task) -> Order:
        """The order of a task, for the device of this machine."""
        return cls(
            task.program,
            dict(task.sizes),
            task.target_name,
            task.dtype,
            task.seed,
            task.target.measures,
            task.target.device().text,
            as_lines(),
            os.environ.get(THREADS),
        )


@dataclass(frozen=True, slots=True)
class Ready:
    """The host serves; `name` is its machine's."""

    name: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The host does not serve, and why."""

    why: str


class TrialHost:
    """A host; `packed` is its order, pickled: it is read only where versions agree."""

    def __init__(self, wanted: tuple[tuple[str, str], ...], packed: bytes) -> None:
        self._wanted = wanted
        self._packed = packed
        self._name = platform.node()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._runner: LocalRunner | None = None
        self._data: CheckData | None = None

    def open(self) -> Ready | Refused:
        """Say whether this machine can run the trials."""
        here = versions()
        if here != self._wanted:
            names = sorted(set(here) ^ set(self._wanted))
            found = ", ".join(f"{name} {number}" for name, number in names)
            return Refused(f"{self._name} has other versions: {found}")
        try:
            return self._open(pickle.loads(self._packed))
        except PrismError as error:
            return Refused(f"{self._name}: {error}")

    def _open(self, order: Order) -> Ready | Refused:
        adopt(order.operators)
        if order.threads is None:
            os.environ.pop(THREADS, None)
        else:
            os.environ[THREADS] = order.threads
        device = make(Group.TARGET, order.target).device().text
        if device != order.device:
            return Refused(f"{self._name} is another device ({device})")
        self._order = order
        self._scratch = tempfile.TemporaryDirectory(prefix="prism-host-")
        self._runner = LocalRunner(order.target, 1)
        return Ready(self._name)

    def prepare(self) -> None:
        """Compute the reference; what is asked next waits for it."""
        order = self._order
        if self._data is None and order.measures:
            self._data = prepare(
                order.program, dict(order.sizes), order.dtype, order.seed, self._folder
            )

    @property
    def _folder(self) -> Path:
        assert self._scratch is not None
        return Path(self._scratch.name)

    @property
    def _open_runner(self) -> LocalRunner:
        if self._runner is None:
            raise KernelError("the host is not open")
        return self._runner

    def run(self, attempt: Attempt, best_s: float) -> Ended:
        """What came of an attempt."""
        self.prepare()
        build = replace(attempt.build, path=self._folder / attempt.build.path.name)
        here = replace(attempt, build=build, data=self._data)
        (ended,) = self._open_runner.run([here], lambda: best_s)
        return replace(ended, host=self._name)

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """One request; kernels that were built stay until they are dropped."""
        self.prepare()
        return self._open_runner.ask(self._here(request), timeout_s)

    def _here(self, request: Request) -> Request:
        """The request with the paths of this machine."""
        match request:
            case Build(path=path):
                return replace(request, path=self._folder / path.name)
            case Check() | Time():
                assert self._data is not None
                return replace(request, data=self._data)
            case Rehearse():
                return replace(request, folder=self._folder)
            case Drop() | Setup():
                return request
            case _:
                assert_never(request)

    def close(self) -> None:
        """End the worker and remove the files; again does nothing."""
        if self._runner is not None:
            self._runner.__exit__(None, None, None)
        if self._scratch is not None:
            self._scratch.cleanup()
