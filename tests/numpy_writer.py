"""The forms of rivals without a rival: a writer that computes in NumPy instead of writing."""

from __future__ import annotations

import numpy as np

from prism.bench.accuracy import norm_error
from prism.ir import OPS, evaluate
from prism_experiments.rivals.lower import lower


class NumpyWriter:
    """Computes each call at once; a name stands for its array. `called` lists the calls."""

    def __init__(self, arrays):
        self.values = {f"a{i}": np.asarray(array, np.float64) for i, array in enumerate(arrays)}
        self.called = []

    def add(self, what, value):
        name = f"v{len(self.values)}"
        self.called.append(what)
        self.values[name] = np.asarray(value)
        return name

    def __getitem__(self, name):
        return self.values[name] if isinstance(name, str) else name

    def argument(self, index):
        return f"a{index}"

    def permute(self, x, order):
        return self.add("permute", self[x].transpose(order))

    def unsqueeze(self, x, axes):
        return self.add("unsqueeze", np.expand_dims(self[x], axes))

    def reshape(self, x, shape):
        return self.add("reshape", self[x].reshape(shape))

    def expand(self, x, shape):
        return self.add("expand", np.broadcast_to(self[x], shape))

    def elementwise(self, op, operands):
        assert any(isinstance(operand, str) for operand in operands)
        return self.add(op, OPS[op].numpy(*(self[o] for o in operands)))

    def choice(self, left, right, yes, no):
        return self.add("choice", np.where(self[left] > self[right], self[yes], self[no]))

    def reduce(self, op, x, axis):
        return self.add(op, OPS[op].numpy(self[x], axis=axis))

    def matmul(self, left, right):
        return self.add("matmul", self[left] @ self[right])

    def softmax(self, x, axis):
        return self.add("softmax", _softmax(self[x], axis))

    def norm(self, x, norm, size, factors):
        value = self[x]
        assert value.shape[-1] == size
        if norm.is_centred:
            value = value - value.mean(-1, keepdims=True)
        weight, bias = factors
        out = value / np.sqrt(np.square(value).mean(-1, keepdims=True) + norm.eps)
        out = out if weight is None else out * self[weight]
        out = out if bias is None else out + self[bias]
        return self.add("layer_norm" if norm.is_centred else "rms_norm", out)

    def attention(self, qkv, scale, mask):
        q, k, v = (self[name] for name in qkv)
        assert q.ndim == k.ndim == v.ndim == 4
        scores = scale * (q @ k.swapaxes(-1, -2))
        scores = scores if mask is None else scores + self[mask]
        return self.add("attention", _softmax(scores, -1) @ v)

    def roll(self, x, by, axis, size):
        assert self[x].shape[axis] == size
        return self.add("roll", np.roll(self[x], by, axis))

    def flip(self, x, axis):
        return self.add("flip", np.flip(self[x], axis))

    def index(self, size, after):
        return self.add("index", np.arange(size).reshape(size, *(1,) * after))


def _softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def computed(program, sizes, composites, arrays):
    """The calls of a form, and its norm error against the program itself."""
    writer = NumpyWriter(arrays.values())
    names = lower(program, sizes, composites, writer)
    outputs = [writer[name] for name in names]
    return writer.called, norm_error(outputs, evaluate(program, arrays), "float64")
