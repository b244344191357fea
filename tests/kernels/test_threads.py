"""Thread graphs as they are emitted: each in one nest of loops, what only it reads in registers."""

from __future__ import annotations

from random import Random

import pytest
from kernels.cases import RMSNORM_FORMS
from kernels.kernel_chains import CHAINS
from kernels.legal import mugraph, random_mugraph
from kernels.programs import ATTENTION, SOFTMAX
from nested import RIGHT
from strategies import random_program

from prism.errors import KernelError
from prism.ir import (
    Accumulator,
    AccumulatorKind,
    Apply,
    Const,
    InputLoader,
    MuGraph,
    OutputSaver,
    SizeOf,
    all_sizes,
    bind_sizes,
    parse_program,
    thread_graphs,
)
from prism_kernels.cpu.places import plan as plan_cpu
from prism_kernels.cpu.target import CpuTarget
from prism_kernels.cpu.widths import Widths
from prism_kernels.cuda.emit import emit as emit_cuda
from prism_kernels.cuda.places import plan as plan_cuda
from prism_kernels.lower import lower, tile_programs
from prism_kernels.nests import form_nests, thread_units
from prism_kernels.tile import (
    Accumulate,
    Contract,
    Load,
    Map,
    Reduce,
    Running,
    Scalar,
    Stage,
    Store,
)

EXTENTS = (1, 2, 3, 5, 7, 8)
SHARED_LIMIT = 99 << 10


def random_graphs(seeds):
    for seed in seeds:
        random = Random(seed)
        program = random_program(seed, random.randint(1, 12))
        sizes = bind_sizes(program, {n: random.choice(EXTENTS) for n in program.size_names})
        yield random_mugraph(program, sizes, seed)


def block_values(kernel, sizes):
    """Each block node as the expression that it is."""
    out = []
    for node in kernel.block.nodes:
        match node:
            case InputLoader(source=source):
                looped = (kernel.mapping.dim_of(source, p.name) for p in kernel.loops)
                out.append(("load", source, frozenset(looped) - {None}))
            case Const(value=value):
                out.append(("scalar", float(value)))
            case SizeOf(dim=dim):
                out.append(("scalar", float(sizes[dim])))
            case Apply(op="mean", operands=(j,), dim=dim):
                out.append(("div", ("sum", out[j], dim), ("scalar", float(sizes[dim])), None))
            case Apply(op=op, operands=operands, dim=dim):
                out.append((op, *(out[j] for j in operands), dim))
            case Accumulator(operand=j, kind=AccumulatorKind.CONCAT, dim=dim) if out[j][
                0
            ] == "load" and out[j][2] == {dim}:
                out.append(("load", out[j][1], frozenset()))  # an input joined is the input
            case Accumulator(operand=j, kind=kind, dim=dim):
                out.append(("accumulate", kind, out[j], dim))
            case OutputSaver():
                out.append(None)
    return out


def tile_values(program):
    """The number of each node of a tile program by the expression that it is."""
    out = []
    for i, node in enumerate(program.nodes):
        match node:
            case Load(source=source):
                out.append(("load", source, frozenset(a.dim for a in program.axes[i] if a.looped)))
            case Scalar(value=value):
                out.append(("scalar", value))
            case Map(op=op, operands=operands):
                out.append((op, *(out[j] for j in operands), None))
            case Reduce(op=op, operand=j, dim=dim):
                out.append((op, out[j], dim))
            case Contract(left=left, right=right, dim=dim):
                out.append(("matmul", out[left], out[right], dim))
            case Accumulate(kind=kind, operand=j, dim=dim):
                out.append(("accumulate", kind, out[j], dim))
            case Store() | Running():
                out.append(None)
    return {value: i for i, value in enumerate(out)}


def live_nodes(block):
    """What some saver depends on."""
    live = {i for i, node in enumerate(block.nodes) if isinstance(node, OutputSaver)}
    for i in reversed(range(len(block.nodes))):
        if i in live:
            live.update(block.operands(i))
    return live


def emitted_threads(mu):
    """Per thread graph of a muGraph as it stands: the tile program, and its nodes there."""
    for kernel, program in zip(mu.graph.kernels, tile_programs(mu).programs, strict=True):
        values, number = block_values(kernel, all_sizes(mu)), tile_values(program)
        live = live_nodes(kernel.block)
        for threads in thread_graphs(kernel):
            yield program, [number[values[i]] for i in threads.nodes if i in live]


def stages_apart(program, nodes):
    """A thread graph's nodes by stage: what only reads joined inputs is computed before."""
    early = [i for i in nodes if program.stages[i] is Stage.BEFORE]
    late = [i for i in nodes if program.stages[i] is not Stage.BEFORE]
    return [part for part in (early, late) if part]


def check_one_nest_each(mu):
    """Hold a muGraph's thread graphs against its nests; how many were split by stage."""
    split = 0
    for program, nodes in emitted_threads(mu):
        parts = stages_apart(program, nodes)
        split += len(parts) > 1
        for one_reduction in (False, True):
            nests = form_nests(program, one_reduction=one_reduction)
            for part in parts:
                assert len({nests.owner[i] for i in part}) == 1
    return split


@pytest.mark.parametrize("first", range(0, 500, 100))
def test_every_thread_graph_is_in_one_nest(first):
    # apart are parts of different stages alone, where an accumulator does nothing but join an input
    assert sum(map(check_one_nest_each, random_graphs(range(first, first + 100)))) <= 1


@pytest.mark.parametrize("form", RMSNORM_FORMS)
def test_every_thread_graph_of_rmsnorm_is_in_one_nest(form):
    program, grid, loop, in_body = RMSNORM_FORMS[form]
    counts = dict.fromkeys([*grid, "i"], 2)
    sizes = {"n": 4, "d": 8, "h": 8}
    mu = mugraph(program, sizes, grid, loop, counts, in_body=lambda _: in_body)
    assert check_one_nest_each(mu) <= (not in_body)


@pytest.mark.parametrize("name", CHAINS)
def test_every_thread_graph_of_several_kernels_is_in_one_nest(name):
    assert check_one_nest_each(CHAINS[name]) == 0


TWO_LOOPS = {name: graph for name, graph in RIGHT.items() if name != "one dim split twice"}
"""Those that kernels are emitted for."""


@pytest.mark.parametrize("name", TWO_LOOPS)
def test_every_thread_graph_within_two_loops_is_in_one_nest(name):
    graph = TWO_LOOPS[name]
    sizes = bind_sizes(graph.program, dict.fromkeys(graph.program.size_names, 6))
    counts = tuple(tuple((p.name, 2) for p in (*k.grid, *k.loops)) for k in graph.kernels)
    assert check_one_nest_each(MuGraph(graph, tuple(sizes.items()), counts)) == 0


def range_safe_programs():
    for mu in random_graphs(range(300)):
        try:
            yield from lower(mu).programs
        except KernelError:
            continue
    for program, grid, loop in ((ATTENTION, {"x": "b"}, "l"), (SOFTMAX, {"x": "n"}, "d")):
        mu = mugraph(program, dict.fromkeys(program.size_names, 6), grid, loop, {"i": 2, "x": 2})
        yield from lower(mu).programs
    for mu in CHAINS.values():
        yield from lower(mu).programs


def test_what_is_rewritten_to_be_range_safe_is_fused_by_the_same_rule():
    running = 0
    for program in range_safe_programs():
        running += any(isinstance(node, Running) for node in program.nodes)
        for one_reduction in (False, True):
            nests = form_nests(program, one_reduction=one_reduction)
            for unit in thread_units(program):
                assert len({nests.owner[i] for i in unit}) == 1
    assert running > 3


def test_what_only_a_thread_graph_reads_is_in_registers():
    inner_count = 0
    for program in range_safe_programs():
        users = program.users()
        plans = (plan_cpu(program, Widths.of("float32")), plan_cuda(program, "float32", {}))
        for unit in thread_units(program):
            inner = [i for i in unit if users[i] and set(users[i]) <= set(unit)]
            inner_count += len(inner)
            for plan in plans:
                assert not plan.places.keys() & set(inner)
    assert inner_count > 100


def test_threads_share_each_dim_of_a_thread_graph_once():
    shared = 0
    for program in range_safe_programs():
        plan = plan_cuda(program, "float32", {})
        for unit in thread_units(program):
            layout = plan.layout(plan.nests.of_node(unit[0]).nodes[0])
            dims = [dim for dim, share in layout.shares if share.threads > 1]
            assert len(dims) == len(set(dims))
            assert set(dims) <= {a.dim for a in program.axes[unit[0]]}
            shared += bool(dims)
    assert shared > 100


LATE = parse_program("""
program late
  dims n, d
  args x[n, d], g[n]
  x = input x[n, d]
  g = input g[n]
  %2 = square(g)
  %3 = sum[d](x)
  %4 = mul(%2, %3)
  return %4[n]
""")


def test_an_operator_waits_for_the_rest_of_its_thread_graph():
    mu = mugraph(LATE, {"n": 4, "d": 8})
    (program,) = tile_programs(mu).programs
    assert check_one_nest_each(mu) == 0
    reduction, rest = form_nests(program).nests
    assert [type(program.nodes[i]) for i in reduction.nodes] == [Reduce]
    assert [type(program.nodes[i]) for i in rest.nodes] == [Map, Map, Store]


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_one_comment_names_the_operators_of_a_thread_graph(target):
    program, grid, loop, _ = RMSNORM_FORMS["divided after the loop"]
    mu = mugraph(program, {"n": 4, "d": 8, "h": 8}, grid, loop, {"x": 2, "i": 2})
    if target == "cpu":
        text = CpuTarget().emit(mu, "float32").text
    else:
        text = emit_cuda(mu, "float32", SHARED_LIMIT, "lockstep").text
    comments = [line for line in text.splitlines() if line.lstrip().startswith("#")]
    units = thread_units(lower(mu).programs[0])
    assert max(map(len, units)) > 1
    for unit in units:
        assert any(all(f"v{i} = " in line for i in unit) for line in comments), unit
