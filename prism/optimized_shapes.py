"""A program that was tuned for several shapes: every call runs the kernel of its arrays' shapes.

For shapes that were not tuned there is the config of the nearest that was: a proof holds for all
sizes, so its graph is right there too. The counts are carried over (`prism.tune.transfer`), and the
kernel is compiled and held against float64 when the shape first turns up, with a warning that says
so. Where no such kernel is to be had, the program itself is evaluated in NumPy.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from prism.arguments import in_order, shape_given
from prism.cache import write_atomically
from prism.errors import ParseError, UsageError, one_line
from prism.files import read_regular
from prism.ir import Program, sizes_of
from prism.limits import check_memory
from prism.optimized import Optimized, StaleKernelError, Winner, compiled
from prism.plugins import Group, make
from prism.protocols import Target
from prism.scope import sizes_text
from prism.tune import Known, build_space, carried, distance, instantiate
from prism.tune.cases import CASES

SCHEMA = "prism.optimized-shapes/1"
SHAPES_FILE = "shapes.json"
MAX_BYTES = 2**16
MAX_SHAPES = 4096

MOST_ADAPTED = 32
"""Shapes that kernels are made for at run time; more of them are evaluated in NumPy."""

Shapes = tuple[tuple[int, ...], ...]


class _Others:
    """What calls with other shapes were given, by sizes; grows as shapes turn up."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.made: dict[tuple[tuple[str, int], ...], Optimized] = {}
        self.routes: dict[Shapes, Optimized] = {}
        self.is_full_told = False


@dataclass(frozen=True, slots=True, repr=False)
class OptimizedShapes:
    """Several shapes of one program, in one dtype, on one target; called like `Optimized`.

    Raises:
        UsageError: no shape, a shape twice, or different programs, dtypes or targets.
    """

    shapes: tuple[Optimized, ...]
    """The tuned ones."""
    _others: _Others = field(default_factory=_Others, init=False, compare=False)

    def __post_init__(self) -> None:
        if not self.shapes:
            raise UsageError("no shape: give at least one optimized program")
        situation = (self.program, self.dtype, self.target)
        for place, made in enumerate(self.shapes):
            if (made.program, made.dtype, made.target) != situation:
                raise UsageError(
                    f"{made!r} and {self.shapes[0]!r} are not of one program, dtype and target"
                )
            if any(made.sizes == other.sizes for other in self.shapes[:place]):
                raise UsageError(f"{made!r} is there twice")

    @property
    def program(self) -> Program:
        """What they compute."""
        return self.shapes[0].program

    @property
    def dtype(self) -> str:
        """Of arguments and results."""
        return self.shapes[0].dtype

    @property
    def target(self) -> str:
        """Where they run."""
        return self.shapes[0].target

    @property
    def is_fallback(self) -> bool:
        """Whether no shape has a kernel that runs here."""
        return all(made.is_fallback for made in self.shapes)

    def __repr__(self) -> str:
        """One line; `report()` tells all."""
        shapes = "; ".join(sizes_text(made.sizes) for made in self.shapes)
        return f"<OptimizedShapes {self.program.name} {self.dtype} on {self.target}: {shapes}>"

    def __call__(self, *arrays: object, **named: object) -> Any:  # noqa: ANN401 - array or tuple
        """Run on the program's arguments, as `Optimized` does; their shapes choose the kernel.

        A shape that was not tuned is served by a kernel like that of the nearest one, which is
        compiled and checked now; later calls find it.

        Raises:
            UsageError: a wrong number or name of arguments, no array, or another dtype.
            SizeError: shapes that contradict the program or one another, or that this machine
                cannot hold.
        """
        given = in_order(self.program, arrays, named)
        shapes = tuple(shape_given(value) for value in given)
        made = self._others.routes.get(shapes)
        if made is None:
            made = self.for_sizes(self._sizes(shapes))
            if len(self._others.routes) < MAX_SHAPES:
                self._others.routes[shapes] = made
        return made(*given)

    def _sizes(self, shapes: Shapes) -> dict[str, int]:
        names = (argument.name for argument in self.program.arguments)
        stand_ins: dict[str, Any] = {
            name: SimpleNamespace(shape=shape) for name, shape in zip(names, shapes, strict=True)
        }
        return sizes_of(self.program, stand_ins)

    def for_sizes(self, sizes: Mapping[str, int]) -> Optimized:
        """The kernel that calls with these sizes run.

        Raises:
            SizeError: sizes that do not fit the program or this machine.
        """
        bound = check_memory(self.program, sizes)
        for made in self.shapes:
            if made.sizes == bound:
                return made
        key = tuple(sorted(bound.items()))
        with self._others.turn:
            if key not in self._others.made:
                if len(self._others.made) >= MOST_ADAPTED:
                    self._tell_full()
                    return self._evaluated(bound)
                self._others.made[key] = self._adapted(bound)
            return self._others.made[key]

    def _tell_full(self) -> None:
        """Warn, once, that no more kernels are made."""
        if not self._others.is_full_told:
            self._others.is_full_told = True
            warnings.warn(
                f"{self.program.name} was called with {MOST_ADAPTED} shapes it was not tuned for: "
                "at others NumPy evaluates the program; add them to those of prism.optimize",
                stacklevel=4,
            )

    def _evaluated(self, sizes: dict[str, int]) -> Optimized:
        return Optimized(self.program, sizes, self.dtype, self.target, None, {})

    def _adapted(self, sizes: dict[str, int]) -> Optimized:
        """A kernel like that of the nearest shape; the program itself where there is none."""
        what = f"{self.program.name} was not tuned for {sizes_text(sizes)}"
        advice = "add these sizes to those of prism.optimize for the fastest"
        by_distance = sorted(self.shapes, key=lambda made: distance(made.sizes, sizes))
        near = next((made for made in by_distance if not made.is_fallback), None)
        reason = "no shape has a kernel that runs here"
        if near is not None:
            made, reason = _like(near, sizes)
            if made is not None:
                reason = f"the kernel for {sizes_text(near.sizes)} is adapted"
                warnings.warn(f"{what}: {reason}; {advice}", stacklevel=4)
                return made
        warnings.warn(f"{what}: NumPy evaluates the program ({reason}); {advice}", stacklevel=4)
        return self._evaluated(sizes)

    def report(self) -> str:
        """The report of every tuned shape, and what other shapes were served by."""
        parts = [
            f"{sizes_text(made.sizes)}\n{'=' * len(sizes_text(made.sizes))}\n\n{made.report()}"
            for made in self.shapes
        ]
        others = [f"  {_served(made)}\n" for made in self._others.made.values()]
        return "\n".join([*parts, *(["Other shapes\n" + "".join(others)] if others else [])])

    def save(self, folder: str | Path) -> None:
        """Write `shapes.json` and a folder for each tuned shape, as `Optimized.save` does."""
        where = Path(folder)
        for number, made in enumerate(self.shapes):
            made.save(_shape_folder(where, number))
        data = {"schema": SCHEMA, "count": len(self.shapes)}
        write_atomically(where / SHAPES_FILE, json.dumps(data) + "\n")

    @classmethod
    def load(cls, folder: str | Path, *, target: str | None = None) -> OptimizedShapes:
        """Read what `save` wrote; each shape is vetted and compiled as `Optimized.load` does.

        A shape whose kernel this version of Prism would emit otherwise is left out with a warning;
        calls with it are served like those with any shape that was not tuned.

        Raises:
            UsageError: a file is missing, the target has to be named, or the shapes do not belong
                together.
            ParseError: a file is not what `save` writes, or was modified.
            KernelError: no shape is left, or a kernel does not compute its program.
            SizeError: this machine cannot hold the arrays.
        """
        where = Path(folder)
        found: list[Optimized] = []
        stale: list[StaleKernelError] = []
        for number in range(_saved_count(where)):
            try:
                found.append(Optimized.load(_shape_folder(where, number), target=target))
            except StaleKernelError as error:
                stale.append(error)
        if not found:
            raise stale[0]
        for reason in stale:
            warnings.warn(
                f"{reason}; the other shapes are loaded, and calls with this one run a kernel "
                "adapted from the nearest",
                stacklevel=2,
            )
        return cls(tuple(found))


def _saved_count(where: Path) -> int:
    try:
        data = json.loads(read_regular(where / SHAPES_FILE, MAX_BYTES))
    except OSError as error:
        raise UsageError(f"{where} holds no saved shapes: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ParseError(f"{where}: {SHAPES_FILE} is not JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ParseError(f"{where}: {SHAPES_FILE} is not of schema {SCHEMA}")
    count = data.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 < count <= MAX_SHAPES:
        raise ParseError(f"{where}: {SHAPES_FILE} has a bad count")
    return count


def _shape_folder(where: Path, number: int) -> Path:
    return where / f"shape{number}"


def _served(made: Optimized) -> str:
    sizes = sizes_text(made.sizes)
    if made.winner is None or made.is_fallback:
        return f"{sizes}: not tuned, NumPy evaluates the program"
    counts = [f"{name}={n}" for kernel in made.winner.mu.par_sizes for name, n in kernel]
    return f"{sizes}: not tuned, graph {made.winner.graph_id} {' '.join(counts)}"


def _like(near: Optimized, sizes: dict[str, int]) -> tuple[Optimized | None, str]:
    """A kernel like that of another shape, compiled and checked, or why there is none."""
    winner = near.winner
    target: Target = make(Group.TARGET, near.target)
    assert winner is not None
    mu, reason = winner.mu, "its graph does not fit these sizes"
    for graph in build_space(((winner.graph_id, mu.graph),), sizes, target).graphs:
        for config in carried(Known(graph, mu.sizes, mu.par_sizes, mu.schedule)):
            other = instantiate(graph, config)
            try:
                source = target.emit(other, near.dtype).text
                chosen = Winner(winner.graph_id, other, source)
                made = compiled(
                    Optimized(near.program, sizes, near.dtype, near.target, chosen, {}),
                    f"adapted to {sizes_text(sizes)}",
                    tuple(CASES),  # no run checked it at these sizes
                )
            except Exception as error:  # whatever an emitter may raise: the program is right
                reason = one_line(error)
                continue
            if not made.is_fallback:
                return made, ""
            reason = "it does not compile"
    return None, reason
