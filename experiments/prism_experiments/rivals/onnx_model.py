"""A program as an ONNX model, with its weights in it: what onnxruntime is given.

Weights are constants of the model, as in an exported one, so that the runtime may pack them for
its kernels beforehand. Composites become the operators that exporters write for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism.ir import DataDim, Program, TensorId
from prism_experiments.rivals.composites import Composite, Norm
from prism_experiments.rivals.lower import lower
from prism_experiments.rivals.writer import Factors, Name

OPSET = 23
"""The first with RMSNormalization and Attention."""

IR_VERSION = 11

ELEMENTWISE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "add": ("Add",),
        "sub": ("Sub",),
        "mul": ("Mul",),
        "div": ("Div",),
        "maximum": ("Max",),
        "minimum": ("Min",),
        "neg": ("Neg",),
        "reciprocal": ("Reciprocal",),
        "exp": ("Exp",),
        "log": ("Log",),
        "sqrt": ("Sqrt",),
        "rsqrt": ("Sqrt", "Reciprocal"),
        "abs": ("Abs",),
        "relu": ("Relu",),
        "gelu_tanh": ("Gelu",),
        "gelu_erf": ("Gelu",),
        "sigmoid": ("Sigmoid",),
        "tanh": ("Tanh",),
    }
)
"""Operator of the table -> ONNX operators, one after the other; the rest is in `elementwise`."""

ATTRIBUTES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"gelu_tanh": {"approximate": "tanh"}}
)

REDUCE: Mapping[str, str] = MappingProxyType(
    {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}
)


class OnnxWriter:
    """Writes nodes of an ONNX graph (`prism_experiments.rivals.writer.Writer`)."""

    def __init__(self, onnx: Any, dtype: str) -> None:  # noqa: ANN401 - the module
        self._onnx = onnx
        self.dtype = np.dtype(dtype)
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[np.generic]] = {}

    def node(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:  # noqa: ANN401
        """One node, and the name of its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object, dtype: object = None) -> str:
        """An array or number of the model."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, self.dtype if dtype is None else dtype)  # type: ignore[call-overload]
        return name

    def whole(self, values: Sequence[int]) -> str:
        """A shape or list of axes."""
        return self.constant(values, np.int64)

    def named(self, value: Name) -> str:
        """A value by name, a number as a constant."""
        return value if isinstance(value, str) else self.constant(value)

    def argument(self, index: int) -> str:
        """An input of the model, or a weight."""
        return f"a{index}"

    def permute(self, x: str, order: tuple[int, ...]) -> str:
        """Transpose."""
        return self.node("Transpose", [x], perm=list(order))

    def unsqueeze(self, x: str, axes: tuple[int, ...]) -> str:
        """Unsqueeze."""
        return self.node("Unsqueeze", [x, self.whole(axes)])

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        """Reshape."""
        return self.node("Reshape", [x, self.whole(shape)])

    def expand(self, x: Name, shape: tuple[int, ...]) -> str:
        """Expand."""
        return self.node("Expand", [self.named(x), self.whole(shape)])

    def elementwise(self, op: str, operands: Sequence[Name]) -> str:
        """By the table, and what ONNX has no operator for."""
        names = [self.named(operand) for operand in operands]
        match op:
            case "square":
                return self.node("Mul", [names[0], names[0]])
            case "silu":
                return self.node("Mul", [names[0], self.node("Sigmoid", names)])
            case _:
                for word in ELEMENTWISE[op]:
                    names = [self.node(word, names, **ATTRIBUTES.get(op, {}))]
                return names[0]

    def choice(self, left: Name, right: Name, yes: Name, no: Name) -> str:
        """Where."""
        test = self.node("Greater", [self.named(left), self.named(right)])
        return self.node("Where", [test, self.named(yes), self.named(no)])

    def reduce(self, op: str, x: str, axis: int) -> str:
        """By the table."""
        return self.node(REDUCE[op], [x, self.whole([axis])], keepdims=0)

    def matmul(self, left: str, right: str) -> str:
        """MatMul."""
        return self.node("MatMul", [left, right])

    def softmax(self, x: str, axis: int) -> str:
        """Softmax."""
        return self.node("Softmax", [x], axis=axis)

    def norm(self, x: str, norm: Norm, size: int, factors: Factors) -> str:
        """LayerNormalization or RMSNormalization; both need a scale."""
        weight, bias = factors
        scale = weight or self.constant(np.ones(size))
        if norm.is_centred:
            inputs = [x, scale, *([] if bias is None else [bias])]
            return self.node("LayerNormalization", inputs, axis=-1, epsilon=norm.eps)
        return self.node("RMSNormalization", [x, scale], axis=-1, epsilon=norm.eps)

    def attention(self, qkv: tuple[str, str, str], scale: float, mask: str | None) -> str:
        """Attention."""
        return self.node("Attention", [*qkv, *([] if mask is None else [mask])], scale=scale)

    def roll(self, x: str, by: int, axis: int, size: int) -> str:
        """The end of the axis in front of its start; nothing is cut where it has size one."""
        if by == 0:
            return x
        ends = [self.slice(x, axis, size - by, size), self.slice(x, axis, 0, size - by)]
        return self.node("Concat", ends, axis=axis)

    def slice(self, x: str, axis: int, start: int, end: int, step: int = 1) -> str:
        """Part of an axis."""
        return self.node("Slice", [x, *(self.whole([i]) for i in (start, end, axis, step))])

    def flip(self, x: str, axis: int) -> str:
        """From the last place down to the first."""
        return self.slice(x, axis, -1, -(2**62), -1)

    def index(self, size: int, after: int) -> str:
        """A constant."""
        return self.constant(np.arange(size).reshape(size, *(1,) * after))


def onnx_model(  # noqa: PLR0913, PLR0917 - what a model is made of
    program: Program,
    sizes: Mapping[DataDim, int],
    composites: Mapping[TensorId, Composite],
    arrays: Sequence[NDArray[np.generic]],
    weights: frozenset[str],
    onnx: Any,  # noqa: ANN401 - the module
) -> Any:  # noqa: ANN401 - a model
    """The model: inputs `a0`, `a1`, ... but for the arguments that are `weights`."""
    helper = onnx.helper
    writer = OnnxWriter(onnx, arrays[0].dtype.name)
    results = lower(program, sizes, composites, writer)
    outputs = [writer.node("Identity", [name]) for name in results]
    kind = helper.np_dtype_to_tensor_dtype(writer.dtype)
    named = [(f"a{i}", argument.name in weights) for i, argument in enumerate(program.arguments)]
    constants = {
        **writer.constants,
        **{
            name: array for (name, is_weight), array in zip(named, arrays, strict=True) if is_weight
        },
    }
    graph = helper.make_graph(
        writer.nodes,
        program.name,
        [
            helper.make_tensor_value_info(name, kind, array.shape)
            for (name, is_weight), array in zip(named, arrays, strict=True)
            if not is_weight
        ],
        [
            helper.make_tensor_value_info(
                name, kind, [1 if d is None else sizes[d] for d in o.axes]
            )
            for name, o in zip(outputs, program.outputs, strict=True)
        ],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION)
