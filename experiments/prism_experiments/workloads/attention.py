"""Attention of one decoding step: a few query rows against a long cache of keys and values.

In the real forms `b` is the batch, `h` the KV heads, `g` the query heads that share a KV head, `s`
the positions of the cache and `e` the size of a head.
"""

# Annotations are dims here, not types.
# mypy: disable-error-code="name-defined,valid-type"

from __future__ import annotations

from typing import Any

from prism import frontend as pr

Tensor = Any


def attention_paper(q: "b q e", k: "b k e", v: "b k e") -> Tensor:
    """Attention as in the paper: heads folded into rows, no scale, no maximum subtracted."""
    scores = pr.exp(q @ k.mT)
    return (scores / pr.sum(scores, axis=-1, keepdims=True)) @ v


def attention(q: "b h g e", k: "b h s e", v: "b h s e") -> Tensor:
    """Grouped-query attention."""
    return pr.softmax(q @ k.mT / pr.sqrt(q.shape[-1])) @ v


def qk_attention_paper(q: "b q e", k: "b k e", v: "b k e") -> Tensor:
    """`attention_paper` with the rows of Q normalized, as in the paper."""
    normed = q / pr.sqrt(pr.mean(q**2, axis=-1, keepdims=True))
    scores = pr.exp(normed @ k.mT)
    return (scores / pr.sum(scores, axis=-1, keepdims=True)) @ v


def qk_attention(q: "b h g e", k: "b h s e", v: "b h s e", q_weight: "e", k_weight: "e") -> Tensor:
    """Grouped-query attention with RMSNorm of queries and keys, as Qwen3 has it."""
    queries = pr.rms_norm(q, q_weight, eps=1e-6)
    keys = pr.rms_norm(k, k_weight, eps=1e-6)
    return pr.softmax(queries @ keys.mT / pr.sqrt(q.shape[-1])) @ v


def linear_attention(q: "b h g e", k: "b h s e", v: "b h s f") -> Tensor:
    """Attention without a softmax: Q K^T V, for which K^T V may come first."""
    return (q @ k.mT) @ v
