"""Cells on a Ray cluster: each one a task, wherever there is room for it.

What a task takes of a machine says what may run beside it: a cell that times kernels on the CPU
takes a whole node (the CPUs of the smallest one), one for a GPU a GPU of its own, any other one CPU
or what its setting `cpus` says. A worker or a machine that is lost costs the cells that were
running there; Ray runs them again elsewhere. Only the sweep writes lines, so none is there twice.

The workers need the same packages, Prism included, and see the user's files at the same paths.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from prism.errors import PrismError, UsageError, one_line
from prism.sweep.cell import Cell
from prism.sweep.job import Job, run_job

LOST_RETRIES = 3
"""How often a cell is begun again after it lost its worker."""


class ClusterPool:
    """The machines of a Ray cluster."""

    def __init__(self, address: str) -> None:
        """Connect to the cluster at `address`: `auto`, `HOST:PORT` or `ray://HOST:PORT`.

        Raises:
            UsageError: Ray is not installed, or no cluster answers there.
        """
        self._ray = _connected(address)
        nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        self._cpus = sum(int(node.get("CPU", 0)) for node in nodes)
        self._gpus = sum(int(node.get("GPU", 0)) for node in nodes)
        self._node_cpus = min((int(node["CPU"]) for node in nodes if node.get("CPU")), default=1)

    @property
    def width(self) -> int:
        """As many cells as there are CPUs."""
        return max(1, self._cpus)

    def run(self, jobs: Sequence[Job]) -> Iterator[Cell]:
        """See `Pool`.

        Raises:
            UsageError: a cell needs more than any machine has.
        """
        if not self._gpus and (wanting := [job for job in jobs if job.needs_gpu]):
            raise UsageError(
                f"{len(wanting)} cells are for target cuda, and no machine of the cluster has a "
                "GPU; start Ray with --num-gpus where there is one"
            )
        waiting = {self._start(job): job for job in jobs}
        try:
            while waiting:
                (done,), _ = self._ray.wait(list(waiting), num_returns=1)
                yield self._cell(done, waiting.pop(done))
        finally:
            for task in waiting:
                self._ray.cancel(task, force=True)

    def _start(self, job: Job) -> Any:  # noqa: ANN401 - Ray has no types here
        given = job.cell.settings.get("cpus")
        alone = self._node_cpus if job.is_timed and not job.needs_gpu else 1
        needs = {"num_cpus": given or alone, "num_gpus": 1 if job.needs_gpu else 0}
        task = self._ray.remote(run_job).options(max_retries=LOST_RETRIES, **needs)
        return task.remote(job)

    def _cell(self, done: Any, job: Job) -> Cell:  # noqa: ANN401 - as above
        try:
            cell: Cell = self._ray.get(done)
        except self._ray.exceptions.RayError as error:
            why = f"lost on the cluster {LOST_RETRIES + 1} times: {one_line(error)}"
            return replace(job.cell, outcome="failed", message=why)
        return cell


def _connected(address: str) -> ModuleType:
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"--ray needs Ray, which cannot be imported ({error}); install it with "
            "pip install 'prism-superopt[ray]'"
        ) from error
    if ray.is_initialized():
        return ray
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except PrismError:
        raise
    except Exception as error:
        raise UsageError(f"no Ray cluster at {address}: {one_line(error)}") from error
    return ray
