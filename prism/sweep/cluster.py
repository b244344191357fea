"""Cells on a Ray cluster: each one a task, wherever there is room for it.

What a task takes of a machine says what may run beside it: a cell for a GPU takes one of its own, a
cell that times kernels on the CPU a whole node, any other one CPU or what its setting `cpus` says.
Whole nodes come last, when nothing else is left to run: they would wait for each CPU.

A worker or a machine that is lost costs the cells that were running there; they are begun again, on
another one if need be, and their lines say how often. Only the sweep writes lines, so none is there
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from prism.cluster import LOST_RETRIES, Cluster, Lost, Needs, Node, Ref
from prism.errors import ClusterLostError, UsageError
from prism.sweep.cell import Cell
from prism.sweep.job import Job, run_job


class ClusterPool:
    """The machines of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lost: Counter[str] = Counter()

    @property
    def width(self) -> int:
        """As many cells as there are CPUs."""
        return max(1, sum(node.cpus for node in self._cluster.nodes()))

    def run(self, jobs: Sequence[Job]) -> Iterator[Cell]:
        """See `Pool`.

        Raises:
            UsageError: a cell needs more than any machine has.
            ClusterLostError: the cluster, or its last machine that will do, went away.
        """
        nodes = self._cluster.nodes()
        for job in jobs:
            _require_room(job, nodes)
        yield from self._together([job for job in jobs if not _takes_a_node(job)])
        yield from self._by_node([job for job in jobs if _takes_a_node(job)])

    def _together(self, jobs: Sequence[Job]) -> Iterator[Cell]:
        """All at once: Ray finds them room."""
        running = {self._submit(job, _needs(job)): job for job in jobs}
        try:
            while running:
                for ref in self._cluster.wait(list(running)):
                    job = running.pop(ref)
                    cell = self._cell(job, self._cluster.get(ref))
                    if cell is None:
                        running[self._submit(job, _needs(job))] = job
                    else:
                        yield cell
        finally:
            self._cancel(running)

    def _by_node(self, jobs: Sequence[Job]) -> Iterator[Cell]:
        """One on each node."""
        waiting = list(reversed(jobs))
        running: dict[Ref, tuple[Job, str]] = {}
        try:
            while waiting or running:
                busy = {name for _, name in running.values()}
                for node in self._cluster.nodes():
                    if waiting and node.cpus and node.id not in busy:
                        job = waiting.pop()
                        running[self._submit(job, Needs(node.cpus, 0, node.id))] = job, node.id
                if not running:
                    raise ClusterLostError("no machine of the cluster is left that has CPUs")
                for ref in self._cluster.wait(list(running)):
                    job, _ = running.pop(ref)
                    cell = self._cell(job, self._cluster.get(ref))
                    if cell is None:
                        waiting.append(job)
                    else:
                        yield cell
        finally:
            self._cancel(running)

    def _submit(self, job: Job, needs: Needs) -> Ref:
        return self._cluster.submit(run_job, job, needs=needs)

    def _cancel(self, running: Iterable[Ref]) -> None:
        for ref in running:
            self._cluster.cancel(ref)

    def _cell(self, job: Job, answer: Cell | Lost) -> Cell | None:
        """The line; None if the job is to be begun again."""
        lost = self._lost[job.cell.key]
        if not isinstance(answer, Lost):
            again = f"begun again {lost} times: its worker or machine was lost"
            return replace(answer, message=_both(again, answer.message)) if lost else answer
        self._lost[job.cell.key] += 1
        if lost < LOST_RETRIES:
            return None
        why = f"lost on the cluster {lost + 1} times: {answer.why}"
        return replace(job.cell, outcome="failed", message=why)


def _takes_a_node(job: Job) -> bool:
    return job.is_timed and not job.needs_gpu and "cpus" not in job.cell.settings


def _needs(job: Job) -> Needs:
    return Needs(int(job.cell.settings.get("cpus", 1)), 1 if job.needs_gpu else 0)


def _require_room(job: Job, nodes: Sequence[Node]) -> None:
    """Ray would let a task that fits nowhere wait for ever.

    Raises:
        UsageError: says what there is none of.
    """
    needs = _needs(job)
    if needs.gpus and not any(node.gpus for node in nodes):
        raise UsageError(
            "there are cells for target cuda, and no machine of the cluster has a GPU; start Ray "
            "with --num-gpus where there is one"
        )
    if not any(node.cpus >= needs.cpus and node.gpus >= needs.gpus for node in nodes):
        most = max((node.cpus for node in nodes), default=0)
        raise UsageError(
            f"a cell needs {needs.cpus} CPUs{' and a GPU' if needs.gpus else ''}, and the largest "
            f"machine of the cluster has {most}"
        )


def _both(first: str, second: str) -> str:
    return f"{first}\n{second}" if second else first
