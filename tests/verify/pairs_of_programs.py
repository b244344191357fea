"""Pairs of programs of 3 to 15 operators that people write: equal, nearly equal, different.

One row per pair; to add one, add a row. `expected` is what `prism verify` has to answer: "proved",
"refuted" (not proved, with a counterexample), or "open" (equal, but beyond the axioms: a known
gap, which may become "proved").
"""

from __future__ import annotations

from dataclasses import dataclass

from prism import frontend as pr


@dataclass(frozen=True)
class Pair:
    name: str
    arguments: str
    """As in a function definition."""
    reference: str
    """The body: statements in lines, the last one a result."""
    candidate: str
    expected: str

    def source(self, side: str) -> str:
        """A file with the function `fn`."""
        *lines, result = getattr(self, side).splitlines()
        body = "".join(f"    {line}\n" for line in (*lines, f"return {result}"))
        return f"from prism import frontend as pr\n\ndef fn({self.arguments}):\n{body}"

    def program(self, side: str):
        names = {}
        exec(self.source(side), names)
        return pr.trace(names["fn"])


X = 'x: "n d"'
SOFTMAX = "pr.softmax(x, axis=-1)"
UNSAFE = "e = pr.exp(x)\ne / pr.sum(e, axis=-1, keepdims=True)"
ATTENTION = 'q: "n d", k: "m d", v: "m e"'
ATTENDED = "s = pr.exp(q @ k.T)\n(s / pr.sum(s, axis=-1, keepdims=True)) @ v"
NORM = "x - pr.mean(x, axis=-1, keepdims=True)"
SWIGLU = 'x: "n d", w: "d h", v: "d h"'
GELU = "0.5 * x * (1 + pr.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"

PAIRS = (
    # softmax and its kin
    Pair("softmax-unsafe", X, SOFTMAX, UNSAFE, "proved"),
    Pair(
        "softmax-reciprocal",
        X,
        SOFTMAX,
        "e = pr.exp(x - pr.max(x, axis=-1, keepdims=True))\n"
        "e * (1 / pr.sum(e, axis=-1, keepdims=True))",
        "proved",
    ),
    Pair("softmax-axis", X, SOFTMAX, "pr.softmax(x, axis=0)", "refuted"),
    Pair("softmax-no-sum", X, SOFTMAX, "pr.exp(x - pr.max(x, axis=-1, keepdims=True))", "refuted"),
    Pair(
        "softmax-by-lse",
        X,
        SOFTMAX,
        "pr.exp(x - pr.log(pr.sum(pr.exp(x), axis=-1, keepdims=True)))",
        "open",
    ),
    Pair("softmax-scaled", X, "pr.softmax(2 * x, axis=-1)", SOFTMAX, "refuted"),
    Pair(
        "log-softmax",
        X,
        f"pr.log({SOFTMAX})",
        "x - pr.log(pr.sum(pr.exp(x), axis=-1, keepdims=True))",
        "proved",
    ),
    Pair(
        "log-softmax-max",
        X,
        "pr.log_softmax(x, axis=-1)",
        "x - pr.max(x, axis=-1, keepdims=True)",
        "refuted",
    ),
    # attention
    Pair(
        "attention-division-last",
        ATTENTION,
        ATTENDED,
        "s = pr.exp(q @ k.T)\n(s @ v) / pr.sum(s, axis=-1, keepdims=True)",
        "proved",
    ),
    Pair(
        "attention-stable",
        ATTENTION,
        "pr.softmax(q @ k.T, axis=-1) @ v",
        "s = pr.exp(q @ k.T)\n(s @ v) / pr.sum(s, axis=-1, keepdims=True)",
        "proved",
    ),
    Pair(
        "attention-scale-moved",
        ATTENTION,
        "pr.softmax((q @ k.T) * 0.125, axis=-1) @ v",
        "pr.softmax((q * 0.125) @ k.T, axis=-1) @ v",
        "proved",
    ),
    Pair(
        "attention-no-scale",
        ATTENTION,
        "pr.softmax((q @ k.T) * 0.125, axis=-1) @ v",
        "pr.softmax(q @ k.T, axis=-1) @ v",
        "refuted",
    ),
    Pair(
        "attention-gqa",
        'q: "h g n d", k: "h m d", v: "h m d"',
        's = pr.softmax(pr.einsum("hgnd,hmd->hgnm", q, k), axis=-1)\n'
        'pr.einsum("hgnm,hmd->hgnd", s, v)',
        's = pr.exp(pr.einsum("hgnd,hmd->hgnm", q, k))\n'
        'pr.einsum("hgnm,hmd->hgnd", s, v) / pr.sum(s, axis=-1, keepdims=True)',
        "proved",
    ),
    Pair(
        "linear-attention",
        ATTENTION,
        "(pr.relu(q) @ pr.relu(k).T) @ v",
        "pr.relu(q) @ (pr.relu(k).T @ v)",
        "proved",
    ),
    Pair(
        "linear-attention-normalized",
        ATTENTION,
        "s = pr.exp(q) @ pr.exp(k).T\n(s @ v) / pr.sum(s, axis=-1, keepdims=True)",
        "a = pr.exp(k)\n(pr.exp(q) @ (a.T @ v)) / (pr.exp(q) @ pr.sum(a, axis=0))[:, None]",
        "proved",
    ),
    Pair(
        "linear-attention-nonlinear",
        ATTENTION,
        "pr.relu(q @ k.T) @ v",
        "pr.relu(q) @ (pr.relu(k).T @ v)",
        "refuted",
    ),
    # products
    Pair(
        "lora",
        'x: "n d", w: "d h", a: "d r", b: "r h"',
        "x @ (w + a @ b)",
        "x @ w + (x @ a) @ b",
        "proved",
    ),
    Pair(
        "lora-scaled",
        'x: "n d", w: "d h", a: "d r", b: "r h"',
        "x @ (w + 0.5 * (a @ b))",
        "x @ w + ((0.5 * x) @ a) @ b",
        "proved",
    ),
    Pair(
        "lora-scale-lost",
        'x: "n d", w: "d h", a: "d r", b: "r h"',
        "x @ (w + 0.5 * (a @ b))",
        "x @ w + (x @ a) @ b",
        "refuted",
    ),
    Pair(
        "matmul-chain",
        'a: "n d", b: "d e", c: "e f", g: "f h"',
        "((a @ b) @ c) @ g",
        "a @ (b @ (c @ g))",
        "proved",
    ),
    Pair(
        "matmul-chain-relu",
        'a: "n d", b: "d e", c: "e f"',
        "pr.relu(a @ b) @ c",
        "a @ pr.relu(b @ c)",
        "refuted",
    ),
    # normalization
    Pair(
        "rmsnorm-scale-moved",
        'x: "n d", g: "d", w: "d h"',
        "pr.rms_norm(x, g) @ w",
        "(x @ (g[:, None] * w)) / pr.sqrt(pr.mean(x * x, axis=-1, keepdims=True))",
        "proved",
    ),
    Pair(
        "rmsnorm-eps",
        'x: "n d", w: "d h"',
        "pr.rms_norm(x, eps=1e-6) @ w",
        "(x @ w) * pr.rsqrt(pr.sum(x * x, axis=-1, keepdims=True) / x.shape[1] + 1e-6)",
        "proved",
    ),
    Pair(
        "rmsnorm-other-eps",
        'x: "n d", w: "d h"',
        "pr.rms_norm(x, eps=1e-6) @ w",
        "pr.rms_norm(x, eps=1e-5) @ w",
        "refuted",
    ),
    Pair(
        "rmsnorm-missing-n",
        'x: "n d", w: "d h"',
        "pr.rms_norm(x) @ w",
        "(x @ w) / pr.sqrt(pr.sum(x * x, axis=-1, keepdims=True))",
        "refuted",
    ),
    Pair(
        "layernorm-spelled",
        X,
        "pr.layer_norm(x)",
        f"c = {NORM}\nc * pr.rsqrt(pr.sum(c**2, axis=-1, keepdims=True) / x.shape[1] + 1e-5)",
        "proved",
    ),
    Pair(
        "layernorm-not-centred",
        X,
        "pr.layer_norm(x)",
        f"c = {NORM}\nc / pr.sqrt(pr.mean(x**2, axis=-1, keepdims=True) + 1e-5)",
        "refuted",
    ),
    Pair(
        "layernorm-linear",
        'x: "n d", g: "d", b: "d", w: "d h"',
        "pr.layer_norm(x, g, b) @ w",
        f"c = {NORM}\nv = pr.mean(c * c, axis=-1, keepdims=True)\n"
        "(c @ (g[:, None] * w)) / pr.sqrt(v + 1e-5) + b @ w",
        "proved",
    ),
    # statistics
    Pair(
        "variance",
        X,
        f"pr.mean(({NORM}) ** 2, axis=-1)",
        "m = pr.mean(x, axis=-1)\npr.mean(x * x, axis=-1) - m * m",
        "proved",
    ),
    Pair(
        "variance-sum-of-squares",
        X,
        f"pr.mean(({NORM}) ** 2, axis=-1)",
        "pr.mean(x * x, axis=-1) - pr.mean(x, axis=-1)",
        "refuted",
    ),
    Pair("mean-of-means", X, "pr.mean(pr.mean(x, axis=-1))", "pr.mean(x)", "proved"),
    Pair("mean-of-sums", X, "pr.mean(pr.sum(x, axis=-1))", "pr.mean(x)", "refuted"),
    Pair("centred-mean", X, f"pr.sum({NORM}, axis=-1)", "pr.sum(x - x, axis=-1)", "proved"),
    # gated units and activations
    Pair(
        "swiglu",
        SWIGLU,
        "pr.silu(x @ w) * (x @ v)",
        "a = x @ w\n(a * (x @ v)) / (1 + pr.exp(-a))",
        "proved",
    ),
    Pair(
        "swiglu-swapped",
        SWIGLU,
        "pr.silu(x @ w) * (x @ v)",
        "pr.silu(x @ v) * (x @ w)",
        "refuted",
    ),
    Pair("gelu-tanh", X, 'pr.gelu(x, approximate="tanh")', GELU, "proved"),
    Pair("gelu-forms", X, 'pr.gelu(x, approximate="tanh")', "pr.gelu(x)", "refuted"),
    Pair("gelu-sigmoid", X, GELU, "x * pr.sigmoid(1.702 * x)", "refuted"),
    # small things
    Pair(
        "sub-swapped",
        'x: "n d", y: "n d", w: "d h"',
        "(x - y) @ w",
        "y @ w - x @ w",
        "refuted",
    ),
    Pair(
        "residual-scale",
        'x: "n d", s: ""',
        "s * x + x",
        "(s + 1) * x",
        "proved",
    ),
    Pair(
        "square-of-sum",
        'x: "n d", y: "n d"',
        "(x + y) ** 2",
        "x**2 + 2 * x * y + y**2",
        "proved",
    ),
    Pair(
        "square-of-sum-no-cross",
        'x: "n d", y: "n d"',
        "pr.sum((x + y) ** 2, axis=-1)",
        "pr.sum(x**2, axis=-1) + pr.sum(y**2, axis=-1)",
        "refuted",
    ),
    Pair(
        "distances",
        'x: "n d", y: "m d"',
        "pr.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)",
        "pr.sum(x**2, axis=-1)[:, None] - 2 * (x @ y.T) + pr.sum(y**2, axis=-1)[None, :]",
        "proved",
    ),
)
