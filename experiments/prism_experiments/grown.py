"""Programs of any number of operators, for `bench_scaling`: two families, grown one by one.

  layers     projections in turn with an activation and a normalization: six operators a layer
  residual   a chain of blocks x + relu(x @ w) @ v: four operators a block

A program of k operators is the first k of its family; every operator is needed. Rows come in
batches, so that results have three dims for a grid. Programs are built from nodes, since a traced
function has a fixed number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice

from prism.ir import (
    Apply,
    Argument,
    DataDim,
    DimInfo,
    Input,
    Node,
    Output,
    Program,
    check_program,
    infer_dims,
)


class _Growing:
    """A program in the making: `last` is its newest value."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.last = self.load("x", "b", "n", "d")

    def load(self, name: str, *dims: DataDim) -> int:
        """A further argument."""
        self.nodes.append(Input(name, name, dims))
        return len(self.nodes) - 1

    def apply(self, op: str, *operands: int, dim: DataDim | None = None) -> int:
        """A further operator."""
        self.nodes.append(Apply(op, operands, dim))
        self.last = len(self.nodes) - 1
        return self.last

    def program(self, name: str) -> Program:
        """The program that gives the newest value."""
        leaves = [node for node in self.nodes if isinstance(node, Input)]
        dims = dict.fromkeys(dim for leaf in leaves for dim in leaf.dims)
        result = sorted(infer_dims(tuple(self.nodes))[self.last], key=list(dims).index)
        program = Program(
            name,
            tuple(DimInfo(dim, dim) for dim in dims),
            tuple(Argument(leaf.name, leaf.dims) for leaf in leaves),
            tuple(self.nodes),
            (Output(self.last, tuple(result)),),
        )
        check_program(program)
        return program


Steps = Iterator[None]


def _layers(growing: _Growing) -> Steps:
    """Every `yield` follows one operator."""
    inner: DataDim = "d"
    for k in count():
        wide, narrow = f"f{k}", f"d{k}"
        growing.apply("matmul", growing.last, growing.load(f"w{k}", inner, wide), dim=inner)
        yield
        growing.apply("relu", growing.last)
        yield
        weights = growing.load(f"v{k}", wide, narrow)
        value = growing.apply("matmul", growing.last, weights, dim=wide)
        yield
        growing.apply("square", value)
        yield
        growing.apply("sum", growing.last, dim=narrow)
        yield
        growing.apply("div", value, growing.last)
        yield
        inner = narrow


def _residual(growing: _Growing) -> Steps:
    """Every `yield` follows one operator."""
    for k in count():
        start = growing.last
        growing.apply("matmul", start, growing.load(f"w{k}", "d", f"f{k}"), dim="d")
        yield
        growing.apply("relu", growing.last)
        yield
        growing.apply("matmul", growing.last, growing.load(f"v{k}", f"f{k}", "d"), dim=f"f{k}")
        yield
        growing.apply("add", start, growing.last)
        yield


FAMILIES: Mapping[str, Callable[[_Growing], Steps]] = {"layers": _layers, "residual": _residual}


def grown(family: str, operators: int) -> Program:
    """The first operators of a family as a program."""
    growing = _Growing()
    for _ in islice(FAMILIES[family](growing), operators):
        pass
    return growing.program(f"{family}_{operators}")
