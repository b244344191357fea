"""The child's side of a tuning worker: emits, compiles, checks and times kernels on request.

It runs in a fresh interpreter of its own, so that a kernel that crashes or hangs takes nothing
with it, and answers one request at a time over a private connection. What a kernel or its compiler
prints goes to standard error, which the parent keeps for the last words of a crash.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from prism.cache import write_atomically
from prism.dtypes import computed_in
from prism.errors import DeviceLostError, KernelError
from prism.ir import MuGraph, adopt
from prism.plugins import Group, make
from prism.protocols import Device, Kernel, Target
from prism.record import Outcome, digest
from prism.tune.cases import DRAWN, CheckData, prepare
from prism.tune.check import CheckResult, Inputs, check, compare, nan_filled
from prism.tune.timing import Timing, time_kernels


@dataclass(frozen=True, slots=True)
class Setup:
    """The first request: the target, by its plug-in name, and the operators that users defined."""

    target: str
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Build:
    """Emit a muGraph to `path` and compile it; the kernel is kept under `trial`."""

    trial: int
    mu: MuGraph
    dtype: str
    path: Path


@dataclass(frozen=True, slots=True)
class Check:
    """Hold a built kernel against the reference: on every case, or on the first alone."""

    trial: int
    data: CheckData
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Time:
    """Time built kernels in turns; their outputs are compared once more at the end."""

    trials: tuple[int, ...]
    data: CheckData
    repeats: int
    best_s: float = math.inf
    """What the kernels have to beat."""
    is_final: bool = False
    """Whether they compete with each other: those that are beaten run less often."""


@dataclass(frozen=True, slots=True)
class Rehearse:
    """Check what stands in for a muGraph's kernel; files go to `folder`."""

    mu: MuGraph
    dtype: str
    seed: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget built kernels."""

    trials: tuple[int, ...]


Request = Setup | Build | Check | Time | Rehearse | Drop


@dataclass(frozen=True, slots=True)
class Done:
    """The answer to `Setup` and `Drop`."""


@dataclass(frozen=True, slots=True)
class Built:
    """The answer to `Build`."""

    source: str
    """SHA-256 of the emitted source."""
    meta: dict[str, Any]
    compile_s: float
    facts: dict[str, int | float | str]
    """What the loaded kernel says about itself."""
    predicted_s: float | None
    """The kernel's own prediction; where it has none and cannot run here, the target's."""
    held_bytes: int = 0
    """What the loaded kernel holds of memory: its workspace, and what its steps hand on."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Any request may fail; the worker lives on."""

    outcome: Outcome
    detail: str


Reply = Done | Built | CheckResult | tuple[Timing, ...] | Failed


class Session:
    """The state of a worker between requests: its target and the kernels it built."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._kernels: dict[int, Kernel] = {}
        self._inputs: tuple[Path, Inputs] | None = None

    def warm_up(self) -> None:
        """What takes long the first time is done while the parent ranks the configs."""
        if self._target.measures:
            # what fails here will fail where it is needed, and be somebody's answer
            with contextlib.suppress(Exception):
                self._target.flush()

    def build(self, request: Build) -> Built | Failed:
        """Emit, write and compile; each failure has its own outcome."""
        try:
            source = self._target.emit(request.mu, request.dtype)
        except KernelError as error:
            return Failed(Outcome.REFUSED, str(error))
        except Exception as error:  # a fault of the emitter costs this candidate only
            return Failed(Outcome.ERROR, f"emit: {_one_line(error)}")
        write_atomically(request.path, source.text)
        start = time.perf_counter()
        try:
            kernel = self._target.load(request.path, source.meta)
        except Exception as error:  # whatever a compiler may raise
            return Failed(Outcome.COMPILE, _one_line(error))
        taken = time.perf_counter() - start
        self._kernels[request.trial] = kernel
        predicted_s = kernel.predicted_s
        if predicted_s is None and not self._target.measures:
            predicted_s = self._target.estimate(request.mu, request.dtype)
        return Built(
            digest(source.text), source.meta, taken, dict(kernel.facts), predicted_s,
            held_bytes(source.meta, self._target.device()),
        )  # fmt: skip

    def check(self, request: Check) -> CheckResult:
        """Compare with the reference."""
        kernel, data = self._kernels[request.trial], request.data
        return check(kernel, data, self._inputs_of(data), is_whole=request.is_whole)

    def time(self, request: Time) -> tuple[Timing, ...] | Failed:
        """Time, then look at the outputs again: a race may have spared the check."""
        inputs = self._inputs_of(request.data)
        timed = self._timed(request, inputs)
        if isinstance(timed, Failed) and inputs.are_spoilt(request.data.arguments):
            timed = self._timed(request, inputs)
        return timed

    def _timed(self, request: Time, inputs: Inputs) -> tuple[Timing, ...] | Failed:
        data = request.data
        arrays = inputs.given(DRAWN)
        references = data.references(DRAWN)
        outputs = [nan_filled(references, data.dtype) for _ in request.trials]
        bound = [
            self._kernels[trial].bind(arrays, mine)
            for trial, mine in zip(request.trials, outputs, strict=True)
        ]
        timings = time_kernels(
            bound,
            self._target.flush,
            request.repeats,
            request.best_s,
            is_final=request.is_final,
        )
        for kernel, mine in zip(bound, outputs, strict=True):
            kernel.finish()
            result = compare(mine, references, data.limits(data.cases[0]))
            if result.outcome is not Outcome.OK:
                detail = f"right in the check, not while timed: {result.detail}"
                return Failed(result.outcome, detail)
        return timings

    def _inputs_of(self, data: CheckData) -> Inputs:
        if self._inputs is None or self._inputs[0] != data.folder:
            self._inputs = None  # one after the other: they may be large
            self._inputs = (data.folder, Inputs(data))
        return self._inputs[1]

    def rehearse(self, request: Rehearse) -> CheckResult | Done:
        """Check what stands in for a kernel that cannot run here; `Done` if nothing does."""
        rehearsal = self._target.rehearsal(request.mu, request.dtype)
        if rehearsal is None:
            return Done()
        mu, target = rehearsal.mu, rehearsal.target
        source = target.emit(mu, request.dtype)
        path = request.folder / "rehearsal.py"
        write_atomically(path, source.text)
        kernel = target.load(path, source.meta)
        sizes, program = dict(mu.sizes), mu.graph.program
        data = prepare(program, sizes, request.dtype, request.seed, request.folder)
        return check(kernel, data)

    def drop(self, request: Drop) -> Done:
        """Release kernels."""
        for trial in request.trials:
            self._kernels.pop(trial, None)
        return Done()


def serve(connection: Connection) -> None:
    """Answer requests until the parent closes the connection."""
    setup = connection.recv()
    assert isinstance(setup, Setup)
    adopt(setup.operators)
    session = Session(make(Group.TARGET, setup.target))
    session.warm_up()
    connection.send(Done())
    while True:
        try:
            request: Request = connection.recv()
        except EOFError:
            return
        try:
            reply = _answer(session, request)
        except DeviceLostError as error:  # no later candidate could run here: make way for another
            sys.exit(_one_line(error))
        except Exception as error:  # a kernel may raise anything
            reply = Failed(Outcome.ERROR, _one_line(error))
        connection.send(reply)


def _answer(session: Session, request: Request) -> Reply:
    match request:
        case Build():
            return session.build(request)
        case Check():
            return session.check(request)
        case Time():
            return session.time(request)
        case Rehearse():
            return session.rehearse(request)
        case Drop():
            return session.drop(request)
        case Setup():
            raise KernelError("a worker is set up once")
        case _:
            assert_never(request)


def held_bytes(meta: Mapping[str, Any], device: Device) -> int:
    """The memory that a kernel holds while it is loaded, by what its meta says."""
    between = sum(math.prod(tensor["shape"]) for tensor in meta.get("between", ()))
    # on a CPU each thread has its own workspace, a GPU's is given for the whole grid
    times = device.threads if device.kind == "cpu" else 1
    elements = between + times * meta.get("workspace_elements", 0)
    return int(elements * np.dtype(computed_in(meta.get("dtype", "float32"))).itemsize)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}"


def _die_with_parent() -> None:
    """A killed parent must not leave a hung kernel behind: Linux sends us SIGKILL when it dies."""
    if sys.platform == "linux":
        set_parent_death_signal = 1
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)


def main(descriptor: int) -> None:
    """Entry of the child process; `descriptor` is its end of the connection."""
    connection = Connection(descriptor)
    _die_with_parent()
    sys.stdout.flush()
    os.dup2(2, 1)
    serve(connection)
