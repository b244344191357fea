"""Random programs, arrays and graphs for tests: by seed, and as hypothesis strategies.

Programs are valid, and tame: on arguments in [0.5, 1.5] and dims of size 1 to MAX_SIZE every
intermediate is finite, moderate, and away from zero where it is divided by. An interval per node
sees to that, computed from the operator table itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from random import Random

import numpy as np
from hypothesis import strategies as st

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    Argument,
    BlockGraph,
    Const,
    DimInfo,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    MapVar,
    OpKind,
    Output,
    OutputSaver,
    Program,
    SGraph,
    SizeOf,
    bind_sizes,
    is_legal_count,
    output_name,
    result_dims,
)

MAX_SIZE = 7
LIMIT = 60.0
NEAR_ZERO = 0.02

NAMES = ("n", "d", "h", "k")
MONOTONE_ON_POSITIVES = {"square", "abs", "silu", "gelu_tanh", "gelu_erf"}
POSITIVE_ONLY = {"log", "sqrt", "rsqrt", "reciprocal"}

# what works over a dimension is likelier: it often finds none it could take
_DRAWN_OPS = [o.name for o in OPS.values() for _ in range(1 if o.kind is OpKind.ELEMENTWISE else 4)]


@dataclass
class _Growing:
    """A program under construction; `bounds` holds each node's smallest and largest value."""

    random: Random
    nodes: list = field(default_factory=list)
    dims: list = field(default_factory=list)
    bounds: list = field(default_factory=list)

    def add(self, node, dims, bounds):
        self.nodes.append(node)
        self.dims.append(frozenset(dims))
        self.bounds.append(bounds)

    def pick(self):
        # recent nodes are likelier, so that programs are deep and little is dead
        count = len(self.nodes)
        if self.random.random() < 0.5:
            return count - 1
        return max(self.random.randrange(count), self.random.randrange(count))

    def try_apply(self, op):
        spec = OPS[op]
        operands = tuple(self.pick() for _ in range(spec.arity))
        dim = None
        if spec.kind is not OpKind.ELEMENTWISE:
            shared = frozenset.intersection(*(self.dims[j] for j in operands))
            if not shared:
                return False
            dim = self.random.choice(sorted(shared))
        bounds = _bounds(op, [self.bounds[j] for j in operands])
        if bounds is None:
            return False
        node = Apply(op, operands, dim)
        if node in self.nodes:
            return False
        self.add(node, result_dims(op, dim, tuple(self.dims[j] for j in operands)), bounds)
        return True


def _bounds(op, operands):
    """The values op can take when operands lie in these intervals; None when it may go wrong."""
    spec = OPS[op]
    positive = all(low > NEAR_ZERO for low, _ in operands)
    if op in POSITIVE_ONLY | MONOTONE_ON_POSITIVES and not positive:
        return None
    if op == "div" and operands[1][0] <= NEAR_ZERO:
        return None
    with np.errstate(all="ignore"):
        if spec.kind is OpKind.REDUCE:
            corners = list(operands[0])
        else:
            # each row is monotone in each operand here, so the extremes are at corners
            corners = [float(spec.numpy(*map(np.float64, c))) for c in product(*operands)]
    if op in {"sum", "matmul"}:
        corners = [size * c for c in corners for size in (1, MAX_SIZE)]
    low, high = min(corners), max(corners)
    ok = math.isfinite(low) and math.isfinite(high) and max(-low, high) <= LIMIT
    return (low, high) if ok else None


def random_program(seed: int, n_ops: int = 5, *, aliases: bool = True) -> Program:
    """A valid, tame program of up to n_ops operators."""
    random = Random(seed)
    infos = [DimInfo(n, n) for n in NAMES[: random.randint(1, len(NAMES))]]
    if random.random() < 0.2:
        infos.append(DimInfo("c", "c", random.randint(1, MAX_SIZE)))
    roots_of_sizes = [i.name for i in infos]
    growing = _Growing(random)
    arguments = []
    for name in ("x", "y", "w")[: random.randint(1, 3)]:
        dims = random.sample(roots_of_sizes, random.randint(0, min(3, len(roots_of_sizes))))
        axes = tuple(d for d in dims for d in ([None, d] if random.random() < 0.15 else [d]))
        arguments.append(Argument(name, axes))
        growing.add(Input(name, name, tuple(dims)), dims, (0.5, 1.5))
        if aliases and dims and random.random() < 0.3:
            dim = random.choice(dims)
            alias = f"{dim}'"
            if all(i.name != alias for i in infos):
                infos.append(DimInfo(alias, dim))
            renamed = tuple(alias if d == dim else d for d in dims)
            growing.add(Input(f"{name}'", name, renamed), renamed, (0.5, 1.5))
    if random.random() < 0.5:
        value = random.choice([2.0, 0.5, 1e-05, 3.25, 1.0 / 3.0])
        growing.add(Const(value), (), (value, value))
    used = [d for a in arguments for d in a.axes if d is not None]
    if used and random.random() < 0.3:
        growing.add(SizeOf(random.choice(used)), (), (1, MAX_SIZE))
    infos = [i for i in infos if i.size in used]
    start, attempts = len(growing.nodes), 0
    while len(growing.nodes) < start + n_ops and attempts < 40 * n_ops:
        attempts += 1
        growing.try_apply(random.choice(_DRAWN_OPS))
    roots = [len(growing.nodes) - 1]
    if random.random() < 0.3:
        roots.append(growing.pick())
    return _finished(growing, infos, arguments, roots)


def _finished(growing, infos, arguments, roots):
    live = set(roots)
    for i in reversed(range(len(growing.nodes))):
        if i in live and isinstance(growing.nodes[i], Apply):
            live.update(growing.nodes[i].operands)
    place = {i: k for k, i in enumerate(sorted(live))}
    nodes = []
    for i in sorted(live):
        node = growing.nodes[i]
        if isinstance(node, Apply):
            node = Apply(node.op, tuple(place[j] for j in node.operands), node.dim)
        nodes.append(node)
    outputs = []
    for root in roots:
        axes = sorted(growing.dims[root])
        growing.random.shuffle(axes)
        if growing.random.random() < 0.2:
            axes.insert(growing.random.randint(0, len(axes)), None)
        outputs.append(Output(place[root], tuple(axes)))
    return Program("random", tuple(infos), tuple(arguments), tuple(nodes), tuple(outputs))


def random_sizes(program: Program, random: Random, largest: int = MAX_SIZE) -> dict[str, int]:
    """A size per dimension of the program, aliases and fixed ones included."""
    return bind_sizes(program, {n: random.randint(1, largest) for n in program.size_names})


def random_arrays(program: Program, sizes: dict[str, int], seed: int) -> dict[str, np.ndarray]:
    """An array per argument, values in [0.5, 1.5]."""
    rng = np.random.default_rng(seed)
    return {
        a.name: rng.uniform(0.5, 1.5, [1 if d is None else sizes[d] for d in a.axes])
        for a in program.arguments
    }


def random_sgraph(seed: int, n_ops: int = 5) -> SGraph:
    """An sGraph that obeys every rule of the checker; what it computes is another matter."""
    random = Random(seed)
    program = random_program(random.randrange(10**9), n_ops)
    grid = GRID_DIMS[: random.randint(0, 3)]
    loops = (LOOP_DIM,) if random.random() < 0.7 else ()
    true = set()
    for tensor in program.inputs:
        true |= _random_mapping(random, tensor.name, tensor.dims, [p.name for p in grid])
        if loops and tensor.dims and random.random() < 0.6:
            true.add(MapVar(tensor.name, random.choice(tensor.dims), LOOP_DIM.name))
    saved = {}
    for i, output in enumerate(program.outputs):
        saved[output_name(i)] = dims = tuple(d for d in output.axes if d is not None)
        true |= _random_mapping(random, output_name(i), dims, [p.name for p in grid])
    looped = {v.tensor for v in true if v.par == LOOP_DIM.name}
    nodes = _random_block(random, program, looped, saved)
    return SGraph(
        program, (GraphOp(grid, loops, Mapping(frozenset(true)), BlockGraph(tuple(nodes))),)
    )


def _random_mapping(random, tensor, dims, pars):
    free = list(dims)
    random.shuffle(free)
    return {MapVar(tensor, free.pop(), p) for p in pars if free and random.random() < 0.6}


@dataclass
class _GrowingBlock:
    """A block graph under construction, with the stage of each node: once, body or after."""

    random: Random
    nodes: list = field(default_factory=list)
    dims: list = field(default_factory=list)
    stages: list = field(default_factory=list)
    whole: dict = field(default_factory=dict)

    def add(self, node, dims, stage):
        self.nodes.append(node)
        self.dims.append(dims)
        self.stages.append(stage)
        return len(self.nodes) - 1

    def accumulated(self, j):
        """The value of node j after the loop."""
        if self.stages[j] != "body":
            return j
        if j not in self.whole:
            dims = sorted(self.dims[j])
            kind = self.random.choice(list(AccumulatorKind)) if dims else AccumulatorKind.SUM
            dim = self.random.choice(dims) if kind is AccumulatorKind.CONCAT else None
            node = Accumulator(j, kind, LOOP_DIM.name, dim)
            self.whole[j] = self.add(node, self.dims[j], "after")
        return self.whole[j]

    def apply(self, node, operands, dims):
        if any(self.stages[j] == "after" for j in operands) or self.random.random() < 0.3:
            operands = [self.accumulated(j) for j in operands]
        order = ("once", "body", "after")
        stage = max((self.stages[j] for j in operands), key=order.index)
        return self.add(Apply(node.op, tuple(operands), node.dim), dims, stage)


def _random_block(random, program, looped, saved):
    """The program's nodes as one block, accumulators where the loop is left."""
    block = _GrowingBlock(random)
    place = {}
    for i, (node, dims) in enumerate(zip(program.nodes, program.tensor_dims(), strict=True)):
        match node:
            case Input(name=name, dims=stored):
                stage = "body" if name in looped else "once"
                place[i] = block.add(InputLoader(name, stored), dims, stage)
            case Apply(operands=operands):
                place[i] = block.apply(node, [place[j] for j in operands], dims)
            case _:
                place[i] = block.add(node, dims, "once")
    for target, output in zip(saved, program.outputs, strict=True):
        read = block.accumulated(place[output.tensor])
        block.add(OutputSaver(read, target, saved[target]), block.dims[read], block.stages[read])
    return block.nodes


def legal_counts(size: int) -> list[int]:
    """All counts that split `size` elements in non-empty chunks."""
    return [c for c in range(1, size + 1) if is_legal_count(size, c)]


seeds = st.integers(0, 2**32 - 1)


@st.composite
def programs(draw, max_ops: int = 8, *, aliases: bool = True):
    """Valid, tame programs."""
    return random_program(draw(seeds), draw(st.integers(1, max_ops)), aliases=aliases)


@st.composite
def sgraphs(draw, max_ops: int = 8):
    """SGraphs that obey every rule of the checker."""
    return random_sgraph(draw(seeds), draw(st.integers(1, max_ops)))


sizes = st.integers(1, 12)
"""A size of a dimension, or a count."""
