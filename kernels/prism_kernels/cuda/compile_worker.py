"""A process that compiles kernels, one job after another, for `prism_kernels.cuda.compile_pool`."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from prism.errors import KernelError, one_line
from prism_kernels.cuda.compile import Compiled, compile_kernel
from prism_kernels.cuda.toolchain import require_cuda


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel for one architecture; see `compile_kernel`."""

    text: str
    launch: Mapping[str, Any] = field(hash=False)
    arch: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A job without machine code."""

    kind: str
    """`compile`, `timeout` or `crash`."""
    message: str


def main(descriptor: int) -> None:
    """Answer jobs that come through the connection until it closes."""
    with Connection(descriptor) as connection:
        try:
            require_cuda()
        except KernelError as error:
            connection.send(Failure("compile", str(error)))
            return
        connection.send(None)  # ready
        # what the imports made stays: not looking through it again saves a tenth of the time
        gc.freeze()
        while True:
            try:
                job = connection.recv()
            except EOFError:
                os._exit(0)  # nothing to tidy up
            connection.send(_compile(job))


def _compile(job: Job) -> Compiled | Failure:
    try:
        return compile_kernel(job.text, job.launch, job.arch, job.path)
    except KernelError as error:
        return Failure("compile", str(error))
    except Exception as error:  # metadata that is not ours
        return Failure("compile", one_line(error))
