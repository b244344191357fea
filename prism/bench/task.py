"""What every contestant computes: a program at given sizes, on the same random inputs.

A task crosses process borders as JSON; a worker builds the inputs from the seed, so that no array
is copied between processes and all contestants see equal numbers.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.dtypes import dtype_of
from prism.ir import DataDim, Program, bind_sizes, parse_program


@dataclass(frozen=True, slots=True)
class Task:
    """One program to time.

    `program` is what `prism.frontend.load_program` takes, `sizes` the chosen dimensions, `kernel`
    where the tuned kernel was saved (`Optimized.save`), `target` what it was made for. `text` is
    the traced program, so that it need not be traced again; `tables` define the operators that it
    may call: text and source of each (`prism.operators`).
    """

    program: str
    sizes: tuple[tuple[DataDim, int], ...]
    dtype: str
    seed: int
    threads: int
    kernel: str
    target: str = "cpu"
    text: str = ""
    tables: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON-able data."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Task:
        """Back from `to_json`."""
        pairs = ("sizes", "tables")
        return Task(**{**data, **{name: tuple((a, b) for a, b in data[name]) for name in pairs}})


def task_program(task: Task) -> Program:
    """The program of a task."""
    if task.text:
        return parse_program(task.text)
    from prism.frontend import load_program  # noqa: PLC0415 - the stream needs no front end

    return load_program(task.program)[1]


Axes = tuple[DataDim | None, ...]


def array_shape(axes: Axes, sizes: dict[DataDim, int]) -> tuple[int, ...]:
    """The shape of an argument or output: None is an axis of size one."""
    return tuple(1 if axis is None else sizes[axis] for axis in axes)


def make_inputs(program: Program, task: Task) -> tuple[NDArray[np.generic], ...]:
    """The program's arguments: normal random numbers from the task's seed."""
    sizes = bind_sizes(program, dict(task.sizes))
    rng = np.random.default_rng(task.seed)
    return tuple(
        np.asarray(rng.standard_normal(array_shape(a.axes, sizes), dtype=np.float32)).astype(
            dtype_of(task.dtype)
        )
        for a in program.arguments
    )


def border_bytes(program: Program, sizes: dict[str, int], dtype: str) -> int:
    """Bytes of all arguments and outputs, each counted once: what any implementation must move."""
    bound = bind_sizes(program, sizes)
    borders = [a.axes for a in program.arguments] + [o.axes for o in program.outputs]
    return sum(math.prod(array_shape(axes, bound)) for axes in borders) * dtype_of(dtype).itemsize
