"""The program being traced: hash-consed nodes, and the naming rules that let axes meet.

`align` is the heart. Axes that meet must carry one dimension: two names that no tensor holds
together are simply unified. Otherwise (`x @ x.T`, a residual `x + y @ w` with a square w) one
operand is *re-traced*: the nodes it is made of are added once more with renamed dimensions, down
to a further use of the argument under an alias. Dimensions that are already reduced inside the
operand are renamed too where they would be captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from prism.frontend.dims import DimsError, DimTable
from prism.frontend.site import trace_error
from prism.ir import OPS, Apply, Const, DataDim, Input, Node, SizeOf, TensorId, reduced_dim

Axes = tuple[DataDim | None, ...]


@dataclass(frozen=True, slots=True)
class Operand:
    """A node and the axes in which an operator reads it."""

    tensor: TensorId
    axes: Axes


@dataclass(slots=True)
class Builder:
    """A growing SSA list; equal nodes are one node."""

    dims: DimTable
    nodes: list[Node] = field(default_factory=list)
    _known: dict[Node, TensorId] = field(default_factory=dict)
    _spans: list[frozenset[DataDim]] = field(default_factory=list)

    def add(self, node: Node) -> TensorId:
        """The id of a node, appended when it is new."""
        node = self._resolved(node)
        key = _canonical(node)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(node)
            self._spans.append(self._span(node))
        return self._known[key]

    def apply(self, op: str, operands: Sequence[TensorId], dim: DataDim | None = None) -> TensorId:
        """An operator on earlier nodes, simplified where a law of arithmetic makes it smaller."""
        simpler = self._simplified(op, operands)
        return self.add(Apply(op, tuple(operands), dim)) if simpler is None else simpler

    def span(self, i: TensorId) -> frozenset[DataDim]:
        """All dimensions node i works on at once: its operands', or its own for an input."""
        return frozenset(map(self.dims.find, self._spans[i]))

    def free(self, i: TensorId) -> frozenset[DataDim]:
        """The dimensions of node i's value."""
        node = self.nodes[i]
        reduced = reduced_dim(node) if isinstance(node, Apply) else None
        return self.span(i) - ({self.dims.find(reduced)} if reduced is not None else set())

    def align(self, left: Operand, right: Operand, what: str) -> tuple[Operand, Operand]:
        """Rename until axes at the same place carry the same dimension and all others differ.

        Raises:
            TraceError: two fixed sizes differ.
        """
        for p, q in zip(left.axes, right.axes, strict=True):
            if p is not None and q is not None:
                try:
                    self._unify(p, q)
                except DimsError as error:
                    raise trace_error(f"{what}: {error}; the axes must agree") from error
        left = replace(left, axes=self.dims.resolve(left.axes))
        right = replace(right, axes=self.dims.resolve(right.axes))
        moving = self._clashing(right, left)
        if not moving:
            return left, right
        # either operand may move: take the one that repeats fewer operators
        if self._cost(left, self._clashing(left, right)) < self._cost(right, moving):
            return self._moved(left, right), right
        return left, self._moved(right, left)

    def joined(self, left: Axes, right: Axes) -> Axes:
        """The axes of an elementwise result of two aligned operands."""
        return tuple(q if p is None else p for p, q in zip(left, right, strict=True))

    def _span(self, node: Node) -> frozenset[DataDim]:
        match node:
            case Input(dims=dims):
                return frozenset(dims)
            case Const() | SizeOf():
                return frozenset()
            case Apply(operands=operands):
                return frozenset().union(*(self.free(j) for j in operands))

    def _unify(self, p: DataDim, q: DataDim) -> None:
        self.dims.merge_sizes(p, q)
        p, q = self.dims.find(p), self.dims.find(q)
        if p != q and not any({p, q} <= self.span(i) for i in range(len(self.nodes))):
            self.dims.merge(p, q)

    def _clashing(self, moving: Operand, fixed: Operand) -> frozenset[DataDim]:
        """Dimensions of `moving` that need another name beside `fixed`."""
        taken = set(fixed.axes)
        return frozenset(
            m
            for m, f in zip(moving.axes, fixed.axes, strict=True)
            if m is not None and m != f and (f is not None or m in taken)
        )

    def _cost(self, operand: Operand, renamed: frozenset[DataDim]) -> int:
        """The operators that renaming would repeat."""
        nodes = self._below(operand.tensor)
        return sum(isinstance(self.nodes[i], Apply) and bool(renamed & self.span(i)) for i in nodes)

    def _moved(self, moving: Operand, fixed: Operand) -> Operand:
        """`moving` re-traced so that it fits beside `fixed`."""
        clashing = self._clashing(moving, fixed)
        names: dict[DataDim, DataDim] = {}
        for m, f in zip(moving.axes, fixed.axes, strict=True):
            if m is not None and f is not None:
                names[m] = f
            elif m is not None:
                names[m] = self.dims.alias(m) if m in clashing else m
        axes = tuple(None if m is None else names[m] for m in moving.axes)
        return Operand(self._retraced(moving.tensor, names), axes)

    def _retraced(self, root: TensorId, names: dict[DataDim, DataDim]) -> TensorId:
        """The nodes below `root` once more, dimensions renamed; `names` covers root's own."""
        below = self._below(root)
        inner = {d for i in below for d in self._mentioned(i)} - set(names)
        for dim in sorted(inner & set(names.values())):
            names[dim] = self.dims.alias(dim)  # or a dimension reduced inside would be captured
        new: dict[TensorId, TensorId] = {}
        for i in below:
            match self.nodes[i]:
                case Input() as node:
                    dims = tuple(self._renamed(d, names) for d in node.dims)
                    new[i] = self.add(replace(node, dims=dims))
                case Const():
                    new[i] = i
                case SizeOf(dim=dim):
                    new[i] = self.add(SizeOf(self._renamed(dim, names)))
                case Apply(op=op, operands=operands, dim=reduced):
                    renamed = None if reduced is None else self._renamed(reduced, names)
                    new[i] = self.apply(op, [new[j] for j in operands], renamed)
        return new[root]

    def _renamed(self, dim: DataDim, names: Mapping[DataDim, DataDim]) -> DataDim:
        dim = self.dims.find(dim)
        return names.get(dim, dim)

    def _mentioned(self, i: TensorId) -> frozenset[DataDim]:
        node = self.nodes[i]
        return frozenset({self.dims.find(node.dim)}) if isinstance(node, SizeOf) else self.span(i)

    def _below(self, root: TensorId) -> list[TensorId]:
        return live_below(self.nodes, [root])

    def _resolved(self, node: Node) -> Node:
        find = self.dims.find
        match node:
            case Input(dims=dims):
                return replace(node, dims=tuple(map(find, dims)))
            case SizeOf(dim=dim):
                return SizeOf(find(dim))
            case Apply(dim=dim) if dim is not None:
                return replace(node, dim=find(dim))
            case _:
                return node

    def _simplified(self, op: str, operands: Sequence[TensorId]) -> TensorId | None:
        match op, [self.nodes[i] for i in operands]:
            # x + 0 = x - 0 = x and x * 1 = x / 1 = x
            case ("add" | "sub", [_, Const(value=0.0)]) | ("mul" | "div", [_, Const(value=1.0)]):
                return operands[0]
            # 0 + x = x and 1 * x = x
            case ("add", [Const(value=0.0), _]) | ("mul", [Const(value=1.0), _]):
                return operands[1]
            # x * x = square(x)
            case "mul", _ if operands[0] == operands[1]:
                return self.add(Apply("square", (operands[0],)))
            case _:
                return None


def live_below(nodes: Sequence[Node], roots: Iterable[TensorId]) -> list[TensorId]:
    """The nodes that `roots` depend on, themselves included, in SSA order."""
    live = set(roots)
    for i in reversed(range(len(nodes))):
        node = nodes[i]
        if i in live and isinstance(node, Apply):
            live.update(node.operands)
    return sorted(live)


def _canonical(node: Node) -> Node:
    """What equal nodes have in common: the order of a commutative operator's operands is none."""
    if isinstance(node, Apply) and OPS[node.op].is_commutative:
        return replace(node, operands=tuple(sorted(node.operands)))
    return node
