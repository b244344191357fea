"""The CUDA targets (`prism.protocols.Target`): one emitter, three places where its kernels go.

| target                     | emits for          | kernels                                        |
|----------------------------|--------------------|------------------------------------------------|
| `cuda`                     | the GPU at hand    | run and are timed on it                        |
| `sm_80` .. `sm_90`, `h200` | a GPU of the table | are compiled; times are predicted              |
| `lockstep`                 | any                | run in the simulator: right or wrong, not fast |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from prism.errors import KernelError
from prism.ir import OPS, Apply, MuGraph, OpKind, SGraph
from prism.protocols import Device, KernelSource, Rehearsal
from prism_kernels.cuda import cost, devices
from prism_kernels.cuda.backend import Facts, worst
from prism_kernels.cuda.compile import Compiled
from prism_kernels.cuda.compile_cache import compile_cached
from prism_kernels.cuda.contraction import CORES, CoreTiling, ThreadTiling
from prism_kernels.cuda.devices import Gpu, gpu_named
from prism_kernels.cuda.dialect import DTYPES
from prism_kernels.cuda.emit import (
    MEMORY_LIMIT_BYTES,
    Planned,
    PlannedKernel,
    emit,
    plan_kernels,
)
from prism_kernels.cuda.emit_product import LIBRARY, PlannedProduct
from prism_kernels.cuda.gpu import device_of, gpu_backend
from prism_kernels.cuda.kernel import CudaKernel, load_cuda_kernel
from prism_kernels.cuda.pipeline import PipelineTiling
from prism_kernels.cuda.places import STAGING, THREADS
from prism_kernels.cuda.product_cost import ProductWork, product_seconds
from prism_kernels.cuda.rehearsal import smaller
from prism_kernels.cuda.runtime import runtime_digest
from prism_kernels.cuda.simulated import SimulatedBackend
from prism_kernels.cuda.tensor_dialect import PACKED
from prism_kernels.cuda.toolchain import require_cuda
from prism_kernels.cuda.torch_library import expectation_problem, switched_off, torch_problem
from prism_kernels.seal import read_sealed

MOST_SIMULATED = 2e7
"""Instructions of all threads that the simulator takes on: about 20 seconds."""


class GpuTarget:
    """What the targets have in common: kernels for one GPU."""

    measures = False
    dtypes: Sequence[str] = tuple(DTYPES)

    def __init__(self, name: str, gpu: Gpu) -> None:
        self.name = name
        self._gpu = gpu

    def device(self) -> Device:
        """The GPU that kernels are made for."""
        return replace(device_of(self._gpu), workspace_bytes=MEMORY_LIMIT_BYTES)

    def schedules(self, graph: SGraph, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """The emitter's own options for this graph: name -> choices, the default first."""
        del sizes
        ours = [kernel for kernel in graph.kernels if not kernel.library]
        if not ours:
            return {}
        nodes = [node for kernel in ours for node in kernel.block.nodes]
        contracts = any(isinstance(n, Apply) and OPS[n.op].kind is OpKind.CONTRACT for n in nodes)
        return {"T": THREADS, **({"S": STAGING, "C": CORES} if contracts else {})}

    def estimate(self, mu: MuGraph, dtype: str) -> float:
        """Predicted seconds of one run from a cold L2 cache.

        Raises:
            KernelError: the muGraph is refused.
        """
        planned = plan_kernels(mu, dtype, self._gpu.shared_bytes_block)
        return sum(kernel.seconds(self._gpu) for kernel in planned.kernels)

    def refusal(self, mu: MuGraph, dtype: str) -> str | None:
        """Why this muGraph cannot run there, or None."""
        if dtype not in PACKED and dict(mu.schedule).get("C"):
            return f"tensor cores take no {dtype}: with another C it is the kernel of C = 0"
        try:
            planned = plan_kernels(mu, dtype, self._gpu.shared_bytes_block)
        except KernelError as error:
            return str(error)
        return self._refusal_of(planned)

    def _refusal_of(self, planned: Planned) -> str | None:
        """Why planned kernels cannot run there, or None."""
        if len(planned.ours) < len(planned.kernels):
            problem = self._library_problem()
            if problem is not None:
                return problem
        found = (devices.refusal(self._gpu, k.plan.threads, k.shared_bytes) for k in planned.ours)
        return next((reason for reason in found if reason is not None), None)

    def _library_problem(self) -> str | None:
        """Why no kernel may be left to a library there, or None."""
        return expectation_problem()

    def rehearsal(self, mu: MuGraph, dtype: str) -> Rehearsal | None:
        """Nothing needs to stand in for a kernel that runs."""
        del mu, dtype
        return None

    def emit(self, mu: MuGraph, dtype: str) -> KernelSource:
        """Emit the kernel's source.

        Raises:
            KernelError: the muGraph is refused.
        """
        return emit(mu, dtype, self._gpu.shared_bytes_block, self.name)


class OfflineTarget(GpuTarget):
    """A GPU that is not here: kernels are compiled for it, and their times predicted."""

    def __init__(self, name: str) -> None:
        super().__init__(name, gpu_named(name))

    def load(self, path: Path, meta: dict[str, Any]) -> CompiledKernel:
        """Compile the emitted file at `path`.

        Raises:
            KernelError: it is not sealed by this user, does not compile, or its block does not fit.
        """
        text = read_sealed(path, meta, runtime_digest())
        launches = [launch for launch in meta["launches"] if "library" not in launch]
        compiled = [compile_cached(text, launch, self._gpu.arch, path) for launch in launches]
        left = [launch for launch in meta["launches"] if "library" in launch]
        return CompiledKernel(self._gpu, launches, compiled, left)

    def rehearsal(self, mu: MuGraph, dtype: str) -> Rehearsal | None:
        """The same graph and schedule at small sizes, for the simulator."""
        simulator = LockstepTarget(self._gpu)
        wanted = self._by_cores(mu, dtype)
        # tensor cores are tried wherever they can, also where so little work would not pay
        cores = 3 if PipelineTiling in wanted else 2
        forced = replace(mu, schedule=tuple({**dict(mu.schedule), "C": cores}.items()))
        found = [s for s in smaller(forced if wanted else mu) if not simulator.refusal(s, dtype)]
        alike = (s for s in found if self._by_cores(s, dtype) == wanted)
        small = next(alike, found[0] if found else None)
        return None if small is None else Rehearsal(small, simulator)

    def _by_cores(self, mu: MuGraph, dtype: str) -> set[type[CoreTiling]]:
        """In which ways contractions are left to tensor cores."""
        kernels = plan_kernels(mu, dtype, self._gpu.shared_bytes_block).ours
        tilings = (tiling for kernel in kernels for tiling in kernel.plan.tilings.values())
        return {type(tiling) for tiling in tilings if not isinstance(tiling, ThreadTiling)}

    def flush(self) -> None:
        """Nothing runs here."""


class CudaTarget(GpuTarget):
    """The GPU at hand."""

    measures = True

    def __init__(self) -> None:
        self._backend = gpu_backend()
        super().__init__("cuda", self._backend.gpu())

    def _library_problem(self) -> str | None:
        """Whether torch is here, and sees the GPU."""
        return switched_off() or torch_problem()

    def load(self, path: Path, meta: dict[str, Any]) -> CudaKernel:
        """Compile the emitted file at `path` for the GPU.

        Raises:
            KernelError: it is not sealed by this user, or does not compile; it leaves a kernel to
                torch, which is not here.
        """
        return load_cuda_kernel(path, meta, self._backend)

    def flush(self) -> None:
        """Evict the L2 cache."""
        self._backend.flush()


class LockstepTarget(GpuTarget):
    """The simulator, with the limits of a GPU."""

    measures = True

    def __init__(self, gpu: Gpu | None = None) -> None:
        self._backend = SimulatedBackend()
        super().__init__("lockstep", gpu or gpu_named("sm_90"))

    def device(self) -> Device:
        """The machine at hand, in the place of a GPU."""
        return replace(super().device(), name="lockstep simulator", kind="simulator")

    def _library_problem(self) -> str | None:
        """NumPy stands in for torch."""
        return switched_off()

    def _refusal_of(self, planned: Planned) -> str | None:
        """The same; and a simulation in Python takes its time."""
        reason = super()._refusal_of(planned)
        if reason is not None:
            return reason
        steps = sum(map(_simulated_steps, planned.kernels))
        if steps > MOST_SIMULATED:
            return (
                f"about {steps:.0e} instructions: the simulator runs a million a second; "
                "use smaller sizes"
            )
        return None

    def load(self, path: Path, meta: dict[str, Any]) -> CudaKernel:
        """Read the emitted file at `path`; nothing is compiled.

        Raises:
            KernelError: it is not sealed by this user.
        """
        return load_cuda_kernel(path, meta, self._backend)

    def flush(self) -> None:
        """There is no cache."""


def _simulated_steps(kernel: PlannedKernel | PlannedProduct) -> float:
    """Instructions of all threads; of a product, elements that are looked up or noted down."""
    if isinstance(kernel, PlannedProduct):
        return float(kernel.elements)
    work = kernel.work()
    return work.blocks * work.threads * work.instructions


class CompiledKernel:
    """A kernel for a GPU that is not here (`prism.protocols.Kernel`): it has facts only."""

    def __init__(
        self,
        gpu: Gpu,
        launches: Sequence[Mapping[str, Any]],
        compiled: Sequence[Compiled],
        left: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`launches` are those of kernels that were compiled, `left` those left to a library."""
        self._name = gpu.name
        pairs = list(zip(launches, compiled, strict=True))
        found = [_facts(gpu, launch, code) for launch, code in pairs]
        self.facts: Facts = {**_of_all(found), **({"library": LIBRARY} if left else {})}
        self.predicted_s: float | None = sum(
            cost.seconds(cost.Work(**launch["work"]), gpu, code.registers) for launch, code in pairs
        ) + sum(product_seconds(ProductWork(**launch["work"]), gpu) for launch in left)

    def takes(self, value: object) -> bool:
        """Nothing: it cannot run."""
        del value
        return False

    def direct(self, given: Sequence[object]) -> None:
        """Nothing: it cannot run."""
        del given

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:  # noqa: ANN401 - see prism.protocols
        """Refuse.

        Raises:
            KernelError: always.
        """
        del arrays
        self._refuse()

    def run_into(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> None:
        """Refuse.

        Raises:
            KernelError: always.
        """
        del arrays, outputs
        self._refuse()

    def bind(
        self, arrays: Sequence[NDArray[np.generic]], outputs: Sequence[NDArray[np.generic]]
    ) -> NoReturn:
        """Refuse.

        Raises:
            KernelError: always.
        """
        del arrays, outputs
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise KernelError(f"the kernel is for {self._name}, which is not here")


def _of_all(found: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """What several kernels take at most, and the occupancy that all have."""
    if not found:
        return {}
    return {**worst(found), "occupancy": min(facts["occupancy"] for facts in found)}


def _facts(gpu: Gpu, launch: Mapping[str, Any], compiled: Compiled) -> dict[str, int]:
    """What one kernel takes.

    Raises:
        KernelError: its block does not fit on the GPU.
    """
    threads, shared = launch["threads"], launch["shared_bytes"] + compiled.shared_bytes
    reason = devices.refusal(gpu, threads, shared, compiled.registers)
    if reason is not None:
        raise KernelError(reason)
    return {
        "registers": compiled.registers,
        "shared_bytes": shared,
        "spills": compiled.spills,
        "occupancy": devices.occupancy(gpu, threads, compiled.registers, shared),
    }


def _for_tuning(name: str) -> OfflineTarget:
    """A target by name; without the toolchain every candidate would fail, so this fails at once.

    Raises:
        KernelError: the `cuda` extra is missing; says how to install it.
    """
    require_cuda()
    return OfflineTarget(name)


# the GPUs of `devices.GPUS`, as entry points name them
sm_80 = partial(_for_tuning, "sm_80")
sm_86 = partial(_for_tuning, "sm_86")
sm_89 = partial(_for_tuning, "sm_89")
sm_90 = partial(_for_tuning, "sm_90")
h200 = partial(_for_tuning, "h200")
