"""The cone: the e-graph below a program's outputs, as choices of one operator per e-class.

A tensor can occur in a graph of the program iff its e-class lies in the cone (the paper's
expression-guided pruning, made exact up to the axioms). The cone is built in steps:

  read       leaves and operators of the saturated e-graph; commutative twins are one
  own        the program's own operators, so that its DAG is there whatever the e-graph lost
  internal   neg and reciprocal only where the program itself has them: an e-graph is full of
             them, and -(-x) or 1/(1/x) would be choices at every class
  composites patterns such as rms become one operator and hide the e-node they replace (`macros`)
  twins      a square beats x * x; a matmul beats a sum of products, a sum of squares a matmul
  order      classes below the roots, topologically; cycles are broken, and said so
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import assert_never

from prism.egraph import ENode, Saturation
from prism.ir import (
    OPS,
    Apply,
    Const,
    DataDim,
    Input,
    OpKind,
    Program,
    SizeOf,
    infer_dims,
    live_nodes,
)
from prism.search.cycles import acyclic
from prism.search.macros import MACROS, ClassId, Leaf, Operator, Table

INTERNAL_OPS = frozenset({"neg", "reciprocal"})
"""Operators that serve the algebra; see the module's docstring."""

CYCLE_CUT = "cyclic cone: some operators of classes that contain each other were left out"
UNSATURATED_CUT = "saturation: the e-graph reached a limit before it was complete"

Choices = dict[ClassId, dict[Operator, None]]
"""Operators of each class, in order; the values mean nothing."""


@dataclass(frozen=True, slots=True)
class Cone:
    """Choices of one operator per e-class, acyclic.

    `order` lists the classes that are not leaves, children first. `choices[c]` has the preferred
    operator first: the program's own one where there is one. A class outside `computable` cannot
    be computed from the inputs. `cuts` says what was lost, empty when nothing was.
    """

    program: Program
    leaves: Mapping[ClassId, Leaf]
    choices: Mapping[ClassId, tuple[Operator, ...]]
    dims: Mapping[ClassId, frozenset[DataDim]]
    computable: frozenset[ClassId]
    order: tuple[ClassId, ...]
    roots: tuple[ClassId, ...]
    cuts: tuple[str, ...]


def build_cone(program: Program, saturation: Saturation) -> Cone:
    """The cone of a program from its saturated e-graph."""
    builder = _Builder(program, saturation)
    builder.add_own()
    builder.drop_internal()
    builder.add_composites()
    builder.drop_twins()
    return builder.finish()


class _Builder:
    """The tables of the cone while it is built; the steps are called in order."""

    def __init__(self, program: Program, saturation: Saturation) -> None:
        self.program = program
        self.size_root = {d.name: d.size for d in program.dims}
        self.leaves: dict[ClassId, tuple[Leaf, ...]] = {}
        self.choices: Choices = {}
        self.dims: dict[ClassId, frozenset[DataDim]] = dict(enumerate(saturation.dims))
        self.roots = list(saturation.roots)
        self.own: dict[ClassId, Operator] = {}
        self.cuts = [] if saturation.complete else [UNSATURATED_CUT]
        inputs = {i.name: i for i in program.inputs}
        for node, cls in saturation.nodes:
            leaf = _leaf(node, inputs)
            if leaf is not None:
                self.leaves[cls] = (*self.leaves.get(cls, ()), leaf)
            elif node.op in OPS and OPS[node.op].kind is not OpKind.ALONG:
                operator = _canonical(node.op, node.children, node.dim)
                if cls not in node.children:
                    self.choices.setdefault(cls, {})[operator] = None
        self._known: dict[Operator, ClassId] = {}
        self._leaf_class: dict[Leaf, ClassId] = {}
        self._fresh = 1 + max((*self.dims, *self.leaves, *self.choices, *self.roots, -1))

    # ------------------------------------------------------------- the program's own operators

    def add_own(self) -> None:
        """Find or add the e-node of each operator of the program."""
        self._known = {node: cls for cls, nodes in self.choices.items() for node in nodes}
        self._leaf_class = {leaf: cls for cls, leaves in self.leaves.items() for leaf in leaves}
        dims = infer_dims(self.program.nodes)
        classes: dict[int, ClassId] = {}
        outputs = {o.tensor: self.roots[k] for k, o in enumerate(self.program.outputs)}
        for i in live_nodes(self.program):
            node = self.program.nodes[i]
            match node:
                case Input() | Const():
                    classes[i] = self._own_leaf(node)
                case SizeOf(dim=dim):
                    classes[i] = self._own_leaf(SizeOf(self.size_root[dim]))
                case Apply(op=op, operands=operands, dim=dim):
                    cls = outputs.get(i, -1)
                    operand_classes = tuple(classes[j] for j in operands)
                    classes[i] = self._own_apply(op, operand_classes, dim, cls)
                case _:
                    assert_never(node)
            self.dims[classes[i]] = self.dims.get(classes[i], frozenset()) | dims[i]
        self.roots = [classes[o.tensor] for o in self.program.outputs]

    def _own_leaf(self, leaf: Leaf) -> ClassId:
        if leaf not in self._leaf_class:
            self._leaf_class[leaf] = self._new_class(-1)
            self.leaves[self._leaf_class[leaf]] = (leaf,)
        return self._leaf_class[leaf]

    def _own_apply(
        self,
        op: str,
        operands: tuple[ClassId, ...],
        dim: DataDim | None,
        wanted: ClassId,
    ) -> ClassId:
        """The class of an operator's result; `wanted` is that of the output it is, or -1."""
        if op == "mean":
            assert dim is not None
            total = self._own_apply("sum", operands, dim, -1)
            size = self._own_leaf(SizeOf(self.size_root[dim]))
            return self._own_apply("div", (total, size), None, wanted)
        if op == "rsqrt":
            root = self._own_apply("sqrt", operands, None, -1)
            return self._own_apply("reciprocal", (root,), None, wanted)
        operator = _canonical(op, operands, dim)
        cls = self._known.get(operator)
        if cls is None:
            cls = self._known[operator] = self._new_class(wanted)
            if cls not in operands:
                self.choices.setdefault(cls, {})[operator] = None
        if cls not in operands:
            self.own.setdefault(cls, operator)
        return cls

    def _new_class(self, wanted: ClassId) -> ClassId:
        if wanted >= 0:
            return wanted
        self._fresh += 1
        return self._fresh - 1

    # ------------------------------------------------------------------- composites and twins

    def add_composites(self) -> None:
        """Add every macro that fits, in place of the e-node it replaces."""
        computable = self._computable()
        table = Table(self.choices, self.leaves, self.size_root)
        found = [
            (cls, node, composite)
            for cls, nodes in self.choices.items()
            for node in nodes
            for macro in MACROS
            for composite in table.matches(macro, node)
            if cls not in composite.children and computable.issuperset(composite.children)
        ]
        for cls, node, composite in found:
            self.choices[cls][composite] = None
            self._replace(cls, node, composite)

    def drop_twins(self) -> None:
        """Of two ways to write one computation keep one; never one that cannot be computed."""
        computable = self._computable()
        for cls, nodes in self.choices.items():
            for node in list(nodes):
                twin = self._twin(node, nodes)
                if twin is not None and computable.issuperset(twin.children):
                    self._replace(cls, node, twin)

    def _twin(self, node: Operator, nodes: Mapping[Operator, None]) -> Operator | None:
        """The operator of the same class that stands for `node`, if there is one."""
        match node:
            case Operator("mul", (a, b)) if a == b:
                square = Operator("square", (a,))
                return square if square in nodes else None
            case Operator("matmul", (a, b), dim) if a == b:
                return next(
                    (
                        n
                        for n in nodes
                        if n.op == "sum"
                        and n.dim == dim
                        and Operator("square", (a,)) in self.choices.get(n.children[0], {})
                    ),
                    None,
                )
            case Operator("sum", (product,), dim):
                return next(
                    (
                        matmul
                        for factor in self.choices.get(product, {})
                        if factor.op == "mul" and factor.children[0] != factor.children[1]
                        for matmul in (Operator("matmul", factor.children, dim),)
                        if matmul in nodes and self._is_well_formed(matmul)
                    ),
                    None,
                )
            case _:
                return None

    def _is_well_formed(self, operator: Operator) -> bool:
        return all(operator.dim in self.dims.get(c, frozenset()) for c in operator.children)

    def _computable(self) -> frozenset[ClassId]:
        return frozenset(_depths(self.leaves, self.choices))

    def _replace(self, cls: ClassId, old: Operator, new: Operator) -> None:
        self.choices[cls].pop(old, None)
        if self.own.get(cls) == old:
            self.own[cls] = new

    def drop_internal(self) -> None:
        """Keep neg and reciprocal only where they are the program's own."""
        for cls, nodes in self.choices.items():
            for node in list(nodes):
                if node.op in INTERNAL_OPS and self.own.get(cls) != node:
                    del nodes[node]

    # ------------------------------------------------------------------------------- order

    def finish(self) -> Cone:
        """Restrict to what lies below the roots and order it."""
        for cls in self.leaves:
            self.choices.pop(cls, None)  # a leaf is never computed
        depth = _depths(self.leaves, self.choices)
        below = self._below_roots()
        own_rank = {cls: rank for rank, cls in enumerate(self.own)}
        priority = {c: (own_rank.get(c, len(own_rank)), depth.get(c, len(below)), c) for c in below}
        computable = frozenset(depth)
        kept, is_cut = acyclic(
            {c: tuple(self.choices.get(c, ())) for c in below if c not in self.leaves},
            priority,
            computable,
        )
        if is_cut:
            self.cuts.append(CYCLE_CUT)
        order = _topological(kept, computable)
        return Cone(
            program=self.program,
            leaves={c: _preferred_leaf(self.leaves[c]) for c in sorted(self.leaves) if c in below},
            choices={c: self._sorted(c, kept[c], depth) for c in order},
            dims=self.dims,
            computable=computable,
            order=order,
            roots=tuple(self.roots),
            cuts=tuple(self.cuts),
        )

    def _below_roots(self) -> set[ClassId]:
        seen = set(self.roots)
        stack = list(self.roots)
        while stack:
            for node in self.choices.get(stack.pop(), ()):
                new = [c for c in node.children if c not in seen]
                seen.update(new)
                stack.extend(new)
        return seen

    def _sorted(
        self, cls: ClassId, nodes: Iterable[Operator], depth: Mapping[ClassId, int]
    ) -> tuple[Operator, ...]:
        """The program's own operator first, then the shallower ones."""
        own = self.own.get(cls)

        def key(node: Operator) -> tuple[bool, int, str, tuple[ClassId, ...], str]:
            deepest = max((depth.get(c, len(depth)) for c in node.children), default=0)
            return (node != own, deepest, node.op, node.children, node.dim or "")

        return tuple(sorted(nodes, key=key))


def _leaf(node: ENode, inputs: Mapping[str, Input]) -> Leaf | None:
    match node.op:
        case "input":
            return inputs[str(node.leaf)]
        case "const":
            assert node.leaf is not None
            return Const(float(node.leaf))
        case "size":
            assert node.dim is not None
            return SizeOf(node.dim)
        case _:
            return None


def _preferred_leaf(leaves: tuple[Leaf, ...]) -> Leaf:
    """An input before a size before a constant: the most telling of equal leaves."""
    kinds = (Input, SizeOf, Const)
    return min(leaves, key=lambda leaf: (kinds.index(type(leaf)), str(leaf)))


def _canonical(op: str, children: tuple[ClassId, ...], dim: DataDim | None) -> Operator:
    """One operator for all orders of a commutative one's operands."""
    if OPS[op].is_commutative:
        children = tuple(sorted(children))
    return Operator(op, children, None if OPS[op].kind is OpKind.ELEMENTWISE else dim)


def _depths(leaves: Iterable[ClassId], choices: Choices) -> dict[ClassId, int]:
    """For each class that can be computed from leaves, the depth of its shallowest term."""
    depth = dict.fromkeys(leaves, 0)
    # by operator: how many of its operands are not known yet, and who waits for a class
    waiting: dict[ClassId, list[int]] = {}
    missing: list[int] = []
    owner: list[ClassId] = []
    for cls, nodes in choices.items():
        for node in nodes:
            children = set(node.children)
            for child in children:
                waiting.setdefault(child, []).append(len(owner))
            missing.append(len(children))
            owner.append(cls)
    level = 0
    ready = [*depth]
    while ready:
        level += 1
        new: dict[ClassId, None] = {}
        for cls in ready:
            for index in waiting.get(cls, ()):
                missing[index] -= 1
                if missing[index] == 0 and owner[index] not in depth:
                    new[owner[index]] = None
        ready = list(new)
        depth.update(dict.fromkeys(ready, level))
    return depth


def _topological(
    choices: Mapping[ClassId, tuple[Operator, ...]], computable: frozenset[ClassId]
) -> tuple[ClassId, ...]:
    """The computable classes of an acyclic cone, children first."""
    out: dict[ClassId, None] = {}
    for start in sorted(choices):
        stack = [(start, False)]
        while stack:
            cls, is_done = stack.pop()
            if cls in out or cls not in choices or cls not in computable:
                continue
            if is_done:
                out[cls] = None
                continue
            stack.append((cls, True))
            stack.extend((c, False) for n in choices[cls] for c in n.children if c not in out)
    return tuple(out)
