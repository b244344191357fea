"""Programs that call the operators of operators.toml, each in two ways."""

import prism


def gated(x: "n d", w: "d h", v: "d h"):
    """A gated MLP with quick GELU."""
    return prism.ops.gelu_quick(x @ w) * (x @ v)


def gated_silu(x: "n d", w: "d h", v: "d h"):
    """The same with the SiLU that there is."""
    return prism.silu(1.702 * (x @ w)) / 1.702 * (x @ v)


def normed_query(q: "n h", c: "n h", s: "n h"):
    """A query that is normalized, then turned."""
    rms = prism.sqrt(prism.mean(prism.square(q), axis=-1, keepdims=True))
    return prism.ops.rope(q / rms, c, s)


def turned_query(q: "n h", c: "n h", s: "n h"):
    """A query that is turned first: the norm can wait until the scores."""
    rms = prism.sqrt(prism.mean(prism.square(q), axis=-1, keepdims=True))
    return prism.ops.rope(q, c, s) / rms
