"""Proves that the threads of a block may share each thread graph as its maps say.

A thread graph f with block dims t1, .., tn claims that

    comb_t(f(part_t X, repl_t Y)) = f(X, Y)

for all operands, sizes and numbers of threads: what the threads compute of their shares, put
together, is what the block would compute alone. X are the values read that a block dim partitions,
Y those that it does not, and the maps say which; a value written that has no dim mapped along t
is had by every thread alike, and any one of them may write it.

The operands are free: of each only the dims are known. So a claim holds for the tiles that a block
has, in every iteration, whatever they are, and two thread graphs with the same operators, dims and
maps make one claim, proved once. egglog judges it by the parallel rules alone (`pairs`). Operators
that are not elementwise have claims too: they are there to be refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from prism.egraph import (
    MAX_DATA_DIMS,
    PARS_PER_KERNEL,
    AxiomSet,
    TermBank,
    TermId,
    operator_term,
)
from prism.errors import GraphError
from prism.ir import (
    Apply,
    DataDim,
    GraphOp,
    InputLoader,
    OutputSaver,
    SGraph,
    TensorId,
    ThreadGraph,
    ThreadShape,
    check_threads,
    thread_graph,
    thread_kernel,
    thread_shapes,
)
from prism.verify.lemmas import REPLICATED
from prism.verify.pairs import PairJudge

Maps = tuple[int, ...]
"""For each block dim, the number of the data dim mapped along it, or REPLICATED."""


class ThreadClaim(NamedTuple):
    """What a thread graph claims, names left out: dims and values are numbers.

    `reads`: the dims of each value read, and its maps. `nodes`: operator, operands (values read are
    numbered first), reduced dim or -1. `writes`: the number of each value written, and its maps.
    """

    reads: tuple[tuple[tuple[int, ...], Maps], ...]
    nodes: tuple[tuple[str, tuple[int, ...], int], ...]
    writes: tuple[tuple[int, Maps], ...]


class ThreadProofs:
    """What has been proved of thread graphs under one axiom set."""

    def __init__(self, axioms: AxiomSet) -> None:
        self._terms = _ClaimTerms()
        self._judge = PairJudge(self._terms.bank, axioms)
        self._verdicts: dict[ThreadClaim, bool] = {}
        self._claims: dict[ThreadShape, ThreadClaim] = {}

    def __len__(self) -> int:
        """How many claims hold."""
        return sum(self._verdicts.values())

    def faults(self, graphs: Sequence[SGraph]) -> tuple[str | None, ...]:
        """For each graph why its thread graphs may not be used; None where all are proved."""
        for kernel in (kernel for graph in graphs for kernel in graph.kernels):
            for nodes, shape in thread_shapes(kernel):
                if shape not in self._claims:
                    threads = thread_graph(kernel, nodes)
                    self._claims[shape] = claim_of(thread_kernel(kernel, threads))
        self.holds(self._claims.values())
        return tuple(self.known_fault(graph) for graph in graphs)

    def known_fault(self, graph: SGraph) -> str | None:
        """The same for one graph, by what was judged before; nothing is judged now."""
        for k, kernel in enumerate(graph.kernels):
            for nodes, shape in thread_shapes(kernel):
                claim = self._claims.get(shape)
                if claim is not None and not self._verdicts.get(claim, True):
                    return f"kernel {k}: {_reason(nodes)}"
        return None

    def fault(self, kernel: GraphOp, threads: Sequence[ThreadGraph]) -> str | None:
        """Why these thread graphs of a kernel, whoever made them, may not be used, or None."""
        try:
            check_threads(kernel, threads)
        except GraphError as error:
            return str(error)
        claims = {one: claim_of(thread_kernel(kernel, one)) for one in threads}
        holds = self.holds(claims.values())
        return next((_reason(one.nodes) for one, claim in claims.items() if not holds[claim]), None)

    def holds(self, claims: Iterable[ThreadClaim]) -> dict[ThreadClaim, bool]:
        """Whether each claim was proved; those not asked before are judged now, together."""
        asked = tuple(dict.fromkeys(claims))
        new = [claim for claim in asked if claim not in self._verdicts]
        sides: dict[ThreadClaim, list[tuple[TermId, TermId]]] = {}
        for claim in new:
            try:
                sides[claim] = self._terms.sides(claim)
            except GraphError:
                continue  # the shares do not even fit together
        pairs = {(claim, n): pair for claim, both in sides.items() for n, pair in enumerate(both)}
        equal = self._judge.equal(pairs)
        found = dict.fromkeys(new, False)
        for claim, both in sides.items():
            found[claim] = all(equal[claim, n] for n in range(len(both)))
        self._verdicts |= found
        return {claim: self._verdicts[claim] for claim in asked}


def claim_of(shared: GraphOp) -> ThreadClaim:
    """What a thread graph claims, read as a kernel (`thread_kernel`)."""
    pars = [par.name for par in shared.grid]
    along = {(v.tensor, v.par): v.dim for v in shared.mapping.true}
    number: dict[DataDim, int] = {}
    reads, nodes, writes = [], [], []

    def numbers(dims: Iterable[DataDim]) -> tuple[int, ...]:
        return tuple([number.setdefault(d, len(number)) for d in dims])

    def maps(value: str) -> Maps:
        dims = [along.get((value, par)) for par in pars]
        return tuple([REPLICATED if d is None else numbers((d,))[0] for d in dims])

    for node in shared.block.nodes:
        match node:
            case InputLoader(source=source, dims=dims):
                reads.append((numbers(dims), maps(source)))
            case Apply(op=op, operands=operands, dim=dim):
                nodes.append((op, operands, -1 if dim is None else number[dim]))
            case OutputSaver(operand=operand, target=target):
                writes.append((operand, maps(target)))
            case _:
                raise AssertionError(node)
    return ThreadClaim(tuple(reads), tuple(nodes), tuple(writes))


def _reason(nodes: Sequence[TensorId]) -> str:
    listed = ", ".join(f"%{i}" for i in nodes)
    return f"nothing proves that threads may share the elementwise operators {listed}"


class _ClaimTerms:
    """The two sides of each claim as terms of one bank."""

    def __init__(self) -> None:
        self.bank = TermBank(f"d{k}" for k in range(MAX_DATA_DIMS))
        self._size = self.bank.input("size", ())

    def sides(self, claim: ThreadClaim) -> list[tuple[TermId, TermId]]:
        """For each value written, what a claim says is equal.

        Raises:
            GraphError: the shares do not fit together.
        """
        count = max((len(maps) for _, maps in claim.reads), default=0)
        pars = [self._par(k) for k in range(count)]
        wholes = [self._input(j, dims) for j, (dims, _) in enumerate(claim.reads)]
        shares = [
            self._shared(w, maps, pars) for w, (_, maps) in zip(wholes, claim.reads, strict=True)
        ]
        out = []
        size = self._shared(self._size, (REPLICATED,) * count, pars)
        for node in claim.nodes:
            wholes.append(self._applied(node, wholes, self._size))
            shares.append(self._applied(node, shares, size))
        for i, maps in claim.writes:
            joined = self._joined(shares[i], maps, pars)
            if self.bank.type_of(joined) != self.bank.type_of(wholes[i]):
                raise GraphError("what the threads write is only a part of the value")
            out.append((joined, wholes[i]))
        return out

    def _par(self, number: int) -> int:
        """The id of a block dim."""
        return self.bank.par_id(*divmod(number, PARS_PER_KERNEL), f"th{number}")

    def _input(self, number: int, dims: tuple[int, ...]) -> TermId:
        """A free operand over these dims."""
        names = [self.bank.dims[d] for d in dims]
        return self.bank.input(f"{number}: {' '.join(names)}", names)

    def _shared(self, term: TermId, maps: Maps, pars: Sequence[int]) -> TermId:
        """Each thread's share of a whole value."""
        for dim, par in zip(maps, pars, strict=True):
            if dim == REPLICATED:
                term = self.bank.make("Repl", (term,), (par,))
            else:
                term = self.bank.make("Part", (term,), (dim, par))
        return term

    def _joined(self, term: TermId, maps: Maps, pars: Sequence[int]) -> TermId:
        """What all threads write."""
        for dim, par in reversed(list(zip(maps, pars, strict=True))):
            if dim == REPLICATED:
                term = self.bank.make("Pick", (term,), (par,))
            else:
                term = self.bank.make("Comb", (term,), (dim, par))
        return term

    def _applied(
        self, node: tuple[str, tuple[int, ...], int], values: Sequence[TermId], size: TermId
    ) -> TermId:
        """An operator of the claim, `size` standing for the size of its dim."""
        op, operands, dim = node
        return operator_term(self.bank, op, [values[i] for i in operands], dim, lambda: size)
