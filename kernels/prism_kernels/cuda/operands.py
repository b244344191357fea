"""What is known of a contraction before it is decided how threads compute it."""

from __future__ import annotations

from dataclasses import dataclass

from prism.ir import DataDim


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: where its elements lie, and whether it may be staged; strides in elements."""

    strides: tuple[tuple[DataDim, int], ...]
    is_global: bool
    element_bytes: int
    is_stageable: bool
    dtype: str = "float32"
    """What it is stored as, in a buffer or in global memory."""
    is_exact: bool = False
    """Whether its values are an argument's, which `dtype` holds exactly."""
    near: DataDim | None = None
    """The dim along which it is contiguous in global memory."""
    run: int = 1
    """How many neighbours along that dim can be read at once."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A contraction in one block and iteration."""

    extents: tuple[tuple[DataDim, int], ...]
    """Of every dim of the operands."""
    depth: DataDim
    left: Operand
    right: Operand
    iterations: int
    """How many times it runs; more than once: it adds up over the loop."""
    is_sum: bool
    """Whether it adds into an accumulator of the loop."""
    threads: int
    staging: int
    """Schedule option `S`, see `prism_kernels.cuda.places.STAGING`."""
    cores: int = 0
    """Schedule option `C`, see `prism_kernels.cuda.contraction.CORES`."""

    @property
    def operands(self) -> tuple[Operand, Operand]:
        """Both."""
        return self.left, self.right
