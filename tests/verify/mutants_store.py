"""The stored mutants: a text file per workload, and the numbers that refute each of them.

    program matmul
      ...
    right 1
    kernel 0
      ...
    mutant 1.1: missing map
    at n=4, d=4, h=4; x=2, i=2; seed 0: out0[0, 0] is 0.51, not 1.02
    kernel 0
      ...

Mutant 1.3 was made from right graph 1. Where the blocks of a graph contradict each other, or hold
tiles that do not fit, there is no second number but a reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, lcm, prod
from pathlib import Path

import numpy as np

from prism.errors import GraphError
from prism.ir import (
    MuGraph,
    Program,
    SGraph,
    bind_sizes,
    evaluate,
    evaluate_graph,
    format_program,
    format_sgraph,
    parse_program,
    parse_sgraph,
    stack_dims,
)

FOLDER = Path(__file__).parent / "stored_mutants"

APART = 1e-3
"""Values differ that are so far apart, relative to the largest of the output."""

SEEDS = 7
"""As many kinds of values are drawn: with each seed others, so that a row of seeds has all."""


# --- sizes and numbers --------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """Of the program's dims, and the numbers of chunks kernel by kernel; chunks are equal."""

    dims: Mapping[str, int]
    counts: tuple[Mapping[str, int], ...]

    def __str__(self) -> str:
        parts = [self.dims, *self.counts]
        return "; ".join(", ".join(f"{k}={v}" for k, v in part.items()) for part in parts)


def sizes_for(graph: SGraph, seed: int, *, count: int = 2, spare: int = 1) -> Sizes:
    """Small sizes that divide: whatever is split has two elements or more in each chunk.

    Of what is stacked a later block gets `spare` elements.
    """
    stacks = stack_dims(graph)
    counts = [{p.name: count for p in (*k.grid, *k.loops)} for k in graph.kernels]
    for dim, (maker, par) in stacks.items():
        # as many blocks stack as later kernels share out
        counts[maker][par] = spare * max(2, _splits(graph, counts, {dim}, skip=maker))
    rng = np.random.default_rng([seed, 1])
    chosen = {}
    for root in graph.program.size_names:
        alike = {d.name for d in graph.program.dims if d.size == root}
        chosen[root] = _splits(graph, counts, alike) * int(rng.integers(1, 3))
    return Sizes(bind_sizes(graph.program, chosen), tuple(counts))


def _splits(graph, counts, dims, skip=None) -> int:
    """What the size of these dims must be a multiple of."""
    out = [1]
    for k, kernel in enumerate(graph.kernels):
        if k != skip:
            split = {(v.tensor, v.dim) for v in kernel.mapping.true if v.dim in dims}
            for tensor, dim in split:
                pars = {v.par for v in kernel.mapping.true if (v.tensor, v.dim) == (tensor, dim)}
                out.append(prod(counts[k][p] for p in pars))
    return lcm(*out)


def arrays_for(program: Program, dims: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Of both signs, positive, small whole ones with zeros, or negative, by seed in turn."""
    rng = np.random.default_rng([seed, 2])
    out = {}
    for argument in program.arguments:
        shape = [1 if d is None else dims[d] for d in argument.axes]
        match seed % SEEDS:
            case 0 | 3:
                out[argument.name] = rng.normal(0.0, 1.0, shape)
            case 1 | 4:
                out[argument.name] = rng.uniform(0.2, 2.0, shape)
            case 2 | 5:
                out[argument.name] = rng.integers(-2, 3, shape).astype(float)
            case _:
                out[argument.name] = rng.uniform(-3.0, -0.3, shape)
    return out


def outputs_of(graph: SGraph, sizes: Sizes, seed: int) -> tuple[np.ndarray, ...]:
    """What the graph gives, block by block.

    Raises:
        GraphError: its blocks contradict each other or do not fit.
    """
    counts = tuple(tuple(kernel.items()) for kernel in sizes.counts)
    mu = MuGraph(graph, tuple(sizes.dims.items()), counts)
    return evaluate_graph(mu, arrays_for(graph.program, sizes.dims, seed))


# --- counterexamples ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Witness:
    """Where a graph differs from its program. `fault` stands for a value that it does not have."""

    sizes: Sizes
    seed: int
    output: int = 0
    entry: tuple[int, ...] = ()
    wanted: float = float("nan")
    given: float = float("nan")
    fault: str = ""

    @property
    def is_numeric(self) -> bool:
        return not self.fault

    @property
    def is_clash(self) -> bool:
        """Whether one entry gets several values."""
        return "different values from different blocks" in self.fault

    def __str__(self) -> str:
        where = f"at {self.sizes}; seed {self.seed}: "
        if self.fault:
            return where + self.fault
        place = ", ".join(map(str, self.entry))
        return where + f"out{self.output}[{place}] is {self.wanted:.9g}, not {self.given:.9g}"


def witness_of(graph: SGraph, seeds: Sequence[int] = range(SEEDS)) -> Witness | None:
    """Sizes and values at which the graph is wrong; with two numbers if possible."""
    other = None
    for seed in seeds:
        found = difference(graph, sizes_for(graph, seed), seed)
        if found is not None and isfinite(found.given):
            return found
        other = other or found
    return other


@np.errstate(all="ignore")
def difference(graph: SGraph, sizes: Sizes, seed: int) -> Witness | None:
    """Where the graph is furthest from its program, by more than any rounding."""
    try:
        given = outputs_of(graph, sizes, seed)
    except GraphError as error:
        return Witness(sizes, seed, fault=str(error))
    wanted = evaluate(graph.program, arrays_for(graph.program, sizes.dims, seed))
    for k, (a, b) in enumerate(zip(wanted, given, strict=True)):
        if not np.isfinite(a).all():
            continue
        far = np.abs(a - b) / max(float(np.abs(a).max(initial=0.0)), 1e-3)
        undefined = np.where(np.isfinite(b), 0.0, np.inf)
        for gap in (np.where(np.isfinite(far), far, 0.0), undefined):  # numbers before nan
            if float(gap.max(initial=0.0)) > APART:
                entry = tuple(int(i) for i in np.unravel_index(int(gap.argmax()), gap.shape))
                return Witness(sizes, seed, k, entry, float(a[entry]), float(b[entry]))
    return None


@np.errstate(all="ignore")
def is_right(
    graph: SGraph, seeds: Sequence[int] = range(SEEDS), *, count: int = 2, spare: int = 1
) -> bool:
    """Whether the graph gives its program's numbers for each seed, where these are defined."""
    for seed in seeds:
        sizes = sizes_for(graph, seed, count=count, spare=spare)
        wanted = evaluate(graph.program, arrays_for(graph.program, sizes.dims, seed))
        try:
            given = outputs_of(graph, sizes, seed)
        except GraphError:
            return False
        for a, b in zip(wanted, given, strict=True):
            scale = float(np.abs(a[np.isfinite(a)]).max(initial=1.0))
            close = np.abs(a - b) <= 1e-7 * scale
            if not (close | ~np.isfinite(a)).all():
                return False
    return True


# --- text ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """A wrong graph, what was done to which right one, and the numbers that refute it."""

    name: str
    kind: str
    graph: SGraph
    witness: Witness


@dataclass(frozen=True)
class Family:
    """The right graphs of a program and the wrong ones made from them."""

    program: Program
    right: Mapping[str, SGraph]
    mutants: tuple[Mutant, ...]


_WITNESS = re.compile(
    r"at (?P<sizes>.*); seed (?P<seed>\d+): (?:out(?P<output>\d+)\[(?P<entry>[\d, ]*)\] "
    r"is (?P<wanted>\S+), not (?P<given>\S+)|(?P<fault>.+))"
)


def format_family(family: Family) -> str:
    """The text of one file."""
    lines = [format_program(family.program).rstrip()]
    for name, graph in family.right.items():
        lines += [f"right {name}", _kernels(graph)]
    for mutant in family.mutants:
        header = f"mutant {mutant.name}: {mutant.kind}"
        lines += [header, str(mutant.witness), _kernels(mutant.graph)]
    return "\n".join(lines) + "\n"


def parse_family(text: str) -> Family:
    """What `format_family` wrote."""
    head, *parts = re.split(r"^(?=right |mutant )", text, flags=re.MULTILINE)
    right, mutants = {}, []
    for part in parts:
        first, rest = part.split("\n", 1)
        word, _, title = first.partition(" ")
        if word == "right":
            right[title] = parse_sgraph(f"sgraph\n{head}{rest}")
            continue
        name, _, kind = title.partition(": ")
        line, rest = rest.split("\n", 1)
        mutants.append(Mutant(name, kind, parse_sgraph(f"sgraph\n{head}{rest}"), _witness(line)))
    return Family(parse_program(head), right, tuple(mutants))


def _kernels(graph: SGraph) -> str:
    text = format_sgraph(graph)
    lines = text[text.index("\nkernel 0") + 1 :].rstrip().split("\n")
    # what a comment says can be derived
    return "\n".join(line.partition("  # ")[0] for line in lines)


def _witness(line: str) -> Witness:
    found = _WITNESS.fullmatch(line)
    assert found is not None, line
    dims, *counts = (
        {k: int(v) for k, _, v in (x.partition("=") for x in part.split(", ") if x)}
        for part in found["sizes"].split("; ")
    )
    sizes = Sizes(dims, tuple(counts))
    if found["fault"]:
        return Witness(sizes, int(found["seed"]), fault=found["fault"])
    entry = tuple(int(i) for i in found["entry"].split(", ") if i)
    wanted, given = float(found["wanted"]), float(found["given"])
    return Witness(sizes, int(found["seed"]), int(found["output"]), entry, wanted, given)


def stored() -> Iterator[tuple[str, Family]]:
    """Every file: the workload's name and what it holds."""
    for path in sorted(FOLDER.glob("*.txt")):
        yield path.stem, parse_family(path.read_text(encoding="utf-8"))


def names() -> list[str]:
    """The workloads that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.txt"))


def load(name: str) -> Family:
    """The family of one workload."""
    return parse_family((FOLDER / f"{name}.txt").read_text(encoding="utf-8"))
