"""Stage 3, one cell: tune a workload at a size in a dtype, then time the winner beside torch.

What is known is told after every step, since the next one may be the last.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.artifact import Artifact, load_artifact
from prism.bench import Task, border_bytes
from prism.bench.accuracy import allowed_error
from prism.bench.task import make_inputs
from prism.driver import tune
from prism.errors import KernelError
from prism.ir import (
    bind_sizes,
    evaluate,  # noqa: TID251 - the function, not the module of that name
)
from prism.plugins import Group, make
from prism.protocols import Kernel, Target
from prism.record import RecordFile
from prism.report import tune_facts
from prism.tune import TuneResult
from prism_experiments.gpu.plan import Cell, cell_of
from prism_experiments.gpu.results import OURS, Status
from prism_experiments.gpu.rivals import (
    Contestant,
    NoTorchError,
    as_tensor,
    compete,
    enter,
    open_torch,
    rivals_of,
)
from prism_experiments.gpu.stopwatch import EventStopwatch, HostStopwatch, Stopwatch
from prism_experiments.gpu.trials import predictor, summarize
from prism_experiments.rivals.torch_source import torch_forms

Tell = Callable[[Mapping[str, Any]], None]

RESOURCES = ("registers", "shared_bytes", "spills")

MARGIN_S = 2.0
"""Kept back of a cell's time for what cannot be planned."""


@dataclass(frozen=True, slots=True)
class Job:
    """A cell with what it takes to measure it."""

    cell: Cell
    target: str
    artifact: Path
    records: Path
    kernel: Path
    seed: int
    limit_s: float
    tune_share: float

    @staticmethod
    def of(request: Mapping[str, Any]) -> Job:
        """From the parent's request."""
        return Job(
            cell_of(request["cell"]),
            request["target"],
            Path(request["artifact"]),
            Path(request["records"]),
            Path(request["kernel"]),
            request["seed"],
            request["limit_s"],
            request["tune_share"],
        )


def run(request: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Measure one cell; the answer has its status, everything else was told before."""
    job = Job.of(request)
    deadline = time.monotonic() + job.limit_s - MARGIN_S
    artifact = load_artifact(job.artifact)
    sizes = dict(job.cell.sizes)
    tell({"bytes": border_bytes(artifact.program, sizes, job.cell.dtype)})
    result = tune(
        artifact,
        sizes,
        target=job.target,
        dtype=job.cell.dtype,
        budget_s=job.tune_share * job.limit_s,
        seed=job.seed,
        records=job.records,
        output=job.kernel,
    )
    target: Target = make(Group.TARGET, job.target)
    trials = RecordFile(job.records).read()
    told = tuned(result)
    if result.best is not None and told["best"]["predicted_s"] is None:
        told["best"]["predicted_s"] = target.estimate(result.best.mu, job.cell.dtype)
    tell({"tune": told, "trials": summarize(trials, predictor(artifact, target))})
    if result.best is None:
        return {"status": Status.FAILED.value, "detail": f"no kernel passed ({result.stopped})"}
    kernel = target.load(job.kernel, result.best.meta)
    _contest(job, artifact, Ours(kernel, target), deadline, tell)
    return {"status": Status.OK.value, "detail": ""}


def tuned(result: TuneResult) -> dict[str, Any]:
    """A tuning run as the results file has it (`results.TUNED`)."""
    facts = tune_facts(result)
    best = facts["best"]
    if best is not None:
        named = ("graph", "par_sizes", "schedule", "median_s", "min_s", "max_error", "predicted_s")
        known = {*named, *RESOURCES, "predicted"}
        best = {
            **{name: best.get(name) for name in (*named, *RESOURCES)},
            "facts": {name: value for name, value in best.items() if name not in known},
        }
    kept = ("space_size", "stopped", "elapsed_s", "notes")
    return {"best": best, **{name: facts[name] for name in kept}}


@dataclass(frozen=True, slots=True)
class Ours:
    """The winner, loaded, and where it runs."""

    kernel: Kernel
    target: Target

    def call(
        self, inputs: Sequence[NDArray[np.generic]], tensors: Sequence[Any]
    ) -> Callable[[], Any]:
        """A call on arrays where the kernel runs."""
        kernel = self.kernel
        if not any(tensor.is_cuda for tensor in tensors):
            return lambda: kernel(*inputs)
        if not all(kernel.takes(tensor) for tensor in tensors):
            raise KernelError("the kernel takes no torch tensors")
        return lambda: kernel(*tensors)


def _contest(job: Job, artifact: Artifact, ours: Ours, deadline: float, tell: Tell) -> None:
    inputs, references = _data(job, artifact)
    torch, why_not = None, ""
    try:
        torch = open_torch(job.target)
    except NoTorchError as error:
        why_not = str(error)
    is_gpu = job.target == "cuda"
    device = "cuda" if is_gpu else "cpu"
    tensors = [] if torch is None else [as_tensor(torch, array, device) for array in inputs]
    stopwatch: Stopwatch = HostStopwatch(ours.target.flush)
    if torch is not None and is_gpu:
        stopwatch = EventStopwatch(torch)

    def entrants() -> Iterator[Contestant]:
        allowed = allowed_error(job.cell.dtype)
        if torch is None and is_gpu:
            # without torch there is no clock on the GPU; the tuner's own times stand
            yield Contestant(OURS, Status.SKIPPED, why_not)
            return
        yield enter(OURS, lambda: ours.call(inputs, tensors), references, allowed)
        if torch is None:
            yield Contestant("torch", Status.SKIPPED, why_not)
            return
        program = artifact.program
        forms = torch_forms(program, bind_sizes(program, dict(job.cell.sizes)), torch)
        for rival, found in rivals_of(
            job.target, torch, forms, tensors, lambda: deadline - time.monotonic()
        ):
            if isinstance(found, Contestant):
                yield found
            else:
                yield enter(rival.name, found, references, allowed)

    compete(stopwatch, entrants(), lambda table: tell({"contestants": table}))


def _data(
    job: Job, artifact: Artifact
) -> tuple[tuple[NDArray[np.generic], ...], tuple[NDArray[np.float64], ...]]:
    """Inputs and the float64 reference."""
    task = Task(job.cell.workload, job.cell.sizes, job.cell.dtype, job.seed, 1, "", job.target)
    inputs = make_inputs(artifact.program, task)
    names = (argument.name for argument in artifact.program.arguments)
    return inputs, evaluate(artifact.program, dict(zip(names, inputs, strict=True)))
