"""The one table of sizes: each shipped workload at named shapes; benchmarks and plans pick from it.

  decode   8 rows, or one token of a batch, against weights or a cache that stream from memory
  larger   the same with many rows, where the products cost more than the traffic
  ragged   sizes that divide by nothing
  tiny     small enough for the simulator

`PUBLISHED` lists the ten configurations of the paper's evaluation; `FULL_SIZE` those of its search.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Sizes = Mapping[str, int]

SHAPE_NAMES = ("decode", "larger", "ragged", "tiny")
"""The shapes that every workload has."""


def _named(dims: str, **shapes: tuple[int, ...]) -> Mapping[str, Sizes]:
    """Shapes by name, their sizes in the order of `dims`."""
    names = dims.split()
    return MappingProxyType(
        {
            shape: MappingProxyType(dict(zip(names, row, strict=True)))
            for shape, row in shapes.items()
        }
    )


def _projection(dims: str, **more: tuple[int, ...]) -> Mapping[str, Sizes]:
    """Rows that end in a product with a square matrix of weights."""
    return _named(
        dims,
        decode=(8, 4096, 4096),
        larger=(256, 4096, 4096),
        ragged=(5, 1021, 1031),
        tiny=(4, 32, 16),
        **more,
    )


def _gated(dims: str) -> Mapping[str, Sizes]:
    """The MLP of an 8B Llama or Qwen: 4096 wide, 14336 inside; `dims` may end in the way down."""
    count = len(dims.split())
    return _named(
        dims,
        decode=(8, 4096, 14336, 4096)[:count],
        larger=(256, 4096, 14336, 4096)[:count],
        ragged=(5, 509, 1031, 521)[:count],
        tiny=(4, 16, 32, 16)[:count],
    )


def _grouped(dims: str) -> Mapping[str, Sizes]:
    """Decoding with 8 KV heads, 4 query heads each, of 128; `dims` may have V's own head size."""
    count = len(dims.split())
    return _named(
        dims,
        decode=(1, 8, 4, 128, 8192, 128)[:count],
        larger=(4, 8, 4, 128, 8192, 128)[:count],
        ragged=(1, 3, 5, 61, 1021, 67)[:count],
        tiny=(2, 2, 4, 8, 16, 8)[:count],
    )


_FOLDED = _named(
    "b q e k",
    decode=(2, 8, 128, 8192),
    larger=(2, 64, 128, 8192),
    ragged=(3, 5, 61, 1021),
    tiny=(2, 4, 8, 16),
    keys_8192=(2, 8, 128, 8192),
    keys_16384=(2, 8, 128, 16384),
)
"""The paper's attention: query heads folded into rows."""

SHAPES: Mapping[str, Mapping[str, Sizes]] = MappingProxyType(
    {
        "rmsnorm": _projection("n d h"),
        "rmsnorm_paper": _projection("n d h", d_4096=(8, 4096, 4096), d_1024=(8, 1024, 1024)),
        "rmsnorm_mlp": _gated("n d f h"),
        "rmsnorm_mlp_paper": _projection(
            "n d f", n_8=(8, 1024, 1024), n_16=(16, 1024, 1024), d_4096=(8, 4096, 4096)
        ),
        "rmsnorm_swiglu": _gated("n d f"),
        "swiglu": _gated("n d f"),
        "swiglu_paper": _projection("n d f", d_4096=(8, 4096, 4096), d_1024=(8, 1024, 1024)),
        "ffn": _gated("n d f h"),
        "attention": _grouped("b h g e s"),
        "attention_paper": _FOLDED,
        "qk_attention": _grouped("b h g e s"),
        "qk_attention_paper": _FOLDED,
        "linear_attention": _grouped("b h g e s f"),
        "layernorm_linear": _projection("n d h"),
        "residual_rmsnorm": _named(
            "n d", decode=(8, 4096), larger=(4096, 4096), ragged=(5, 1021), tiny=(4, 32)
        ),
        "lora": _named(
            "n d h r",
            decode=(8, 4096, 4096, 16),
            larger=(256, 4096, 4096, 16),
            ragged=(5, 1021, 1031, 7),
            tiny=(4, 32, 16, 8),
        ),
        "softmax_matmul": _projection("n k h"),
        "matmul": _projection("n d h"),
    }
)
"""Workload -> shape -> sizes."""

PUBLISHED: tuple[tuple[str, str], ...] = (
    ("attention_paper", "keys_8192"),
    ("attention_paper", "keys_16384"),
    ("qk_attention_paper", "keys_8192"),
    ("qk_attention_paper", "keys_16384"),
    ("rmsnorm_mlp_paper", "n_16"),
    ("rmsnorm_mlp_paper", "n_8"),
    ("rmsnorm_paper", "d_4096"),
    ("rmsnorm_paper", "d_1024"),
    ("swiglu_paper", "d_4096"),
    ("swiglu_paper", "d_1024"),
)
"""Workload and shape of the paper's ten configurations, in the order of its figures."""

FULL_SIZE: tuple[tuple[str, str], ...] = (
    ("rmsnorm_paper", "d_4096"),
    ("swiglu_paper", "d_4096"),
    ("attention_paper", "keys_8192"),
    ("qk_attention_paper", "keys_8192"),
    ("rmsnorm_mlp_paper", "d_4096"),
)
"""Where the paper counts the graphs of its search."""


def sizes_text(workload: str, shape: str) -> str:
    """The sizes as the command line takes them, e.g. `n=8,d=4096,h=4096`."""
    return ",".join(f"{dim}={size}" for dim, size in SHAPES[workload][shape].items())
