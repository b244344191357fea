"""A target without a compiler: NumPy evaluates the program, and a schedule option picks a fault.

Kernels take as long as their option `delay_ms` says, so that tests know the fastest one.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from dataclasses import replace
from typing import ClassVar

import numpy as np

from prism.dtypes import dtype_of
from prism.errors import DeviceLostError, KernelError
from prism.ir import evaluate
from prism.protocols import Device, KernelSource, Rehearsal

FAULTS = (
    "none",
    "crash in run",
    "hang in run",
    "nan",
    "writes input",
    "wrong tile",
    "inaccurate",
    "does not compile",
    "hang in compile",
    "crash in compile",
    "emitter breaks",
    "refused",
    "raises in run",
    "wrong while timed",
    "loses the device",
    "overflows",
)


RAISED = {
    "raises in run": FloatingPointError("overflow"),
    "loses the device": DeviceLostError("an illegal memory access was encountered"),
}


class FakeBound:
    def __init__(self, kernel, arrays, outputs):
        self.kernel, self.arrays, self.outputs = kernel, arrays, outputs

    def run_timed(self):
        self.kernel.run_into(self.arrays, self.outputs)
        return self.kernel.delay_s  # whatever else the machine did meanwhile

    def finish(self):
        pass


class FakeKernel:
    facts: ClassVar = {}
    predicted_s = None

    def __init__(self, program, fault, delay_s, dtype):
        self.program, self.fault, self.delay_s, self.dtype = program, fault, delay_s, dtype
        self.calls = 0

    def __call__(self, *arrays):
        names = [a.name for a in self.program.arguments]
        outputs = evaluate(self.program, dict(zip(names, arrays, strict=True)))
        outputs = tuple(np.empty(o.shape, self.dtype) for o in outputs)
        self.run_into(arrays, outputs)
        return outputs

    def takes(self, value):
        return False

    def direct(self, given):
        return None

    def bind(self, arrays, outputs):
        return FakeBound(self, arrays, outputs)

    def run_into(self, arrays, outputs):
        self.calls += 1
        time.sleep(self.delay_s)
        names = [a.name for a in self.program.arguments]
        results = evaluate(self.program, dict(zip(names, arrays, strict=True)))
        for output, result in zip(outputs, results, strict=True):
            output[...] = result
        self._spoil(arrays, outputs)

    def _spoil(self, arrays, outputs):
        match self.fault:
            case "crash in run":
                ctypes.string_at(0)
            case "hang in run":
                time.sleep(1000)
            case "nan":
                outputs[0].flat[-1] = np.nan
            case "overflows" if np.abs(arrays[0].astype(float)).max() > 20:
                outputs[0].flat[0] = np.inf
            case "writes input":
                arrays[0].flat[0] += 1
            case "wrong tile":
                outputs[0].flat[:1] += np.abs(outputs[0]).max()
            case "inaccurate":
                outputs[0][...] *= 1 + 1e-4
            case fault if fault in RAISED:
                raise RAISED[fault]
            case "wrong while timed" if self.calls > 6:
                outputs[0].flat[0] = 1e6


class FakeTarget:
    """Healthy kernels of one, two or three milliseconds."""

    name = "fake"
    measures = True
    dtypes = ("float64", "float32", "float16", "bfloat16")
    kernel = FakeKernel
    options: ClassVar = {"fault": (0,), "delay_ms": (3, 1, 2)}

    def __init__(self):
        self._emitted = {}

    def device(self):
        return Device("fake machine", 2, 256, 32768, 2**20, 2**25, 10.0)

    def schedules(self, graph, sizes):
        del graph, sizes
        return dict(self.options)

    def estimate(self, mu, dtype):
        del dtype
        return dict(mu.schedule)["delay_ms"] * 1e-3

    def refusal(self, mu, dtype):
        del dtype
        return "out of registers" if self._fault(mu) == "refused" else None

    def _fault(self, mu):
        return FAULTS[dict(mu.schedule)["fault"]]

    def emit(self, mu, dtype):
        fault = self._fault(mu)
        if fault == "refused":
            raise KernelError("out of registers")
        if fault == "emitter breaks":
            raise ZeroDivisionError("no tile")
        facts = (mu.graph.program.name, mu.sizes, mu.par_sizes, mu.schedule, dtype)
        text = f"# fake kernel {' '.join(map(str, facts))}\n"
        self._emitted[text] = (mu, dtype)
        return KernelSource(text, {"dtype": dtype})

    def load(self, path, meta):
        mu, dtype = self._emitted[path.read_text()]
        assert meta["dtype"] == dtype
        match self._fault(mu):
            case "does not compile":
                raise TypeError("cannot unify float32 and Literal[int](1)")
            case "hang in compile":
                time.sleep(1000)
            case "crash in compile":
                os._exit(3)
        delay_s = dict(mu.schedule)["delay_ms"] * 1e-3
        return self.kernel(mu.graph.program, self._fault(mu), delay_s, dtype_of(dtype))

    def flush(self):
        pass

    def rehearsal(self, mu, dtype):
        return None


class NarrowTarget(FakeTarget):
    """Takes few dtypes."""

    dtypes = ("float32", "float64")


class RefusingTarget(FakeTarget):
    """Runs nothing."""

    options: ClassVar = {"fault": (FAULTS.index("refused"),), "delay_ms": (3, 1, 2)}


class SameTarget(FakeTarget):
    """Another name for the same."""


class FaultyTarget(FakeTarget):
    """One kernel of every fault."""

    options: ClassVar = {"fault": tuple(range(len(FAULTS))), "delay_ms": (1,)}


class HastyKernel(FakeKernel):
    """The faster the worse."""

    def __init__(self, program, fault, delay_s, dtype):
        super().__init__(program, fault, 1e-3 if fault == "overflows" else 1e-2, dtype)


class HastyTarget(FakeTarget):
    """Two kernels: a slow one, and a fast one that is wrong on large inputs alone."""

    kernel = HastyKernel
    options: ClassVar = {"fault": (0, FAULTS.index("overflows")), "delay_ms": (1,)}


class CarelessTarget(FakeTarget):
    """Two kernels that are right; one leaves its inputs changed."""

    options: ClassVar = {"fault": (0, FAULTS.index("writes input")), "delay_ms": (1,)}


class BrokenTarget(FakeTarget):
    """No kernel is right."""

    options: ClassVar = {"fault": (FAULTS.index("nan"),), "delay_ms": (1,)}


class CompiledKernel(FakeKernel):
    """Spills where it is predicted to take one millisecond; its own prediction is 10 % longer."""

    def __init__(self, program, fault, delay_s, dtype):
        super().__init__(program, fault, delay_s, dtype)
        self.facts = {"registers": 40, "shared_bytes": 1024, "spills": 8 * (delay_s == 1e-3)}
        self.predicted_s = 1.1 * delay_s

    def run_into(self, arrays, outputs):
        raise AssertionError("a kernel for another machine was run")


class OfflineTarget(FakeTarget):
    """Emits and compiles for a machine that is not here."""

    name = "fake_90"
    measures = False
    kernel = CompiledKernel

    def device(self):
        return Device("fake GPU", 4096, 1024, 2**17, 2**25, 0, 3000.0, "gpu", "fake_90")


class RehearsedTarget(OfflineTarget):
    """What stands in for the kernel of the best prediction is wrong."""

    kernel = FakeKernel

    def rehearsal(self, mu, dtype):
        fault = FAULTS.index("wrong tile") if dict(mu.schedule)["delay_ms"] == 1 else 0
        schedule = tuple({**dict(mu.schedule), "fault": fault}.items())
        return Rehearsal(replace(mu, schedule=schedule), FakeTarget())


class SpillingTarget(OfflineTarget):
    """Every kernel spills."""

    options: ClassVar = {"fault": (0,), "delay_ms": (1,)}


class ModellessTarget(OfflineTarget):
    """Its kernels predict nothing: the target's own estimate has to do."""

    kernel = FakeKernel


class UnstartableTarget(FakeTarget):
    """Works in the process that tunes, not in a worker."""

    def __init__(self):
        super().__init__()
        if any("prism.tune.worker import main" in argument for argument in sys.orig_argv):
            raise RuntimeError("no licence on this machine")
