"""What brute force finds for a program, and small programs to try it on.

A right graph is one that gives the program's numbers at ragged sizes, again at random ones
(`evaluate_graph`), and that `prism.verify` proves.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

import numpy as np
import search_programs as programs
from brute_force_blocks import is_tied, right_graphs
from brute_force_terms import Terms, dags, leaves_of, outputs_of

from prism.egraph import load_axioms
from prism.ir import (
    OPS,
    Accumulator,
    AccumulatorKind,
    Apply,
    Argument,
    DimInfo,
    Input,
    InputLoader,
    MapVar,
    OpKind,
    Output,
    OutputSaver,
    Program,
    bind_sizes,
    check_program,
    evaluate,
    evaluate_graph,
    infer_dims,
)
from prism.search import program_graph
from prism.verdict import Verdict
from prism.verify import Verifier, verify_programs

SIZES = {"n": 7, "d": 9, "h": 11, "k": 13}
"""Halved twice, each has chunks of different sizes and none that is empty."""

# --- programs ---------------------------------------------------------------------------------

OPERATORS = (
    *("add", "sub", "exp", "relu", "maximum", "max"),
    *("mul", "div", "sum", "matmul") * 2,  # the algebra does most with these
)
ARGUMENTS = {"x": ("n", "d"), "y": ("n", "d"), "w": ("d", "h"), "g": ("d",), "s": ("n",)}


def generated(seed):
    """A program of two to four operators, each of them needed, on up to three arguments."""
    random = Random(seed)
    while True:
        names = ["x", *random.sample(sorted(set(ARGUMENTS) - {"x"}), random.randint(0, 2))]
        nodes = [Input(name, name, ARGUMENTS[name]) for name in names]
        most = len(nodes) + random.randint(2, 4)
        for _ in range(50):
            node = drawn(random, nodes)
            if node is not None and node not in nodes and len(nodes) < most:
                nodes.append(node)
        read = {j for n in nodes if isinstance(n, Apply) for j in n.operands}
        dims = infer_dims(tuple(nodes))
        if len(nodes) == most and len(read) == most - 1 and dims[-1]:
            return program_of(f"generated_{seed}", nodes, names, sorted(dims[-1]))


def drawn(random, nodes):
    """One more operator, or None where its operands do not fit."""
    op = random.choice(OPERATORS)
    places = range(len(nodes))
    operands = tuple(
        random.choice((places[-1], random.choice(places))) for _ in range(OPS[op].arity)
    )
    if len(set(operands)) < len(operands):
        return None
    if OPS[op].kind is OpKind.ELEMENTWISE:
        return Apply(op, operands)
    dims = infer_dims(tuple(nodes))
    shared = sorted(frozenset.intersection(*(dims[j] for j in operands)))
    return Apply(op, operands, random.choice(shared)) if shared else None


def program_of(name, nodes, names, axes):
    used = [d for d in SIZES if any(d in ARGUMENTS[n] for n in names)]
    program = Program(
        name,
        tuple(DimInfo(d, d) for d in used),
        tuple(Argument(n, ARGUMENTS[n]) for n in names),
        tuple(nodes),
        (Output(len(nodes) - 1, tuple(axes)),),
    )
    check_program(program)
    return program


def count_of(program):
    return sum(isinstance(n, Apply) for n in program.nodes)


def arrays_for(program, sizes, seed):
    """Numbers of both signs, whole rows among them of one sign; positive under a root."""
    rng = np.random.default_rng(seed)
    has_root = any(isinstance(n, Apply) and n.op in {"sqrt", "log"} for n in program.nodes)
    out = {}
    for argument in program.arguments:
        shape = [1 if d is None else sizes[d] for d in argument.axes]
        array = rng.uniform(-1, 1, shape)
        for axis, size in enumerate(shape):
            array += rng.uniform(-2, 2, [size if a == axis else 1 for a in range(len(shape))])
        out[argument.name] = np.abs(array) + 0.1 if has_root else array
    return out


# --- graphs -----------------------------------------------------------------------------------


def expressions(graph, *, bare=False):
    """What each output is, as nested text; `bare` of accumulators."""
    out, saved = [], {}
    block = graph.kernels[0].block
    for i, node in enumerate(block.nodes):
        operands = [out[j] for j in block.operands(i)]
        match node:
            case Apply(op=op, dim=dim):
                ordered = sorted(operands) if OPS[op].is_commutative else operands
                out.append(f"{op}[{dim}]({', '.join(ordered)})")
            case Accumulator(kind=kind, par=par, dim=dim):
                out.append(operands[0] if bare else f"{kind.value}[{par} {dim}]<{operands[0]}>")
            case OutputSaver(target=target):
                out.append(operands[0])
                saved[target] = out[i]
            case InputLoader(source=source):
                out.append(source)
            case _:
                out.append(str(node))
    return tuple(sorted(saved.items()))


def key(graph):
    """A graph up to the order of operands and the names of grid dims."""
    (kernel,) = graph.kernels
    names = [p.name for p in kernel.grid]
    mappings = []
    for order in permutations(names):
        renamed = dict(zip(names, order, strict=True)) | {p.name: p.name for p in kernel.loops}
        true = [MapVar(v.tensor, v.dim, renamed[v.par]) for v in kernel.mapping.true]
        mappings.append(" ".join(sorted(map(str, true))))
    return expressions(graph), min(mappings)


def accumulators(graph):
    """Those that hold a value on chip: tiles that only make up an output are stored at once."""
    nodes = graph.kernels[0].block.nodes
    read = {j for n in nodes if isinstance(n, Apply) for j in n.operands}
    return [
        n
        for i, n in enumerate(nodes)
        if isinstance(n, Accumulator) and (n.kind is not AccumulatorKind.CONCAT or i in read)
    ]


def operator_count(graph):
    """Operators as the search counts them: a reduction and its accumulator are one."""
    nodes = graph.kernels[0].block.nodes
    combining = [n for n in accumulators(graph) if not is_reduction(nodes[n.operand])]
    return sum(isinstance(n, InputLoader | Apply) for n in nodes) + len(combining)


def is_reduction(node):
    return isinstance(node, Apply) and OPS[node.op].kind is OpKind.REDUCE


def gives_its_numbers(graph, seed):
    """Whether the graph, run block by block, computes its program at random sizes and chunks."""
    random = Random(seed)
    program = graph.program
    sizes = bind_sizes(program, {n: random.randint(2, 9) for n in program.size_names})
    arrays = arrays_for(program, sizes, seed)
    mu = programs.random_mugraph(graph, sizes, random)
    pairs = zip(evaluate(program, arrays), evaluate_graph(mu, arrays), strict=True)
    return all(np.allclose(a, b, rtol=1e-7, atol=1e-9) for a, b in pairs)


# --- everything  ----------------------------------------------------------------------------


class Expected:
    """What brute force finds for a program, with at most so many operators."""

    def __init__(self, program, most, grid_dims=1):
        sizes = bind_sizes(program, {d: SIZES[d] for d in program.size_names})
        self.program = program
        self.axioms = load_axioms()
        self.terms = Terms(program, sizes, arrays_for(program, sizes, 2))
        self.dags = list(dags(self.terms, most))
        self.most, self.grid_dims = most, grid_dims

    @property
    def is_defined(self):
        """Whether every value of the program is a number."""
        own = (i for dag in self.dags for i in dag)
        return all(np.isfinite(self.terms.values[i].array).all() for i in own)

    def unproved(self):
        """DAGs that give the right numbers, for which verification finds no reason."""
        return [
            dag
            for dag in self.dags
            if verify_programs(self.program, self.as_program(dag), self.axioms).verdict
            is not Verdict.PROVED
        ]

    def as_program(self, dag):
        """The operators of a DAG as a program."""
        ids = [*leaves_of(self.terms, dag), *sorted(dag)]
        place = {i: k for k, i in enumerate(ids)}
        nodes = [self.terms.nodes[i] for i in ids]
        return replace(
            self.program,
            nodes=tuple(
                replace(n, operands=tuple(place[j] for j in n.operands))
                if isinstance(n, Apply)
                else n
                for n in nodes
            ),
            outputs=tuple(
                Output(place[i], o.axes)
                for i, o in zip(outputs_of(self.terms, dag), self.program.outputs, strict=True)
            ),
        )

    def graphs(self, *, tied):
        """The graphs the search must list, by key; the program's own is always one."""
        out = {key(g): g for g in [program_graph(self.program)]}
        for dag in self.dags:
            found = {}
            for count in range(self.grid_dims, -1, -1):
                if count == 0 and found:
                    break  # a graph without a grid is one with blocks of everything
                right = [
                    g
                    for g in right_graphs(self.terms, dag, count)
                    if (not tied or is_tied(g))
                    and all(gives_its_numbers(g, seed) for seed in range(2))
                ]
                verdicts = Verifier(self.program, self.axioms).verify(right)
                found |= {
                    key(g): g
                    for g, verdict in zip(right, verdicts, strict=True)
                    if verdict is Verdict.PROVED
                }
            out |= found
        return out
