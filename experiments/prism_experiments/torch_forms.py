"""Each shipped workload as a torch user would write it: what our kernels are measured against.

torch is an extra, so a row makes the function when it is given the module. A form is held against
the float64 reference before it is timed (`prism_experiments.gpu.rivals`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from prism.errors import UsageError

Form = Callable[..., Any]
"""Takes the workload's arguments as tensors, in order."""


def _rmsnorm(torch: Any) -> Form:  # noqa: ANN401 - the module
    rms_norm = torch.nn.functional.rms_norm

    def rmsnorm(x: Any, g: Any, w: Any) -> Any:  # noqa: ANN401 - tensors
        return rms_norm(x, x.shape[-1:], g, 1e-5) @ w

    return rmsnorm


def _rmsnorm_paper(torch: Any) -> Form:  # noqa: ANN401
    def rmsnorm_paper(x: Any, w: Any) -> Any:  # noqa: ANN401
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True))) @ w

    return rmsnorm_paper


def _softmax_matmul(torch: Any) -> Form:  # noqa: ANN401
    def softmax_matmul(x: Any, w: Any) -> Any:  # noqa: ANN401
        return torch.softmax(x, -1) @ w

    return softmax_matmul


def _matmul(torch: Any) -> Form:  # noqa: ANN401
    def matmul(x: Any, w: Any) -> Any:  # noqa: ANN401
        return torch.matmul(x, w)

    return matmul


FORMS: Mapping[str, Callable[[Any], Form]] = MappingProxyType(
    {
        "rmsnorm": _rmsnorm,
        "rmsnorm_paper": _rmsnorm_paper,
        "softmax_matmul": _softmax_matmul,
        "matmul": _matmul,
    }
)
"""Workload -> what makes its form from the torch module."""


def torch_form(workload: str, torch: Any) -> Form:  # noqa: ANN401
    """The torch form of a workload.

    Raises:
        UsageError: it has none.
    """
    if workload not in FORMS:
        raise UsageError(
            f"{workload} has no torch form; add one to prism_experiments/torch_forms.py"
        )
    return FORMS[workload](torch)
