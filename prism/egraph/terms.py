"""Terms of programs and sGraphs: what the e-graph is asked about.

  loader       Part / Repl for each grid dim in order, then for each loop it stands in
  accumulator  Red (sum), RedMax (largest), Comb (side by side) over its loop
  saver        Comb for each mapped grid dim, Stack for one along which a new dim is stacked,
               Pick (any one copy) for the others

Constants and sizes are replicated to where they are read. A loop-invariant value is computed
outside the loop and read inside through Repl along the loop. In a nest of two loops each value has
its level, and is read further in through Repl along each loop in between.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import assert_never

from prism.egraph.bank import GRID_SLOTS, LOOP_SLOTS, TermBank, TermId
from prism.egraph.signature import Template, template
from prism.errors import GraphError
from prism.ir import (
    Accumulator,
    AccumulatorKind,
    Apply,
    Const,
    DataDim,
    DimInfo,
    GraphOp,
    Input,
    InputLoader,
    MapVar,
    OutputSaver,
    Program,
    SGraph,
    SizeOf,
    TensorId,
    loop_places,
    output_name,
)

Wrap = Callable[[TermId], TermId]
"""Replicates a term without operands (a constant) to where it is read."""


def new_bank(program: Program) -> TermBank:
    """An empty bank over the program's dimensions, with what is known of their sizes."""
    bank = TermBank(d.name for d in program.dims)
    declare_sizes(bank, program.dims)
    return bank


def declare_sizes(bank: TermBank, dims: Iterable[DimInfo]) -> None:
    """State which dimensions share a size and which sizes the program fixes."""
    for info in dims:
        if info.size != info.name:
            bank.declare_size(info.name, info.size)
        if info.fixed is not None:
            bank.declare_size(info.name, float(info.fixed))


def program_terms(program: Program) -> tuple[str, ...]:
    """The term of each output, written out."""
    bank = new_bank(program)
    return tuple(bank.text(term) for term in build_program(bank, program))


def graph_terms(graph: SGraph) -> tuple[str, ...]:
    """The term of each output of an sGraph, written out.

    Raises:
        GraphError: values that do not fit together.
    """
    bank = new_bank(graph.program)
    return tuple(bank.text(term) for term in GraphTerms(bank, graph.program).build(graph.kernels))


def build_program(bank: TermBank, program: Program) -> tuple[TermId, ...]:
    """The term of each output, in `bank`."""
    sizes = size_roots(program)
    terms: list[TermId] = []
    for node in program.nodes:
        match node:
            case Input(name=name, dims=dims):
                terms.append(bank.input(name, dims))
            case Const(value=value):
                terms.append(bank.const(value))
            case SizeOf(dim=dim):
                terms.append(bank.make("Size", (), (bank.ids[sizes[dim]],)))
            case Apply():
                operands = tuple(terms[i] for i in node.operands)
                terms.append(_apply(bank, sizes, node, operands, lambda term: term))
            case _:
                assert_never(node)
    return tuple(terms[output.tensor] for output in program.outputs)


class GraphTerms:
    """Builds the terms of graphs of one program, in a bank made for it."""

    def __init__(self, bank: TermBank, program: Program) -> None:
        self.bank = bank
        self.sizes = size_roots(program)
        self.inputs = {i.name: bank.input(i.name, i.dims) for i in program.inputs}
        dims = program.tensor_dims()
        self.outputs = tuple(
            (output_name(k), {bank.ids[d] for d in dims[output.tensor]})
            for k, output in enumerate(program.outputs)
        )

    def build(self, kernels: Sequence[GraphOp]) -> tuple[TermId, ...]:
        """The term of each output of the sGraph with these kernels.

        Raises:
            GraphError: a value that does not fit where it is used, an output that is not stored.
        """
        values = dict(self.inputs)
        known = set(self.sizes)
        for index, kernel in enumerate(kernels):
            built = _Kernel(self, kernel, index, values, known)
            values |= built.outputs()
            known.update(built.stacking)
        out: list[TermId] = []
        for name, dims in self.outputs:
            if name not in values:
                raise GraphError(f"no kernel stores {name}")
            kind = self.bank.type_of(values[name])
            if kind.splits.keys() != dims:
                raise GraphError(f"{name} is stored over other dimensions than the program's")
            out.append(values[name])
        return tuple(out)


def size_roots(program: Program) -> Mapping[DataDim, DataDim]:
    """For each dimension, the one whose size it shares."""
    return {d.name: d.size for d in program.dims}


def _apply(
    bank: TermBank,
    sizes: Mapping[DataDim, DataDim],
    node: Apply,
    operands: tuple[TermId, ...],
    wrap: Wrap,
) -> TermId:
    """An operator node; `wrap` makes the size of its dim what is read there."""

    def size() -> TermId:
        assert node.dim is not None
        return wrap(bank.make("Size", (), (bank.ids[sizes[node.dim]],)))

    dim = -1 if node.dim is None else bank.ids[node.dim]
    return operator_term(bank, node.op, operands, dim, size)


def operator_term(
    bank: TermBank, op: str, operands: Sequence[TermId], dim: int, size: Callable[[], TermId]
) -> TermId:
    """An operator of the table by its template; `size` gives what stands for the size of `dim`.

    Raises:
        GraphError: the operands do not fit together.
    """

    def fill(part: int | Template) -> TermId:
        if isinstance(part, int):
            return operands[part]
        if part.head == "Size":
            return size()
        children = tuple(fill(inner) for inner in part.parts)
        return bank.make(part.head, children, (dim,) if part.has_dim else ())

    return fill(template(op))


class _Kernel:
    """The terms of one kernel's values at each level of its loops (`LoopPlace`).

    A value stands at one level; read further in, it is replicated along the loops in between.
    `values` are the kernel-level tensors known before it, `dims` the dimensions they may have.
    """

    def __init__(
        self,
        context: GraphTerms,
        kernel: GraphOp,
        index: int,
        values: Mapping[str, TermId],
        dims: Container[DataDim],
    ) -> None:
        if len(kernel.grid) > GRID_SLOTS or len(kernel.loops) > LOOP_SLOTS:
            raise GraphError("a kernel may have at most 3 grid dimensions and two loops")
        bank = self.bank = context.bank
        self.sizes = context.sizes
        self.block = kernel.block
        self.nodes = kernel.block.nodes
        self.values = values
        new = [d for saver in kernel.block.savers for d in saver.dims if d not in dims]
        self.stacking = {dim: bank.add_dim(dim) for dim in new}
        self.mapped = {(v.tensor, v.par): self._dim_id(v) for v in kernel.mapping.true}
        self.grid = [(p.name, bank.par_id(index, s, p.name)) for s, p in enumerate(kernel.grid)]
        self.loops = [
            (p.name, bank.par_id(index, GRID_SLOTS + s, p.name)) for s, p in enumerate(kernel.loops)
        ]
        self.places = loop_places(kernel)
        self.terms: list[dict[TensorId, TermId]] = [{} for _ in range(len(self.loops) + 1)]
        """By level, what nodes are there."""

    def outputs(self) -> dict[str, TermId]:
        """The stored tensors by name."""
        needed = self._needed()
        for i in range(len(self.nodes)):
            for level in sorted(needed[i]):
                self.terms[level][i] = self._at(i, level)
        out: dict[str, TermId] = {}
        for i, node in enumerate(self.nodes):
            if isinstance(node, OutputSaver):
                if node.target in out or node.target in self.values:
                    raise GraphError(f"node {i}: {node.target} is stored twice")
                out[node.target] = self._saved(i, node)
        return out

    def _dim_id(self, var: MapVar) -> int:
        if var.dim not in self.bank.ids:
            raise GraphError(f"{var} maps a dimension that the program does not have")
        return self.bank.ids[var.dim]

    def _needed(self) -> list[set[int]]:
        """The levels at which each node is read, and those in between."""
        needed: list[set[int]] = [set() for _ in self.nodes]
        for i in reversed(range(len(self.nodes))):
            node, own = self.nodes[i], self.places[i].level
            if isinstance(node, OutputSaver):
                needed[node.operand].add(0)
                continue
            needed[i].update(*(range(own, level) for level in needed[i]))
            if own in needed[i]:
                inner = isinstance(node, Accumulator) and own < len(self.loops)
                for j in self.block.operands(i):
                    needed[j].add(own + inner)
        return needed

    def _saved(self, i: TensorId, node: OutputSaver) -> TermId:
        term = self.terms[0][node.operand]
        for name, par in reversed(self.grid):
            dim = self.mapped.get((node.target, name))
            if dim is None:
                term = self._make(i, "Pick", term, par)
            else:
                is_new = dim in self.stacking.values()
                term = self._make(i, "Stack" if is_new else "Comb", term, dim, par)
        if any(self.bank.type_of(term).splits.values()):
            # its dimension would have another size there, under the same name
            raise GraphError(f"{node.target} is stored as one tile of itself: a mapping is missing")
        return term

    def _at(self, i: TensorId, level: int) -> TermId:
        """The value of node i inside so many loops: one per block and iteration of these."""
        place = self.places[i]
        if level < place.level:
            raise GraphError(
                f"node {i} differs in every iteration of the loop and is read outside it without "
                "an accumulator"
            )
        if place.ended is not None and level > place.level:
            raise GraphError(f"node {i} exists only after the loop and is read in its body")
        if level > place.level:
            return self._make(i, "Repl", self.terms[level - 1][i], self.loops[level - 1][1])
        node = self.nodes[i]
        match node:
            case InputLoader():
                return self._loaded(i, node, level)
            case Const(value=value):
                return self._replicated(self.bank.const(value), level)
            case SizeOf(dim=dim):
                size = self.bank.make("Size", (), (self.bank.ids[self.sizes[dim]],))
                return self._replicated(size, level)
            case Apply(operands=operands):
                terms = tuple(self.terms[level][j] for j in operands)
                return self._applied(i, node, terms, lambda term: self._replicated(term, level))
            case Accumulator():
                return self._accumulated(i, node)
            case OutputSaver():
                raise GraphError(f"node {i} stores a tensor and cannot be read")
            case _:
                assert_never(node)

    def _loaded(self, i: TensorId, node: InputLoader, level: int) -> TermId:
        if node.source not in self.values:
            raise GraphError(f"node {i} loads {node.source!r}, which no kernel before it stores")
        term = self.values[node.source]
        if self.bank.type_of(term).splits.keys() != {self.bank.ids.get(d) for d in node.dims}:
            raise GraphError(f"node {i} loads {node.source!r} over other dimensions than it has")
        for name, par in (*self.grid, *self.loops[:level]):
            dim = self.mapped.get((node.source, name))
            if dim is None:
                term = self._make(i, "Repl", term, par)
            else:
                term = self._make(i, "Part", term, dim, par)
        return term

    def _replicated(self, term: TermId, level: int) -> TermId:
        for _, par in (*self.grid, *self.loops[:level]):
            term = self.bank.make("Repl", (term,), (par,))
        return term

    def _applied(
        self, i: TensorId, node: Apply, operands: tuple[TermId, ...], wrap: Wrap
    ) -> TermId:
        try:
            return _apply(self.bank, self.sizes, node, operands, wrap)
        except GraphError as error:
            raise GraphError(f"node {i}: {error}") from None

    def _accumulated(self, i: TensorId, node: Accumulator) -> TermId:
        level = self.places[i].level
        if level == len(self.loops) or node.par != self.loops[level][0]:
            raise GraphError(f"node {i} accumulates over {node.par!r}, which is no loop here")
        term, loop = self.terms[level + 1][node.operand], self.loops[level][1]
        if node.kind is AccumulatorKind.CONCAT:
            if node.dim is None:
                raise GraphError(f"node {i} concatenates along no dimension")
            return self._make(i, "Comb", term, self.bank.ids[node.dim], loop)
        for dim, split in self.bank.type_of(term).splits.items():
            if loop in split:
                raise GraphError(
                    f"node {i} combines tiles of {self.bank.dims[dim]}, which differ in size where "
                    "the tail is shorter, and would mix its parts"
                )
        head = "Red" if node.kind is AccumulatorKind.SUM else "RedMax"
        return self._make(i, head, term, loop)

    def _make(self, i: TensorId, head: str, term: TermId, *attributes: int) -> TermId:
        try:
            return self.bank.make(head, (term,), attributes)
        except GraphError as error:
            raise GraphError(f"node {i}: {error}") from None
