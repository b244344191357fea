"""Brute force for graphs of two kernels: every cut of an op DAG, every mapping, judged by running.

Nothing here knows a table of the search. Kernel 0 computes a set of operators closed downwards, all
of them included; kernel 1 the rest. Each has at most one grid dim and no loop. What kernel 0 saves
is put together from its blocks however the shapes allow: whole, side by side along a dim, or
stacked; kernel 1 reads it as it is, and what counts are the numbers of the outputs at the end.

Conventions that the search has as well, and that are not about right and wrong:

  values     at most three values that kernel 0 computes are saved, outputs among them; an output
             that is an input is stored by kernel 0 too
  grid       a grid dim divides something that its kernel saves, or stacks it; a kernel without a
             grid is listed where none with one does the same
  stacks     what every block has whole is stored once and not stacked; what is stacked is summed
             (or its largest taken) before anything else reads it
  library    a contraction of two tensors alone in a kernel, saved once, is a library's too
  ties       dims that operators bring together are mapped alike, in each kernel (`is_tied`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations, product
from random import Random

import numpy as np
from brute_force import arrays_for
from brute_force_blocks import COUNT, is_tied, part, tile
from brute_force_terms import UnfitError, Value, applied, is_same, named, outputs_of
from strategies import legal_counts

from prism.ir import (
    GRID_DIMS,
    OPS,
    Apply,
    BlockGraph,
    GraphOp,
    Input,
    InputLoader,
    Mapping,
    MapVar,
    MuGraph,
    OpKind,
    OutputSaver,
    SGraph,
    bind_sizes,
    evaluate,
    evaluate_graph,
    output_name,
    stack_dims,
)
from prism.verdict import Verdict
from prism.verify import Verifier

MOST_SAVED = 3
STACK = "%stack"
"""The dim that blocks stack along."""

SAME, SUM, MAX = "", "sum", "max"


@dataclass(frozen=True)
class Kernel:
    """One kernel: what it loads from an earlier one and how that is made whole, and what it saves.

    `column`: the dim along the grid of everything loaded, by input's name or term; None without a
    grid. `saved`: for each term the dim along the grid, STACK, or None for a whole value.
    """

    operators: tuple
    loads: tuple
    column: dict | None
    saved: dict
    library: bool = False

    @property
    def is_stacking(self):
        return STACK in self.saved.values()


# --- cuts ---------------------------------------------------------------------------------------


def cuts(terms, dag) -> Iterator[frozenset]:
    """Every set of operators that has all those that its operators read, but the empty one."""
    for count in range(1, len(dag) + 1):
        for below in map(frozenset, combinations(sorted(dag), count)):
            if all(j in below or j not in dag for i in below for j in terms.nodes[i].operands):
                yield below


def crossing(terms, dag, below):
    """What is below and read above, or an output."""
    read = {j for i in dag - below for j in terms.nodes[i].operands}
    return sorted(below & (read | set(outputs_of(terms, dag))))


# --- one kernel, run ----------------------------------------------------------------------------


class Runs:
    """The kernels that compute some operators from inputs and from given values."""

    def __init__(self, terms, operators, given, combined, saved):
        self.terms, self.operators, self.saved = terms, sorted(operators), saved
        self.given = given
        self.combined = combined  # by which operator a stacked value is made whole
        read = {j for i in operators for j in terms.nodes[i].operands} - set(operators) - set(given)
        self.leaves = sorted(read | (set(saved) - set(operators) - set(given)))
        self.sources = {
            n.name: n.dims for i in self.leaves if isinstance(n := terms.nodes[i], Input)
        }
        self.sources |= {i: v.dims for i, v in given.items()}

    def kernels(self) -> Iterator[tuple]:
        """Every kernel, with what it leaves of each saved term."""
        for dims in product(*((None, *dims) for dims in self.sources.values())):
            column = dict(zip(self.sources, dims, strict=True))
            yield from self.saving(column, [self.block(column, b) for b in range(COUNT)])
        yield from self.saving(None, [self.block(dict.fromkeys(self.sources), 0)])
        if self.is_one_contraction():
            for kernel, left in self.saving(None, [self.block(dict.fromkeys(self.sources), 0)]):
                yield replace(kernel, library=True), left  # if it has one target: `is_well_formed`

    def is_one_contraction(self):
        if len(self.operators) != 1 or any(self.combined.values()):
            return False
        node = self.terms.nodes[self.operators[0]]
        return OPS[node.op].kind is OpKind.CONTRACT and len(set(node.operands)) == 2

    def block(self, column, b):
        """What one block computes, or None."""
        sizes = self.terms.sizes | {STACK: COUNT}
        out = {}
        try:
            for i in self.leaves:
                node, value = self.terms.nodes[i], self.terms.values[i]
                dim = column[node.name] if isinstance(node, Input) else None
                out[i] = tile(sizes, value, [(dim, b)])
            for i, value in self.given.items():
                out[i] = tile(sizes, value, [(column[i], b)])
                if self.combined[i]:
                    out[i] = applied(self.combined[i], STACK, [out[i]])
            for i in self.operators:
                node = self.terms.nodes[i]
                out[i] = applied(node.op, node.dim, [out[j] for j in node.operands])
        except UnfitError:
            return None
        return out

    def saving(self, column, blocks) -> Iterator[tuple]:
        if None in blocks:
            return
        ways = [list(self.stored([b[i] for b in blocks])) for i in self.saved]
        for chosen in product(*ways):
            saved = {i: way for i, (way, _) in zip(self.saved, chosen, strict=True)}
            left = {i: value for i, (_, value) in zip(self.saved, chosen, strict=True)}
            if column is None or any(saved.values()):
                loads = tuple(self.given)
                yield Kernel(tuple(self.operators), loads, column, saved), left

    def stored(self, values) -> Iterator[tuple]:
        """How the blocks' values become a tensor, and which: all ways that the shapes allow."""
        dims, sizes = values[0].dims, self.terms.sizes
        full = tuple(sizes[d] for d in dims)
        shapes = [v.array.shape for v in values]
        if all(shape == full for shape in shapes):
            if all(is_same(v, values[0]) for v in values):
                yield None, values[0]
            else:
                array = np.stack([v.array for v in values])
                yield STACK, named((STACK, *dims), array)
        elif len(values) == COUNT:
            for axis, dim in enumerate(dims):
                wanted = [
                    (*full[:axis], stop - start, *full[axis + 1 :])
                    for start, stop in (part(sizes[dim], b) for b in range(COUNT))
                ]
                if shapes == wanted:
                    yield dim, Value(dims, np.concatenate([v.array for v in values], axis))


# --- two kernels --------------------------------------------------------------------------------


class Plans:
    """The graphs of two kernels of one op DAG that give the right numbers."""

    def __init__(self, terms, dag, *, tied):
        self.terms, self.dag, self.tied = terms, dag, tied
        self.outputs = outputs_of(terms, dag)

    def graphs(self) -> Iterator[SGraph]:
        for below in cuts(self.terms, self.dag):
            saved = crossing(self.terms, self.dag, below)
            if len(saved) <= MOST_SAVED:
                copied = sorted(set(self.outputs) - self.dag)
                first = list(Runs(self.terms, below, {}, {}, [*copied, *saved]).kernels())
                yield from self.completed(below, first)

    def completed(self, below, first) -> Iterator[SGraph]:
        """With every kernel 1; one without a grid where no other does the same."""
        found = {}
        for kernel, left in first:
            if not all(
                kernel.saved[i] == STACK or is_same(left[i], self.terms.values[i])
                for i in set(self.outputs) & left.keys()
            ):
                continue
            for second in self.seconds(below, kernel, left):
                graph = self.built((kernel, second[0]), second[1])
                if not self.tied or all(
                    is_tied(SGraph(graph.program, (k,))) for k in graph.kernels
                ):
                    found.setdefault(second[1], []).append((kernel, second[0], graph))
        for same in found.values():
            ours = [(k.column is not None, k.library) for k, _, _ in same]
            for kernel, second, graph in same:
                others = [s for k, s, _ in same if k is kernel and s.column is not None]
                is_idle = kernel.column is None and not kernel.library and (True, False) in ours
                is_other = second.column is None and not second.library and others
                if not is_idle and not is_other:
                    yield graph

    def seconds(self, below, kernel, left) -> Iterator[tuple]:
        """Every kernel 1 after a kernel 0, and by what it makes each stacked value whole."""
        above = self.dag - below
        read = {j for i in above for j in self.terms.nodes[i].operands}
        stacked = [i for i in left if kernel.saved[i] == STACK]
        needed = read | (set(stacked) & set(self.outputs))
        loaded = [i for i in left if i in needed & self.dag]
        saved = sorted({i for i in self.outputs if i in above or i in stacked})
        if not saved:
            return  # nothing is left to do
        for ways in product((SUM, MAX), repeat=len(stacked)):
            combined = dict.fromkeys(loaded, SAME) | dict(zip(stacked, ways, strict=True))
            given = {i: left[i] for i in loaded}
            for second, last in Runs(self.terms, above, given, combined, saved).kernels():
                if not second.is_stacking and all(
                    is_same(last[i], self.terms.values[i]) for i in saved
                ):
                    yield second, tuple(sorted(combined.items()))

    # --- as an sGraph ---

    def built(self, kernels, combined):
        first, second = kernels
        names = {i: f"t{k}" for k, i in enumerate(second.loads)}
        return SGraph(
            self.terms.program,
            (self.kernel(first, names, {}), self.kernel(second, names, dict(combined))),
        )

    def kernel(self, kernel, names, combined):
        nodes, place, par = [], {}, GRID_DIMS[0]
        column = kernel.column or {}

        def add(i, node):
            place[i] = len(nodes)
            nodes.append(node)

        read = {j for i in kernel.operators for j in self.terms.nodes[i].operands}
        for i in sorted((read | set(kernel.saved)) - set(kernel.operators) - set(kernel.loads)):
            node = self.terms.nodes[i]
            add(i, InputLoader(node.name, node.dims) if isinstance(node, Input) else node)
        for i in kernel.loads:
            dims = self.terms.values[i].dims
            add(i, InputLoader(names[i], (spelled(STACK), *dims) if combined[i] else dims))
        for i in kernel.loads:
            if combined[i]:
                add(i, Apply(combined[i], (place[i],), spelled(STACK)))
        for i in kernel.operators:
            node = self.terms.nodes[i]
            add(i, Apply(node.op, tuple(place[j] for j in node.operands), node.dim))
        true = {(names.get(source, source), dim) for source, dim in column.items()}
        for i, dim in kernel.saved.items():
            for target, dims in self.targets(kernel, i, names):
                stacked = (spelled(STACK),) if dim == STACK else ()
                nodes.append(OutputSaver(place[i], target, (*stacked, *dims)))
                true.add((target, dim))
        mapping = frozenset(MapVar(t, spelled(d), par.name) for t, d in true if d is not None)
        grid = (par,) if kernel.column is not None else ()
        return GraphOp(grid, (), Mapping(mapping), BlockGraph(tuple(nodes)), kernel.library)

    def targets(self, kernel, i, names):
        """What a term is saved as: outputs, unless it is stacked, and for kernel 1."""
        if kernel.saved[i] != STACK:
            for k, (j, output) in enumerate(
                zip(self.outputs, self.terms.program.outputs, strict=True)
            ):
                if j == i:
                    yield output_name(k), tuple(d for d in output.axes if d is not None)
        if i in names and i not in kernel.loads:
            yield names[i], self.terms.values[i].dims


def spelled(dim):
    """The stack dim as a graph spells it."""
    return "s0" if dim == STACK else dim


# --- graphs -------------------------------------------------------------------------------------


def plan_key(graph):
    """A graph of several kernels up to operands' order and the names of what no program names."""
    between, out = {}, []
    stacks = dict.fromkeys(stack_dims(graph), STACK)
    for kernel in graph.kernels:
        text, targets = texts(kernel, between, stacks)
        sources = {n.source: between.get(n.source, n.source) for n in kernel.block.loaders}
        names = sources | targets
        true = sorted((names[v.tensor], stacks.get(v.dim, v.dim)) for v in kernel.mapping.true)
        out.append((tuple(sorted(text)), tuple(true), len(kernel.grid), kernel.library))
        between |= targets
    return tuple(out)


def texts(kernel, between, stacks):
    """What each saver of a kernel saves, as nested text; and what its target is then called."""
    block, out, saved, targets = kernel.block, [], [], {}
    for i, node in enumerate(block.nodes):
        operands = [out[j] for j in block.operands(i)]
        match node:
            case Apply(op=op, dim=dim):
                ordered = sorted(operands) if OPS[op].is_commutative else operands
                out.append(f"{op}[{stacks.get(dim, dim)}]({', '.join(ordered)})")
            case OutputSaver(target=target, dims=dims):
                is_output = target.startswith("out")
                is_stacked = any(d in stacks for d in dims)
                name = target if is_output else f"<{'stacked ' * is_stacked}{operands[0]}>"
                targets[target] = name
                saved.append(f"{name} = {operands[0]}")
                out.append(operands[0])
            case InputLoader(source=source):
                out.append(between.get(source, source))
            case _:
                out.append(str(node))
    return saved, targets


def is_well_formed(graph):
    """Whether what is a library's saves one tensor: as an output, or for kernel 1."""
    return all(len(k.block.savers) == 1 for k in graph.kernels if k.library)


def combining(graph):
    """How many operators only make stacked values whole."""
    stacks = stack_dims(graph)
    nodes = [n for k in graph.kernels for n in k.block.nodes]
    return sum(isinstance(n, Apply) and n.dim in stacks for n in nodes)


def gives_numbers(graph, seed):
    """Whether a graph, run at random sizes and counts of blocks, computes its program."""
    random = Random(seed)
    program = graph.program
    sizes = bind_sizes(program, {n: random.randint(3, 9) for n in program.size_names})
    stacks = stack_dims(graph)
    counts = []
    for kernel in graph.kernels:
        counts.append([])
        for par in kernel.grid:
            split = {v.dim for v in kernel.mapping.true if v.par == par.name}
            legal = [set(legal_counts(sizes[d])) for d in split - stacks.keys()]
            is_stacked = not split.isdisjoint(stacks)
            most = set.intersection(*legal) if legal else {2, 3}
            counts[-1].append((par.name, random.choice(sorted(most - {1} if is_stacked else most))))
    arrays = arrays_for(program, sizes, seed)
    mu = MuGraph(graph, tuple(sizes.items()), tuple(map(tuple, counts)))
    pairs = zip(evaluate(program, arrays), evaluate_graph(mu, arrays), strict=True)
    return all(np.allclose(a, b, rtol=1e-7, atol=1e-9) for a, b in pairs)


def expected_plans(expected, *, tied):
    """Every graph of two kernels that the search must list, and those without a proof, by key."""
    right = {}
    for dag in expected.dags:
        for graph in Plans(expected.terms, dag, tied=tied).graphs():
            if is_well_formed(graph) and all(gives_numbers(graph, seed) for seed in range(2)):
                right[plan_key(graph)] = graph
    verdicts = Verifier(expected.program, expected.axioms).verify(list(right.values()))
    judged = list(zip(right.items(), verdicts, strict=True))
    proved = {k: g for (k, g), v in judged if v is Verdict.PROVED}
    return proved, {k: g for k, g in right.items() if k not in proved}
