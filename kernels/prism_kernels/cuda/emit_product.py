"""Plans a kernel that is left to a library: how it is written, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prism_kernels.cuda.devices import Gpu
from prism_kernels.cuda.dialect import DTYPES
from prism_kernels.cuda.plan import input_places, output_places
from prism_kernels.cuda.product import product_lines, product_of
from prism_kernels.cuda.product_cost import ProductWork, product_seconds
from prism_kernels.library import LibraryCall
from prism_kernels.tile import Tensor

LIBRARY = "torch"
"""What runs such kernels on a GPU."""


@dataclass(frozen=True, slots=True)
class PlannedProduct:
    """A kernel of a graph that is one product of matrices."""

    call: LibraryCall
    dtype: str
    workspace_elements: int = 0
    shared_bytes: int = 0

    @property
    def names(self) -> dict[int, str]:
        """The arrays it touches by position, and what the file calls them."""
        call, program = self.call, self.call.program
        inputs, outputs = (
            input_places(program, self.dtype),
            output_places(program, self.dtype),
        )
        named = {t.position: inputs[t.name].pointer for t in (call.left, call.right)}
        named[call.result.position] = outputs[call.result.name].pointer
        return dict(sorted(named.items()))

    def lines(self) -> list[str]:
        """The body of its function."""
        names = self.names
        product = product_of(self.call, list(names))
        return product_lines(product, list(names.values()), self.call.describe())

    def launch(self, name: str, dtypes: Sequence[str]) -> dict[str, Any]:
        """What is needed to run it: its entry in the metadata."""
        takes = list(self.names)
        return {
            "kernel": name,
            "library": LIBRARY,
            "takes": takes,
            "parameters": [dtypes[k] for k in takes],
            "work": self.work().to_json(),
        }

    def seconds(self, gpu: Gpu) -> float:
        """Predicted seconds of one launch."""
        return product_seconds(self.work(), gpu)

    @property
    def elements(self) -> int:
        """Of all that it reads and writes."""
        return sum(map(self._elements, (self.call.left, self.call.right, self.call.result)))

    def work(self) -> ProductWork:
        """What a launch does."""
        call, program = self.call, self.call.program
        batch, rows, columns = (call.extent(dims) for dims in call.dims())
        tensors = {t.position: t for t in (call.left, call.right, call.result)}.values()
        are_half = all(DTYPES[self._stored(t)] == 2 for t in (call.left, call.right))
        given = [t for t in tensors if not program.is_between(t.name)]
        between = [t for t in tensors if program.is_between(t.name)]
        # where the types differ, float32 copies are multiplied
        converted = [t for t in tensors if DTYPES[self._stored(t)] == 2 and not are_half]
        return ProductWork(
            batch,
            rows,
            columns,
            program.sizes[call.depth],
            are_half,
            sum(map(self._bytes, given)),
            sum(map(self._bytes, between)),
            sum(4.0 * self._elements(t) for t in converted),
            1 + len(converted),
        )

    def _stored(self, tensor: Tensor) -> str:
        return "float32" if self.call.program.is_between(tensor.name) else self.dtype

    def _elements(self, tensor: Tensor) -> int:
        return self.call.extent([d for d, _ in tensor.strides])

    def _bytes(self, tensor: Tensor) -> float:
        return float(self._elements(tensor) * DTYPES[self._stored(tensor)])
