"""Branch-free scalar functions as LLVM IR: exp, log, tanh, erf and friends, in two formats.

Each function is written once over a `NumberFormat` (float32 or float64): range reduction by exact
powers of two, then a polynomial whose coefficients belong to the format. No branch and no call
survives, so LLVM's loop vectoriser widens them like any arithmetic. At the ends of the range they
do what float64 NumPy does: exp(-inf) = 0, exp(large) = inf, log(0) = -inf, log(-1) = NaN, and NaN
stays NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs

I32 = ir.IntType(32)

REORDERED = ("contract", "reassoc", "nsz")
"""Fast-math flags of a sum's additions."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A binary floating-point format and the constants its functions need."""

    name: str
    float_type: ir.Type
    int_type: ir.IntType
    mantissa_bits: int
    exp_low: float
    """Here and below exp is 0, as it is for all that is less than 1.42 smallest normal numbers."""
    exp_high: float
    """Here and above exp is inf."""
    ln2_high: float
    ln2_low: float
    exp_terms: tuple[float, ...]
    log_terms: tuple[float, ...]
    tanh_terms: tuple[tuple[float, ...], tuple[float, ...]]
    erfc_terms: tuple[float, ...]

    @staticmethod
    @cache
    def of(dtype: str) -> NumberFormat:
        """The format of a NumPy dtype name."""
        return {"float32": _SINGLE, "float64": _DOUBLE}[dtype]

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(np.finfo(self.name).max)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with a full mantissa."""
        return float(np.finfo(self.name).tiny)


# exp: coefficients of degree 2 and up on [-ln2/2, ln2/2], highest first: float64 those of Taylor,
#   float32 a minimax fit of (exp(r) - 1 - r) / r^2 (relative error of exp: 3e-9).
# log: odd series of log((1+s)/(1-s)) in s^2, coefficients of fdlibm, highest first.
# tanh: cephes, for |x| < 0.625: x + x^3 P(x^2) / Q(x^2), highest first.
# erfc: erfc(z) = t exp(-z^2 + P(2t - 1)) with t = 2 / (2 + z); P fitted by Chebyshev
#   interpolation in 60 digits, highest first.
_SINGLE = NumberFormat(
    name="float32",
    float_type=ir.FloatType(),
    int_type=I32,
    mantissa_bits=23,
    exp_low=-87.2,
    exp_high=89.0,
    ln2_high=0.693359375,
    ln2_low=-2.12194440e-4,
    exp_terms=(
        1.3814539878868048e-3, 8.368745127098684e-3, 4.1668390789673736e-2,
        1.6666520398846837e-1, 4.999999343209902e-1,
    ),
    log_terms=(0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693),
    tanh_terms=(
        (
            -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2,
            1.33314422036e-1, -3.33332819422e-1,
        ),
        (1.0,),
    ),
    erfc_terms=(
        8.000738424565856e-06, 0.00033373589398953544, -0.0002279109665852938,
        -0.002048734760701088, 0.001794066250168606, 0.008703812035390291,
        -0.00988001932412819, -0.046874888178915435, 0.047343887612989737,
        0.6726422171554933, -0.6717940916807754,
    ),
)  # fmt: skip
_DOUBLE = NumberFormat(
    name="float64",
    float_type=ir.DoubleType(),
    int_type=ir.IntType(64),
    mantissa_bits=52,
    exp_low=-708.2,
    exp_high=710.0,
    ln2_high=6.93147180369123816490e-01,
    ln2_low=1.90821492927058770002e-10,
    exp_terms=(
        1 / 6227020800, 1 / 479001600, 1 / 39916800, 1 / 3628800, 1 / 362880, 1 / 40320,
        1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2,
    ),
    log_terms=(
        1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
        2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
        6.666666666666735130e-01,
    ),
    tanh_terms=(
        (-9.64399179425052238628e-1, -9.92877231001918586564e1, -1.61468768441708447952e3),
        (1.0, 1.12811678491632931402e2, 2.23548839060100448583e3, 4.84406305325125486048e3),
    ),
    erfc_terms=(
        3.001125883300536e-08, 1.2327570908741577e-09, -2.904657327331481e-07,
        1.572044255292442e-07, 1.2849260956939956e-06, -1.7063975089712376e-06,
        -2.9646164138001985e-06, 8.943385851532714e-06, 1.3998036470998477e-07,
        -3.0412801143789176e-05, 3.17473931301167e-05, 7.14905629682731e-05,
        -0.00017430447333477447, -9.375861668934302e-05, 0.0006736792506425063,
        -0.00014624292069511153, -0.002345812573116915, 0.001758933169620845,
        0.008824938563218306, -0.009872689346725728, -0.04689561023145295,
        0.04734330684150976, 0.6726432239776645, -0.6717940840566904,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Emit:
    """Writes arithmetic of one format into an LLVM builder."""

    builder: ir.IRBuilder
    fmt: NumberFormat

    def const(self, value: float) -> ir.Value:
        """A constant, rounded to the format."""
        return ir.Constant(self.fmt.float_type, float(np.dtype(self.fmt.name).type(value)))

    def integer(self, value: int) -> ir.Value:
        """An integer constant as wide as the format."""
        return ir.Constant(self.fmt.int_type, value)

    def call(self, intrinsic: str, *args: ir.Value) -> ir.Value:
        """An LLVM intrinsic overloaded on the format, such as llvm.sqrt."""
        declared = self.builder.module.declare_intrinsic(
            intrinsic,
            [self.fmt.float_type],
            ir.FunctionType(self.fmt.float_type, [a.type for a in args]),
        )
        return self.builder.call(declared, args)

    def polynomial(self, coefficients: Sequence[float], x: ir.Value) -> ir.Value:
        """Horner's scheme, the highest coefficient first."""
        value = self.const(coefficients[0])
        for c in coefficients[1:]:
            value = self.builder.fma(value, x, self.const(c))
        return value

    def select_less(self, x: ir.Value, limit: float, yes: ir.Value, no: ir.Value) -> ir.Value:
        """`yes` where x < limit, else `no` (also where x is NaN)."""
        return self.builder.select(self.builder.fcmp_ordered("<", x, self.const(limit)), yes, no)

    def power_of_two_below(self, x: ir.Value) -> tuple[ir.Value, ir.Value]:
        """2**(k - 1), 0 for the smallest k, and k for the integer k nearest to x.

        To a number of 2**mantissa_bits a fraction cannot be added: its last bits are k, and the
        exponent's bias if that was added, too.
        """
        b, fmt = self.builder, self.fmt
        bias = 2 ** (fmt.int_type.width - fmt.mantissa_bits - 2) - 2
        carrier = self.const(1.5 * 2**fmt.mantissa_bits + bias)
        shifted = b.fadd(x, carrier)
        bits = b.shl(b.bitcast(shifted, fmt.int_type), self.integer(fmt.mantissa_bits))
        return b.bitcast(bits, fmt.float_type), b.fsub(shifted, carrier)


def _exp(e: Emit, x: ir.Value) -> ir.Value:
    """The exponential: 2**(k - 1) (2 exp(r)), with r = x - k ln 2.

    Half of 2**k, as k may be one more than the largest exponent. Outside of the limits the product
    is 0 or inf; a NaN passes both selections and the polynomial.
    """
    b, fmt = e.builder, e.fmt
    low, high = e.const(fmt.exp_low), e.const(fmt.exp_high)
    clamped = b.select(b.fcmp_ordered("<", x, low), low, x)
    clamped = b.select(b.fcmp_ordered(">", clamped, high), high, clamped)
    half_power, k = e.power_of_two_below(b.fmul(clamped, e.const(1.4426950408889634)))
    r = b.fma(k, e.const(-fmt.ln2_high), clamped)
    r = b.fma(k, e.const(-fmt.ln2_low), r)
    doubled = [2.0 * c for c in (*fmt.exp_terms, 1.0, 1.0)]
    return b.fmul(half_power, e.polynomial(doubled, r))


def _log(e: Emit, x: ir.Value) -> ir.Value:
    """The natural logarithm k ln 2 + log(m), with m in [sqrt(1/2), sqrt(2))."""
    b, fmt = e.builder, e.fmt
    scale = float(2**fmt.mantissa_bits)
    tiny = b.fcmp_ordered("<", x, e.const(fmt.smallest_normal))
    normal = b.select(tiny, b.fmul(x, e.const(scale)), x)
    bits = b.bitcast(normal, fmt.int_type)
    half_sqrt = np.dtype(fmt.name).type(np.sqrt(0.5)).view(f"int{fmt.int_type.width}")
    shifted = b.sub(bits, e.integer(int(half_sqrt)))
    k = b.ashr(shifted, e.integer(fmt.mantissa_bits))
    mantissa = b.bitcast(b.sub(bits, b.shl(k, e.integer(fmt.mantissa_bits))), fmt.float_type)
    narrow = k if fmt.int_type == I32 else b.trunc(k, I32)
    excess = b.select(tiny, e.const(fmt.mantissa_bits), e.const(0.0))
    kf = b.fsub(b.sitofp(narrow, fmt.float_type), excess)
    f = b.fsub(mantissa, e.const(1.0))
    s = b.fdiv(f, b.fadd(f, e.const(2.0)))
    z = b.fmul(s, s)
    r = b.fmul(z, e.polynomial(fmt.log_terms, z))
    half_square = b.fmul(b.fmul(e.const(0.5), f), f)
    inner = b.fma(s, b.fadd(half_square, r), b.fmul(kf, e.const(fmt.ln2_low)))
    value = b.fma(kf, e.const(fmt.ln2_high), b.fadd(b.fsub(inner, half_square), f))
    value = b.select(b.fcmp_ordered("==", x, e.const(0.0)), e.const(float("-inf")), value)
    value = b.select(b.fcmp_ordered("==", x, e.const(float("inf"))), x, value)
    # NaN and negative numbers
    return b.select(b.fcmp_unordered("<", x, e.const(0.0)), e.const(float("nan")), value)


def _sigmoid(e: Emit, x: ir.Value) -> ir.Value:
    """The logistic function 1 / (1 + exp(-x)), 0 where exp is inf."""
    b = e.builder
    grown = b.fadd(e.const(1.0), _exp(e, b.fneg(x)))
    return b.fdiv(e.const(1.0), grown)


def _silu(e: Emit, x: ir.Value) -> ir.Value:
    """The SiLU x * sigmoid(x)."""
    return e.builder.fmul(x, _sigmoid(e, x))


def _tanh(e: Emit, x: ir.Value) -> ir.Value:
    """The hyperbolic tangent: rational near 0, elsewhere 1 - 2 / (exp(2|x|) + 1), signed."""
    b = e.builder
    size = e.call("llvm.fabs", x)
    z = b.fmul(x, x)
    above, below = e.fmt.tanh_terms
    ratio = e.polynomial(above, z)
    if len(below) > 1:
        ratio = b.fdiv(ratio, e.polynomial(below, z))
    near = b.fma(b.fmul(ratio, z), x, x)
    grown = b.fadd(_exp(e, b.fadd(size, size)), e.const(1.0))
    far = b.fsub(e.const(1.0), b.fdiv(e.const(2.0), grown))
    return e.select_less(size, 0.625, near, e.call("llvm.copysign", far, x))


def _gelu_tanh(e: Emit, x: ir.Value) -> ir.Value:
    """The GELU 0.5 x (1 + tanh(u)) = x sigmoid(2u), which does not cancel for negative x."""
    b = e.builder
    cubic = b.fma(b.fmul(b.fmul(x, x), x), e.const(0.044715), x)
    return b.fmul(x, _sigmoid(e, b.fmul(cubic, e.const(2.0 * np.sqrt(2.0 / np.pi)))))


def _gelu_erf(e: Emit, x: ir.Value) -> ir.Value:
    """The GELU 0.5 x erfc(-x / sqrt 2), which does not cancel for negative x."""
    b = e.builder
    z = b.fmul(e.call("llvm.fabs", x), e.const(np.sqrt(0.5)))
    t = b.fdiv(e.const(2.0), b.fadd(z, e.const(2.0)))
    bend = e.polynomial(e.fmt.erfc_terms, b.fsub(b.fadd(t, t), e.const(1.0)))
    tail = b.fmul(t, _exp(e, b.fsub(bend, b.fmul(z, z))))
    erfc = e.select_less(x, 0.0, tail, b.fsub(e.const(2.0), tail))
    return b.fmul(b.fmul(e.const(0.5), x), erfc)


def _bound(e: Emit, x: ir.Value) -> ir.Value:
    """Limit x to the finite numbers (a range reference must not be infinite); NaN stays."""
    low = e.call("llvm.maximum", x, e.const(-e.fmt.largest))
    return e.call("llvm.minimum", low, e.const(e.fmt.largest))


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A function of `arity` numbers and how to write it as IR."""

    arity: int
    build: Callable[..., ir.Value]


FUNCTIONS: dict[str, ScalarFunction] = {
    "exp": ScalarFunction(1, _exp),
    "log": ScalarFunction(1, _log),
    "sqrt": ScalarFunction(1, lambda e, x: e.call("llvm.sqrt", x)),
    "absolute": ScalarFunction(1, lambda e, x: e.call("llvm.fabs", x)),
    "sigmoid": ScalarFunction(1, _sigmoid),
    "silu": ScalarFunction(1, _silu),
    "tanh": ScalarFunction(1, _tanh),
    "gelu_tanh": ScalarFunction(1, _gelu_tanh),
    "gelu_erf": ScalarFunction(1, _gelu_erf),
    # llvm.maximum and llvm.minimum hand NaN on, as NumPy does
    "maximum": ScalarFunction(2, lambda e, x, y: e.call("llvm.maximum", x, y)),
    "minimum": ScalarFunction(2, lambda e, x, y: e.call("llvm.minimum", x, y)),
    "bound": ScalarFunction(1, _bound),
    # an addition of a sum, which LLVM may reorder
    "plus": ScalarFunction(2, lambda e, x, y: e.builder.fadd(x, y, flags=REORDERED)),
}
"""Name -> function. The names are those of `prism_kernels.cpu.intrinsics`."""
