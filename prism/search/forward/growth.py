"""Partial graphs, grown in every way, each op DAG built in one order.

A partial graph is grown by one operator over its tensors. Any order of independent operators builds
the same graph; only the least is followed, in which no operator stands behind a greater one that
came after all its operands. What can be tried on older tensors was tried when the last of them was
new, so each step tries what reads the newest tensor and goes on with what was kept before.

A *state* is one extension attempted: an operator over tensors, whether or not a pruner drops it, or
a set of outputs. A budget that ends the growth is counted in `Cuts`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from prism.ir import GRID_DIMS, LOOP_DIM
from prism.search.forward.spread import Maps
from prism.search.forward.values import Left, Tried, ValueId, Values
from prism.search.generate import Materials
from prism.search.pruning import Narrowed


@dataclass(slots=True)
class Graph:
    """A partial graph: its operators in the order in which they were added.

    `present` has the identities of its values, `unread` those that nothing reads yet, `inputs` the
    program inputs in use, `maps` those left to all its values. `older` are extensions that were
    kept before the last operator came and are still to be tried.

    What follows is worked out when the graph is visited, and remembered where it is visited again
    for other concrete maps: how many extensions were `attempts`, what they gave (`grown`), and its
    `ends`, choices of outputs.
    """

    values: tuple[ValueId, ...]
    present: int
    unread: frozenset[ValueId]
    op_count: int
    accumulator_count: int
    inputs: int
    maps: Left
    older: tuple[ValueId, ...]
    attempts: int = 0
    grown: list[Graph] | None = None
    ends: list[tuple[ValueId, ...]] | None = None


@dataclass(slots=True)
class Count:
    """What the growth did: `states` attempted, partial `graphs` grown."""

    states: int = 0
    graphs: int = 0


@dataclass(slots=True)
class _Answer:
    """What the gate said once, and how often it was needed since."""

    dropping: str | None
    uses: int = 0


class Growth:
    """Grows every graph from the inputs within the budgets.

    `is_repeated`: the graphs are visited more than once, so they are kept.
    """

    def __init__(self, materials: Materials, values: Values, *, is_repeated: bool) -> None:
        self.count = Count()
        self._arena = arena = materials.arena
        self._gate = materials.gate
        self._limits = materials.limits
        self._cuts = materials.cuts
        self._values = values
        self._is_repeated = is_repeated
        self._answers: dict[tuple[str, int, int], _Answer] = {}
        dims = arena.program.tensor_dims()
        self._wanted = [arena.mask(tuple(dims[o.tensor])) for o in arena.program.outputs]
        self._most_unread = len(arena.program.outputs)
        self._root = self._inputs_alone()

    def graphs(self, maps: Maps, grid: tuple[int, ...]) -> Iterator[Graph]:
        """Every partial graph under these maps along the loop; `grid` maps along each grid dim."""
        stack = [self._root]
        while stack:
            graph = stack.pop()
            self.count.graphs += 1
            yield graph
            grown = self._grown(graph)
            self.count.states += graph.attempts
            stack.extend(g for g in grown if self._fits(g.maps, maps, grid))

    def settle(self) -> None:
        """Tell the gate of the answers that were remembered and used again."""
        for answer in self._answers.values():
            self._gate.again(answer.dropping, answer.uses)

    def outputs(self, graph: Graph) -> Sequence[tuple[ValueId, ...]]:
        """Every choice of outputs that leaves no operator without a reader."""
        ends = graph.ends
        if ends is None:
            ends = self._found_ends(graph)
            if self._is_repeated:
                graph.ends = ends
        self.count.states += len(ends)
        return ends

    def _found_ends(self, graph: Graph) -> list[tuple[ValueId, ...]]:
        if len(graph.unread) > self._most_unread:
            return []
        accumulator = self._values.accumulator
        there = set(graph.values)
        eligible = [v for v in graph.values if accumulator.get(v) not in there]
        choices = [
            [v for v in (*self._values.leaves, *eligible) if self._dims(v) == dims]
            for dims in self._wanted
        ]
        return [chosen for chosen in product(*choices) if graph.unread.issubset(chosen)]

    def _dims(self, value: ValueId) -> int:
        return self._arena.terms[self._values.values[value].term].dims

    # ------------------------------------------------------------------------------ extensions

    def _inputs_alone(self) -> Graph:
        """The graph without operators."""
        present = 0
        for leaf in self._values.leaves:
            present |= self._values.values[leaf].identity
        every = self._values.spread.all
        return Graph((), present, frozenset(), 0, 0, 0, Left(every, every, every), ())

    def _grown(self, graph: Graph) -> list[Graph]:
        """The graphs with one operator more, those that can be completed."""
        if graph.grown is not None:
            return graph.grown
        extensions = self._extensions(graph)
        grown = []
        for value in extensions:
            extended = self._extended(graph, value, extensions)
            if extended is not None:
                grown.append(extended)
        if self._is_repeated:
            graph.grown = grown
        return grown

    def _extensions(self, graph: Graph) -> list[ValueId]:
        """What can be added: extensions kept before, and all that read the newest value."""
        values = self._values.values
        kept = list(graph.older)
        graph.attempts = len(kept)
        if not self._left(graph):
            # only an accumulator that counts with its reduction
            tried = self._values.accumulated(graph.values[-1])
            free = [v for v in tried.kept if not values[v].op_count]
            graph.attempts += len(free)
            return kept + free
        for tried in self._tried(graph):
            graph.attempts += tried.attempts
            kept.extend(tried.kept)
        return kept

    def _tried(self, graph: Graph) -> Iterator[Tried]:
        """Everything that reads the newest value; at the start, all that reads inputs."""
        leaves = self._values.leaves
        if graph.values:
            yield from self._values.reading(graph.values[-1], (*leaves, *graph.values[:-1]))
            return
        for i, leaf in enumerate(leaves):
            yield from self._values.reading(leaf, leaves[:i])

    def _left(self, graph: Graph) -> int:
        """How many block operators more it may have."""
        return self._limits.max_ops - graph.op_count - graph.inputs.bit_count()

    def _extended(self, graph: Graph, new: ValueId, extensions: Sequence[ValueId]) -> Graph | None:
        """The graph with one operator more, or None where it cannot be completed."""
        values = self._values.values
        value = values[new]
        if value.is_operator and graph.present & value.identity:
            return None  # computed already
        inputs = graph.inputs | self._arena.terms[value.term].inputs
        op_count = graph.op_count + value.op_count
        unread = graph.unread.difference(value.operands) | {new}
        left = self._limits.max_ops - op_count - inputs.bit_count()
        accumulators = graph.accumulator_count + len(value.accumulated)
        if accumulators > (most := self._limits.max_accumulators):
            self._cuts.add("max_accumulators")
            self._cuts.miss("max_accumulators", 0, f"loop stages of more than {most} accumulators")
            return None
        if left < 0 or len(unread) > self._most_unread + left:
            # an operator reads at most two tensors and adds one
            self._cuts.add("max_ops")
            return None
        maps = graph.maps & self._values.left(new)
        if not self._fits(maps, self._values.spread.all, ()):
            return None
        return Graph(
            (*graph.values, new),
            graph.present | (value.identity if value.is_operator else 0),
            unread,
            op_count,
            accumulators,
            inputs,
            maps,
            tuple(v for v in extensions if v > new and values[v].op_count <= left),
        )

    # ------------------------------------------------------------------------------------ maps

    def _fits(self, left: Left, maps: Maps, grid: tuple[int, ...]) -> bool:
        """Whether the pruners see a map left along the loop, and each grid dim's fits."""
        matched = left.matched & maps
        fitting = (matched & left.placed).bit_count()
        if not self._is_left(LOOP_DIM.name, matched.bit_count(), fitting):
            return False
        for par, column in zip(GRID_DIMS, grid, strict=False):
            is_matched = left.matched >> column & 1
            is_placed = is_matched & left.on_grid >> column
            if not self._is_left(par.name, is_matched, is_placed):
                return False
        return True

    def _is_left(self, par: str, matched: int, placed: int) -> bool:
        """What the pruners say of so many maps left; asked once."""
        key = (par, matched, placed)
        answer = self._answers.get(key)
        if answer is None:
            dropping = self._gate.dropping(Narrowed(par, matched, placed))
            answer = self._answers[key] = _Answer(dropping)
        else:
            answer.uses += 1
        return answer.dropping is None
