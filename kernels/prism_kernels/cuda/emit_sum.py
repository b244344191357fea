"""The order in which a contraction is written, whatever computes it.

Totals start at zero, grow, and are written. What adds up over a loop does so in registers that are
started before it and written after it; the rest does all three where it stands, in *rounds* where
one part comes after the other. Emitters differ in how they do each of these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from prism.ir import DataDim
from prism_kernels.cuda.contraction import Tiling
from prism_kernels.cuda.emit_result import IDENTITY
from prism_kernels.cuda.writer import Writer
from prism_kernels.tile import Accumulate, Contract, ValueId


class SumEmitter(ABC):
    """One contraction, and the position in it that is being written."""

    def __init__(self, w: Writer, i: ValueId, tiling: Tiling) -> None:
        self.w = w
        self.i = i
        self.tiling = tiling
        node = w.program.nodes[i]
        assert isinstance(node, Contract)
        self.node = node
        self.operands = (node.left, node.right)
        self.position: dict[DataDim, str] = {}

    def emit(self) -> None:
        """Write the contraction; one that is persistent adds into its registers."""
        if self.tiling.is_persistent:
            self._rescale()
            self._accumulate()
            return
        with self._rounds():
            self._zero()
            self._accumulate()
            self._release()
            self._write()

    def clear(self) -> None:
        """Before the loop: start the registers."""
        self._zero()

    def finish(self) -> None:
        """After the loop: write what the registers hold."""
        self._write()

    @abstractmethod
    def _rounds(self) -> AbstractContextManager[object]:
        """The loops over what is computed one after the other."""

    @abstractmethod
    def _accumulate(self) -> None:
        """Add to the totals."""

    def _release(self) -> None:  # noqa: B027 - most hold nothing
        """Before the next round: leave what it needs."""

    @abstractmethod
    def _write(self) -> None:
        """Write the totals."""

    @abstractmethod
    def _multiply_by(self, reference: ValueId, exponent: float) -> None:
        """Multiply the totals by a drift."""

    def _zero(self) -> None:
        self.w.start_registers(f"p{self.i}", self.tiling.results, IDENTITY["sum"])

    def _rescale(self) -> None:
        """Multiply the totals by the drift of the range references of their accumulator."""
        node = self.w.program.nodes[self.w.plan.nests.sinks[self.i]]
        assert isinstance(node, Accumulate)
        for reference, exponent in node.scales:
            self._multiply_by(reference, exponent)

    def _drift(self, reference: ValueId, exponent: float) -> str:
        """A drift at the position."""
        place = self.w.plan.drifts[reference, exponent]
        return self.w.read(reference, self.position, place)


class FragmentEmitter(SumEmitter):
    """A contraction by tensor cores: the totals are fragments, of which a thread has a few."""

    @abstractmethod
    def _results(self) -> AbstractContextManager[tuple[str, list[str]]]:
        """The loops over all totals, with their positions; yields a total and conditions."""

    def _multiply_by(self, reference: ValueId, exponent: float) -> None:
        with self._results() as (total, conditions), self.w.when(conditions):
            self.w.line(f"{total} *= {self._drift(reference, exponent)}")

    @contextmanager
    def _count(self, name: str, count: int) -> Iterator[str]:
        """A loop to be unrolled; yields its variable."""
        if count == 1:
            yield "0"
            return
        with self.w.block(f"for {name} in range({count}):"):
            yield name
