"""A process that verifies blocks of graphs, one after another, for `prism.verify.parallel`."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection

from prism.egraph import AxiomFile, make_axiom_set
from prism.errors import PrismError
from prism.ir import GraphOp, Program, SGraph, adopt
from prism.verdict import Verdict
from prism.verify.equivalence import Verifier, VerifyLimits, in_blocks

ORPHAN_CHECK_S = 0.5


@dataclass(frozen=True, slots=True)
class Setup:
    """What every block is about; the axioms as the files they come from.

    `operators`: those that users defined, which programs and graphs only name.
    """

    program: Program
    axiom_files: tuple[AxiomFile, ...]
    limits: VerifyLimits
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """The kernels of each graph of a block, or of graphs of which each is a block."""

    graphs: tuple[tuple[GraphOp, ...], ...]
    is_each_alone: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """The next verdicts of a request; `late`: how many of them the clock ended."""

    verdicts: tuple[Verdict, ...]
    late: int


def main(descriptor: int) -> None:
    """Answer requests, piece by piece, until the connection closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to stop, and how
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    with Connection(descriptor) as connection:
        connection.send(None)  # ready
        setup: Setup = connection.recv()
        adopt(setup.operators)
        axioms = make_axiom_set(setup.axiom_files)
        verifier = Verifier(setup.program, axioms, setup.limits)
        gc.freeze()
        while True:
            try:
                request: Request = connection.recv()
                _answer(verifier, request, connection)
            except (EOFError, OSError):
                os._exit(0)  # nobody listens; nothing to tidy up


def _answer(verifier: Verifier, request: Request, connection: Connection) -> None:
    """Send verdicts as they come; an error ends the request, as it would end a search."""
    graphs = [SGraph(verifier.program, kernels) for kernels in request.graphs]
    most = verifier.limits.batch
    try:
        for block in in_blocks(graphs, 1 if request.is_each_alone else len(graphs)):
            begun = verifier.begin(block)
            for part in in_blocks(block, most):
                late = verifier.late
                verdicts = begun.next(len(part))
                connection.send(Judged(verdicts, verifier.late - late))
    except PrismError as error:
        connection.send(error)


def _end_with_parent(parent: int) -> None:
    """End when the parent has died, even amid a long call of egglog, which lets threads run."""
    while os.getppid() == parent:
        time.sleep(ORPHAN_CHECK_S)
    os._exit(1)
