"""The lockstep simulator: runs emitted CUDA kernels on NumPy arrays and finds their faults."""

from __future__ import annotations

from prism_kernels.lockstep.faults import Fault, FaultKind, LockstepFault
from prism_kernels.lockstep.launch import Statistics
from prism_kernels.lockstep.simulate import simulate

__all__ = ["Fault", "FaultKind", "LockstepFault", "Statistics", "simulate"]
