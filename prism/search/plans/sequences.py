"""Sequences of pieces: the kernels of a chain of cuts, and what each leaves partial.

Between two cuts lies a piece. What it may leave partial (`Piece.stackings`) the next ones load as
stacked values, so a chain has a sequence of pieces for each choice of it. Pieces are kept by what
they are, so all cuts of all op DAGs share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice

from prism.ir import MAX_KERNELS, DataDim
from prism.search.generate import Materials
from prism.search.plans.cuts import Chain, Cut, CutTable
from prism.search.plans.floors import Floors
from prism.search.plans.pieces import Piece, PieceKey, Stacked
from prism.search.plans.profiles import Profiles
from prism.search.wiring import TermId, Wired

MAX_CUTS = 1_000
"""Cuts of one op DAG."""

Pieces = tuple[Piece, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CutDag:
    """An op DAG that is cut; `floors` bound what its kernels take."""

    wired: Wired
    table: CutTable
    cuts: tuple[Cut, ...]
    floors: Floors


class Sequences:
    """The pieces of one search. `own` are the program's own terms."""

    def __init__(self, materials: Materials, profiles: Profiles) -> None:
        self.own: frozenset[TermId] = frozenset()
        self.piece_count = 0
        self._materials = materials
        self._profiles = profiles
        self._pieces: dict[tuple[PieceKey, frozenset[TermId]], Piece] = {}
        self._stack_names = _stack_names(materials.arena.dim_names)

    def dag(self, wired: Wired) -> CutDag:
        """The cuts of an op DAG."""
        materials = self._materials
        table = CutTable(materials.arena, wired)
        cuts = tuple(table.cuts(MAX_CUTS))
        if table.wide_count:
            materials.cuts.add("crossing", count=table.wide_count)
        if len(cuts) == MAX_CUTS:
            materials.cuts.add("cuts", "kernels: one op DAG has too many cuts")
        return CutDag(wired, table, cuts, Floors(materials.arena, wired, table, self._profiles))

    def of(
        self,
        dag: CutDag,
        chain: Chain,
        *,
        is_idle: bool,
        may_pay: Callable[[Pieces], bool] = lambda _pieces: True,
    ) -> Iterator[Pieces]:
        """The pieces of a chain of cuts, for each choice of what earlier kernels leave partial.

        `is_idle`: only with something left partial, because another cut is better otherwise;
        `may_pay` says of the first pieces whether any sequence that begins with them is wanted.
        """
        ends = (*chain, dag.table.every)
        stack: list[tuple[Pieces, dict[TermId, Stacked]]] = [((), {})]
        while stack:
            pieces, stacked = stack.pop()
            k = len(pieces)
            if pieces and not may_pay(pieces):
                continue
            if k == len(ends):
                if stacked or not is_idle:
                    yield pieces
                continue
            key = self._key(dag, chain, k, stacked)
            if not key.saved:
                continue  # nothing is left to do
            piece = self._piece(dag.wired, key)
            stack.append(((*pieces, piece), stacked))
            if k < len(chain):
                for stacking in piece.stackings:
                    split = self._piece(dag.wired, replace(key, stacking=stacking))
                    loads = {t: Stacked(key.stack_dim, state) for t, state in stacking}
                    stack.append(((*pieces, split), {**stacked, **loads}))

    def _key(
        self, dag: CutDag, chain: Chain, index: int, stacked: Mapping[TermId, Stacked]
    ) -> PieceKey:
        """The kernel of this index; the last one makes outputs whole that were left partial."""
        wired, terms = dag.wired, self._materials.arena.terms
        is_last = index == len(chain)
        below = dag.table.terms(chain[index - 1]) if index else frozenset[TermId]()
        end = dag.table.terms(dag.table.every if is_last else chain[index])
        partial = frozenset(wired.roots) & stacked.keys() if is_last else frozenset[TermId]()
        # an output that is an input is stored by the first kernel
        copied = [t for t in wired.roots if t not in wired.nodes] if index == 0 else []
        ours = end - below
        read = partial.union(*(terms[node].operands for node in ours))
        above = frozenset[TermId]().union(*(terms[t].operands for t in wired.nodes if t not in end))
        wanted = (ours & above.union(wired.roots)) | partial
        saved = (*dict.fromkeys(copied), *(t for t in wired.nodes if t in wanted))
        return PieceKey(
            saved=saved,
            target_count=sum(wired.roots.count(t) + (t in above) for t in saved),
            loaded=tuple((t, stacked.get(t)) for t in wired.nodes if t in below and t in read),
            stack_dim=self._stack_names[index],
        )

    def _piece(self, wired: Wired, key: PieceKey) -> Piece:
        inner = wired.inner - {term for term, _ in key.loaded}
        known = self._pieces.get((key, inner))
        if known is None:
            known = Piece(key, inner, self.own, self._materials, self._profiles)
            self._pieces[key, inner] = known
            self.piece_count += 1
        return known


def _stack_names(taken: Iterable[DataDim]) -> tuple[DataDim, ...]:
    """A name per kernel for the dim that its blocks stack along."""
    known = set(taken)
    fresh = (name for k in count() if (name := f"s{k}") not in known)
    return tuple(islice(fresh, MAX_KERNELS))
