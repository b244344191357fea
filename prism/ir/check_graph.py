"""The rules of the IR for sGraphs and muGraphs, one function each (see `check.py`).

What the rules hold is structure only: that operands exist, mappings obey the constraints, nothing
is read before it is there. Whether a graph computes its program is not decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from prism.errors import GraphError
from prism.ir.check import (
    check_dims,
    check_name,
    check_program,
    check_unique,
    checked_dims,
    fail,
    is_output_name,
    is_positive,
)
from prism.ir.graph import (
    Accumulator,
    AccumulatorKind,
    GraphOp,
    InputLoader,
    MuGraph,
    OutputSaver,
    SGraph,
    all_sizes,
    chunk,
    is_legal_count,
    is_one_contraction,
    output_name,
)
from prism.ir.mapping import GRID_DIMS, LOOP_DIMS, ParKind
from prism.ir.mapping import Mapping as DimMapping
from prism.ir.program import Apply, DataDim, Program, bind_sizes
from prism.ir.stages import loop_places

MAX_KERNELS = 3
MAX_GRID_DIMS, MAX_LOOPS = len(GRID_DIMS), len(LOOP_DIMS)


@dataclass(frozen=True, slots=True)
class KernelPlace:
    """A kernel and what it finds in memory: the tensors before it, with the order of their dims.

    `stacked` are the stack dims that kernels before it made.
    """

    program: Program
    kernel: GraphOp
    tensors: Mapping[str, tuple[DataDim, ...]]
    stacked: frozenset[DataDim] = frozenset()

    @property
    def dims(self) -> frozenset[DataDim]:
        """The dimensions a value may have."""
        return self.stacked | {d.name for d in self.program.dims}

    def stacking(self) -> dict[DataDim, str]:
        """The stack dims that this kernel's savers make, with the grid dim of each.

        Raises:
            GraphError: one is not mapped along one grid dim, or a tensor has two.
        """
        known = self.dims
        out: dict[DataDim, str] = {}
        for i, node in enumerate(self.kernel.block.nodes):
            if not isinstance(node, OutputSaver):
                continue
            new = [d for d in node.dims if d not in known]
            if len(new) > 1:
                fail(f"{node.target} has two stack dims, {' and '.join(new)}", node=i)
            for dim in new:
                check_name("dimension", dim)
                pars = [p.name for p in self.kernel.grid]
                along = [p for p in pars if self.kernel.mapping.dim_of(node.target, p) == dim]
                if len(along) != 1 or out.setdefault(dim, along[0]) != along[0]:
                    fail(
                        f"{node.target} has the unknown dimension {dim!r}; a stack dim is mapped "
                        "along one grid dim, the same for all tensors of the kernel",
                        node=i,
                    )
        return out


def check_sgraph(graph: SGraph) -> None:
    """Hold an sGraph, and its program, against every rule.

    Raises:
        GraphError: a rule is broken.
    """
    check_program(graph.program)
    if not graph.kernels:
        fail("an sGraph needs at least one kernel")
    if len(graph.kernels) > MAX_KERNELS:
        fail(f"{len(graph.kernels)} kernels; an sGraph has at most {MAX_KERNELS}")
    tensors = {i.name: i.dims for i in graph.program.inputs}
    stacked: frozenset[DataDim] = frozenset()
    for k, kernel in enumerate(graph.kernels):
        place = KernelPlace(graph.program, kernel, dict(tensors), stacked)
        try:
            for rule in KERNEL_RULES:
                rule(place)
            stacked |= frozenset(place.stacking())
        except GraphError as error:
            located = GraphError(f"kernel {k}: {error}")
            located.kernel, located.node = k, error.node
            raise located from error
        tensors.update({s.target: s.dims for s in kernel.block.savers})
    outputs_are_saved(graph, tensors)


def check_mugraph(mu: MuGraph) -> None:
    """Hold a muGraph, and its sGraph, against every rule.

    Raises:
        GraphError: a rule is broken.
        SizeError: the sizes do not fit the program.
    """
    check_sgraph(mu.graph)
    sizes_are_complete(mu)
    counts_are_legal(mu)


def parallel_dims_are_sane(place: KernelPlace) -> None:
    """At most three grid dims and two loops, of the right kinds, with names of their own."""
    grid, loops = place.kernel.grid, place.kernel.loops
    if len(grid) > MAX_GRID_DIMS or len(loops) > MAX_LOOPS:
        fail(
            f"{len(grid)} grid dims and {len(loops)} loops; a kernel has at most {MAX_GRID_DIMS} "
            f"and {MAX_LOOPS}"
        )
    for par in (*grid, *loops):
        check_name("parallel dim", par.name)
    check_unique("parallel dim", (p.name for p in (*grid, *loops)))
    for par, kind in [(p, ParKind.GRID) for p in grid] + [(p, ParKind.LOOP) for p in loops]:
        if par.kind is not kind:
            fail(f"parallel dim {par.name} is of kind {par.kind.value}, but used as {kind.value}")


def block_nodes_are_sound(place: KernelPlace) -> None:
    """The nodes are in SSA order, every operator is applied as its row says, savers are last."""
    known = {d.name for d in place.program.dims}
    dims: list[frozenset[DataDim]] = []
    block = place.kernel.block
    for i, node in enumerate(block.nodes):
        dims.append(checked_dims(i, node, dims, known))
        for j in block.operands(i):
            if isinstance(block.nodes[j], OutputSaver):
                fail(f"operand {j} is an output saver, which has no value", node=i)
        if isinstance(node, Apply) and node.op == "mean" and node.dim in place.stacked:
            fail(f"takes the mean over the stack dim {node.dim}; only sum and max may", node=i)


def loaders_read_what_is_there(place: KernelPlace) -> None:
    """A loader reads an input or a tensor of an earlier kernel, as it is stored, and only once."""
    check_unique("loaded tensor", (n.source for n in place.kernel.block.loaders))
    for i, node in enumerate(place.kernel.block.nodes):
        if not isinstance(node, InputLoader):
            continue
        if node.source not in place.tensors:
            known = ", ".join(place.tensors) or "none"
            fail(
                f"loads {node.source!r}, which is neither an input nor saved by an earlier kernel; "
                f"known are {known}",
                node=i,
            )
        stored = place.tensors[node.source]
        if node.dims != stored:
            fail(f"loads {node.source}{list(node.dims)}, but it is {list(stored)}", node=i)


def savers_write_new_tensors(place: KernelPlace) -> None:
    """A saver writes a tensor that nothing wrote before, with every dimension of its value."""
    block = place.kernel.block
    stacking = place.stacking()
    known = place.dims | stacking.keys()
    dims = block.tensor_dims()
    check_unique("saved tensor", (s.target for s in block.savers))
    if not block.savers:
        fail("saves nothing")
    for i, node in enumerate(block.nodes):
        if not isinstance(node, OutputSaver):
            continue
        check_name("tensor", node.target)
        check_dims(f"saved tensor {node.target}", node.dims, known, node=i)
        if node.target in place.tensors:
            fail(f"saves {node.target!r}, which is an input or already saved", node=i)
        missing = sorted(dims[i] - set(node.dims))
        if missing:
            fail(f"{node.target} lacks {', '.join(missing)}, along which its value varies", node=i)
        if is_output_name(node.target):
            _check_output(i, node, place.program)


def accumulators_end_the_loop(place: KernelPlace) -> None:
    """An accumulator combines a value of the loop it names; comb says which dimension grows."""
    block = place.kernel.block
    loops = [p.name for p in place.kernel.loops]
    places, dims = loop_places(place.kernel), block.tensor_dims()
    for i, node in enumerate(block.nodes):
        if not isinstance(node, Accumulator):
            continue
        if node.par not in loops:
            fail(
                f"accumulates over {node.par!r}, but the loops are {', '.join(sorted(loops)) or 0}",
                node=i,
            )
        number, read = loops.index(node.par), places[node.operand]
        if read.ended is not None and read.ended <= number:
            fail(f"accumulates node {node.operand}, which runs after the loop already", node=i)
        if read.level > number + 1:
            fail(
                f"accumulates node {node.operand} over {node.par}, but that changes in every "
                f"iteration of {loops[-1]}; accumulate it over {loops[-1]} first",
                node=i,
            )
        if node.kind is not AccumulatorKind.CONCAT and node.dim is not None:
            fail(f"accumulates by {node.kind.value}; only concat has a dimension", node=i)
        if node.kind is AccumulatorKind.CONCAT and node.dim not in dims[node.operand]:
            fail(f"concatenates along {node.dim!r}, which its operand does not have", node=i)


def after_loop_reads_whole_values(place: KernelPlace) -> None:
    """What changes from iteration to iteration leaves the loop through an accumulator only."""
    block, places = place.kernel.block, loop_places(place.kernel)
    for i, node in enumerate(block.nodes):
        level = 0 if isinstance(node, OutputSaver) else places[i].level
        for j in block.operands(i):
            if places[j].level > level and not isinstance(node, Accumulator):
                fail(
                    f"reads node {j} after the loop, but that changes in every iteration; "
                    "accumulate it, or load it replicated along the loop",
                    node=i,
                )


def mappings_are_of_border_tensors(place: KernelPlace) -> None:
    """In m[T,d,p], T is loaded or saved, d one of its dims, p the kernel's, no loop on outputs."""
    block = place.kernel.block
    inputs = {n.source: n.dims for n in block.loaders}
    outputs = {n.target: n.dims for n in block.savers}
    grid = {p.name for p in place.kernel.grid}
    loops = {p.name for p in place.kernel.loops}
    for var in sorted(place.kernel.mapping.true):
        dims = inputs.get(var.tensor, outputs.get(var.tensor))
        if dims is None:
            fail(f"{var}: {var.tensor!r} is neither loaded nor saved by this kernel")
        if var.dim not in dims:
            fail(f"{var}: {var.tensor}{list(dims)} has no dimension {var.dim!r}")
        if var.par not in grid | loops:
            fail(f"{var}: {var.par!r} is no parallel dim of this kernel")
        if var.par in loops and var.tensor in outputs:
            fail(f"{var}: an output has no mapping along a loop")


def mappings_obey_constraints(place: KernelPlace) -> None:
    """Constraints (1), one dim per tensor and parallel dim, and (2), one grid dim per dim."""
    check_constraints(place.kernel.mapping, {p.name for p in place.kernel.grid})


def check_constraints(mapping: DimMapping, grid: Container[str]) -> None:
    """Refuse a mapping that breaks constraint (1) or (2); `grid` names the grid dims.

    Raises:
        GraphError: it does.
    """
    along: dict[tuple[str, str], DataDim] = {}
    by: dict[tuple[str, DataDim], str] = {}
    for var in sorted(mapping.true):
        other = along.setdefault((var.tensor, var.par), var.dim)
        if other != var.dim:
            fail(f"{var}: {var.par} already partitions {other} of {var.tensor} (constraint 1)")
        if var.par in grid:
            rival = by.setdefault((var.tensor, var.dim), var.par)
            if rival != var.par:
                fail(f"{var}: {var.dim} is already partitioned along {rival} (constraint 2)")


def library_kernels_are_one_operator(place: KernelPlace) -> None:
    """What a library runs is one contraction of two loaded tensors, without grid and loop."""
    kernel = place.kernel
    if not kernel.library:
        return
    if kernel.grid or kernel.loops:
        fail("a library kernel has no grid and no loop of ours")
    if not is_one_contraction(kernel.block):
        fail("a library kernel is one contraction of two loaded tensors, saved once")


KERNEL_RULES: tuple[Callable[[KernelPlace], None], ...] = (
    parallel_dims_are_sane,
    block_nodes_are_sound,
    loaders_read_what_is_there,
    savers_write_new_tensors,
    accumulators_end_the_loop,
    mappings_are_of_border_tensors,
    mappings_obey_constraints,
    after_loop_reads_whole_values,
    library_kernels_are_one_operator,
)
"""Every rule on one kernel, in an order in which each may rely on those before it."""


def outputs_are_saved(graph: SGraph, tensors: Mapping[str, tuple[DataDim, ...]]) -> None:
    """Every output of the program is saved by some kernel."""
    for i in range(len(graph.program.outputs)):
        if output_name(i) not in tensors:
            fail(f"no kernel saves {output_name(i)}, output {i} of {graph.program.name}")


def sizes_are_complete(mu: MuGraph) -> None:
    """Each dimension of the program has one size, which agrees with aliases and fixed ones."""
    check_unique("size of dimension", (name for name, _ in mu.sizes))
    given = dict(mu.sizes)
    for name, size in bind_sizes(mu.graph.program, given).items():
        if given.get(name) != size:
            fail(f"no size for dimension {name}; it must be {size}")


def counts_are_legal(mu: MuGraph) -> None:
    """Each parallel dim has a count that leaves no chunk of what it partitions empty."""
    if len(mu.par_sizes) != len(mu.graph.kernels):
        fail(f"counts for {len(mu.par_sizes)} kernels, but there are {len(mu.graph.kernels)}")
    for k, (kernel, pairs) in enumerate(zip(mu.graph.kernels, mu.par_sizes, strict=True)):
        wanted = [p.name for p in (*kernel.grid, *kernel.loops)]
        if sorted(name for name, _ in pairs) != sorted(wanted):
            names = [name for name, _ in pairs]
            fail(f"counts are given for {names}, but the parallel dims are {wanted}", kernel=k)
        for name, count in pairs:
            if not is_positive(count):
                fail(f"{name} has {count!r} chunks, not a positive number", kernel=k)
    sizes = all_sizes(mu)
    for k, (kernel, pairs) in enumerate(zip(mu.graph.kernels, mu.par_sizes, strict=True)):
        counts = dict(pairs)
        for tensor, dim in sorted({(v.tensor, v.dim) for v in kernel.mapping.true}):
            size = sizes[dim]
            for par in _splitting(kernel, tensor, dim):
                if not is_legal_count(size, counts[par]):
                    fail(
                        f"{par}={counts[par]} does not split the {size} elements of {dim} of "
                        f"{tensor} in non-empty chunks",
                        kernel=k,
                    )
                size = chunk(size, counts[par])


def _splitting(kernel: GraphOp, tensor: str, dim: DataDim) -> list[str]:
    """What partitions a dimension of a tensor: the grid, then the loop each block's chunk."""
    pars = (*kernel.grid, *kernel.loops)
    return [p.name for p in pars if kernel.mapping.dim_of(tensor, p.name) == dim]


def _check_output(i: int, saver: OutputSaver, program: Program) -> None:
    wanted = {output_name(k): o for k, o in enumerate(program.outputs)}.get(saver.target)
    if wanted is None:
        fail(f"{program.name} has no {saver.target}", node=i)
    axes = [d for d in wanted.axes if d is not None]
    if sorted(saver.dims) != sorted(axes):
        fail(f"{saver.target}{list(saver.dims)} must have the dims {axes}", node=i)
