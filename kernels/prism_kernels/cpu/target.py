"""The CPU target: emit, load and run kernels on this machine's cores (`prism.protocols.Target`)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from prism.errors import KernelError
from prism.ir import MuGraph, SGraph, bind_sizes
from prism.protocols import Device, KernelSource
from prism_kernels.cpu import cost, device
from prism_kernels.cpu.emit_file import emit_file, function_names, runtime_digest
from prism_kernels.cpu.kernel import CpuKernel, evict_caches, load_kernel
from prism_kernels.cpu.library import LibraryCall, library_call
from prism_kernels.cpu.places import Planned, plan
from prism_kernels.cpu.registers import Registers, registers_of
from prism_kernels.cpu.widths import DTYPES, Widths
from prism_kernels.describe import array_metadata, describe
from prism_kernels.lower import lower
from prism_kernels.seal import seal
from prism_kernels.tile import Intermediate


class CpuTarget:
    """Kernels on the CPU, compiled by Numba."""

    name = "cpu"
    measures = True
    dtypes = DTYPES

    def device(self) -> Device:
        """The machine at hand."""
        return replace(device.device(), workspace_bytes=cost.WORKSPACE_LIMIT_BYTES)

    def schedules(self, graph: SGraph, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """The emitter's own options for this graph: name -> choices, the default first."""
        pars = tuple(
            tuple((p.name, 1) for p in (*kernel.grid, *kernel.loops)) for kernel in graph.kernels
        )
        mu = MuGraph(graph, tuple(bind_sizes(graph.program, sizes).items()), pars)
        try:
            plans, _ = _planned(mu, Widths.of("float32"))
        except KernelError:
            return {}  # `refusal` says why
        return cost.schedules(plans, self._registers(mu, "float32"))

    def estimate(self, mu: MuGraph, dtype: str) -> float:
        """Predicted seconds of one run, for ordering candidates only.

        Raises:
            KernelError: the muGraph is refused.
        """
        plans, _ = self._plan(mu, dtype)
        return cost.estimate(plans, self._registers(mu, dtype), self.device())

    def refusal(self, mu: MuGraph, dtype: str) -> str | None:
        """Why this muGraph cannot run here, or None."""
        try:
            self._plan(mu, dtype)
        except KernelError as error:
            return str(error)
        return None

    def emit(self, mu: MuGraph, dtype: str) -> KernelSource:
        """Emit the kernel's source.

        Raises:
            KernelError: the muGraph is refused.
        """
        plans, between = self._plan(mu, dtype)
        names = function_names(plans)
        several = f"s {', '.join(names)}, run one after the other," if len(names) > 1 else ""
        title = f"CPU kernel{several} for {mu.graph.program.name}."
        header = describe(mu, dtype)
        text = emit_file(plans, dtype, self._registers(mu, dtype), title, header)
        meta: dict[str, Any] = {
            "target": self.name,
            "runtime": runtime_digest(),
            **array_metadata(mu, dtype, between),
            "workspace_elements": cost.workspace_elements(plans),
            "launches": [_launch(name, p) for name, p in zip(names, plans, strict=True)],
        }
        meta["seal"] = seal(text, meta)
        return KernelSource(text, meta)

    def rehearsal(self, mu: MuGraph, dtype: str) -> None:
        """Nothing needs to stand in for a kernel that runs."""

    def load(self, path: Path, meta: dict[str, Any]) -> CpuKernel:
        """Compile the emitted file at `path` in this process.

        Raises:
            KernelError: the file is not one this user's Prism emitted, or does not compile.
        """
        return load_kernel(path, meta)

    def flush(self) -> None:
        """Evict caches, so that the next timed run reads its arguments from memory."""
        evict_caches()

    def _plan(
        self, mu: MuGraph, dtype: str
    ) -> tuple[tuple[Planned, ...], tuple[Intermediate, ...]]:
        """The plans of a muGraph's kernels, and the tensors between them."""
        if dtype not in self.dtypes:
            raise KernelError(f"the cpu target runs {', '.join(self.dtypes)}, not {dtype}")
        widths = Widths.of(dtype)
        plans, between = _planned(mu, widths)
        cost.check_resources(plans, between, widths, device.maximum_threads())
        return plans, between

    def _registers(self, mu: MuGraph, dtype: str) -> Registers:
        widths = Widths.of(dtype)
        lanes = device.vector_bits() // 8 // widths.computed
        machine = Registers(
            device.vector_registers(),
            lanes,
            widths,
            device.l2_bytes(),
            device.l3_bytes(),
            device.streams_stores(),
        )
        return registers_of(machine, dict(mu.schedule))


def _planned(mu: MuGraph, widths: Widths) -> tuple[tuple[Planned, ...], tuple[Intermediate, ...]]:
    """The plans of a muGraph's kernels, and the tensors between them.

    A library's kernel whose references ask for more than a contraction is run as ours.
    """
    lowered = lower(mu, has_library=True)
    plans: list[Planned] = []
    for op, program in zip(mu.graph.kernels, lowered.programs, strict=True):
        call = library_call(program) if op.library else None
        plans.append(call or plan(program, widths))
    return tuple(plans), lowered.between


def _launch(name: str, planned: Planned) -> dict[str, Any]:
    """What a kernel is run with."""
    if isinstance(planned, LibraryCall):
        return {"library": name}
    return {"block": name, "blocks": math.prod(g.count for g in planned.program.grid)}
