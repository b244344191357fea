"""Says what is wrong: from an exception, or where threads are, to a fault a person can act on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from prism_kernels.cuda.dialect import COLLECTIVES, WARP
from prism_kernels.lockstep.code import Action, Place
from prism_kernels.lockstep.copies import LeftUnderWayError, UnderWayError
from prism_kernels.lockstep.faults import Fault, FaultKind, spans
from prism_kernels.lockstep.matrices import MisalignedError, NotNumberError, NotWordError
from prism_kernels.lockstep.memory import Site
from prism_kernels.lockstep.names import source_line
from prism_kernels.lockstep.races import Race
from prism_kernels.lockstep.runtime import EndlessError, OutsideError, UnwrittenError
from prism_kernels.lockstep.translate import Translated

_OF_ELEMENTS: Mapping[type[Exception], tuple[FaultKind, str]] = {
    UnderWayError: (FaultKind.UNFINISHED_COPY, "{} {}, into which a copy is under way"),
    LeftUnderWayError: (FaultKind.UNFINISHED_COPY, "never waits for its copy into {1}"),
    MisalignedError: (FaultKind.MISALIGNED, "{} several elements from {} on: not aligned"),
    NotNumberError: (FaultKind.WRONG_TYPE, "{} {} as a number, but it holds a word"),
    NotWordError: (FaultKind.WRONG_TYPE, "{} {} as a word, but it holds a number"),
}
"""Exception about an element -> the fault; the text takes the action and the element."""


@dataclass(frozen=True, slots=True)
class Reporter:
    """Writes the faults of one block."""

    kernel: Translated
    sizes: Mapping[str, int]
    """Elements of each memory."""
    limit: int
    block: int

    def of_exception(self, error: Exception, thread: int) -> Fault | None:
        """The fault behind an exception in a thread; None: it is none of the kernel's."""
        frame = self._frame(error.__traceback__)
        if frame is None:
            return None
        place = self.kernel.places[self.kernel.sites[frame.tb_lineno]]
        match error:
            case OutsideError(args=(int(index),)):
                return self._bounds(place, thread, index)
            case KeyError(args=(index,)):
                is_inside = 0 <= index < self.sizes[place.subject]
                return (self._unwritten if is_inside else self._bounds)(place, thread, int(index))
            case UnwrittenError(args=(int(index),)):
                return self._unwritten(place, thread, index)
            case TypeError() if (
                place.index
            ):  # None + x: an element of a local array that holds nothing
                index = place.index
                at = int(index) if index.isdecimal() else frame.tb_frame.f_locals[index]
                return self._unwritten(place, thread, at)
            case _:
                return self._of_element(error, place, thread)

    def _of_element(self, error: Exception, place: Place, thread: int) -> Fault | None:
        """A fault of `_OF_ELEMENTS`, or one that has to do with no memory."""
        if type(error) not in _OF_ELEMENTS:
            return self._of_statement(error, place, thread)
        kind, text = _OF_ELEMENTS[type(error)]
        (index,) = error.args
        text = text.format(place.action.value, f"{place.subject}[{index}]")
        return self._fault(kind, place, thread, text, index)

    def _of_statement(self, error: Exception, place: Place, thread: int) -> Fault | None:
        """A fault that has to do with no memory."""
        match error:
            case UnboundLocalError():
                name = re.findall(r"'(\w+)'", str(error))[0]
                kind = FaultKind.UNDEFINED
                text = f"reads {name}, to which nothing was assigned on its way here"
            case EndlessError() | OverflowError():
                kind = FaultKind.ENDLESS
                text = f"would run this loop more than {self.limit} times"
            case ZeroDivisionError():
                kind, text = FaultKind.ARITHMETIC, "divides by zero"
            case ValueError() if place.action is Action.LOOP:
                kind, text = FaultKind.ARITHMETIC, "loops with a step of 0"
            case _:
                return None
        return self._fault(kind, replace(place, subject=""), thread, text)

    def _frame(self, traceback: TracebackType | None) -> TracebackType | None:
        """The kernel's own frame."""
        while traceback is not None and traceback.tb_frame.f_code is not self.kernel.code:
            traceback = traceback.tb_next
        return traceback

    def _bounds(self, place: Place, thread: int, index: int) -> Fault:
        name, verb = place.subject, place.action.value
        size = self.sizes.get(name)
        limit = "outside the array" if size is None else f"but there are {size} elements"
        text = f"{verb} {name}[{index}], {limit}"
        return self._fault(FaultKind.OUT_OF_BOUNDS, place, thread, text, index)

    def _unwritten(self, place: Place, thread: int, index: int) -> Fault:
        text = f"reads {place.subject}[{index}], which nobody has written"
        return self._fault(FaultKind.UNWRITTEN_READ, place, thread, text, index)

    def _fault(
        self,
        kind: FaultKind,
        place: Place,
        thread: int,
        text: str,
        element: int | None = None,
    ) -> Fault:
        message = f"{self.at(place)}: thread {thread} of block {self.block} {text}"
        memory = place.subject or None
        return Fault(kind, message, self.block, (thread,), place.line, memory, element)

    def at(self, place: Place) -> str:
        """A line of the source, as messages name it."""
        return f"line {place.line} `{source_line(self.kernel.text, place.line)}`"

    # -- threads that are not where others are

    def divergent_barrier(self, at: Sequence[Any]) -> Fault:
        """Not all threads of the block wait at the same barrier."""
        message = (
            f"block {self.block}: {self._whereabouts(enumerate(at))}; all threads of a block must "
            "reach the same cuda.syncthreads(): move it out of the branch"
        )
        return self._divergence(FaultKind.DIVERGENT_BARRIER, message, enumerate(at))

    def divergent_collective(self, warp: int, at: Sequence[Any]) -> Fault:
        """Not all lanes of the warp wait at the same collective."""
        threads = list(enumerate(at, warp * WARP))
        missing = "" if len(at) == WARP else f" and the warp has {len(at)} threads, not {WARP}"
        message = (
            f"warp {warp} of block {self.block}: {self._whereabouts(threads)}{missing}; all lanes "
            "of a warp must reach the same collective: move it out of the branch"
        )
        return self._divergence(FaultKind.DIVERGENT_COLLECTIVE, message, threads)

    def _divergence(
        self, kind: FaultKind, message: str, threads: Iterable[tuple[int, Any]]
    ) -> Fault:
        """The fault, at the place of the fewest threads that wait."""
        groups = self._by_place(threads)
        waiting = {site: ts for site, ts in groups.items() if site >= 0}
        site = min(waiting, key=lambda s: (len(waiting[s]), s))
        line = self.kernel.places[site].line
        return Fault(kind, message, self.block, tuple(waiting[site]), line)

    def _whereabouts(self, threads: Iterable[tuple[int, Any]]) -> str:
        texts = []
        for site, members in self._by_place(threads).items():
            where = "have finished"
            if site >= 0:
                place = self.kernel.places[site]
                prefix = "cuda." if place.subject in COLLECTIVES else ""
                where = f"wait at {prefix}{place.subject} in {self.at(place)}"
            texts.append(f"threads {spans(members)} {where}")
        return ", ".join(texts)

    def _by_place(self, threads: Iterable[tuple[int, Any]]) -> dict[Site, list[int]]:
        groups: dict[Site, list[int]] = {}
        for t, position in threads:
            site = position[0] if isinstance(position, tuple) else position
            groups.setdefault(site, []).append(t)
        return groups

    # -- races

    def race(self, name: str, race: Race) -> Fault:
        """Two threads of the block without a barrier between them."""
        first, second = race.first, race.second
        places = [self.kernel.places[a.site] for a in (first, second)]
        subject = f"{name}[{race.element}]"
        message = (
            f"{self.at(places[0])}: in block {self.block} thread {first.thread} {first.action} "
            f"{subject}, and thread {second.thread} {second.action} it in {self.at(places[1])}, "
            "with no cuda.syncthreads() between"
        )
        threads = (first.thread, second.thread)
        line = places[0].line
        return Fault(FaultKind.RACE, message, self.block, threads, line, name, race.element)

    def block_race(self, name: str, race: Race) -> Fault:
        """Two blocks of the launch; the groups of the race are their numbers."""
        first, second = race.first, race.second
        places = [self.kernel.places[a.site] for a in (first, second)]
        message = (
            f"{self.at(places[0])}: thread {first.thread} of block {first.group} {first.action} "
            f"{name}[{race.element}], and thread {second.thread} of block {second.group} "
            f"{second.action} it in {self.at(places[1])}: blocks run in any order"
        )
        threads = (first.thread, second.thread)
        return Fault(
            FaultKind.RACE, message, first.group, threads, places[0].line, name, race.element
        )
