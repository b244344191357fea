"""Programs, and what a row of `verify.table` is: a graph for one of them, right or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from prism import frontend as pr
from prism.ir import SGraph, format_program, parse_sgraph


def matmul(x: "n d", w: "d h"):
    return x @ w


def rmsnorm(x: "n d", w: "d h"):
    return (x / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True))) @ w


def product(x: "n d", y: "n d", w: "d h"):
    return (x * y) @ w


def quotient(x: "n d", y: "n d", w: "d h"):
    return (x / y) @ w


def softmax_matmul(x: "n d", w: "d h"):
    e = pr.exp(x)
    return (e / pr.sum(e, axis=-1, keepdims=True)) @ w


def stable_softmax_matmul(x: "n d", w: "d h"):
    return pr.softmax(x, axis=-1) @ w


def swiglu(x: "n d", v: "d f", w: "d f"):
    return pr.silu(x @ v) * (x @ w)


def row_max(x: "n d"):
    return pr.max(x, axis=-1)


def scaled(x: "n d", s: "n 1", w: "d h"):
    return (x @ w) / s


def residual(x: "n d", w: "d h", r: "n h"):
    return r - x @ w


def both(x: "n d", w: "d h"):
    return pr.exp(x), x @ w


def centred(x: "n d"):
    return x - pr.mean(x, axis=-1, keepdims=True)


def rows_sum(x: "n d", b: "n"):
    return pr.sum(x + b[:, None], axis=-1)


PROGRAMS = {
    fn.__name__: pr.trace(fn)
    for fn in (
        matmul,
        rmsnorm,
        product,
        quotient,
        softmax_matmul,
        stable_softmax_matmul,
        swiglu,
        row_max,
        scaled,
        residual,
        both,
        centred,
        rows_sum,
    )
}


@dataclass(frozen=True)
class Case:
    """`is_right`: whether the kernel computes the program."""

    name: str
    program: str
    kernel: str
    is_right: bool

    @property
    def graph(self) -> SGraph:
        program = format_program(PROGRAMS[self.program]).rstrip()
        # the sections only help to read; a wrong graph made by an edit may have others
        lines = [line.strip() for line in self.kernel.strip().splitlines() if line[-1:] != ":"]
        kernel = indent("\n".join(lines), "  ")
        return parse_sgraph(f"sgraph\n{program}\nkernel 0\n{kernel}\n")


def into(cases: list[Case]):
    """Functions that add a right case and a wrong one: name, program, the text of its kernel."""

    def right(name, program, kernel):
        cases.append(Case(name, program, kernel, is_right=True))

    def wrong(name, program, kernel):
        cases.append(Case(name, program, kernel, is_right=False))

    return right, wrong
