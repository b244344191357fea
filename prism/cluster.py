"""A Ray cluster, as far as Prism uses one: its machines, work sent there, and what came of it.

Whoever sends work says what it takes of a machine (`Needs`), which is all that decides what may run
beside it, and counts for himself how often something was lost: Ray repeats nothing here. A worker
or machine that is lost is a value, `Lost`; a cluster that is lost is an error.

Ray is imported when a cluster is asked for, never before. The machines need the same packages,
Prism included, and see the user's files at the same paths.
"""

from __future__ import annotations

import contextlib
import importlib
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NoReturn, Protocol

from prism.errors import ClusterLostError, PrismError, UsageError, one_line, to_install

LOST_RETRIES = 3
"""How often work is begun again after it lost its worker or machine."""

BEAT_S = 2.0
"""How often it is seen whether the cluster's head is there, while nothing ends."""

PATIENCE_S = 20.0
"""How long it may be away; Ray aborts the process after 60 s."""

SHUTDOWN_S = 15.0

CONNECT_TRIES = 4
"""How often a head is asked for a client's process."""

CLIENT_PORT = 10001
"""Of `ray://HOST`."""

Ref = Any
"""An answer to come: Ray has no types here."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster that is alive."""

    id: str
    name: str
    cpus: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Needs:
    """What work takes of a machine for itself; `node`: of that one and no other."""

    cpus: int = 1
    gpus: int = 0
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """There will be no answer: the worker or its machine is gone."""

    why: str


class Cluster(Protocol):
    """What is used of a cluster; tests have a stand-in."""

    def nodes(self) -> tuple[Node, ...]:
        """The machines that are alive, in a fixed order."""

    def submit(self, function: Callable[..., Any], *args: object, needs: Needs) -> Ref:
        """Run a function of an installed module somewhere."""

    def host(self, kind: type, *args: object, needs: Needs) -> Any:  # noqa: ANN401 - Ray's
        """Make an object in a process of its own, which holds what it needs until it is ended."""

    def call(self, host: Any, method: str, *args: object) -> Ref:  # noqa: ANN401 - as above
        """Call a method of such an object; its calls run one after the other."""

    def wait(self, refs: Sequence[Ref], timeout_s: float | None = None) -> list[Ref]:
        """Those that have ended: at least one, unless the time was over before.

        Raises:
            ClusterLostError: the cluster went away.
        """

    def get(self, ref: Ref) -> Any | Lost:  # noqa: ANN401 - what was returned
        """The answer of what has ended.

        Raises:
            PrismError: the work raised it.
            ClusterLostError: the cluster went away.
        """

    def cancel(self, ref: Ref) -> None:
        """End work that is running or waits for a machine."""

    def end(self, host: Any) -> None:  # noqa: ANN401 - as above
        """End an object's process."""


class RayCluster:
    """A cluster that this process is connected to, by `address`.

    Every call of Ray is made in a thread: where the head is gone it may block for ever, or until
    Ray aborts the process. Meanwhile it is seen whether the head answers.
    """

    def __init__(self, ray: ModuleType, address: str = "") -> None:
        self._ray = ray
        self._affinity = importlib.import_module("ray.util.scheduling_strategies")
        self._head = _head_of(ray, address)
        self.is_lost = False

    def nodes(self) -> tuple[Node, ...]:
        """See `Cluster`."""
        found = (
            Node(
                node["NodeID"],
                str(node.get("NodeName") or node["NodeManagerHostname"]),
                int(node["Resources"].get("CPU", 0)),
                int(node["Resources"].get("GPU", 0)),
            )
            for node in self._patiently(self._ray.nodes)
            if node["Alive"]
        )
        return tuple(sorted(found, key=lambda node: node.id))

    def submit(self, function: Callable[..., Any], *args: object, needs: Needs) -> Ref:
        """See `Cluster`."""
        remote = self._ray.remote(function).options(max_retries=0, **self._options(needs))
        return self._patiently(lambda: remote.remote(*args))

    def host(self, kind: type, *args: object, needs: Needs) -> Any:  # noqa: ANN401 - Ray's
        """See `Cluster`."""
        options = {"max_restarts": 0, "max_task_retries": 0, **self._options(needs)}
        remote = self._ray.remote(kind).options(**options)
        return self._patiently(lambda: remote.remote(*args))

    def call(self, host: Any, method: str, *args: object) -> Ref:  # noqa: ANN401 - Ray's
        """See `Cluster`."""
        return self._patiently(lambda: getattr(host, method).remote(*args))

    def _options(self, needs: Needs) -> dict[str, Any]:
        options: dict[str, Any] = {"num_cpus": needs.cpus, "num_gpus": needs.gpus}
        if needs.node is not None:
            strategy = self._affinity.NodeAffinitySchedulingStrategy(needs.node, soft=False)
            options["scheduling_strategy"] = strategy
        return options

    def wait(self, refs: Sequence[Ref], timeout_s: float | None = None) -> list[Ref]:
        """See `Cluster`."""
        given = list(refs)
        done, _ = self._patiently(lambda: self._ray.wait(given, num_returns=1, timeout=timeout_s))
        return list(done)

    def get(self, ref: Ref) -> Any | Lost:  # noqa: ANN401 - what was returned
        """See `Cluster`."""
        errors = self._ray.exceptions
        try:
            return self._patiently(lambda: self._ray.get(ref))
        except errors.RayTaskError as error:
            if isinstance(cause := error.cause, PrismError):
                raise cause from None
            return Lost(one_line(cause))
        except errors.RayError as error:
            self._require_head()  # before it counts as lost: all may be
            return Lost(one_line(error))

    def cancel(self, ref: Ref) -> None:
        """See `Cluster`."""
        self._forget(lambda: self._ray.cancel(ref, force=True))

    def end(self, host: Any) -> None:  # noqa: ANN401 - Ray's
        """See `Cluster`."""
        self._forget(lambda: self._ray.kill(host))

    def _forget(self, work: Callable[[], object]) -> None:
        """Whatever comes of it: what is to end may have ended, or the cluster have gone."""
        if not self.is_lost:
            with contextlib.suppress(Exception):
                self._patiently(work)

    def close(self) -> None:
        """Disconnect, from a cluster that is gone too; Ray takes some seconds to see that."""
        done: queue.Queue[tuple[bool, Any]] = queue.Queue(1)
        threading.Thread(target=_answer, args=(self._ray.shutdown, done), daemon=True).start()
        with contextlib.suppress(queue.Empty):
            done.get(timeout=SHUTDOWN_S)

    def _patiently(self, work: Callable[[], Any]) -> Any:  # noqa: ANN401 - Ray's
        answer: queue.Queue[tuple[bool, Any]] = queue.Queue(1)
        threading.Thread(target=_answer, args=(work, answer), daemon=True).start()
        while True:
            try:
                is_answer, given = answer.get(timeout=BEAT_S)
            except queue.Empty:
                self._require_head()
                continue
            if is_answer:
                return given
            if isinstance(given, ConnectionError):
                self._gone(one_line(given))
            raise given

    def _require_head(self) -> None:
        """Be sure that the head answers, or wait until it has not for `PATIENCE_S`.

        Raises:
            ClusterLostError: it has not.
        """
        if self._head is None:
            return
        begin = time.monotonic()
        while True:
            try:
                socket.create_connection(self._head, timeout=BEAT_S).close()
            except OSError as error:
                if time.monotonic() - begin > PATIENCE_S:
                    host, port = self._head
                    self._gone(f"its head {host}:{port} does not answer: {error}")
                time.sleep(BEAT_S)
            else:
                return

    def _gone(self, why: str) -> NoReturn:
        self.is_lost = True
        raise ClusterLostError(f"the Ray cluster went away ({why})")


def _answer(work: Callable[[], Any], answer: queue.Queue[tuple[bool, Any]]) -> None:
    try:
        answer.put((True, work()))
    except BaseException as error:  # it is raised where it is waited for
        answer.put((False, error))


def _head_of(ray: ModuleType, address: str) -> tuple[str, int] | None:
    """Where the head listens: for a client what it was given, else what the cluster says."""
    if address.startswith("ray://"):
        address = address.removeprefix("ray://").partition("?")[0]
        address = address if re.search(r":[0-9]+$", address) else f"{address}:{CLIENT_PORT}"
    else:
        try:
            address = str(ray.get_runtime_context().gcs_address)
        except Exception:  # a client that somebody else connected is not told
            return None
    found = re.fullmatch(r"\[?([^\]]+?)\]?:([0-9]+)", address)
    return None if found is None else (found[1], int(found[2]))


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[RayCluster | None]:
    """The cluster at `address` (`auto`, `HOST:PORT`, `ray://HOST:PORT`); None for none.

    A connection that this process had before is used, and left as it is.

    Raises:
        UsageError: Ray is not installed, or no cluster answers there.
    """
    if address is None:
        yield None
        return
    ray = _imported()
    if ray.is_initialized():
        yield RayCluster(ray, address)
        return
    _init(ray, address)
    cluster = RayCluster(ray, address)
    try:
        yield cluster
    finally:
        cluster.close()


def _imported() -> ModuleType:
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"--ray needs Ray, which cannot be imported ({error}); {to_install('ray')}"
        ) from error


def _init(ray: ModuleType, address: str) -> None:
    """Connect; the head of a cluster may need several tries to take a client.

    It forks a process for each one, and under load some of these crash before they are Python:
    gRPC's fork handlers race with its threads. The head says so at once, and the next one may live.
    """
    for tries in range(1, CONNECT_TRIES + 1):
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except ConnectionAbortedError as error:
            if tries == CONNECT_TRIES:
                said = str(error).strip().splitlines()[-1:]  # after a traceback of the head's
                raise UsageError(
                    f"the Ray cluster at {address} is there, but its head started no process for "
                    f"us in {tries} tries: {', '.join(said)}"
                ) from error
            time.sleep(BEAT_S)
        except Exception as error:
            hint = (
                "" if "://" in address else "; from a machine that is none of its own: ray://HOST"
            )
            raise UsageError(f"no Ray cluster at {address}: {one_line(error)}{hint}") from error
        else:
            return
