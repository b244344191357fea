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


def _rmsnorm_mlp_paper(torch: Any) -> Form:  # noqa: ANN401
    def rmsnorm_mlp_paper(x: Any, w1: Any, w2: Any) -> Any:  # noqa: ANN401
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True))
        return (normed @ w1) * (normed @ w2)

    return rmsnorm_mlp_paper


def _swiglu(torch: Any) -> Form:  # noqa: ANN401
    silu = torch.nn.functional.silu

    def swiglu(x: Any, w_gate: Any, w_up: Any) -> Any:  # noqa: ANN401
        return silu(x @ w_gate) * (x @ w_up)

    return swiglu


def _ffn(torch: Any) -> Form:  # noqa: ANN401
    silu = torch.nn.functional.silu

    def ffn(x: Any, w_gate: Any, w_up: Any, w_down: Any) -> Any:  # noqa: ANN401
        return (silu(x @ w_gate) * (x @ w_up)) @ w_down

    return ffn


def _rmsnorm_swiglu(torch: Any) -> Form:  # noqa: ANN401
    functional = torch.nn.functional

    def rmsnorm_swiglu(x: Any, g: Any, w_gate: Any, w_up: Any) -> Any:  # noqa: ANN401
        normed = functional.rms_norm(x, x.shape[-1:], g, 1e-5)
        return functional.silu(normed @ w_gate) * (normed @ w_up)

    return rmsnorm_swiglu


def _rmsnorm_mlp(torch: Any) -> Form:  # noqa: ANN401
    functional = torch.nn.functional

    def rmsnorm_mlp(x: Any, g: Any, w_gate: Any, w_up: Any, w_down: Any) -> Any:  # noqa: ANN401
        normed = functional.rms_norm(x, x.shape[-1:], g, 1e-5)
        return (functional.silu(normed @ w_gate) * (normed @ w_up)) @ w_down

    return rmsnorm_mlp


def _attention_paper(torch: Any) -> Form:  # noqa: ANN401
    attend = torch.nn.functional.scaled_dot_product_attention

    def attention_paper(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401
        return attend(q, k, v, scale=1.0)  # without 1 / sqrt(e)

    return attention_paper


def _attention(torch: Any) -> Form:  # noqa: ANN401
    attend = torch.nn.functional.scaled_dot_product_attention

    def attention(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401
        return attend(q, k, v)  # the queries of a group are rows: no copy of its keys

    return attention


def _qk_attention_paper(torch: Any) -> Form:  # noqa: ANN401
    attend = torch.nn.functional.scaled_dot_product_attention

    def qk_attention_paper(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401
        normed = q * torch.rsqrt(q.square().mean(-1, keepdim=True))
        return attend(normed, k, v, scale=1.0)

    return qk_attention_paper


def _qk_attention(torch: Any) -> Form:  # noqa: ANN401
    functional = torch.nn.functional

    def qk_attention(q: Any, k: Any, v: Any, q_weight: Any, k_weight: Any) -> Any:  # noqa: ANN401
        e = q.shape[-1:]
        q = functional.rms_norm(q, e, q_weight, 1e-6)
        k = functional.rms_norm(k, e, k_weight, 1e-6)
        return functional.scaled_dot_product_attention(q, k, v)

    return qk_attention


def _linear_attention(torch: Any) -> Form:  # noqa: ANN401
    def linear_attention(q: Any, k: Any, v: Any) -> Any:  # noqa: ANN401
        return torch.matmul(q, torch.matmul(k.mT, v))

    return linear_attention


def _layernorm_linear(torch: Any) -> Form:  # noqa: ANN401
    layer_norm = torch.nn.functional.layer_norm

    def layernorm_linear(x: Any, g: Any, b: Any, w: Any) -> Any:  # noqa: ANN401
        return layer_norm(x, x.shape[-1:], g, b, 1e-5) @ w

    return layernorm_linear


def _residual_rmsnorm(torch: Any) -> Form:  # noqa: ANN401
    rms_norm = torch.nn.functional.rms_norm

    def residual_rmsnorm(x: Any, y: Any, g: Any) -> Any:  # noqa: ANN401
        residual = x + y
        return residual, rms_norm(residual, residual.shape[-1:], g, 1e-5)

    return residual_rmsnorm


def _lora(torch: Any) -> Form:  # noqa: ANN401
    def lora(x: Any, w: Any, a: Any, b: Any) -> Any:  # noqa: ANN401
        return torch.addmm(x @ w, x @ a, b)

    return lora


FORMS: Mapping[str, Callable[[Any], Form]] = MappingProxyType(
    {
        "rmsnorm": _rmsnorm,
        "rmsnorm_paper": _rmsnorm_paper,
        "softmax_matmul": _softmax_matmul,
        "matmul": _matmul,
        "rmsnorm_mlp_paper": _rmsnorm_mlp_paper,
        "swiglu": _swiglu,
        "ffn": _ffn,
        "rmsnorm_swiglu": _rmsnorm_swiglu,
        "rmsnorm_mlp": _rmsnorm_mlp,
        "attention_paper": _attention_paper,
        "attention": _attention,
        "qk_attention_paper": _qk_attention_paper,
        "qk_attention": _qk_attention,
        "linear_attention": _linear_attention,
        "layernorm_linear": _layernorm_linear,
        "residual_rmsnorm": _residual_rmsnorm,
        "lora": _lora,
        "swiglu_paper": _swiglu,
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
