"""Our kernel and torch beside each other: the same inputs, one clock, in turns.

A rival is checked against the float64 reference before it is timed; after each new one all are
timed again together, so that what is known so far is always a fair comparison. torch may be
missing, or be one without CUDA: then there is a reason instead of times.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.bench.accuracy import norm_error
from prism.bench.results import paired_ratio
from prism.errors import one_line
from prism_experiments.gpu.results import OURS, Status
from prism_experiments.gpu.stopwatch import Laps, Stopwatch, time_calls
from prism_experiments.rivals.torch_source import ATTENTION, FUNCTIONS

Arrays = Sequence[NDArray[np.generic]]


class NoTorchError(Exception):
    """torch cannot be measured here, and why."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A way to run a torch form; `mode` is torch.compile's, None for eager.

    `form` is one of `torch_forms`; None takes the one with attention where there is one, as a user
    who compiles writes it.

    `least_s`: with less time left it is not begun, since a compilation cannot be interrupted. Eager
    costs next to nothing and is always there.
    """

    name: str
    mode: str | None
    is_gpu_only: bool
    least_s: float
    form: str | None = None


RIVALS: tuple[Rival, ...] = (
    Rival("torch", None, is_gpu_only=False, least_s=-math.inf, form=FUNCTIONS),
    Rival("sdpa", None, is_gpu_only=False, least_s=-math.inf, form=ATTENTION),
    Rival("torch-compile", "default", is_gpu_only=False, least_s=1.0),
    Rival(
        "torch-compile-max-autotune", "max-autotune-no-cudagraphs", is_gpu_only=True, least_s=3.0
    ),
    Rival("torch-compile-cudagraphs", "reduce-overhead", is_gpu_only=True, least_s=3.0),
)


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to run the program: a call ready to be timed, or why there is none."""

    name: str
    status: Status
    detail: str = ""
    call: Callable[[], Any] | None = None
    prepare_s: float | None = None
    error: float | None = None


def open_torch(target: str) -> Any:  # noqa: ANN401 - the module
    """Import torch for a target.

    Raises:
        NoTorchError: it is missing, or sees no GPU.
    """
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise NoTorchError(f"torch cannot be imported: {error}") from error
    if target == "cuda" and not torch.cuda.is_available():
        raise NoTorchError(f"torch {torch.__version__} sees no GPU")
    return torch


def as_tensor(torch: Any, array: NDArray[np.generic], device: str) -> Any:  # noqa: ANN401
    """A tensor with the same numbers; NumPy's bfloat16 is unknown to torch, its bits are not."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16).to(device)
    return torch.from_numpy(np.array(array)).to(device)


def as_float64(output: Any) -> NDArray[np.float64]:  # noqa: ANN401 - an array or a tensor
    """An output as NumPy's float64."""
    if hasattr(output, "detach"):
        return np.asarray(output.detach().double().cpu().numpy(), np.float64)
    return np.asarray(output).astype(np.float64)


def enter(
    name: str,
    make: Callable[[], Callable[[], Any]],
    references: Sequence[NDArray[np.float64]],
    allowed: float,
) -> Contestant:
    """Prepare a contestant, run it once and hold it against the reference."""
    start = time.perf_counter()
    try:
        call = make()
        result = call()
        outputs = result if isinstance(result, tuple) else (result,)
        error = norm_error([as_float64(o) for o in outputs], tuple(references), "float64")
    except Exception as problem:  # whatever a compiler or a library raises
        return Contestant(name, Status.FAILED, one_line(problem))
    prepare_s = time.perf_counter() - start
    if not error <= allowed:
        detail = f"norm error {error:.2g} against float64, allowed {allowed:.2g}"
        return Contestant(name, Status.FAILED, detail, None, prepare_s, error)
    return Contestant(name, Status.OK, "", call, prepare_s, error)


def rivals_of(
    target: str,
    torch: Any,  # noqa: ANN401 - the module
    forms: Mapping[str, Callable[..., Any]],
    tensors: Sequence[Any],
    left_s: Callable[[], float],
) -> Iterator[tuple[Rival, Callable[[], Callable[[], Any]] | Contestant]]:
    """Each rival with what prepares it, or as a contestant that cannot take part.

    Without attention in the program there is no rival for it.
    """
    torch.compiler.reset()  # sizes of the last cell would make this one's dynamic
    for rival in RIVALS:
        form = forms.get(rival.form or ATTENTION, None if rival.form else forms[FUNCTIONS])
        if form is None:
            continue
        if rival.is_gpu_only and target != "cuda":
            yield rival, Contestant(rival.name, Status.SKIPPED, f"not on {target}")
        elif left_s() < rival.least_s:
            yield rival, Contestant(rival.name, Status.TRUNCATED, "no time left in this cell")
        else:
            yield rival, _maker(torch, rival, form, tensors)


def _maker(
    torch: Any,  # noqa: ANN401 - the module
    rival: Rival,
    form: Callable[..., Any],
    tensors: Sequence[Any],
) -> Callable[[], Callable[[], Any]]:
    def make() -> Callable[[], Any]:
        if rival.mode is None:
            return lambda: form(*tensors)
        compiled = torch.compile(form, mode=rival.mode, dynamic=False, fullgraph=True)
        arguments = tensors
        if rival.mode == "reduce-overhead":
            # CUDA graphs copy their arguments at every call unless they are known to stay put;
            # aliases, since the mark would make the other rivals compile again
            arguments = [tensor.detach() for tensor in tensors]
            for tensor in arguments:
                torch._dynamo.mark_static_address(tensor)  # noqa: SLF001 - torch's documented name
        return lambda: compiled(*arguments)

    return make


def compete(
    stopwatch: Stopwatch,
    entrants: Iterator[Contestant],
    tell: Callable[[list[dict[str, Any]]], None],
) -> None:
    """Time contestants as they come, ours first, all that can run together; `tell` the table."""
    known: list[Contestant] = []
    laps: dict[str, Laps] = {}
    for entrant in entrants:
        known.append(entrant)
        if entrant.call is not None:
            laps = _timed(stopwatch, known) or laps
        tell([_row(contestant, laps) for contestant in known])


def _timed(stopwatch: Stopwatch, known: list[Contestant]) -> dict[str, Laps] | None:
    """Times of all that run; the newcomer is put out when timing fails with it."""
    running = [(c.name, c.call) for c in known if c.call is not None]
    try:
        times = time_calls(stopwatch, [call for _, call in running])
    except Exception as problem:  # whatever a kernel raises
        known[-1] = replace(
            known[-1], status=Status.FAILED, call=None, detail=f"while timed: {one_line(problem)}"
        )
        return None
    return {name: own for (name, _), own in zip(running, times, strict=True)}


def _row(contestant: Contestant, laps: dict[str, Laps]) -> dict[str, Any]:
    own = laps.get(contestant.name)
    ours = laps.get(OURS)
    detail = contestant.detail
    if own is not None and own.late:
        detail = f"the host was late in {own.late} of {len(own.seconds)} rounds"
    return {
        "name": contestant.name,
        "status": contestant.status.value,
        "detail": detail,
        "prepare_s": contestant.prepare_s,
        "error": contestant.error,
        "rounds": 0 if own is None else len(own.seconds),
        "median_s": None if own is None else median(own.seconds),
        "min_s": None if own is None else min(own.seconds),
        "ratio": None if own is None or ours is None else _ratio(own, ours),
        "bandwidth_fraction": None,
    }


def _ratio(theirs: Laps, ours: Laps) -> float | None:
    return paired_ratio(
        tuple((lap,) for lap in theirs.seconds), tuple((lap,) for lap in ours.seconds)
    )
