"""Symbolic graphs (sGraphs): kernel graph, block graphs, thread graphs, and concrete muGraphs.

An sGraph fixes the structure of a candidate (operators, loop stages, mappings) and leaves every
size symbolic: the data dims D_d and the parallelization sizes d_p (paper, section 3). A muGraph
is an sGraph with all of them fixed, plus the schedule the emitter asks for.

The kernel graph is a list of kernels; each graph-defined operator (`GraphOp`) holds a block graph:
input loaders, operators, accumulators over the loop, output savers. There is no stage field: a
node runs *after* the loop when it depends on an accumulator, otherwise it belongs to the loop body
(or is loop-invariant, when nothing it reads is partitioned along the loop). A kernel may have a
loop inside a loop: see `stages`.

Blocks may leave partial values to a later kernel: a *stack dim* is a dimension of a tensor between
kernels that no program has. Its saver's value lacks it; along the one grid dim p it is mapped to,
each block writes its value at its own index, so that the dimension has d_p elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from prism.ir.mapping import Mapping, ParDim
from prism.ir.ops import OPS, OpKind
from prism.ir.program import Apply, Const, DataDim, Program, SizeOf, TensorId, result_dims


@dataclass(frozen=True, slots=True)
class InputLoader:
    """Loads this block's (and iteration's) tile of a kernel-level tensor `source`.

    imap and fmap are the mapping variables of `source` in the `GraphOp`.
    """

    source: str
    dims: tuple[DataDim, ...]


class AccumulatorKind(Enum):
    """What an accumulator does with the values of all iterations of the loop."""

    SUM = "sum"
    """red: adds them (the value was partial)."""
    MAX = "max"
    """The largest, for a max over a dimension the loop partitions."""
    CONCAT = "concat"
    """comb: puts them side by side along `dim` (the value was partitioned along `dim`)."""


@dataclass(frozen=True, slots=True)
class Accumulator:
    """Combines a value over all iterations of loop dim `par`; readers run after that loop."""

    operand: TensorId
    kind: AccumulatorKind
    par: str
    dim: DataDim | None = None


@dataclass(frozen=True, slots=True)
class OutputSaver:
    """Stores a value to the kernel-level tensor `target`; omap is the mapping of `target`."""

    operand: TensorId
    target: str
    dims: tuple[DataDim, ...]


BlockNode = InputLoader | Const | SizeOf | Apply | Accumulator | OutputSaver


@dataclass(frozen=True, slots=True)
class BlockGraph:
    """An SSA list of block-level nodes."""

    nodes: tuple[BlockNode, ...]

    def tensor_dims(self) -> tuple[frozenset[DataDim], ...]:
        """The data dimensions of each node's value (a saver has those of its operand)."""
        out: list[frozenset[DataDim]] = []
        for node in self.nodes:
            match node:
                case InputLoader(dims=dims):
                    out.append(frozenset(dims))
                case Const() | SizeOf():
                    out.append(frozenset())
                case Accumulator(operand=operand) | OutputSaver(operand=operand):
                    out.append(out[operand])
                case Apply(op=op, operands=operands, dim=dim):
                    out.append(result_dims(op, dim, tuple(out[i] for i in operands)))
        return tuple(out)

    def operands(self, i: TensorId) -> tuple[TensorId, ...]:
        """The nodes that node i reads."""
        match self.nodes[i]:
            case Apply(operands=operands):
                return operands
            case Accumulator(operand=operand) | OutputSaver(operand=operand):
                return (operand,)
            case InputLoader() | Const() | SizeOf():
                return ()

    def after_loop(self, par: str) -> tuple[bool, ...]:
        """For each node, whether its value exists only after the loop along `par`."""
        out: list[bool] = []
        for i, node in enumerate(self.nodes):
            is_end = isinstance(node, Accumulator) and node.par == par
            out.append(is_end or any(out[j] for j in self.operands(i)))
        return tuple(out)

    @property
    def loaders(self) -> tuple[InputLoader, ...]:
        """The input loaders, in order."""
        return tuple(n for n in self.nodes if isinstance(n, InputLoader))

    @property
    def savers(self) -> tuple[OutputSaver, ...]:
        """The output savers, in order."""
        return tuple(n for n in self.nodes if isinstance(n, OutputSaver))


@dataclass(frozen=True, slots=True)
class ThreadGraph:
    """Elementwise operators of a block graph fused in registers, shared by the block's threads.

    `nodes` are ids of the block graph, in order; `grid` are block dims. In m[T,d,p] of the mapping,
    T is a value at the border, read or written, by its name in the block graph (see `threads`).
    """

    nodes: tuple[TensorId, ...]
    grid: tuple[ParDim, ...]
    mapping: Mapping


@dataclass(frozen=True, slots=True)
class GraphOp:
    """A graph-defined operator: one kernel. Loops may be empty (no loop); the outer comes first.

    A *library* kernel is a predefined operator that the target's library runs: its block graph says
    what it computes, one contraction of whole tensors, and not how.
    """

    grid: tuple[ParDim, ...]
    loops: tuple[ParDim, ...]
    mapping: Mapping
    block: BlockGraph
    library: bool = False


@dataclass(frozen=True, slots=True)
class SGraph:
    """A symbolic graph for `program`: kernels in launch order.

    Kernel-level tensors are named: a program's inputs by their input name, its outputs `out0`,
    `out1`, ...; tensors between kernels by any other name.
    """

    program: Program
    kernels: tuple[GraphOp, ...]


def output_name(index: int) -> str:
    """The kernel-level name of a program's output."""
    return f"out{index}"


def is_one_contraction(block: BlockGraph) -> bool:
    """Whether a block graph loads two tensors, contracts them and saves the result."""
    match block.nodes:
        case (
            InputLoader(),
            InputLoader(),
            Apply(op=op, operands=operands),
            OutputSaver(operand=2),
        ):
            return OPS[op].kind is OpKind.CONTRACT and sorted(operands) == [0, 1]
        case _:
            return False


def stack_dims(graph: SGraph) -> dict[DataDim, tuple[int, str]]:
    """The stack dims of a graph: for each the kernel that makes it and the grid dim it is along."""
    known = {d.name for d in graph.program.dims}
    out: dict[DataDim, tuple[int, str]] = {}
    for k, kernel in enumerate(graph.kernels):
        for saver in kernel.block.savers:
            for dim in saver.dims:
                if dim not in known and dim not in out:
                    pars = [p.name for p in kernel.grid]
                    along = [p for p in pars if kernel.mapping.dim_of(saver.target, p) == dim]
                    out[dim] = (k, along[0])
    return out


@dataclass(frozen=True, slots=True)
class MuGraph:
    """A concrete graph.

    `sizes`: data dim -> size D_d. `par_sizes[k]`: for kernel k, parallelization dim -> d_p, the
    number of chunks. A dim of size D in c chunks has tiles of ceil(D / c); the last one may be
    smaller, none is empty (`chunk`). `schedule`: the emitter's own options by name.
    """

    graph: SGraph
    sizes: tuple[tuple[DataDim, int], ...]
    par_sizes: tuple[tuple[tuple[str, int], ...], ...]
    schedule: tuple[tuple[str, int], ...] = ()


def all_sizes(mu: MuGraph) -> dict[DataDim, int]:
    """The sizes of the program's dims and of the stack dims."""
    counts = [dict(pairs) for pairs in mu.par_sizes]
    stacked = {dim: counts[k][par] for dim, (k, par) in stack_dims(mu.graph).items()}
    return dict(mu.sizes) | stacked


def chunk(size: int, count: int) -> int:
    """Tile size when a dimension of `size` is split in `count` chunks."""
    return -(-size // count)


def is_legal_count(size: int, count: int) -> bool:
    """Whether `count` chunks of `size` are all non-empty: ceil(D / ceil(D / c)) = c."""
    return 1 <= count <= size and -(-size // chunk(size, count)) == count
