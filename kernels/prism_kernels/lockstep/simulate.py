"""Runs an emitted CUDA kernel on NumPy arrays, without a GPU, and reports what is wrong with it.

Blocks run one after the other in a random order, the threads of each in lockstep
(`prism_kernels.lockstep.schedule`). Everything random comes from one seed.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.errors import KernelError
from prism_kernels.cuda.devices import MAX_BLOCKS, MAX_THREADS
from prism_kernels.cuda.dialect import DTYPES
from prism_kernels.lockstep.code import Action
from prism_kernels.lockstep.faults import Fault, FaultKind, LockstepFault
from prism_kernels.lockstep.memory import ARRAY_DTYPES, Log, Memory, Values, read_array, write_array
from prism_kernels.lockstep.races import Access, Race, accesses_to, find_race
from prism_kernels.lockstep.report import Reporter
from prism_kernels.lockstep.schedule import BlockRun
from prism_kernels.lockstep.translate import Translated, translate

Array = NDArray[np.generic]

STEP_LIMIT = 10_000_000
"""Iterations of one loop in one thread; no test runs that long, so it is taken for endless."""
ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a launch did, all blocks and threads together."""

    barriers: int
    """How often a block passed one."""
    collectives: int
    """How often a warp carried one out."""
    steps: int
    """Iterations of loops."""
    shared_loads: int
    shared_stores: int
    global_loads: Mapping[str, int] = field(hash=False)
    """By parameter."""
    global_stores: Mapping[str, int] = field(hash=False)
    """By parameter; atomic additions are stores."""


def simulate(  # noqa: PLR0913 - a launch has that many parts, and its options are named
    text: str,
    meta: Mapping[str, Any],
    arrays: Sequence[Array],
    outputs: Sequence[Array],
    *,
    seed: int = 0,
    checks: bool = True,
    step_limit: int = STEP_LIMIT,
) -> Statistics:
    """Run the kernel in `text` on `arrays` and write its results into `outputs`.

    Arrays are C-contiguous, in the order of the metadata; bfloat16 ones as uint16 bits (or of an
    extension dtype of that name). `checks=False` leaves out the search for races. After a fault
    `outputs` hold what was written before it.

    Raises:
        LockstepFault: the kernel does something wrong; its `fault` says what and where.
        KernelError: the text is outside the dialect, or metadata or arrays do not fit it.
    """
    shape = _Shape.of(meta)
    shape.require_count(len(arrays), len(outputs))
    arrays = [shape.checked(array, i) for i, array in enumerate(arrays)]
    outputs = [shape.checked(array, i) for i, array in enumerate(outputs, len(arrays))]
    if not all(array.flags.writeable for array in outputs):
        raise KernelError("an output is read-only")
    kernel = translate(text, shape.dtypes, len(arrays), checks=checks)
    launch = _Launch(kernel, shape, np.random.default_rng(seed), step_limit)
    launch.allocate(arrays, outputs)
    with np.errstate(all="ignore"):  # infinities and NaN are values, as on the GPU
        try:
            launch.run()
        finally:
            launch.finish(outputs)
    launch.require_written()
    return launch.statistics()


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the metadata says about the launch."""

    dtypes: tuple[str, ...]
    elements: tuple[int, ...]
    """Of each argument and output."""
    blocks: int
    threads: int
    shared_elements: int
    workspace_elements: int

    @staticmethod
    def of(meta: Mapping[str, Any]) -> _Shape:
        """Read and check it."""

        def number(key: str, least: int, most: int) -> int:
            value = meta.get(key)
            if type(value) is not int or not least <= value <= most:
                raise KernelError(f"metadata: {key} must be {least} to {most}, not {value!r}")
            return value

        dtypes = meta.get("parameters")
        if not isinstance(dtypes, (list, tuple)) or not all(d in list(DTYPES) for d in dtypes):
            raise KernelError(f"metadata: parameters must list dtypes of {', '.join(DTYPES)}")
        return _Shape(
            tuple(dtypes),
            _elements(meta),
            number("blocks", 1, MAX_BLOCKS),
            number("threads", 1, MAX_THREADS),
            number("shared_bytes", 0, 2**20) // ELEMENT_BYTES,
            number("workspace_elements", 0, 2**32 - 1),
        )

    def require_count(self, inputs: int, outputs: int) -> None:
        """Refuse another number of arrays than there are parameters."""
        listed = len(self.dtypes) - bool(self.workspace_elements)
        if not inputs + outputs == listed == len(self.elements):
            raise KernelError(
                f"the metadata lists {len(self.elements)} arrays for {listed} parameters; "
                f"{inputs} arguments and {outputs} outputs were given"
            )

    def checked(self, array: Array, i: int) -> Array:
        """The array of parameter i as the simulator reads it."""
        dtype, elements = self.dtypes[i], self.elements[i]
        if array.dtype.name == "bfloat16":
            array = array.view(np.uint16)
        if array.dtype != ARRAY_DTYPES[dtype] or array.size != elements:
            found = f"{array.size} of {array.dtype}"
            raise KernelError(f"array {i} must hold {elements} numbers of {dtype}, not {found}")
        if not array.flags.c_contiguous:
            raise KernelError(f"array {i} must be C-contiguous: use numpy.ascontiguousarray")
        return array


def _elements(meta: Mapping[str, Any]) -> tuple[int, ...]:
    try:
        shapes = [a["shape"] for a in (*meta["arguments"], *meta["outputs"])]
        return tuple(math.prod(map(operator.index, shape)) for shape in shapes)
    except (KeyError, TypeError) as error:
        raise KernelError("metadata: arguments and outputs must list shapes") from error


class _Launch:
    """One launch: the memory of all blocks, and what was counted."""

    def __init__(
        self, kernel: Translated, shape: _Shape, order: np.random.Generator, step_limit: int
    ) -> None:
        self.kernel = kernel
        self.shape = shape
        self.order = order
        self.step_limit = step_limit
        self.inputs: dict[str, Values] = {}
        self.outputs: list[Memory] = []
        self.workspace: list[Memory] = []
        self.shared: list[Memory] = []
        self.blocks_run: list[int] = []
        self.barriers = self.collectives = 0
        self.counters = [0] * len(kernel.pieces)

    def allocate(self, arrays: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Read the arguments; make memory for the rest, with nothing in it."""
        names = [p.name for p in self.kernel.parameters]
        for name, array, dtype in zip(names, arrays, self.shape.dtypes, strict=False):
            self.inputs[name] = read_array(array, dtype)
        for name, array in zip(names[len(arrays) :], outputs, strict=False):
            self.outputs.append(self._memory(name, array.size))
        if self.shape.workspace_elements:
            self.workspace.append(self._memory(names[-1], self.shape.workspace_elements))
        if self.kernel.shared is not None:
            self.shared.append(self._memory(self.kernel.shared, self.shape.shared_elements))

    @property
    def globals(self) -> list[Memory]:
        """What outlives a block."""
        return [*self.outputs, *self.workspace]

    def _memory(self, name: str, size: int) -> Memory:
        return Memory(name, size, {}, [Log(t) for t in range(self.shape.threads)])

    def run(self) -> None:
        """Run all blocks, in a random order."""
        order = self.order.permutation(self.shape.blocks).tolist()
        for k, block in enumerate(order):
            try:
                self._run_block(block)
            except LockstepFault as error:
                raise LockstepFault(self._explained(error.fault, order[k + 1 :])) from None
        for memory in self.globals:
            race = find_race(memory.history)
            if race is not None:
                raise LockstepFault(self._block_race(memory, race))

    def _run_block(self, block: int) -> None:
        memories = [*self.globals, *self.shared]
        for memory in memories:
            for log in memory.logs:
                log.clear()
        for memory in self.globals:
            memory.history.append([])
        for memory in self.shared:
            memory.values.clear()
        self.blocks_run.append(block)
        threads = [
            self.kernel.function(t, block, self.step_limit, *self._arguments(t)).send
            for t in range(self.shape.threads)
        ]
        run = BlockRun(self.kernel, memories, self._reporter(block), self.order, threads)
        run.run()
        self.barriers += run.barriers
        self.collectives += run.collectives
        for counters in run.counters:
            self.counters = [total + n for total, n in zip(self.counters, counters, strict=True)]

    def _arguments(self, thread: int) -> list[Any]:
        """What the rewritten kernel takes after the thread, the block and the limit."""
        arguments: list[Any] = list(self.inputs.values())
        for memory in (*self.globals, *self.shared):
            log = memory.logs[thread]
            arguments += (memory.values, memory.size, log.reads, log.writes, log.adds)
        return arguments

    def _reporter(self, block: int) -> Reporter:
        sizes = {name: len(values) for name, values in self.inputs.items()}
        sizes |= {m.name: m.size for m in (*self.globals, *self.shared)}
        return Reporter(self.kernel, sizes, self.step_limit, block)

    # -- races between blocks

    def _explained(self, fault: Fault, rest: Sequence[int]) -> Fault:
        """A read of what nobody wrote: a race, if a block that comes later writes it."""
        memory = next((m for m in self.globals if m.name == fault.memory), None)
        if fault.kind is not FaultKind.UNWRITTEN_READ or memory is None or fault.element is None:
            return fault
        me = len(self.blocks_run) - 1
        mine = next(accesses_to([memory.logs[fault.threads[0]]], fault.element, me), None)
        for block in rest:
            with suppress(LockstepFault):
                self._run_block(block)
        writes = (
            access
            for g, group in enumerate(memory.history)
            for access in accesses_to(group, fault.element, g)
            if g != me and access.action == "writes"
        )
        write = next(writes, None)
        if mine is None or write is None:
            return fault
        return self._block_race(memory, Race(fault.element, write, mine))

    def _block_race(self, memory: Memory, race: Race) -> Fault:
        def named(access: Access) -> Access:
            return replace(access, group=self.blocks_run[access.group])

        race = Race(race.element, named(race.first), named(race.second))
        return self._reporter(race.first.group).block_race(memory.name, race)

    # -- results

    def finish(self, outputs: Sequence[Array]) -> None:
        """Hand over what was written."""
        for memory, output, dtype in zip(
            self.outputs, outputs, self.shape.dtypes[len(self.inputs) :], strict=False
        ):
            write_array(memory.values, output, dtype)

    def require_written(self) -> None:
        """Refuse outputs with elements that nobody wrote."""
        for memory in self.outputs:
            missing = memory.size - len(memory.values)
            if missing:
                first = next(i for i in range(memory.size) if i not in memory.values)
                message = (
                    f"{missing} of {memory.size} elements of {memory.name} were never written; "
                    f"the first is {memory.name}[{first}]"
                )
                raise LockstepFault(
                    Fault(FaultKind.UNWRITTEN_OUTPUT, message, memory=memory.name, element=first)
                )

    def statistics(self) -> Statistics:
        """What was counted."""
        total: Counter[tuple[Action, str]] = Counter()
        runs = [*zip(self.kernel.pieces, self.counters, strict=True)]
        for piece, times in [(self.kernel.top, self.shape.blocks * self.shape.threads), *runs]:
            for access, count in piece.accesses.items():
                total[access] += count * times
        steps = sum(times for piece, times in runs if piece.is_loop)
        stores = partial(_stores, total)
        shared = self.kernel.shared or ""
        parameters = [p.name for p in self.kernel.parameters]
        return Statistics(
            self.barriers,
            self.collectives,
            steps,
            total[Action.READ, shared],
            stores(shared),
            {name: total[Action.READ, name] for name in parameters},
            {name: stores(name) for name in parameters},
        )


def _stores(total: Counter[tuple[Action, str]], name: str) -> int:
    return total[Action.WRITE, name] + total[Action.ADD, name]
