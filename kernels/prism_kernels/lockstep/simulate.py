"""Runs an emitted CUDA kernel file on NumPy arrays, without a GPU, and reports what is wrong.

The launches of a file run in their order. Within one, blocks run one after the other in a random
order, the threads of each in lockstep (`prism_kernels.lockstep.schedule`). Everything random comes
from one seed. What a library runs is multiplied as a whole (`prism_kernels.lockstep.products`).
What a launch leaves between kernels is what the next one finds; the workspace starts empty in each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from prism.errors import KernelError
from prism_kernels.lockstep.faults import Fault, FaultKind, LockstepFault
from prism_kernels.lockstep.launch import Launch, Statistics
from prism_kernels.lockstep.memory import Values, read_array, write_array
from prism_kernels.lockstep.metadata import Array, FileShape, LaunchShape, LibraryShape
from prism_kernels.lockstep.products import ReadProduct, read_product
from prism_kernels.lockstep.translate import Translated, translate

STEP_LIMIT = 10_000_000
"""Iterations of one loop in one thread; no test runs that long, so it is taken for endless."""


def simulate(  # noqa: PLR0913 - a launch has that many parts, and its options are named
    text: str,
    meta: Mapping[str, Any],
    arrays: Sequence[Array],
    outputs: Sequence[Array],
    *,
    seed: int = 0,
    checks: bool = True,
    step_limit: int = STEP_LIMIT,
) -> Statistics:
    """Run the kernels in `text` on `arrays` and write their results into `outputs`.

    Arrays are C-contiguous, in the order of the metadata; bfloat16 ones as uint16 bits (or of an
    extension dtype of that name). `checks=False` leaves out the search for races. After a fault
    `outputs` hold what was written before it.

    Raises:
        LockstepFault: a kernel does something wrong; its `fault` says what and where.
        KernelError: the text is outside the dialect, or metadata or arrays do not fit it.
    """
    shape = FileShape.of(meta)
    shape.require_count(len(arrays), len(outputs))
    arrays = [shape.checked(array, i) for i, array in enumerate(arrays)]
    outputs = [shape.checked(array, i) for i, array in enumerate(outputs, len(arrays))]
    if not all(array.flags.writeable for array in outputs):
        raise KernelError("an output is read-only")
    kernels = [_translated(text, shape, launch, checks=checks) for launch in shape.launches]
    run = _Run(shape, kernels, arrays)
    with np.errstate(all="ignore"):  # infinities and NaN are values, as on the GPU
        try:
            statistics = run.run(np.random.default_rng(seed), step_limit)
        finally:
            run.finish(outputs)
    run.require_written()
    return statistics


def _translated(
    text: str, shape: FileShape, launch: LaunchShape | LibraryShape, *, checks: bool
) -> Translated | ReadProduct:
    dtypes = tuple(shape.dtypes[k] for k in launch.takes)
    inputs = sum(k < shape.arguments for k in launch.takes)
    if isinstance(launch, LibraryShape):
        return read_product(text, launch.kernel, dtypes, inputs)
    return translate(text, launch.kernel, dtypes, inputs, checks=checks)


class _Run:
    """The arrays of a file as its kernels fill them."""

    def __init__(
        self, shape: FileShape, kernels: Sequence[Translated | ReadProduct], arrays: Sequence[Array]
    ) -> None:
        self.shape = shape
        self.kernels = kernels
        self.values: list[Values] = [{} for _ in shape.elements]
        for i, array in enumerate(arrays):
            self.values[i] = read_array(array, shape.dtypes[i])

    def run(self, order: np.random.Generator, step_limit: int) -> Statistics:
        """Run all launches."""
        done = []
        for kernel, launch in zip(self.kernels, self.shape.launches, strict=True):
            if self.shape.workspace is not None:
                self.values[self.shape.workspace] = {}
            arrays = [(self.values[k], self.shape.elements[k]) for k in launch.takes]
            if isinstance(kernel, ReadProduct):
                done.append(kernel.run(arrays))
                continue
            assert isinstance(launch, LaunchShape)
            one = Launch(kernel, launch, arrays, order, step_limit)
            one.run()
            done.append(one.statistics())
        return reduce(add, done)

    def finish(self, outputs: Sequence[Array]) -> None:
        """Hand over what was written."""
        for i, output in enumerate(outputs, self.shape.arguments):
            write_array(self.values[i], output, self.shape.dtypes[i])

    def require_written(self) -> None:
        """Refuse outputs with elements that nobody wrote."""
        for k in range(self.shape.outputs):
            i = self.shape.arguments + k
            missing = self.shape.elements[i] - len(self.values[i])
            if not missing:
                continue
            name = self._name(i) or f"output {k}"
            first = next(j for j in range(self.shape.elements[i]) if j not in self.values[i])
            message = (
                f"{missing} of {self.shape.elements[i]} elements of {name} were never written; "
                f"the first is {name}[{first}]"
            )
            raise LockstepFault(
                Fault(FaultKind.UNWRITTEN_OUTPUT, message, memory=name, element=first)
            )

    def _name(self, i: int) -> str | None:
        """What the kernels call array i."""
        for kernel, launch in zip(self.kernels, self.shape.launches, strict=True):
            if i in launch.takes:
                return kernel.parameters[launch.takes.index(i)].name
        return None
