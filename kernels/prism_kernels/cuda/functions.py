"""The float32 functions of emitted CUDA kernels as straight PTX: no branch, no call.

Each function is one block of inline PTX. Compared with libdevice's, sigmoid and its kin take half
the instructions, gelu_erf links in half the time, and tests can check the meaning without a GPU:
they interpret these few instructions over the whole range of float32.

At the ends of the range they do what NumPy does on float64: exp(-inf) = 0, exp(large) = inf,
log(0) = -inf, log(-1) = NaN; NaN stays NaN, and maximum and minimum hand it on. The formulas are
those of `prism_kernels.cpu.functions`: nothing overflows to NaN, nothing cancels for negative
numbers. Relative errors stay under 6e-7 (gelu: 5e-6 far down the tail).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

LARGEST = float(np.finfo(np.float32).max)
SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
LOG2_E = math.log2(math.e)

# log: cephes' minimax polynomial of (log(1 + f) - f + f^2 / 2) / f^3 on [sqrt(1/2), sqrt(2)] - 1.
# tanh: cephes, (tanh(x) - x) / x^3 in x^2 for |x| < 0.625.
# erfc: erfc(z) = t exp(-z^2 + P(2t - 1)) with t = 2 / (2 + z), as on the CPU. Highest first, all.
LOG_TERMS = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
    -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
TANH_TERMS = (
    -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
)  # fmt: skip
ERFC_TERMS = (
    8.000738424565856e-06, 0.00033373589398953544, -0.0002279109665852938, -0.002048734760701088,
    0.001794066250168606, 0.008703812035390291, -0.00988001932412819, -0.046874888178915435,
    0.047343887612989737, 0.6726422171554933, -0.6717940916807754,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """One PTX instruction; operands are registers, parameters (`$1`, ..) and constants."""

    name: str
    result: str
    operands: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} {', '.join((self.result, *self.operands))};"


@dataclass(slots=True)
class Ptx:
    """A block of PTX under construction; every result has a register of its own."""

    steps: list[Step] = field(default_factory=list)

    def __call__(self, name: str, *operands: str | float) -> str:
        """Append an instruction; the register of its result (a predicate for a comparison)."""
        kind = "%p" if name.startswith("setp") else "%t"
        result = f"{kind}{len(self.steps)}"
        texts = tuple(o if isinstance(o, str) else constant(o) for o in operands)
        self.steps.append(Step(name, result, texts))
        return result

    def polynomial(self, terms: Sequence[float], x: str) -> str:
        """Horner's scheme, the highest coefficient first."""
        value: str | float = terms[0]
        for term in terms[1:]:
            value = self("fma.rn.f32", value, x, term)
        return str(value)

    def select_less(self, x: str, limit: float, yes: str | float, no: str | float) -> str:
        """`yes` where x < limit, else `no` (also where x is NaN)."""
        return self("selp.f32", yes, no, self("setp.lt.f32", x, limit))


def constant(value: float) -> str:
    """A float32 constant as PTX writes it."""
    return f"0f{int(np.float32(value).view(np.uint32)):08X}"


def _exp(ptx: Ptx, x: str) -> str:
    """The exponential 2^k 2^r with k = floor(x log2 e).

    The sum with 1.5 * 2^23 + 127 leaves k + 127 in the low bits, which shift into the exponent: the
    bounds make that field 0 (the result is 0) and 255 (infinity).
    """
    shift = 1.5 * 2**23 + 127
    bounded = ptx("min.NaN.f32", ptx("max.NaN.f32", x, -87.9), 88.9)
    shifted = ptx("fma.rm.f32", bounded, LOG2_E, shift)
    k = ptx("sub.rn.f32", shift, shifted)  # negated
    r = ptx("fma.rn.f32", bounded, LOG2_E, k)
    r = ptx("fma.rn.f32", bounded, LOG2_E - float(np.float32(LOG2_E)), r)
    return ptx("mul.rn.f32", ptx("ex2.approx.ftz.f32", r), ptx("shl.b32", shifted, "23"))


def _log(ptx: Ptx, x: str) -> str:
    """The natural logarithm k ln 2 + log(1 + f), with 1 + f in [sqrt(1/2), sqrt(2))."""
    tiny = ptx("setp.lt.f32", x, SMALLEST_NORMAL)
    normal = ptx("selp.f32", ptx("mul.rn.f32", x, 2.0**23), x, tiny)
    half_sqrt = int(np.float32(math.sqrt(0.5)).view(np.int32))
    exponent = ptx("and.b32", ptx("sub.s32", normal, str(half_sqrt)), str(-(2**23)))
    k = ptx("cvt.rn.f32.s32", ptx("shr.s32", exponent, "23"))
    k = ptx("add.rn.f32", k, ptx("selp.f32", -23.0, 0.0, tiny))
    f = ptx("add.rn.f32", ptx("sub.s32", normal, exponent), -1.0)
    square = ptx("mul.rn.f32", f, f)
    tail = ptx("mul.rn.f32", ptx("mul.rn.f32", f, square), ptx.polynomial(LOG_TERMS, f))
    tail = ptx("fma.rn.f32", k, -2.12194440e-4, tail)
    tail = ptx("fma.rn.f32", square, -0.5, tail)
    value = ptx("fma.rn.f32", k, 0.693359375, ptx("add.rn.f32", f, tail))
    value = ptx("selp.f32", x, value, ptx("setp.eq.f32", x, math.inf))
    value = ptx("selp.f32", -math.inf, value, ptx("setp.eq.f32", x, 0.0))
    # NaN and negative numbers
    return ptx("selp.f32", math.nan, value, ptx("setp.ltu.f32", x, 0.0))


def _sigmoid(ptx: Ptx, x: str) -> str:
    """The logistic function 1 / (1 + exp(-x)), 0 where exp is inf."""
    grown = _exp(ptx, ptx("neg.f32", x))
    return ptx("rcp.approx.ftz.f32", ptx("add.rn.f32", grown, 1.0))


def _silu(ptx: Ptx, x: str) -> str:
    """The SiLU x * sigmoid(x)."""
    return ptx("mul.rn.f32", x, _sigmoid(ptx, x))


def _tanh(ptx: Ptx, x: str) -> str:
    """The hyperbolic tangent: a polynomial near 0, elsewhere 1 - 2 / (exp(2|x|) + 1), signed."""
    size = ptx("abs.f32", x)
    z = ptx("mul.rn.f32", x, x)
    near = ptx("fma.rn.f32", ptx("mul.rn.f32", ptx.polynomial(TANH_TERMS, z), z), x, x)
    grown = ptx("add.rn.f32", _exp(ptx, ptx("add.rn.f32", size, size)), 1.0)
    far = ptx("fma.rn.f32", ptx("rcp.approx.ftz.f32", grown), -2.0, 1.0)
    return ptx.select_less(size, 0.625, near, ptx("copysign.f32", x, far))


def _gelu_tanh(ptx: Ptx, x: str) -> str:
    """The GELU 0.5 x (1 + tanh(u)) = x sigmoid(2u), which does not cancel for negative x."""
    cube = ptx("mul.rn.f32", ptx("mul.rn.f32", x, x), x)
    bent = ptx("fma.rn.f32", cube, 0.044715, x)
    scaled = ptx("mul.rn.f32", bent, 2.0 * math.sqrt(2.0 / math.pi))
    return ptx("mul.rn.f32", x, _sigmoid(ptx, scaled))


def _gelu_erf(ptx: Ptx, x: str) -> str:
    """The GELU 0.5 x erfc(-x / sqrt 2), which does not cancel for negative x."""
    z = ptx("mul.rn.f32", ptx("abs.f32", x), math.sqrt(0.5))
    half = ptx("rcp.approx.ftz.f32", ptx("add.rn.f32", z, 2.0))
    t = ptx("add.rn.f32", half, half)
    bend = ptx.polynomial(ERFC_TERMS, ptx("fma.rn.f32", half, 4.0, -1.0))
    small = _exp(ptx, ptx("fma.rn.f32", ptx("neg.f32", z), z, bend))
    tail = ptx("mul.rn.f32", t, small)
    erfc = ptx.select_less(x, 0.0, tail, ptx("sub.rn.f32", 2.0, tail))
    return ptx("mul.rn.f32", ptx("mul.rn.f32", x, 0.5), erfc)


def _bound(ptx: Ptx, x: str) -> str:
    """Limit x to the finite numbers (a range reference must not be infinite); NaN stays."""
    return ptx("min.NaN.f32", ptx("max.NaN.f32", x, -LARGEST), LARGEST)


_BUILDERS: dict[str, tuple[int, Callable[..., str]]] = {
    "maximum": (2, lambda ptx, x, y: ptx("max.NaN.f32", x, y)),
    "minimum": (2, lambda ptx, x, y: ptx("min.NaN.f32", x, y)),
    "bound": (1, _bound),
    "absolute": (1, lambda ptx, x: ptx("abs.f32", x)),
    # IEEE's division and root are subroutines: the registers of a whole kernel would be spilt
    "divide": (2, lambda ptx, x, y: ptx("div.full.f32", x, y)),
    "sqrt": (1, lambda ptx, x: ptx("sqrt.approx.f32", x)),
    "exp": (1, _exp),
    "log": (1, _log),
    "tanh": (1, _tanh),
    "sigmoid": (1, _sigmoid),
    "silu": (1, _silu),
    "gelu_tanh": (1, _gelu_tanh),
    "gelu_erf": (1, _gelu_erf),
}


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function of `arity` float32 numbers `$1`, ..: its instructions, the last one its value."""

    arity: int
    steps: tuple[Step, ...]

    @property
    def assembly(self) -> str:
        """The block of inline PTX that sets `$0`; its registers are its own."""
        count = len(self.steps)
        *body, last = self.steps
        lines = [str(step) for step in (*body, Step(last.name, "$0", last.operands))]
        return " ".join(["{", f".reg .b32 %t<{count}>; .reg .pred %p<{count}>;", *lines, "}"])


def _function(name: str) -> ScalarFunction:
    arity, build = _BUILDERS[name]
    ptx = Ptx()
    build(ptx, *(f"${i + 1}" for i in range(arity)))
    return ScalarFunction(arity, tuple(ptx.steps))


FUNCTIONS: dict[str, ScalarFunction] = {name: _function(name) for name in _BUILDERS}
"""Name -> function. The names are those of `prism_kernels.cuda.dialect`."""
