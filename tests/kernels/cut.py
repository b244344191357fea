"""Cuts graphs of one kernel in two, by seed: whatever two kernels may hand on to each other.

The first kernel's blocks split one dim. A value that is a summand or a maximum per block is
stacked, and combined where the second kernel loads it; what a block has a part of is put together.
"""

from __future__ import annotations

from random import Random

from kernels.legal import transfer

from prism.ir import (
    GRID_DIMS,
    Apply,
    BlockGraph,
    Const,
    GraphOp,
    InputLoader,
    Mapping,
    MapVar,
    MuGraph,
    OutputSaver,
    SGraph,
    SizeOf,
)

STACK = "parts"
COMBINED_BY = {"P": "sum", "M": "max"}
GRID = GRID_DIMS[0]


def cut(mu, dim, count, seed):
    """The muGraph of one kernel, block and iteration in two; None where the draw leaves one.

    The first kernel has `count` blocks along `dim`.
    """
    return _Cut(mu, dim, Random(seed)).run(count)


class _Cut:
    def __init__(self, mu, dim, random):
        self.mu, self.dim = mu, dim
        (kernel,) = mu.graph.kernels
        assert not kernel.grid
        assert not kernel.loops
        self.nodes, self.dims = kernel.block.nodes, kernel.block.tensor_dims()
        self.operands = [kernel.block.operands(i) for i in range(len(self.nodes))]
        self.states = {}  # of what the first kernel may compute
        self.first = {i for i in range(len(self.nodes)) if self._is_first(i, random)}

    def _is_first(self, i, random):
        match self.nodes[i]:
            case InputLoader(dims=dims):
                self.states[i] = "S" if self.dim in dims else "R"
                return False
            case Const() | SizeOf():
                self.states[i] = "R"
                return False
            case OutputSaver(operand=j):
                state = self.states.get(j) if isinstance(self.nodes[j], Apply) else None
                return state in {"S", "R"} and random.random() < 0.5
            case Apply() as node:
                read = self.operands[i]
                if not all(j in self.states for j in read) or random.random() < 0.25:
                    return False
                states = [self.states[j] for j in read]
                state = transfer(node, states, [self.dims[j] for j in read], self.dim)
                if state is not None:
                    self.states[i] = state
                return state is not None

    def run(self, count):
        rest = {i for i, n in enumerate(self.nodes) if isinstance(n, Apply | OutputSaver)}
        rest -= self.first
        handed = sorted({j for i in rest for j in self.operands[i]} & self.first)
        if not handed or not rest:
            return None
        graph = SGraph(self.mu.graph.program, (self._first(handed), self._rest(rest, handed)))
        return MuGraph(graph, self.mu.sizes, (((GRID.name, count),), ()))

    def _stored_dims(self, i):
        stack = (STACK,) if self.states[i] in COMBINED_BY else ()
        return (*stack, *sorted(self.dims[i]))

    def _first(self, handed):
        nodes, place = [], {}
        for i in sorted(self._with_leaves(self.first)):
            place[i] = len(nodes)
            nodes.append(self._moved(i, place))
        nodes += [OutputSaver(place[i], f"t{i}", self._stored_dims(i)) for i in handed]
        true = set()
        for node in nodes:
            match node:
                case InputLoader(source=name, dims=dims) | OutputSaver(target=name, dims=dims):
                    split = {STACK, self.dim} & set(dims)
                    true |= {MapVar(name, d, GRID.name) for d in split}
        return GraphOp((GRID,), (), Mapping(frozenset(true)), BlockGraph(tuple(nodes)))

    def _rest(self, rest, handed):
        nodes, place = [], {}
        for i in handed:
            nodes.append(InputLoader(f"t{i}", self._stored_dims(i)))
            if self.states[i] in COMBINED_BY:
                nodes.append(Apply(COMBINED_BY[self.states[i]], (len(nodes) - 1,), STACK))
            place[i] = len(nodes) - 1
        for i in sorted(self._with_leaves(rest) - set(handed)):
            place[i] = len(nodes)
            nodes.append(self._moved(i, place))
        return GraphOp((), (), Mapping(frozenset()), BlockGraph(tuple(nodes)))

    def _with_leaves(self, chosen):
        leaves = {
            j
            for i in chosen
            for j in self.operands[i]
            if not isinstance(self.nodes[j], Apply | OutputSaver)
        }
        return chosen | leaves

    def _moved(self, i, place):
        match self.nodes[i]:
            case Apply(op=op, operands=ids, dim=dim):
                return Apply(op, tuple(place[j] for j in ids), dim)
            case OutputSaver(operand=j, target=target, dims=dims):
                return OutputSaver(place[j], target, dims)
            case node:
                return node
