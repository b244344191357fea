"""The shipped workloads by family: plain NumPy-style functions, their dims as annotations.

On NumPy arrays they compute at once; that is the NumPy baseline they are measured against. A name
that ends in `_paper` is the program the paper evaluates, for comparison with its tables; the name
without it is what models run: weights and eps in norms, KV heads with groups of queries, scores
scaled, a softmax that subtracts its maximum. Their sizes are in `prism_experiments.sizes`.
"""

from __future__ import annotations

from prism_experiments.workloads.attention import (
    attention,
    attention_paper,
    linear_attention,
    qk_attention,
    qk_attention_paper,
)
from prism_experiments.workloads.linear import lora, matmul, softmax_matmul
from prism_experiments.workloads.mlp import (
    ffn,
    rmsnorm_mlp,
    rmsnorm_mlp_paper,
    rmsnorm_swiglu,
    swiglu,
    swiglu_paper,
)
from prism_experiments.workloads.norms import (
    layernorm_linear,
    residual_rmsnorm,
    rmsnorm,
    rmsnorm_paper,
)

__all__ = [
    "attention",
    "attention_paper",
    "ffn",
    "layernorm_linear",
    "linear_attention",
    "lora",
    "matmul",
    "qk_attention",
    "qk_attention_paper",
    "residual_rmsnorm",
    "rmsnorm",
    "rmsnorm_mlp",
    "rmsnorm_mlp_paper",
    "rmsnorm_paper",
    "rmsnorm_swiglu",
    "softmax_matmul",
    "swiglu",
    "swiglu_paper",
]
