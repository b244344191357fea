"""The shape of an sGraph as records have it: kernels, block operators with loop stages, maps.

The JSON is the one of `prism search --json` (`prism.describe`). A graph from there is vetted before
it is drawn: operands come earlier in the list, so what is drawn has no cycles.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prism.errors import ParseError
from prism.ir import LoopStage
from prism.report_page.facts import Facts
from prism.verdict import ProofAxioms

STAGES = tuple(stage.value for stage in LoopStage)
"""When a node runs, in order."""

MAX_KERNELS = 16
MAX_OPERATORS = 400
"""More than any kernel a search builds; drawing takes quadratic time."""

TensorMap = Mapping[str, Mapping[str, str | None]]
"""Tensor -> parallelization dim -> data dim, None where it is replicated."""


@dataclass(frozen=True, slots=True)
class BlockOp:
    """A node of a block graph."""

    op: str
    operands: tuple[int, ...]
    stage: str
    tensor: str = ""
    dims: tuple[str, ...] = ()
    dim: str = ""
    par: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class KernelShape:
    """One kernel: its dims, its block graph, its maps."""

    grid: tuple[str, ...]
    loops: tuple[str, ...]
    ops: tuple[BlockOp, ...]
    imap: TensorMap
    fmap: TensorMap
    omap: TensorMap

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors it reads, each once."""
        return tuple(dict.fromkeys(op.tensor for op in self.ops if op.op == "load"))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return tuple(dict.fromkeys(op.tensor for op in self.ops if op.op == "save"))

    @property
    def maps(self) -> str:
        """The mapping variables that are true, as the paper prints them."""
        return " ".join(
            f"m[{tensor},{dim},{par}]"
            for maps in (self.imap, self.fmap, self.omap)
            for tensor, row in maps.items()
            for par, dim in row.items()
            if dim is not None
        )


@dataclass(frozen=True, slots=True)
class GraphShape:
    """An sGraph with what a search says of it."""

    id: str
    verdict: str
    kernels: tuple[KernelShape, ...]
    is_fallback: bool = False
    proof: ProofAxioms | None = None
    """None where nobody asked, or there was no time to find out."""


def read_graph(facts: Facts) -> GraphShape:
    """The shape of a graph's JSON.

    Raises:
        ParseError: names the field that is wrong.
    """
    kernels = facts.parts("kernels")
    if len(kernels) > MAX_KERNELS:
        raise ParseError(f"{facts.place('kernels')}: more than {MAX_KERNELS} kernels")
    return GraphShape(
        id=facts.text("id"),
        verdict=facts.text("verdict"),
        kernels=tuple(map(_kernel, kernels)),
        is_fallback=facts.flag("is_fallback") or False,
        proof=read_proof(facts),
    )


def read_proof(facts: Facts) -> ProofAxioms | None:
    """The axioms of a proof, as a search or `prism verify` says them."""
    if facts.data.get("axioms_used") is None:
        return None
    return ProofAxioms(facts.texts("axioms_used"), facts.flag("axioms_used_minimal") or False)


def _kernel(facts: Facts) -> KernelShape:
    ops = facts.parts("operators")
    if len(ops) > MAX_OPERATORS:
        raise ParseError(f"{facts.place('operators')}: more than {MAX_OPERATORS} operators")
    return KernelShape(
        grid=facts.texts("grid"),
        loops=facts.texts("loops"),
        ops=tuple(_operator(op, i) for i, op in enumerate(ops)),
        imap=_map(facts.part("imap")),
        fmap=_map(facts.part("fmap")),
        omap=_map(facts.part("omap")),
    )


def _operator(facts: Facts, i: int) -> BlockOp:
    operands = facts.array("operands")
    for operand in operands:
        if isinstance(operand, bool) or not isinstance(operand, int) or not 0 <= operand < i:
            facts.refuse("operands", f"a list of operators before number {i}")
    if (stage := facts.text("stage") or "once") not in STAGES:
        facts.refuse("stage", " or ".join(STAGES))
    value = facts.data.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float | None):
        facts.refuse("value", "a number")
    return BlockOp(
        op=facts.text("op") or "?",
        operands=tuple(operands),
        stage=stage,
        tensor=facts.text("tensor"),
        dims=facts.texts("dims"),
        dim=facts.text("dim"),
        par=facts.text("par"),
        value="" if value is None else f"{value:g}",
    )


def _map(facts: Facts) -> TensorMap:
    return {
        tensor: {par: row.text(par) or None for par in row.data} for tensor, row in facts.named()
    }
