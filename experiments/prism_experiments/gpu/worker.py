"""The process that the stages run in, kept from cell to cell: importing torch takes long.

What it answers is vetted; how a request ends (answered, failed, hung, died, garbage) goes into the
entry of the results that the request is for. A process that was lost is replaced by the next
request, and is first made ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prism.errors import ParseError
from prism_experiments.gpu.process import Child, Lost
from prism_experiments.gpu.results import CONTESTANT, OVERHEAD, STATUS, TRIALS, TUNED, Status
from prism_experiments.gpu.schedule import Clock
from prism_experiments.gpu.vetting import Count, Each, Named, Scalar, Text, fields, vet

STARTS = 2
"""How often a process may be started in a row to be made ready."""

PART = fields(
    {
        "environment": Named(Scalar()),
        "bytes": Count(),
        "tune": TUNED,
        "trials": TRIALS,
        "contestants": Each(CONTESTANT),
        "overhead": OVERHEAD,
        "status": STATUS,
        "detail": Text(),
    }
)
"""What a stage may tell."""

ANSWER = fields({"partial": PART, "done": PART, "failed": Text()})


class Worker:
    """At most one process at a time."""

    def __init__(
        self,
        target: str,
        log: Path,
        clock: Clock,
        start_s: float,
        arguments: Sequence[str] = ("-m", "prism_experiments.gpu.child"),
    ) -> None:
        self._arguments = arguments
        self._target = target
        self._log = log
        self._clock = clock
        self._start_s = start_s
        self._child: Child | None = None
        self._is_ready = False
        self._is_first = True

    def engage(self) -> None:
        """Start a process and have it get ready; `employ` waits for that.

        Only the first one tries torch's compilers: where that hangs it must not hang again.
        """
        self.retire()
        self._start({"stage": "ready", "compiles": self._is_first})
        self._is_first = False

    def employ(self, entry: dict[str, Any]) -> bool:
        """See to it that a process is ready; where none can be, `entry` says why."""
        if self._is_ready:
            return True
        outcome: dict[str, Any] = {}
        for _ in range(STARTS):
            if self._child is None:
                self.engage()
            outcome = {"status": Status.OK.value, "detail": ""}
            for _ in self._answers(self._start_s, outcome, keep=True):
                pass
            self._is_ready = outcome["status"] == Status.OK.value
            if self._is_ready:
                return True
            self.retire()
        entry.update(outcome)
        return False

    def ask(
        self,
        request: Mapping[str, Any],
        limit_s: float,
        entry: dict[str, Any],
        *,
        keep: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """The answers to a request; `keep`: by the process that is ready, which stays."""
        if keep:
            assert self._child is not None
            self._child.send({"target": self._target, **request})
        else:
            self.retire()
            self._start(request)
        yield from self._answers(limit_s, entry, keep=keep)

    def retire(self) -> None:
        """End the process; what comes next gets a new one."""
        self._is_ready = False
        if self._child is not None:
            self._child.close()
            self._child = None

    def _start(self, request: Mapping[str, Any]) -> None:
        self._child = Child(self._arguments, self._log)
        self._child.send({"target": self._target, **request})

    def _answers(
        self, limit_s: float, entry: dict[str, Any], *, keep: bool
    ) -> Iterator[dict[str, Any]]:
        assert self._child is not None
        deadline = self._clock.deadline(limit_s)
        try:
            while True:
                answer = self._child.receive(deadline)
                vet(answer, ANSWER, "answer")
                if "failed" in answer:
                    entry.update(status=Status.FAILED.value, detail=answer["failed"])
                    break
                yield answer.get("partial", answer.get("done", {}))
                if "done" in answer:
                    break
        except Lost as lost:
            entry.update(status=lost.status.value, detail=lost.detail)
            keep = False
        except ParseError as error:
            entry.update(status=Status.GARBAGE.value, detail=str(error))
            keep = False
        finally:
            if not keep:
                self.retire()
