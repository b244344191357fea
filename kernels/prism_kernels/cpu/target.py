"""The CPU target: emit, load and run kernels on this machine's cores (`prism.protocols.Target`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prism.errors import KernelError
from prism.ir import DataDim, MuGraph, SGraph, bind_sizes, output_name
from prism.protocols import Device, KernelSource
from prism_kernels.cpu import cost, device
from prism_kernels.cpu.emit_file import emit_file, runtime_digest
from prism_kernels.cpu.kernel import CpuKernel, evict_caches, load_kernel
from prism_kernels.cpu.places import Plan, plan
from prism_kernels.cpu.registers import Registers, registers_of
from prism_kernels.describe import describe
from prism_kernels.lower import lower
from prism_kernels.seal import seal

_ELEMENT_BYTES = {"float32": 4, "float64": 8}


class CpuTarget:
    """Kernels on the CPU, compiled by Numba."""

    name = "cpu"
    measures = True
    dtypes = tuple(_ELEMENT_BYTES)

    def device(self) -> Device:
        """The machine at hand."""
        return device.device()

    def schedules(self, graph: SGraph, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """The emitter's own options for this graph: name -> choices, the default first."""
        pars = tuple(
            tuple((p.name, 1) for p in (*kernel.grid, *kernel.loops)) for kernel in graph.kernels
        )
        mu = MuGraph(graph, tuple(bind_sizes(graph.program, sizes).items()), pars)
        try:
            planned = plan(lower(mu), _ELEMENT_BYTES["float32"])
        except KernelError:
            return {}  # `refusal` says why
        return cost.schedules(planned, self._registers(mu, "float32"))

    def estimate(self, mu: MuGraph, dtype: str) -> float:
        """Predicted seconds of one run, for ordering candidates only.

        Raises:
            KernelError: the muGraph is refused.
        """
        return cost.estimate(self._plan(mu, dtype), self._registers(mu, dtype), self.device())

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
        planned, graph = self._plan(mu, dtype), mu.graph.program
        title = f"CPU kernel for {graph.name}."
        header = describe(mu, dtype)
        text = emit_file(planned, dtype, self._registers(mu, dtype), title, header)
        sizes = dict(mu.sizes)

        def array(name: str, axes: Sequence[DataDim | None]) -> dict[str, Any]:
            return {"name": name, "shape": [1 if d is None else sizes[d] for d in axes]}

        meta: dict[str, Any] = {
            "target": self.name,
            "runtime": runtime_digest(),
            "program": graph.name,
            "dtype": dtype,
            "arguments": [array(a.name, a.axes) for a in graph.arguments],
            "outputs": [array(output_name(k), o.axes) for k, o in enumerate(graph.outputs)],
            "blocks": math.prod(g.count for g in planned.program.grid),
            "workspace_elements": planned.workspace_elements,
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

    def _plan(self, mu: MuGraph, dtype: str) -> Plan:
        if dtype not in _ELEMENT_BYTES:
            raise KernelError(f"the cpu target runs {' and '.join(self.dtypes)}, not {dtype}")
        planned = plan(lower(mu), _ELEMENT_BYTES[dtype])
        cost.check_resources(planned, _ELEMENT_BYTES[dtype], device.maximum_threads())
        return planned

    def _registers(self, mu: MuGraph, dtype: str) -> Registers:
        size = _ELEMENT_BYTES[dtype]
        lanes = device.vector_bits() // 8 // size
        return registers_of(device.vector_registers(), lanes, size, dict(mu.schedule))
