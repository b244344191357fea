"""A program as the source of a torch function, as a user would write it: straight code, no graph.

    def form(a0, a1):
        v0 = torch.softmax(a0, 1)
        v1 = torch.matmul(v0, a1)
        return v1

The source can be read (`prism bench --json` gives it), and torch.compile sees plain code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from prism.ir import DataDim, Program, TensorId
from prism_experiments.rivals.composites import (
    Composite,
    Norm,
    find_attention,
    find_composites,
)
from prism_experiments.rivals.lower import lower
from prism_experiments.rivals.writer import Factors, Name

ELEMENTWISE: Mapping[str, str] = MappingProxyType(
    {
        "add": "{0} + {1}",
        "sub": "{0} - {1}",
        "mul": "{0} * {1}",
        "div": "{0} / {1}",
        "maximum": "torch.maximum({0}, {1})",
        "minimum": "torch.minimum({0}, {1})",
        "neg": "-{0}",
        "reciprocal": "torch.reciprocal({0})",
        "exp": "torch.exp({0})",
        "log": "torch.log({0})",
        "sqrt": "torch.sqrt({0})",
        "rsqrt": "torch.rsqrt({0})",
        "square": "torch.square({0})",
        "abs": "torch.abs({0})",
        "relu": "torch.relu({0})",
        "silu": "functional.silu({0})",
        "gelu_tanh": "functional.gelu({0}, approximate='tanh')",
        "gelu_erf": "functional.gelu({0})",
        "sigmoid": "torch.sigmoid({0})",
        "tanh": "torch.tanh({0})",
    }
)
"""Operator of the table -> torch expression."""

REDUCE: Mapping[str, str] = MappingProxyType(
    {"sum": "torch.sum({0}, {1})", "mean": "torch.mean({0}, {1})", "max": "torch.amax({0}, {1})"}
)

CLAMPS: Mapping[str, str] = MappingProxyType({"maximum": "min", "minimum": "max"})
"""`torch.maximum` takes no numbers, `torch.clamp` does."""


class TorchWriter:
    """Writes lines of a torch function (`prism_experiments.rivals.writer.Writer`)."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, expression: str) -> str:
        """One line, and the name of what it computes."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"    {name} = {expression}")
        return name

    def argument(self, index: int) -> str:
        """A parameter of the function."""
        return f"a{index}"

    def permute(self, x: str, order: tuple[int, ...]) -> str:
        """A view."""
        return self.line(f"{x}.permute({order})")

    def unsqueeze(self, x: str, axes: tuple[int, ...]) -> str:
        """A view."""
        return self.line("".join((x, *(f".unsqueeze({axis})" for axis in axes))))

    def reshape(self, x: str, shape: tuple[int, ...]) -> str:
        """A view where it can be one."""
        return self.line(f"{x}.reshape({shape})")

    def expand(self, x: Name, shape: tuple[int, ...]) -> str:
        """A view."""
        value = x if isinstance(x, str) else self.tensor(x)
        return self.line(f"{value}.expand({shape})")

    def elementwise(self, op: str, operands: Sequence[Name]) -> str:
        """By the table."""
        if op in CLAMPS:
            for x, bound in (operands, operands[::-1]):
                if not isinstance(bound, str):
                    return self.line(f"torch.clamp({x}, {CLAMPS[op]}={number(bound)})")
        return self.line(ELEMENTWISE[op].format(*map(number, operands)))

    def choice(self, left: Name, right: Name, yes: Name, no: Name) -> str:
        """`torch.where`."""
        test = f"torch.as_tensor({number(left)} > {number(right)})"
        yes = yes if isinstance(yes, str) or isinstance(no, str) else self.tensor(yes)
        return self.line(f"torch.where({test}, {number(yes)}, {number(no)})")

    def tensor(self, value: float) -> str:
        """A number as a tensor of the program's dtype."""
        return f"torch.tensor({number(value)}, dtype=a0.dtype)"

    def reduce(self, op: str, x: str, axis: int) -> str:
        """By the table."""
        return self.line(REDUCE[op].format(x, axis))

    def matmul(self, left: str, right: str) -> str:
        """A product of matrices."""
        return self.line(f"torch.matmul({left}, {right})")

    def softmax(self, x: str, axis: int) -> str:
        """One function."""
        return self.line(f"torch.softmax({x}, {axis})")

    def norm(self, x: str, norm: Norm, size: int, factors: Factors) -> str:
        """One function."""
        weight, bias = factors
        if norm.is_centred:
            bound = f"{weight}, {bias}, {norm.eps!r}"
            return self.line(f"functional.layer_norm({x}, ({size},), {bound})")
        bound = f"{weight}, {norm.eps!r}"
        return self.line(f"functional.rms_norm({x}, ({size},), {bound})")

    def attention(self, qkv: tuple[str, str, str], scale: float, mask: str | None) -> str:
        """One function."""
        options = f"attn_mask={mask}, scale={scale!r}"
        return self.line(f"functional.scaled_dot_product_attention({', '.join(qkv)}, {options})")

    def roll(self, x: str, by: int, axis: int, size: int) -> str:
        """One function."""
        del size
        return self.line(f"torch.roll({x}, {by}, {axis})")

    def flip(self, x: str, axis: int) -> str:
        """One function."""
        return self.line(f"torch.flip({x}, ({axis},))")

    def index(self, size: int, after: int) -> str:
        """Made at every call, as a user would; compilers fold it."""
        shape = (size, *(1,) * after)
        return self.line(f"torch.arange({size}, dtype=a0.dtype, device=a0.device).reshape({shape})")


def number(value: Name) -> str:
    """A name as it is, a number as source; infinite ones have no literal."""
    if isinstance(value, str):
        return value
    text = repr(value)
    return text if text.strip("-0123456789.e+") == "" else f"float('{text}')"


def torch_source(
    program: Program, sizes: Mapping[DataDim, int], composites: Mapping[TensorId, Composite]
) -> str:
    """The source of a function `form` that computes the program from its arguments, in order."""
    writer = TorchWriter()
    outputs = lower(program, sizes, composites, writer)
    arguments = ", ".join(f"a{i}" for i in range(len(program.arguments)))
    lines = (f"def form({arguments}):", *writer.lines, f"    return {', '.join(outputs)}")
    return "\n".join(lines) + "\n"


def torch_function(source: str, torch: Any) -> Callable[..., Any]:  # noqa: ANN401 - the module
    """The function that such a source defines; the source is our own."""
    names: dict[str, Any] = {"torch": torch, "functional": torch.nn.functional}
    exec(compile(source, "<torch form>", "exec"), names)
    function: Callable[..., Any] = names["form"]
    return function


FUNCTIONS = "functions"
"""The form with softmax and norms as functions."""

ATTENTION = "attention"
"""The form with scaled_dot_product_attention, where the program holds attention."""


def torch_forms(
    program: Program,
    sizes: Mapping[DataDim, int],
    torch: Any,  # noqa: ANN401 - the module
) -> dict[str, Callable[..., Any]]:
    """The program as a torch user writes it, by `FUNCTIONS` and, where it has any, `ATTENTION`."""
    attention = find_attention(program, sizes)
    found = {FUNCTIONS: find_composites(program, sizes)}
    if attention:
        found[ATTENTION] = attention
    return {
        name: torch_function(torch_source(program, sizes, composites), torch)
        for name, composites in found.items()
    }
