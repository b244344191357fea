"""`make bench-compile`: every verified graph compiled for GPUs that need not be there.

Each graph of each workload is compiled at its best predicted tile choice, for every architecture,
by a pool of warm workers and past the cache. Printed: what spilt or failed, registers, and how many
kernels came out per second. Exit status 1 if any kernel spills or fails.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

import click
from rich.console import Console

from prism.cli.render import table
from prism.frontend import load_program
from prism.ir import MuGraph, bind_sizes
from prism.protocols import Target
from prism.search import SearchOptions, search
from prism.tune import GraphSpace, build_space, instantiate
from prism_kernels.cuda.compile import Compiled
from prism_kernels.cuda.compile_pool import CompilePool, Failure, Job, Result
from prism_kernels.cuda.devices import gpu_named
from prism_kernels.cuda.target import OfflineTarget

WIDE = 4096
"""The size of all dims of a program but its first."""
SAMPLED = 100
"""Configs of each graph whose predictions are compared."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One workload on one architecture."""

    workload: str
    arch: str
    compiled: int
    spilt: int
    failed: int
    most_registers: int
    seconds: float


@click.command()
@click.option("--workloads", default="rmsnorm,rmsnorm_paper,softmax_matmul,matmul")
@click.option("--archs", default="sm_80,sm_90", help="Architectures, separated by commas.")
@click.option("--dtype", default="float16")
@click.option("--every", default=1, help="Compile one of this many graphs only.")
@click.option("--rows", default=8, help="The size of a program's first dim.")
@click.option("--workers", default=2)
def main(  # noqa: PLR0913, PLR0917 - the options of the command
    workloads: str, archs: str, dtype: str, every: int, rows: int, workers: int
) -> None:
    """Compile all graphs and report."""
    console = Console(stderr=True)
    outcomes: list[Outcome] = []
    with CompilePool(workers, cache=False) as pool:
        warm_up = list(_jobs("matmul", archs.partition(",")[0], dtype, 1, rows))
        pool.compile_all(warm_up[:workers])
        for arch in archs.split(","):
            for workload in workloads.split(","):
                console.print(f"{workload} for {arch} ...")
                jobs = list(_jobs(workload, arch, dtype, every, rows))
                start = time.perf_counter()
                results = pool.compile_all(jobs)
                outcome = _outcome(workload, arch, results, time.perf_counter() - start)
                outcomes.append(outcome)
                for job, result in zip(jobs, results, strict=True):
                    if isinstance(result, Failure):
                        console.print(f"  {result.kind}: {result.message}")
                    elif result.spills:
                        console.print(f"  {result.spills} bytes spilt: {_parameters(job)}")
    _print(outcomes)
    sys.exit(any(o.spilt or o.failed for o in outcomes))


def _parameters(job: Job) -> str:
    """The tile choice, as the header of the file has it."""
    lines = (line for line in job.text.splitlines() if line.startswith(("chunks:", "schedule:")))
    return ", ".join(line.partition(":")[2].strip() for line in lines)


def _outcome(workload: str, arch: str, results: Sequence[Result], seconds: float) -> Outcome:
    compiled = [result for result in results if isinstance(result, Compiled)]
    return Outcome(
        workload,
        arch,
        compiled=len(compiled),
        spilt=sum(result.spills > 0 for result in compiled),
        failed=len(results) - len(compiled),
        most_registers=max((result.registers for result in compiled), default=0),
        seconds=seconds,
    )


def _jobs(workload: str, arch: str, dtype: str, every: int, rows: int) -> Iterator[Job]:
    """The kernels of a workload's graphs, each at its best predicted tile choice."""
    _, program = load_program(workload)
    wide = dict.fromkeys(program.size_names, WIDE)
    sizes = bind_sizes(program, {**wide, program.size_names[0]: rows})
    target = OfflineTarget(arch)
    graphs = tuple((g.id, g.graph) for g in search(program, SearchOptions()).graphs[::every])
    for space in build_space(graphs, sizes, target).graphs:
        mu = _best_predicted(space, target, dtype)
        if mu is not None:
            source = target.emit(mu, dtype)
            for launch in source.meta["launches"]:
                yield Job(source.text, launch, gpu_named(arch).arch)


def _best_predicted(space: GraphSpace, target: Target, dtype: str) -> MuGraph | None:
    """The muGraph with the best prediction among a seeded sample; None if all are refused."""
    numbers = Random(0).sample(range(len(space)), min(SAMPLED, len(space)))
    found = (instantiate(space, space.config(k)) for k in numbers)
    accepted = [mu for mu in found if target.refusal(mu, dtype) is None]
    return min(accepted, key=lambda mu: target.estimate(mu, dtype), default=None)


def _print(outcomes: list[Outcome]) -> None:
    rows = [
        (
            o.workload, o.arch, str(o.compiled), str(o.spilt), str(o.failed),
            str(o.most_registers), f"{o.compiled / o.seconds:.1f}",
        )
        for o in outcomes
    ]  # fmt: skip
    names = ("workload", "arch", ">compiled", ">spilt", ">failed", ">most registers", ">per second")
    Console().print(table(names, rows))


if __name__ == "__main__":
    main()
