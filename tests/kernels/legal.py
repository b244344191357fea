"""MuGraphs that compute a given program: legal mappings and loop stages, chosen or by seed.

Along one parallel dim a value is replicated (R), split along d (S), a summand (P) or a maximum (M)
per iteration, or exists after the loop (Z). Grid dims allow R and S only, the loop all of them.
"""

from __future__ import annotations

from random import Random

from prism.ir import (
    GRID_DIMS,
    LOOP_DIM,
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    BlockGraph,
    GraphOp,
    Input,
    InputLoader,
    Linearity,
    Mapping,
    MapVar,
    MuGraph,
    OpKind,
    OutputSaver,
    SGraph,
    bind_sizes,
    chunk,
    infer_dims,
    is_legal_count,
    output_name,
)

GRID = {p.name: p for p in GRID_DIMS}

ACCUMULATORS = {
    "S": AccumulatorKind.CONCAT,
    "P": AccumulatorKind.SUM,
    "M": AccumulatorKind.MAX,
}
"""State of a body value -> what combines it over the iterations."""


def mugraph(program, sizes, grid=None, loop=None, counts=None, *, in_body=None, schedule=()):
    """The graph with this grid (grid dim -> data dim), loop dim and counts (default 1).

    `in_body(i)` says whether node i of the program runs in the loop where it may (default: yes).
    """
    sizes = bind_sizes(program, {d: sizes[d] for d in program.size_names})
    grid, counts = grid or {}, counts or {}
    true = {
        MapVar(tensor, d, p)
        for tensor, dims in _border(program)
        for p, d in grid.items()
        if d in dims
    }
    if loop is not None:
        true |= {MapVar(i.name, loop, "i") for i in program.inputs if loop in i.dims}
    block = _block(program, loop, in_body or (lambda i: True))
    loops = () if loop is None else (LOOP_DIM,)
    pars = [*grid, *(p.name for p in loops)]
    kernel = GraphOp(tuple(GRID[p] for p in grid), loops, Mapping(frozenset(true)), block)
    par_sizes = (tuple((p, counts.get(p, 1)) for p in pars),)
    return MuGraph(SGraph(program, (kernel,)), tuple(sizes.items()), par_sizes, tuple(schedule))


def random_mugraph(program, sizes, seed):
    """A legal graph for the program with random grid, loop, stages and counts."""
    random = Random(seed)
    free = unreduced_dims(program)
    random.shuffle(free)
    grid = dict(zip("xyz"[: random.randint(0, 3)], free, strict=False))
    inputs = [d for i in program.inputs for d in i.dims]
    loop = random.choice(inputs) if inputs and random.random() < 0.8 else None
    counts = {p: random.choice(small_counts(sizes[d])) for p, d in grid.items()}
    if loop is not None:
        size = min(
            [chunk(sizes[d], counts[p]) for p, d in grid.items() if d == loop] or [sizes[loop]]
        )
        counts["i"] = random.choice(small_counts(size))
    stays = {i: random.random() < 0.8 for i in range(len(program.nodes))}
    return mugraph(program, sizes, grid, loop, counts, in_body=stays.get)


def unreduced_dims(program):
    """The dims over which nothing is summed: what a grid may split."""
    reduced = {n.dim for n in program.nodes if isinstance(n, Apply)}
    found = dict.fromkeys(d for i in program.inputs for d in i.dims)
    return [d for d in found if d not in reduced]


def small_counts(size):
    """The legal counts up to 9, and as many chunks as elements."""
    return [c for c in (*range(1, min(size, 9) + 1), size) if is_legal_count(size, c)]


def _border(program):
    yield from ((i.name, i.dims) for i in program.inputs)
    for k, out in enumerate(program.outputs):
        yield output_name(k), tuple(d for d in out.axes if d is not None)


def transfer(node, states, dims, loop):
    """The state of an operator in the body, or None where it may not run there."""
    spec = OPS[node.op]
    if set(states) == {"R"}:
        return "R"
    if set(states) & {"M", "P"}:
        return _transfer_partial(spec, states)
    if spec.kind is OpKind.ELEMENTWISE:
        # a whole operand cannot meet a tile of the same dimension
        whole = any(s == "R" and loop in d for s, d in zip(states, dims, strict=True))
        return None if whole else "S"
    if node.dim != loop:
        return "S"
    if spec.kind is OpKind.CONTRACT:
        return "P" if set(states) == {"S"} else None
    return "M" if node.op == "max" else "P"


def _transfer_partial(spec, states):
    if set(states) & {"M", "S"}:
        return None
    partial = [k for k, s in enumerate(states) if s == "P"]
    if spec.linearity is Linearity.JOINT:
        return "P" if len(partial) == len(states) else None
    if spec.linearity is Linearity.EACH and len(partial) == 1:
        return "P" if partial[0] in spec.linear_in else None
    return None


class _Block:
    def __init__(self, loop):
        self.loop = loop
        self.nodes, self.states, self.whole = [], [], {}

    def add(self, node, state):
        self.nodes.append(node)
        self.states.append(state)
        return len(self.nodes) - 1

    def accumulated(self, j):
        """Value j after the loop."""
        kind = ACCUMULATORS.get(self.states[j])
        if kind is None:
            return j
        if j not in self.whole:
            dim = self.loop if kind is AccumulatorKind.CONCAT else None
            self.whole[j] = self.add(Accumulator(j, kind, "i", dim), "Z")
        return self.whole[j]

    def apply(self, node, read, dims, *, stay):
        states = [self.states[j] for j in read]
        state = None
        if stay and "Z" not in states:
            state = transfer(node, states, dims, self.loop)
        if state is None:
            read = tuple(self.accumulated(j) for j in read)
            state = "Z" if any(self.states[j] == "Z" for j in read) else "R"
        return self.add(Apply(node.op, read, node.dim), state)


def _block(program, loop, in_body):
    block, place = _Block(loop), {}
    dims = infer_dims(program.nodes)
    for i, node in enumerate(program.nodes):
        match node:
            case Input(name=name, dims=input_dims):
                state = "S" if loop in input_dims else "R"
                place[i] = block.add(InputLoader(name, input_dims), state)
            case Apply(operands=operands):
                read = tuple(place[j] for j in operands)
                read_dims = [dims[j] for j in operands]
                place[i] = block.apply(node, read, read_dims, stay=in_body(i))
            case _:
                place[i] = block.add(node, "R")
    for k, out in enumerate(program.outputs):
        axes = tuple(d for d in out.axes if d is not None)
        block.add(OutputSaver(block.accumulated(place[out.tensor]), output_name(k), axes), "Z")
    return BlockGraph(tuple(block.nodes))
