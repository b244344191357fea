"""Hash-consed terms with their types.

`TermBank` keeps each distinct sub-term once, so that a DAG with shared nodes never grows into a
tree, and gives each term a *type*: its data dimensions, how each is split into tiles, and the
parallel dimensions it carries. Values that do not fit together (a tile added to a whole) are
refused here with the reason; every rule of the axioms keeps types.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prism.egraph.analyses import PLAIN, Extras, constant_facts
from prism.egraph.signature import Effect, Sort, constructors
from prism.errors import GraphError
from prism.ir import MAX_GRID_DIMS, MAX_LOOPS, DataDim

TermId = int
"""Index of a term in its bank."""

MAX_DATA_DIMS = 40
GRID_SLOTS, LOOP_SLOTS = MAX_GRID_DIMS, MAX_LOOPS
PARS_PER_KERNEL = GRID_SLOTS + LOOP_SLOTS
MAX_ID = 62
"""Dimensions are bit positions in a signed 64-bit mask."""


@dataclass(frozen=True, slots=True)
class TermType:
    """Data dimensions, the splits of each (parallel ids, outermost first), parallel ids carried."""

    splits: Mapping[int, tuple[int, ...]]
    pars: frozenset[int]


@dataclass(frozen=True, slots=True)
class TermNode:
    """A constructor applied to terms and to other arguments (dimension ids, texts)."""

    head: str
    children: tuple[TermId, ...]
    attributes: tuple[int | str, ...]


class TermBank:
    """Terms over fixed data dimensions; term i refers to terms before it.

    Programs and graphs only reduce dimensions that a value has (`is_strict`); the algebra also
    speaks of sums over dimensions it lacks.
    """

    def __init__(self, dims: Iterable[DataDim], *, is_strict: bool = True) -> None:
        self.is_strict = is_strict
        names = dict.fromkeys(dims)
        if len(names) > MAX_DATA_DIMS:
            raise GraphError(
                f"the program has {len(names)} dimensions and the e-graph takes at most "
                f"{MAX_DATA_DIMS}: merge dimensions or split the program"
            )
        self.ids: dict[DataDim, int] = {dim: i for i, dim in enumerate(names)}
        self._nodes: list[TermNode] = []
        self._types: list[TermType] = []
        self._known: dict[TermNode, TermId] = {}
        self._heads: set[str] = set()
        self._par_names: dict[int, str] = {}
        self._equal_sizes: list[tuple[TermId, TermId]] = []

    @property
    def dims(self) -> tuple[DataDim, ...]:
        """The data dimensions in the order of their ids."""
        return tuple(self.ids)

    def add_dim(self, dim: DataDim) -> int:
        """The id of a data dimension; a new one if it has none.

        Raises:
            GraphError: there are too many.
        """
        if dim not in self.ids and len(self.ids) == MAX_DATA_DIMS:
            raise GraphError(
                f"the e-graph takes at most {MAX_DATA_DIMS} dimensions, those that blocks stack "
                "along included"
            )
        return self.ids.setdefault(dim, len(self.ids))

    def par_id(self, kernel: int, slot: int, name: str) -> int:
        """The id of a parallel dimension.

        Grid dims take the first slots of a kernel, then come the loops, the outer one first: ids
        grow in the order in which loaders partition.
        """
        par = MAX_DATA_DIMS + kernel * PARS_PER_KERNEL + slot
        if slot >= PARS_PER_KERNEL or par > MAX_ID:
            raise GraphError(
                "a graph may have at most 3 grid dimensions and two loops per kernel, and "
                f"{(MAX_ID - MAX_DATA_DIMS) // PARS_PER_KERNEL} kernels"
            )
        self._par_names[par] = name
        return par

    def declare_size(self, dim: DataDim, same_as: DataDim | float) -> None:
        """State that a dimension has the size of another one, or a fixed size."""
        if isinstance(same_as, float):
            other = self.const(same_as)
        else:
            other = self.make("Size", (), (self.ids[same_as],))
        self._equal_sizes.append((self.make("Size", (), (self.ids[dim],)), other))

    def input(self, name: str, dims: Sequence[DataDim]) -> TermId:
        """A leaf for an array over `dims`."""
        node = TermNode("Input", (), (name,))
        kind = TermType({self.ids[d]: () for d in dims}, frozenset())
        if node in self._known and self._types[self._known[node]] != kind:
            raise GraphError(f"input {name!r} is used over two different sets of dimensions")
        return self._add(node, kind)

    def variable(self, name: str, kind: TermType) -> TermId:
        """A leaf of any type, for testing rules."""
        return self._add(TermNode("Input", (), (name,)), kind)

    def node(self, term: TermId) -> TermNode:
        """How a term is made."""
        return self._nodes[term]

    def const(self, value: float) -> TermId:
        """A scalar constant."""
        return self.make("Const", (), (repr(float(value)),))

    def make(
        self, head: str, children: tuple[TermId, ...], attributes: tuple[int | str, ...] = ()
    ) -> TermId:
        """A term; the one made before if there is one.

        Raises:
            GraphError: the operands do not fit together.
        """
        node = TermNode(head, children, attributes)
        known = self._known.get(node)
        return self._add(node, self._infer(node)) if known is None else known

    def type_of(self, term: TermId) -> TermType:
        """The type of a term."""
        return self._types[term]

    @property
    def heads(self) -> frozenset[str]:
        """The constructors in use."""
        return frozenset(self._heads)

    def text(self, term: TermId) -> str:
        """The term written out, shared sub-terms repeated: for people, and for small terms."""
        node = self._nodes[term]
        parts = [node.head, *(self.text(child) for child in node.children)]
        return f"({' '.join((*parts, *map(_attribute, node.attributes)))})"

    def let_lines(self, roots: Iterable[TermId], extras: Extras = PLAIN) -> list[str]:
        """Actions that bind every sub-term of `roots` once, term i to `t<i>`."""
        needed: set[TermId] = set()
        stack = [*roots, *(size for sizes in self._equal_sizes for size in sizes)]
        while stack:
            term = stack.pop()
            if term not in needed:
                needed.add(term)
                stack.extend(self._nodes[term].children)
        lines: list[str] = []
        for term in sorted(needed):
            node = self._nodes[term]
            parts = [node.head, *(f"t{child}" for child in node.children)]
            lines.append(f"(let t{term} ({' '.join((*parts, *map(_attribute, node.attributes)))}))")
            if node.head == "Input":
                mask = sum(1 << d for d in self._types[term].splits)
                lines.append(f"(set (dims t{term}) {mask}) (set (pars t{term}) 0)")
            if node.head == "Const":
                lines += constant_facts(f"t{term}", str(node.attributes[0]), extras)
        lines += [f"(union t{a} t{b})" for a, b in self._equal_sizes]
        return lines

    def _add(self, node: TermNode, kind: TermType) -> TermId:
        term = self._known.setdefault(node, len(self._nodes))
        if term == len(self._nodes):
            self._nodes.append(node)
            self._types.append(kind)
            self._heads.add(node.head)
        return term

    def _infer(self, node: TermNode) -> TermType:
        constructor = constructors()[node.head]
        splits, pars = self._joined(node)
        if constructor.arguments[-1] is Sort.PAR:
            par = node.attributes[-1]
            assert isinstance(par, int)
            return self._parallel(node, constructor.effect, TermType(splits, pars), par)
        if constructor.effect is Effect.DROP_DATA:
            (dim,) = node.attributes
            assert isinstance(dim, int)
            for child in node.children if self.is_strict else ():
                if dim not in self._types[child].splits:
                    raise GraphError(
                        f"{node.head} over {self.dims[dim]}, which an operand does not have"
                    )
            splits.pop(dim, None)
        if constructor.effect is Effect.ALONG_DATA:
            self._check_whole(node, splits)
        return TermType(splits, pars)

    def _check_whole(self, node: TermNode, splits: dict[int, tuple[int, ...]]) -> None:
        """What acts along a dimension has it, and needs the whole of it."""
        (dim,) = node.attributes
        assert isinstance(dim, int)
        if self.is_strict and dim not in self._types[node.children[0]].splits:
            raise GraphError(f"{node.head} along {self.dims[dim]}, which its operand does not have")
        if splits.setdefault(dim, ()):
            raise GraphError(
                f"{node.head} acts along {self.dims[dim]} and needs the whole of it, but it is "
                f"split along {self._names(splits[dim])}"
            )

    def _joined(self, node: TermNode) -> tuple[dict[int, tuple[int, ...]], frozenset[int]]:
        """The union of the operands' dimensions; they must be split alike and carry the same."""
        splits: dict[int, tuple[int, ...]] = {}
        pars: frozenset[int] | None = None
        for child in node.children:
            kind = self._types[child]
            if pars is not None and pars != kind.pars:
                raise GraphError(
                    f"{node.head} of a value per {self._names(pars)} and a value per "
                    f"{self._names(kind.pars)}"
                )
            pars = kind.pars
            for dim, split in kind.splits.items():
                if splits.setdefault(dim, split) != split:
                    raise GraphError(
                        f"{node.head} of operands that disagree about {self.dims[dim]}: one is "
                        f"split along {self._names(splits[dim])}, the other along "
                        f"{self._names(split)}"
                    )
        return splits, pars or frozenset()

    def _parallel(self, node: TermNode, effect: Effect, kind: TermType, par: int) -> TermType:
        """The type of a parallel constructor."""
        splits = dict(kind.splits)
        dim = node.attributes[0] if len(node.attributes) == 2 else None
        assert not isinstance(dim, str)
        if effect is Effect.NONE:
            return kind
        if (par in kind.pars) is (effect is Effect.ADD_PAR):
            raise GraphError(
                f"{node.head} over {self._names((par,))} of a value per {self._names(kind.pars)}"
            )
        match effect:
            case Effect.ADD_PAR:
                if dim is not None and dim not in splits:
                    raise GraphError(
                        f"{self.dims[dim]} is mapped along {self._names((par,))} but the value "
                        "does not have it"
                    )
                if dim is not None:
                    splits[dim] += (par,)
                return TermType(splits, kind.pars | {par})
            case Effect.STACK:
                assert dim is not None
                if dim in splits:
                    raise GraphError(f"a stack along {self.dims[dim]}, which the value has")
                splits[dim] = ()
            case Effect.DROP_PAR if dim is not None:
                if splits.get(dim, ())[-1:] != (par,):
                    raise GraphError(
                        f"the value is put together along {self.dims[dim]} over "
                        f"{self._names((par,))}, but it is not split that way"
                    )
                splits[dim] = splits[dim][:-1]
            case _:
                pass
        return TermType(splits, kind.pars - {par})

    def _names(self, pars: Iterable[int]) -> str:
        return ", ".join(self._par_names.get(p, str(p)) for p in sorted(pars)) or "nothing"


def _attribute(value: int | str) -> str:
    if isinstance(value, int):
        return str(value)
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{quoted}"'
