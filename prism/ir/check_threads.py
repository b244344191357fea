"""The rules of the IR for the thread graphs of a kernel, one function each (see `check.py`).

`thread_graphs` derives what keeps them; they are there for whoever makes thread graphs otherwise,
and they say what a proof of a thread graph rests on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prism.ir.check import check_name, check_unique, fail
from prism.ir.check_graph import check_constraints
from prism.ir.graph import GraphOp, ThreadGraph
from prism.ir.mapping import ParKind
from prism.ir.program import DataDim, TensorId
from prism.ir.stages import loop_stages
from prism.ir.text import value_names
from prism.ir.threads import border_of, is_elementwise


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """A thread graph and the kernel it is in."""

    kernel: GraphOp
    threads: ThreadGraph

    @property
    def border(self) -> dict[str, frozenset[DataDim]]:
        """The values read and written, by name, with their dims."""
        block, nodes = self.kernel.block, self.threads.nodes
        dims, names = block.tensor_dims(), value_names(block.nodes)
        return {names[i]: dims[i] for i in border_of(block, nodes)}


def check_threads(kernel: GraphOp, threads: Sequence[ThreadGraph]) -> None:
    """Hold the thread graphs of a kernel against every rule; the kernel keeps its own.

    Raises:
        GraphError: a rule is broken; the message says where and how.
    """
    for one in threads:
        place = ThreadPlace(kernel, one)
        for rule in THREAD_RULES:
            rule(place)
    every_operator_has_its_threads(kernel, threads)
    units_do_not_wait_for_each_other(kernel, threads)


def members_are_elementwise(place: ThreadPlace) -> None:
    """A thread graph is not empty, and lists elementwise operators of the block, in order."""
    nodes, block = place.threads.nodes, place.kernel.block
    if not nodes or list(nodes) != sorted(set(nodes)):
        fail(f"a thread graph of the nodes {list(nodes)}; list each once, in order")
    for i in nodes:
        if not 0 <= i < len(block.nodes) or not is_elementwise(block.nodes[i]):
            fail(f"node {i} is no elementwise operator, so threads cannot share it", node=i)


def members_are_alike(place: ThreadPlace) -> None:
    """Members run in one loop stage and have the same dims: they are computed in one nest."""
    dims, stages = place.kernel.block.tensor_dims(), loop_stages(place.kernel)
    first = place.threads.nodes[0]
    for i in place.threads.nodes:
        if (stages[i], dims[i]) != (stages[first], dims[first]):
            fail(f"node {i} has another stage or other dims than node {first}", node=i)


def members_are_convex(place: ThreadPlace) -> None:
    """No value outside lies between two members."""
    block, members = place.kernel.block, set(place.threads.nodes)
    below: set[TensorId] = set()
    for i in range(len(block.nodes)):
        reads = set(block.operands(i))
        if i in members and reads & below:
            between = min(reads & below)
            fail(f"node {between} lies between members of a thread graph", node=i)
        if i not in members and reads & (members | below):
            below.add(i)


def block_dims_are_sane(place: ThreadPlace) -> None:
    """The grid is of block dims, with names of their own."""
    for par in place.threads.grid:
        check_name("parallel dim", par.name)
        if par.kind is not ParKind.BLOCK:
            fail(f"parallel dim {par.name} is of kind {par.kind.value}, but used as block dim")
    check_unique("parallel dim", (p.name for p in place.threads.grid))


def mappings_are_of_border_values(place: ThreadPlace) -> None:
    """In m[T,d,p], T is read or written, d one of its dims, p one of the block dims."""
    pars, border = {p.name for p in place.threads.grid}, place.border
    for var in sorted(place.threads.mapping.true):
        if var.tensor not in border:
            fail(f"{var}: {var.tensor!r} is neither read nor written by this thread graph")
        if var.dim not in border[var.tensor]:
            fail(f"{var}: {var.tensor} has no dimension {var.dim!r}")
        if var.par not in pars:
            fail(f"{var}: {var.par!r} is no block dim of this thread graph")


def thread_mappings_obey_constraints(place: ThreadPlace) -> None:
    """Constraints (1), one dim per value and block dim, and (2), one block dim per dim."""
    check_constraints(place.threads.mapping, {p.name for p in place.threads.grid})


def matched_dims_are_mapped_alike(place: ThreadPlace) -> None:
    """Constraint (3): elementwise operators match dims by name, so each is mapped alike."""
    mapping, border = place.threads.mapping, place.border
    for par in place.threads.grid:
        for dim in sorted({v.dim for v in mapping.true if v.par == par.name}):
            for name in (name for name, dims in border.items() if dim in dims):
                if mapping.dim_of(name, par.name) != dim:
                    fail(
                        f"{par.name} partitions {dim} of some values of a thread graph, but not "
                        f"of {name} (constraint 3)"
                    )


THREAD_RULES: tuple[Callable[[ThreadPlace], None], ...] = (
    members_are_elementwise,
    members_are_alike,
    members_are_convex,
    block_dims_are_sane,
    mappings_are_of_border_values,
    thread_mappings_obey_constraints,
    matched_dims_are_mapped_alike,
)
"""Every rule on one thread graph, in an order in which each may rely on those before it."""


def every_operator_has_its_threads(kernel: GraphOp, threads: Sequence[ThreadGraph]) -> None:
    """Each elementwise operator of a kernel is in exactly one thread graph."""
    owners = [i for one in threads for i in one.nodes]
    for i, node in enumerate(kernel.block.nodes):
        if is_elementwise(node) and owners.count(i) != 1:
            fail(f"node {i} is in {owners.count(i)} thread graphs, and must be in one", node=i)


def units_do_not_wait_for_each_other(kernel: GraphOp, threads: Sequence[ThreadGraph]) -> None:
    """Thread graphs, each computed as a unit, have an order in which nothing is read too early."""
    block = kernel.block
    unit = {i: one.nodes for one in threads for i in one.nodes}
    waiting = {unit.get(i, (i,)) for i in range(len(block.nodes))}
    done: set[TensorId] = set()
    while waiting:
        ready = {u for u in waiting if all(set(block.operands(i)) <= done | {*u} for i in u)}
        if not ready:
            stuck = sorted(u for u in waiting if len(u) > 1)
            fail(f"thread graphs wait for each other: {', '.join(str(list(u)) for u in stuck)}")
        waiting -= ready
        done.update(i for u in ready for i in u)
