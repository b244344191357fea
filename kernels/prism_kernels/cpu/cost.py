"""Predicts what a planned kernel costs, to order candidates before any is compiled.

Per nest the model takes the larger of memory and arithmetic time plus a third of the smaller, and
adds up. What it gets right is the order of candidates that differ much: how long the contiguous
pieces are in which a stream is read, whether every thread has work, whether a big buffer is written
and read again, and what every block computes anew. Within 10-20 % it is noise, as is the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from prism.errors import KernelError
from prism.protocols import Device
from prism_kernels.cpu.ahead import fetched_ahead
from prism_kernels.cpu.contraction import Contraction, Form
from prism_kernels.cpu.library import LibraryCall
from prism_kernels.cpu.places import Plan, Planned, plan
from prism_kernels.cpu.registers import (
    CROWDED_WAYS,
    FEW_ROWS_K_BLOCKS,
    SHORT_BLOCK_ROWS,
    Registers,
    axpy_blocks,
    dot_blocks,
    ways_taken,
)
from prism_kernels.cpu.widths import Widths
from prism_kernels.nests import Nest
from prism_kernels.tile import (
    Axis,
    Contract,
    Intermediate,
    Load,
    Map,
    Store,
    TileProgram,
    ValueId,
    operands,
)

WORKSPACE_LIMIT_BYTES = 1 << 30
"""For all threads together."""

_LARGEST_OFFSET = 1 << 62

LAUNCH_S = 10e-6
BLOCK_S = 0.3e-6
NEST_S = 0.1e-6
"""Seconds of a launch, of a block and of a nest beside their work."""
RESTART_BYTES = 600
"""What the prefetchers lose each time a stream continues somewhere else."""
BANDWIDTH_GBPS = {"L1": 150.0, "L2": 110.0, "L3": 25.0}
"""Of one thread."""
FMA_PER_S = {Form.AXPY: 3.5e9, Form.DOT: 3.4e9, Form.LOOPS: 1.5e9}
"""Vector multiply-adds of one thread."""
VECTOR_OPS_PER_S = 3.5e9
NARROW_FACTOR = 1.3
"""How much longer multiply-adds take in a register block of one vector, where each reads its own
element of the row operand: 8 rows in k-blocks of 8 take from 0.9 to 1.25 of what 16 do."""
ACCUMULATOR_ROWS = 8
"""How many rows of multiply-adds an accumulator's way from L2 and back takes, once per k-block."""
BLOCK_STREAMS = 0.15
"""Share of its time that a contraction takes longer as all rows of the largest k-block are streams,
where multiply-adds are so quick that fetches are dropped."""
CROWDED = 0.2
"""Share of its time that it takes longer where k-blocks crowd L2 (`registers.ways_taken`) twice as
much as it bears."""
SWITCH_S = 4e-3
"""When kernels of ours and the library's take turns: the threads of each go on spinning for a
while after their work, where the other's want to run (measured: 4-20 ms)."""
LIBRARY_STREAM = 0.35
"""What a product by NumPy reaches of the bandwidth where it has few rows."""

OP_WEIGHTS = {
    "div": 4, "reciprocal": 4, "sqrt": 5, "rsqrt": 8, "exp": 16, "log": 24, "sigmoid": 22,
    "silu": 22, "tanh": 36, "gelu_tanh": 26, "gelu_erf": 40, "maximum": 2, "minimum": 2, "relu": 2,
}  # fmt: skip
"""Vector operations of an elementwise operator; 1 for the others."""


def workspace_elements(plans: Sequence[Planned]) -> int:
    """Elements of the workspace of one thread: kernels use it one after the other."""
    return max((p.workspace_elements for p in plans if isinstance(p, Plan)), default=0)


def check_resources(
    plans: Sequence[Planned], between: Sequence[Intermediate], widths: Widths, threads: int
) -> None:
    """Refuse what does not fit.

    Raises:
        KernelError: the workspace is too large, or what lies between the kernels, or an offset does
            not fit 64 bits.
    """
    size = workspace_elements(plans) * widths.computed * threads
    if size > WORKSPACE_LIMIT_BYTES:
        raise KernelError(
            f"its intermediate tiles need {size >> 20} MB on {threads} threads, more than "
            f"{WORKSPACE_LIMIT_BYTES >> 20} MB; use more blocks or loop iterations"
        )
    size = sum(math.prod(tensor.shape) for tensor in between) * widths.computed
    if size > WORKSPACE_LIMIT_BYTES:
        raise KernelError(
            f"the tensors between its kernels need {size >> 20} MB, more than "
            f"{WORKSPACE_LIMIT_BYTES >> 20} MB; use fewer blocks along stacked grid dims"
        )
    for kernel in plans:
        _check_offsets(kernel.program, widths.computed)


@lru_cache(maxsize=2048)
def _check_offsets(program: TileProgram, width: int) -> None:
    """Refuse arrays with elements that 64 bits cannot address."""
    for tensor in (*program.inputs.values(), *program.outputs.values()):
        elements = math.prod(program.sizes[dim] for dim, _ in tensor.strides)
        if elements * width > _LARGEST_OFFSET:
            raise KernelError(f"{tensor.name} has {elements} elements: 64-bit offsets overflow")


def schedules(plans: Sequence[Planned], registers: Registers) -> dict[str, tuple[int, ...]]:
    """The options that change these plans' code: name -> choices, default first (0: automatic)."""
    out: dict[str, tuple[int, ...]] = {}
    ours = (plan for plan in plans if isinstance(plan, Plan))
    for program, c in ((p.program, c) for p in ours for c in p.contractions.values()):
        if c.form is Form.AXPY and axpy_blocks(program, c, registers).fetch:
            first = axpy_blocks(program, c, registers).k_block
            out["KB"] = (first, *(k for k in FEW_ROWS_K_BLOCKS if k != first))
    return dict(sorted(out.items()))


def estimate(plans: Sequence[Planned], registers: Registers, device: Device) -> float:
    """Predicted seconds of one run from cold caches, kernel after kernel."""
    total = 0.0
    warm: frozenset[str] = frozenset()
    for kernel in plans:
        if isinstance(kernel, LibraryCall):
            total += _library_seconds(kernel, registers, device)
        else:
            read = warm.intersection(kernel.program.inputs)
            total += _kernel_seconds(kernel.program, registers, device, read)
        warm |= _left_in_cache(kernel.program, registers.widths, device.l3_bytes)
    if device.threads > 1:
        libraries = [isinstance(plan, LibraryCall) for plan in plans]
        total += SWITCH_S * sum(a != b for a, b in pairwise(libraries))
    return total


@lru_cache(maxsize=8192)
def _kernel_seconds(
    program: TileProgram, registers: Registers, device: Device, warm: frozenset[str]
) -> float:
    """Predicted seconds of one kernel of ours; configs of several kernels share many."""
    return _Model(plan(program, registers.widths), registers, device, warm).seconds()


def _library_seconds(call: LibraryCall, registers: Registers, device: Device) -> float:
    """A contraction by NumPy: memory or arithmetic, whichever is slower, on all threads."""
    batch, rows, columns = (call.extent(dims) for dims in call.dims())
    depth = call.extent((call.depth,))
    elements = batch * (rows * depth + depth * columns + rows * columns)
    widths = registers.widths
    size = widths.computed if widths.are_equal else widths.stored + 2 * widths.computed  # copies
    memory = elements * size / (LIBRARY_STREAM * device.stream_gbps * 1e9)
    products = batch * rows * depth * columns / registers.lanes
    return LAUNCH_S + max(memory, products / (FMA_PER_S[Form.AXPY] * device.threads))


@lru_cache(maxsize=2048)
def _left_in_cache(program: TileProgram, widths: Widths, l3_bytes: int) -> frozenset[str]:
    """The arrays that a kernel touched and that may still be in the last cache after it."""
    out: set[str] = set()
    for i, node in enumerate(program.nodes):
        match node:
            case Load(source=name):
                tensor = program.inputs[name]
            case Store(target=name):
                tensor = program.outputs[name]
            case _:
                continue
        elements = math.prod(program.sizes[dim] for dim, _ in tensor.strides)
        if elements * widths.of_value(program, i) <= l3_bytes:
            out.add(name)
    return frozenset(out)


@dataclass(frozen=True, slots=True)
class _Traffic:
    """Time a nest spends on memory and on arithmetic, per block."""

    memory_s: float
    compute_s: float

    @property
    def seconds(self) -> float:
        """Both overlap, but never perfectly."""
        return max(self.memory_s, self.compute_s) + 0.35 * min(self.memory_s, self.compute_s)


class _Model:
    def __init__(
        self, plan: Plan, registers: Registers, device: Device, warm: frozenset[str]
    ) -> None:
        self.warm = warm
        self.plan = plan
        self.program = plan.program
        self.registers = registers
        self.device = device
        self.bytes = registers.widths.computed
        self.blocks = math.prod(g.count for g in self.program.grid)
        self.threads = min(device.threads, self.blocks)
        self.seen: set[str] = set()
        self.ahead = fetched_ahead(plan, registers)

    def seconds(self) -> float:
        waves = -(-self.blocks // self.device.threads)
        block = sum(self._nest(nest) for nest in self.plan.nests.nests)
        block -= sum(self._hidden(nest) for nest in self.ahead)
        return LAUNCH_S + waves * (block + BLOCK_S)

    def _nest(self, nest: Nest) -> float:
        trips = self.program.trips(nest.stage)
        first = nest.nodes[0]
        if isinstance(self.program.nodes[first], Contract):
            traffic = self._contraction(first, trips)
        else:
            traffic = self._elementwise(nest, trips)
        return traffic.seconds + trips * NEST_S

    def _hidden(self, nest: Nest) -> float:
        """Seconds of reading from memory behind a nest's arithmetic, which fetches meanwhile."""
        trips, axes = self.program.trips(nest.stage), self.program.axes
        values = [a.value for a in self.ahead[nest]]
        size = sum(self.program.elements(axes[v]) * self._width(v) for v in values) * trips
        return 0.5 * min(size / self._stream(), self._elementwise(nest, trips).compute_s)

    def _elementwise(self, nest: Nest, trips: int) -> _Traffic:
        elements = self.program.elements(nest.space) * trips
        touched = {j for i in nest.nodes for j in (i, *operands(self.program.nodes[i]))}
        in_memory = [v for v in sorted(touched) if self._is_in_memory(v)]
        memory = sum(self._access(v, trips) for v in in_memory)
        weight = sum(self._weight(i) for i in nest.nodes)
        is_contiguous = any(
            self._strides(v)[a.dim] == 1 and self.program.chunk(a) > 1
            for v in in_memory
            for a in self.program.axes[v]
        )
        lanes = self.registers.lanes if is_contiguous else 1
        return _Traffic(memory, weight * elements / lanes / VECTOR_OPS_PER_S)

    def _is_in_memory(self, v: ValueId) -> bool:
        return v in self.plan.places or isinstance(self.program.nodes[v], Store)

    def _weight(self, i: ValueId) -> int:
        node = self.program.nodes[i]
        return OP_WEIGHTS.get(node.op, 1) if isinstance(node, Map) else 1

    def _contraction(self, i: ValueId, trips: int) -> _Traffic:
        c = self.plan.contractions[i]
        rows, columns, batch, depth = (
            self.program.elements(axes) for axes in (c.rows, c.columns, c.batch, (c.depth,))
        )
        lanes = self.registers.lanes
        products: float = rows * batch * trips
        memory = self._access(c.row, trips)
        match c.form:
            case Form.AXPY:
                products *= depth * -(-columns // lanes) * self._per_product(c, columns)
                memory += self._axpy_memory(c, rows, columns, depth, trips * batch)
            case Form.DOT:
                products += (i in self.plan.squares) * batch * trips
                # a few more at the end, to add up the lanes
                products *= columns * (-(-depth // lanes) + 2)
                memory += self._access(c.stream, trips)
            case Form.LOOPS:
                products *= columns * -(-depth // lanes)
                memory += self._access(c.stream, trips)
        return _Traffic(memory, products / FMA_PER_S[c.form] + self._widening(c, rows, trips))

    def _widening(self, c: Contraction, rows: int, trips: int) -> float:
        """Seconds to widen the elements of a narrow stream, once per block of rows."""
        if self._width(c.stream) == self.bytes:
            return 0.0
        height = 1
        if c.form is Form.AXPY:
            height = axpy_blocks(self.program, c, self.registers).rows
        elif c.form is Form.DOT:
            height = dot_blocks(self.program, c, self.registers).rows
        elements = self.program.elements(self.program.axes[c.stream]) * trips * -(-rows // height)
        return elements / self.registers.lanes / VECTOR_OPS_PER_S

    def _axpy_memory(
        self, c: Contraction, rows: int, columns: int, depth: int, trips: int
    ) -> float:
        """Seconds for the stream, read once per block of rows."""
        blocks = axpy_blocks(self.program, c, self.registers)
        piece = self._piece(c.stream, self.program.axes[c.stream])
        width = blocks.vectors * self.registers.lanes
        if not blocks.k_block and width < columns:
            piece = min(piece, width * self._width(c.stream))
        seconds = self._access(c.stream, trips, piece=piece)
        if blocks.fetch:
            seconds *= self._of_blocks(c, blocks.k_block, rows)
        size = self.program.elements(self.program.axes[c.stream]) * self._width(c.stream)
        again = trips * (-(-rows // blocks.rows) - 1)
        parts = -(-depth // blocks.k_block) if blocks.k_block else 1
        return seconds + self._move(size // parts, again * parts)

    def _of_blocks(self, c: Contraction, k_block: int, rows: int) -> float:
        """How many times as long it takes to read a stream in k-blocks as in a row."""
        least, most = min(FEW_ROWS_K_BLOCKS), max(FEW_ROWS_K_BLOCKS)
        crowd = ways_taken(self.program, c, self.registers, k_block) / CROWDED_WAYS - 1
        slow = CROWDED * min(1.0, max(0.0, crowd))
        if rows <= SHORT_BLOCK_ROWS:
            slow += BLOCK_STREAMS * max(0.0, (k_block - least) / (most - least))
        return 1 + slow

    def _per_product(self, c: Contraction, columns: int) -> float:
        """How many times as long a multiply-add takes as one that is all registers."""
        blocks = axpy_blocks(self.program, c, self.registers)
        is_narrow = blocks.vectors == 1 and columns > self.registers.lanes
        factor = NARROW_FACTOR if is_narrow else 1.0
        return factor * (1 + ACCUMULATOR_ROWS / blocks.k_block if blocks.k_block else 1)

    # -- memory

    def _access(self, v: ValueId, trips: int, *, piece: int = 0) -> float:
        """Seconds to read or write value v once in each of `trips` iterations.

        The first touch of an array comes from memory, in contiguous pieces of `piece` bytes.
        """
        node, axes = self.program.nodes[v], self.program.axes[v]
        width = self._width(v)
        size = self.program.elements(axes) * width
        is_argument = isinstance(node, Store) or self.plan.places[v].is_argument
        name = node.source if isinstance(node, Load) else f"v{v}"
        if not is_argument or name in self.seen:
            return self._move(size, trips)
        self.seen.add(name)
        whole = math.prod(self.program.sizes[a.dim] for a in axes) * width
        tiles = size * self.program.tile_count(axes)
        cold = tiles
        if whole <= self.device.l3_bytes:  # one of the blocks that read it brings it in
            cold //= self._sharing(axes)
        piece = piece or self._piece(v, axes)
        rate = BANDWIDTH_GBPS["L3"] * 1e9 if name in self.warm else self._stream()
        from_memory = cold / rate * (1 + RESTART_BYTES / piece)
        return from_memory + (size * trips - cold) / self._bandwidth(tiles)

    def _move(self, size: int, times: int) -> float:
        """Seconds to read or write `size` bytes several times from the cache that holds them."""
        return size * times / self._bandwidth(size)

    def _bandwidth(self, size: int) -> float:
        """Bytes per second that one thread moves from the cache that holds `size` bytes."""
        if size <= self.device.l1_bytes // 2:
            return BANDWIDTH_GBPS["L1"] * 1e9
        if size <= self.device.l2_bytes:
            return BANDWIDTH_GBPS["L2"] * 1e9
        if size * self.threads <= self.device.l3_bytes:
            return BANDWIDTH_GBPS["L3"] * 1e9
        return self._stream()

    def _stream(self) -> float:
        """Bytes per second that each thread reads from memory when all do; one cannot have all."""
        return self.device.stream_gbps * 1e9 * min(0.75, 1 / self.threads)

    def _sharing(self, axes: tuple[Axis, ...]) -> int:
        """How many blocks read the same tile."""
        split = {a.grid for a in axes}
        return math.prod(g.count for g in self.program.grid if g.name not in split)

    def _piece(self, v: ValueId, axes: tuple[Axis, ...]) -> int:
        """Bytes of a tile that are contiguous in memory."""
        strides = self._strides(v)
        length = 1
        for a in sorted(axes, key=lambda a: strides[a.dim]):
            if strides[a.dim] != length:
                break
            length *= self.program.chunk(a)
        return length * self._width(v)

    def _width(self, v: ValueId) -> int:
        """Bytes of an element of value v in memory."""
        return self.registers.widths.of_value(self.program, v)

    def _strides(self, v: ValueId) -> Mapping[str, int]:
        node = self.program.nodes[v]
        if isinstance(node, Store):
            return dict(self.program.outputs[node.target].strides)
        return self.plan.places[v].strides
