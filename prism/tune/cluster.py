"""Trials on a Ray cluster: each on a machine of the same device, which it has for itself.

What a target's times depend on says what a host takes: a whole node where kernels are timed on the
CPU, a GPU of its own where they are timed on one, a CPU where they are only compiled. Hosts are
processes that stay for the run (`prism.tune.host`), so the reference is computed once on each, and
a round has an attempt for every host there is. Machines that join during the run are taken on.

A host that is lost costs what it was running: that is begun again elsewhere, `LOST_RETRIES` times,
and then has failed. The finals are on one host; if it is lost, its kernels are built again on the
next. Where no host is left, the run ends with what it has.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import TracebackType
from typing import Any, Self, assert_never

from prism.child import START_TIMEOUT_S
from prism.cluster import LOST_RETRIES, Cluster, Lost, Needs, Node, Ref
from prism.errors import ClusterLostError, KernelError, PrismError, UsageError
from prism.files import write_atomically
from prism.protocols import Target
from prism.record import Outcome, digest, versions
from prism.tune.host import Order, Ready, Refused, TrialHost
from prism.tune.pool import Answer, Died
from prism.tune.runner import Attempt, Ended
from prism.tune.task import Task
from prism.tune.worker import Build, Built, Drop, Failed, Request

MOST_HOSTS = 64
"""Rounds of more would learn too little from each other."""

BUSY_S = 300.0
"""How long to wait for the first machine, others may be using them all."""

GATHER_S = 10.0
"""How long to wait for more of them after the first."""

SLACK_S = 600.0
"""A host may take this long beyond all time limits (a reference in float64) before it is hung."""

SHOWN = 3
"""Refusals that an error tells."""


class Kind(Enum):
    """What a host takes for itself."""

    NODE = "a whole node"
    GPU = "a GPU"
    CPU = "a CPU"


def kind_of(target: Target) -> Kind:
    """What must not be shared while this target's kernels are tried."""
    if not target.measures:
        return Kind.CPU
    return Kind.GPU if target.device().kind == "gpu" else Kind.NODE


def places(kind: Kind, nodes: Sequence[Node]) -> list[Needs]:
    """Every place for a host, nodes in turns, so that the first few are spread."""
    found: list[tuple[int, Needs]] = []
    for node in nodes:
        match kind:
            case Kind.NODE:
                needs, count = Needs(node.cpus, 0, node.id), min(1, node.cpus)
            case Kind.GPU:
                needs, count = Needs(min(1, node.cpus), 1, node.id), node.gpus
            case Kind.CPU:
                needs, count = Needs(1, 0, node.id), node.cpus
            case _:
                assert_never(kind)
        found += [(turn, needs) for turn in range(count)]
    return [needs for _, needs in sorted(found, key=lambda place: place[0])][:MOST_HOSTS]


@dataclass(eq=False, slots=True)
class _Host:
    """The near side of a host."""

    handle: Any
    place: Needs
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Running:
    """An attempt under way."""

    index: int
    host: _Host
    deadline: float


@dataclass(slots=True)
class _Round:
    """The attempts of a round: those that wait, run and have ended."""

    attempts: Sequence[Attempt]
    waiting: deque[int] = field(default_factory=deque)
    running: dict[Ref, _Running] = field(default_factory=dict)
    ended: dict[int, Ended] = field(default_factory=dict)
    lost: Counter[int] = field(default_factory=Counter)


class ClusterRunner:
    """The hosts of a run (`prism.tune.runner.Runner`)."""

    def __init__(self, cluster: Cluster, task: Task) -> None:
        self._cluster = cluster
        self._task = task
        self._kind = kind_of(task.target)
        self._order = Order.of(task)
        self._packed = pickle.dumps(self._order)
        self._hosts: list[_Host] = []
        self._opening: dict[Ref, _Host] = {}
        self._closed_places: Counter[Needs] = Counter()
        self._refusals: list[str] = []
        self._names: dict[str, None] = {}
        self._losses = 0
        self._widest = 0
        self._built: dict[int, tuple[Build, float]] = {}
        self._final: _Host | None = None

    # --- the hosts

    def __enter__(self) -> Self:
        """Open hosts, as many as are ready soon after the first.

        Raises:
            UsageError: no machine will do, or all are busy.
        """
        try:
            self._recruit()
            self._require_host(UsageError)
            self._settle(GATHER_S, all_of_them=True)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends every host; those that can, remove their files first."""
        hosts = [*self._hosts, *self._opening.values()]
        try:
            closing = [self._cluster.call(host.handle, "close") for host in self._hosts]
            deadline = time.monotonic() + GATHER_S
            while closing and (left := deadline - time.monotonic()) > 0:
                done = self._cluster.wait(closing, left)
                closing = [ref for ref in closing if ref not in done]
        except ClusterLostError:
            pass  # then there is nothing left to end
        for host in hosts:
            self._cluster.end(host.handle)
        self._hosts, self._opening = [], {}

    def __len__(self) -> int:
        """The hosts that are there."""
        self._settle(0.0)
        return max(1, len(self._hosts))

    @property
    def notes(self) -> tuple[str, ...]:
        """Where trials ran."""
        said = f"trials ran on a Ray cluster ({', '.join(self._names)}), {self._kind.value} each"
        said += f", up to {self._widest} at once"
        if self._losses:
            said += f"; {self._losses} begun again: a machine was lost"
        refused = (f"not used: {why}" for why in dict.fromkeys(self._refusals))
        return (said, *list(refused)[:SHOWN])

    def _recruit(self) -> None:
        """Ask every place for a host that has none and was not refused."""
        taken = Counter(host.place for host in (*self._hosts, *self._opening.values()))
        taken += self._closed_places
        room = MOST_HOSTS - len(self._hosts) - len(self._opening)
        for place in places(self._kind, self._cluster.nodes()):
            if taken[place]:
                taken[place] -= 1
            elif room > 0:
                room -= 1
                handle = self._cluster.host(TrialHost, versions(), self._packed, needs=place)
                ref = self._cluster.call(handle, "open")
                self._opening[ref] = _Host(handle, place)

    def _require_host(self, error: type[PrismError]) -> None:
        """Wait for a host if there is none; the error says why there is none to come."""
        deadline = time.monotonic() + BUSY_S
        while not self._hosts and self._opening and time.monotonic() < deadline:
            self._settle(deadline - time.monotonic())
        if not self._hosts:
            raise error(self._none_will_do())

    def _settle(self, timeout_s: float, *, all_of_them: bool = False) -> None:
        """Take on hosts that have opened; waits for one of them, or for all, until the time."""
        deadline = time.monotonic() + timeout_s
        while self._opening:
            done = self._cluster.wait(list(self._opening), max(0.0, deadline - time.monotonic()))
            for ref in done:
                self._opened(self._opening.pop(ref), self._cluster.get(ref))
            if not done or not all_of_them:
                return

    def _opened(self, host: _Host, answer: Ready | Refused | Lost) -> None:
        match answer:
            case Ready(name=name):
                host.name = name
                self._names[name] = None
                self._hosts.append(host)
                self._widest = max(self._widest, len(self._hosts))
                self._cluster.call(host.handle, "prepare")
            case Refused(why=why) | Lost(why=why):
                self._closed_places[host.place] += 1
                self._refusals.append(why)
                self._cluster.end(host.handle)
            case _:
                assert_never(answer)

    def _none_will_do(self) -> str:
        """Why there is no host."""
        wanted = f"{self._kind.value} of {self._order.device}"
        if self._refusals:
            why = "; ".join(list(dict.fromkeys(self._refusals))[:SHOWN])
            return f"no machine of the cluster can run the trials, which need {wanted}: {why}"
        if self._opening:
            return f"no machine of the cluster became free in {BUSY_S:.0f} s; trials need {wanted}"
        return f"the cluster has no machine for the trials, which need {wanted}"

    def _drop(self, host: _Host) -> None:
        """A host is lost; its place, or another, may have a new one."""
        if host in self._hosts:
            self._hosts.remove(host)
            self._cluster.end(host.handle)
            self._recruit()

    # --- rounds

    def get_ready(self) -> None:
        """See `Runner`: hosts have computed their own references meanwhile."""

    def run(self, attempts: Sequence[Attempt], best_s: Callable[[], float]) -> Iterator[Ended]:
        """See `Runner`: all at once, each on a host of its own."""
        self._recruit()
        now = _Round(attempts, deque(range(len(attempts))))
        for index in range(len(attempts)):
            while index not in now.ended:
                self._advance(now, best_s())
            yield now.ended[index]

    def _advance(self, now: _Round, best_s: float) -> None:
        """Start what can be started, and take what ends first."""
        if not now.running:
            self._require_host(ClusterLostError)
        busy = {running.host for running in now.running.values()}
        for host in [host for host in self._hosts if host not in busy]:
            if now.waiting:
                self._start(now, now.waiting.popleft(), host, best_s)
        deadline = min(running.deadline for running in now.running.values())
        left = max(0.0, deadline - time.monotonic())
        done = self._cluster.wait([*now.running, *self._opening], left)
        for ref in done:
            if ref in self._opening:
                self._opened(self._opening.pop(ref), self._cluster.get(ref))
            else:
                self._ended(now, now.running.pop(ref), self._cluster.get(ref))
        for ref, running in list(now.running.items()) if not done else ():
            if running.deadline <= time.monotonic():
                self._ended(now, now.running.pop(ref), Lost("it did not answer"))

    def _start(self, now: _Round, index: int, host: _Host, best_s: float) -> None:
        attempt = now.attempts[index]
        ref = self._cluster.call(host.handle, "run", attempt, best_s)
        runs_s = (2 + attempt.is_staged) * attempt.run_s  # a staged one may be checked once more
        longest = attempt.compile_s + runs_s + START_TIMEOUT_S + SLACK_S
        now.running[ref] = _Running(index, host, time.monotonic() + longest)

    def _ended(self, now: _Round, running: _Running, answer: Ended | Lost) -> None:
        index = running.index
        if not isinstance(answer, Lost):
            now.ended[index] = answer
            return
        self._drop(running.host)
        now.lost[index] += 1
        if now.lost[index] <= LOST_RETRIES:
            self._losses += 1
            now.waiting.append(index)
        else:
            now.ended[index] = Ended(self._given_up(answer), host=running.host.name)

    def _given_up(self, lost: Lost) -> Died:
        return Died(f"lost its machine {LOST_RETRIES + 1} times: {lost.why}")

    # --- the finals

    def ask(self, request: Request, timeout_s: float) -> Answer:
        """See `Runner`: to one host; to the next, with its kernels built again, if that is lost."""
        lost = Lost("")
        for _ in range(LOST_RETRIES + 1):
            self._require_host(ClusterLostError)
            answer = self._asked(request, timeout_s)
            if not isinstance(answer, Lost):
                return self._kept(request, timeout_s, answer)
            lost = answer
            self._losses += 1
        return self._given_up(lost)

    def keeps(self, trial: int) -> bool:
        """See `Runner`: hosts may have kept it, it is not known which."""
        del trial
        return False

    def _asked(self, request: Request, timeout_s: float) -> Answer | Lost:
        """Ask the host of the finals, which is another one than before if that was lost."""
        if self._final not in self._hosts:
            self._final = self._hosts[0]
            for build, limit_s in self._built.values():
                if isinstance(answer := self._ask(self._final, build, limit_s), Lost):
                    return answer
        return self._ask(self._final, request, timeout_s)

    def _ask(self, host: _Host, request: Request, timeout_s: float) -> Answer | Lost:
        ref = self._cluster.call(host.handle, "ask", request, timeout_s)
        done = self._cluster.wait([ref], timeout_s + START_TIMEOUT_S + SLACK_S)
        answer: Answer | Lost = self._cluster.get(ref) if done else Lost("it did not answer")
        if isinstance(answer, Lost):
            self._drop(host)
        return answer

    def _kept(self, request: Request, timeout_s: float, answer: Answer) -> Answer:
        if isinstance(request, Drop):
            for trial in request.trials:
                self._built.pop(trial, None)
        if isinstance(request, Build) and isinstance(answer, Built):
            self._built[request.trial] = (request, timeout_s)
            return self._emitted(request, answer)
        return answer

    def _emitted(self, request: Build, built: Built) -> Answer:
        """The kernel's file here as well, with this user's seal."""
        try:
            source = self._task.target.emit(request.mu, request.dtype)
        except KernelError as error:
            return Failed(Outcome.REFUSED, str(error))
        if digest(source.text) != built.source:
            return Failed(Outcome.ERROR, "the cluster's machine emits another kernel than this one")
        write_atomically(request.path, source.text)
        return replace(built, meta=source.meta)
