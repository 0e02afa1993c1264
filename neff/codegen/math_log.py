"""Logarithms.

In: an `Expr` of f32 or f64. Out: the same type, within the errors that docs/math.md lists; NaN
below the domain, -inf at its edge. Method: x = 2**k * m, 3/4 <= m < 3/2, log x = k ln 2 + log1p(m -
1); the latter a minimax polynomial for f32 and, for f64, the series in s = f / (2 + f) arranged as
in Sun's fdlibm (e_log.c, 1993), so that only a small term carries error.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_exp import LN2_PARTS
from neuron_compile.neff.codegen.math_expr import (
    INFINITY,
    NAN,
    Expr,
    by_register,
    fma,
    has_avx512,
    where,
)

# (log1p(f) - f) / f**2 for -1/4 <= f <= 1/2; error relative to log1p(f) 2**-27.6.
_LOG1P_TAIL_F32 = (
    -0.5, 0.3333345055580139, -0.25000110268592834, 0.19990848004817963, -0.1664687842130661,
    0.14477631449699402, -0.13163943588733673, 0.10472561419010162, -0.04515229910612106,
)  # fmt: skip
# 2 (atanh(s) / s - 1) / s**2 in powers of s**2 for |s| <= 0.2002; error relative to s 2**-62.6.
ATANH_TAIL = (
    0.666666666666666, 0.4000000000005674, 0.28571428555805495, 0.2222222429952012,
    0.18181665675397946, 0.15391118874696513, 0.1317347818373634, 0.13843883215412606,
)  # fmt: skip

# log2(e) in two parts.
_LOG2_E_PARTS = {
    "f32": (1.4426950216293335, 1.9259629911266175e-08),
    "f64": (1.4426950408889634, 2.0355273740931033e-17),
}


def log1p_tail(f: Expr) -> Expr:
    """log1p(f) - f for -1/4 <= f <= 1/2."""
    if f.format.elem == "f32":
        return f * f * f.polynomial(_LOG1P_TAIL_F32)
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    return fma(s, fma(z, z.polynomial(ATANH_TAIL), half_square), -half_square)


def _offset_bits(x: Expr) -> Expr:
    """The bits of x less those of 3/4: their exponent field is k, the rest gives m."""
    fmt = x.format
    return x.bits() - (fmt.one - (1 << (fmt.mantissa - 1)))


def _exponent(offset: Expr, like: Expr) -> Expr:
    """K as a float."""
    fmt = like.format
    k = offset >> fmt.mantissa
    if fmt.elem == "f32":
        return k.cast("arith.sitofp", "f32")
    # No 64-bit conversion before AVX-512: put the integer below the magic number instead.
    return (k + like.constant(fmt.magic).bits()).as_float("f64") - fmt.magic


def _mantissa(offset: Expr, like: Expr) -> Expr:
    fmt = like.format
    kept = offset & ((1 << fmt.mantissa) - 1)
    return (kept + (fmt.one - (1 << (fmt.mantissa - 1)))).as_float(fmt.elem)


def split(x: Expr) -> tuple[Expr, Expr]:
    """K and m of a positive finite x = 2**k * m, 3/4 <= m < 3/2, denormals included."""
    fmt = x.format
    small = x < fmt.tiny
    offset = _offset_bits(where(small, x * 2.0**fmt.mantissa, x))
    shift = where(small, x.constant(float(fmt.mantissa)), 0.0)
    return _exponent(offset, x) - shift, _mantissa(offset, x)


def _split_with_instructions(x: Expr) -> tuple[Expr, Expr]:
    """As `split`, for all x: k is -inf, inf or NaN and m 1 or NaN where log x is not finite."""
    # 3: mantissa in [3/4, 3/2); 3 << 2: NaN for a negative operand, 1 for -0.
    m = by_register(lambda part: _instruction("getmant", part, 3 | 3 << 2), x)
    exponents = [by_register(lambda part: _instruction("getexp", part), y) for y in (x, m)]
    return exponents[0] - exponents[1], m


def _instruction(name: str, x: Expr, *immediate: int) -> Expr:
    """An AVX-512 instruction on one register."""
    e, lanes, bits = x.e, x.lanes, x.lanes * x.format.bits
    kind = "ps" if x.format.elem == "f32" else "pd"
    mask = e.const("i16" if lanes == 16 else "i8", -1)
    rounding = [e.const("i32", 4)] if bits == 512 else []
    operands = [x.value, *(e.const("i32", i) for i in immediate), x.constant(0.0).value, mask]
    full = f"llvm.x86.avx512.mask.{name}.{kind}.{bits}"
    return Expr(e, e.intrinsic(full, [*operands, *rounding], x.format.elem, lanes))


def _finish(x: Expr, edge: float, result: Expr) -> Expr:
    """`result`, but -inf at the edge of the domain, NaN below it, and x itself for inf and NaN."""
    result = where(x < INFINITY, result, x)
    below = where(x < edge, x.constant(NAN), x)
    return where(x > edge, result, where(x.equals(edge), x.constant(-INFINITY), below))


def log(x: Expr) -> Expr:
    high, low = LN2_PARTS[x.format.elem]

    def combine(k: Expr, m: Expr) -> Expr:
        f = m - 1.0
        return fma(k, high, fma(k, low, log1p_tail(f)) + f)

    if has_avx512(x):
        return combine(*_split_with_instructions(x))
    return _finish(x, 0.0, combine(*split(x)))


def log2(x: Expr) -> Expr:
    """log2 x = k + (f + tail) log2 e, the product with f exact to twice the precision."""
    high, low = _LOG2_E_PARTS[x.format.elem]

    def combine(k: Expr, m: Expr) -> Expr:
        f = m - 1.0
        product = f * high
        rest = fma(f, low, fma(f, high, -product))
        rest = fma(log1p_tail(f), high, rest)
        # k + product may round: the rounding error joins the rest.
        total = k + product
        return total + ((k - total) + product + rest)

    if has_avx512(x):
        k, m = _split_with_instructions(x)
        return where(abs(k) < INFINITY, combine(k, m), k)
    return _finish(x, 0.0, combine(*split(x)))


def log1p(x: Expr, low: Expr | None = None) -> Expr:
    """log(1 + x), or log(1 + x + low) for a correction `low` below an ulp of x.

    The mantissa of the unrounded 1 + x is x * 2**-k + (2**-k - 1), rounded once.
    """
    fmt = x.format
    high_ln2, low_ln2 = LN2_PARTS[fmt.elem]
    u = x + 1.0
    offset = _offset_bits(u)
    k = _exponent(offset, x)
    inverse = (fmt.one - (offset & -(1 << fmt.mantissa))).as_float(fmt.elem)  # 2**-k
    f = fma(x, inverse, inverse - 1.0)
    # For large x the 1 is lost anyway, and 2**-k is no normal number at the very end.
    f = where(x > 2.0 ** (fmt.mantissa + 3), _mantissa(offset, x) - 1.0, f)
    tail = log1p_tail(f)
    if low is not None:
        tail = tail + low / u
    result = fma(k, high_ln2, fma(k, low_ln2, tail) + f).with_sign_of(x)
    return _finish(x, -1.0, result)
