"""What a library's kernel of a file does to memory: one product, as a library computes it.

There are no threads to follow: NumPy multiplies in float32, and what is stored is rounded to the
storage type. What can be wrong is seen all the same: elements that nobody wrote or that are not
there, a result that goes into an argument, into an operand, or twice into one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from prism_kernels.cuda.product import Matrices, Product, product_in
from prism_kernels.lockstep.faults import Fault, FaultKind, LockstepFault
from prism_kernels.lockstep.functions import ROUND
from prism_kernels.lockstep.kernel_file import kernel_named, parameters_of, parsed
from prism_kernels.lockstep.launch import Statistics
from prism_kernels.lockstep.memory import Values
from prism_kernels.lockstep.names import Names, Parameter, source_line

Indices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReadProduct:
    """A library's kernel that can run."""

    text: str
    line: int
    product: Product
    parameters: tuple[Parameter, ...]

    def run(self, arrays: Sequence[tuple[Values, int]]) -> Statistics:
        """Multiply; `arrays` are those that the kernel takes, each with its size.

        Raises:
            LockstepFault: it reads what is not there, or writes where it must not.
        """
        out = self.product.out
        places = [self._indices(m, arrays[m.parameter][1]) for m in self.product.operands]
        self._require_apart(places[2])
        left, right = (
            self._values(m, at, arrays[m.parameter][0])
            for m, at in zip(self.product.operands, places[:2], strict=False)
        )
        result = np.matmul(left, right).reshape(-1)
        written = self._rounded(result, self.parameters[out.parameter].dtype)
        arrays[out.parameter][0].update(zip(places[2].reshape(-1).tolist(), written, strict=True))
        return self._statistics(places)

    def _indices(self, value: Matrices, size: int) -> Indices:
        """Where each element of some matrices is."""
        if value.last >= size:
            name = self.parameters[value.parameter].name
            raise self._fault(
                FaultKind.OUT_OF_BOUNDS,
                value,
                f"touches {name}[{value.last}], but there are {size} elements",
                value.last,
            )
        found = np.zeros((), np.int64)
        for extent, stride in value.axes:
            found = found[..., None] + np.arange(extent, dtype=np.int64) * stride
        return found.reshape(value.shape)

    def _values(self, value: Matrices, at: Indices, known: Values) -> NDArray[np.float32]:
        """What some matrices hold."""
        flat = at.reshape(-1).tolist()
        try:
            numbers = np.fromiter((known[i] for i in flat), np.float32, len(flat))
        except KeyError as error:
            (index,) = error.args
            name = self.parameters[value.parameter].name
            raise self._fault(
                FaultKind.UNWRITTEN_READ,
                value,
                f"reads {name}[{index}], which nobody has written",
                index,
            ) from None
        return numbers.reshape(at.shape)

    def _require_apart(self, places: Indices) -> None:
        """The result may not meet what is read, nor itself."""
        out = self.product.out
        parameter = self.parameters[out.parameter]
        if parameter.is_input:
            text = f"writes into the argument {parameter.name}"
            raise self._fault(FaultKind.INPUT_WRITE, out, text)
        if out.parameter in {self.product.left.parameter, self.product.right.parameter}:
            raise self._fault(FaultKind.RACE, out, f"reads and writes {parameter.name}")
        if np.unique(places).size != places.size:
            text = f"writes elements of {parameter.name} more than once"
            raise self._fault(FaultKind.RACE, out, text)

    def _rounded(self, result: NDArray[np.float32], dtype: str) -> list[np.float32]:
        rounding: Callable[[np.float32], np.float32] | None = ROUND[dtype]
        return list(result) if rounding is None else [rounding(x) for x in result]

    def _statistics(self, places: Sequence[Indices]) -> Statistics:
        left, right, out = self.product.operands
        loads = {p.name: 0 for p in self.parameters}
        for value, at in zip((left, right), places[:2], strict=True):
            loads[self.parameters[value.parameter].name] += at.size
        stores = {p.name: 0 for p in self.parameters}
        stores[self.parameters[out.parameter].name] = places[2].size
        return Statistics(0, 0, 0, 0, 0, loads, stores)

    def _fault(
        self, kind: FaultKind, value: Matrices, text: str, element: int | None = None
    ) -> LockstepFault:
        where = f"line {self.line} `{source_line(self.text, self.line)}`"
        name = self.parameters[value.parameter].name
        message = f"{where}: the product {text}"
        return LockstepFault(Fault(kind, message, line=self.line, memory=name, element=element))


def read_product(text: str, kernel: str, dtypes: Sequence[str], inputs: int) -> ReadProduct:
    """A library's kernel of a file; the first `inputs` of its parameters are only read.

    Raises:
        KernelError: the file is outside the dialect, or the kernel is no product.
    """
    names = Names(text)
    function = kernel_named(kernel, parsed(text), names)
    parameters = parameters_of(function, names, dtypes, inputs)
    return ReadProduct(text, function.body[0].lineno, product_in(function), parameters)
