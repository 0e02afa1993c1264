"""Sine, cosine and tangent.

In: an `Expr` of f32 or f64 of any size. Out: the same type, within the errors that docs/math.md
lists; NaN for inf. Method: reduction to |r| <= pi/4 and our own minimax polynomials of r; f64 (and
tangent) keep the low part of r, as Sun's fdlibm does (k_sin.c, k_cos.c, 1993).
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_expr import F32, Expr, fma, where
from neuron_compile.neff.codegen.math_pair import Pair, divide, ordered_sum, where_pair
from neuron_compile.neff.codegen.math_reduce import reduce_quarters, reduce_quarters_exactly

# (sin(r) / r - 1) / r**2 in powers of r**2; error relative to r 2**-27.7 (f32, |r| <= 0.803),
# 2**-58.0 (f64, |r| <= 0.7855).
_SIN_TAIL = {
    "f32": (-0.16666653752326965, 0.008332092314958572, -0.00019504861847963184),
    "f64": (
        -0.16666666666666632, 0.008333333333322484, -0.0001984126982985119,
        2.755731370411862e-06, -2.5050759718486896e-08, 1.589687550474266e-10,
    ),
}  # fmt: skip
# (cos(r) - 1 + r**2 / 2) / r**4 in powers of r**2; error 2**-32.8, 2**-64.1.
_COS_TAIL = {
    "f32": (0.04166664555668831, -0.0013887285022065043, 2.4427545213256963e-05),
    "f64": (
        0.0416666666666666, -0.001388888888887447, 2.4801587289666868e-05,
        -2.7557314399239946e-07, 2.0875728988548687e-09, -1.1359916919219477e-11,
    ),
}  # fmt: skip


def sin_kernel(r: Expr) -> Expr:
    """Sine for |r| <= pi/4."""
    z = r * r
    return fma(r * z, z.polynomial(_SIN_TAIL[r.format.elem]), r)


def cos_kernel(r: Expr) -> Expr:
    """Cosine for |r| <= pi/4."""
    z = r * r
    return fma(z * z, z.polynomial(_COS_TAIL[r.format.elem]), fma(z, -0.5, 1.0))


def _kernels(a: Expr) -> tuple[Expr, Expr, Expr]:
    """The quarter of a >= 0, and sin r and cos r."""
    if a.format is F32:
        quarter, r = reduce_quarters(a)
        return quarter, sin_kernel(r), cos_kernel(r)
    quarter, rest = reduce_quarters_exactly(a)
    return quarter, _sine(rest).value(), _cosine(rest).value()


def _sine(r: Pair) -> Pair:
    """Sine for |r| <= pi/4, the high part being r's."""
    z = r.high * r.high
    slope = fma(z, -0.5, 1.0)  # cos r, as far as the low part needs it
    tail = fma(r.high * z, z.polynomial(_SIN_TAIL[z.format.elem]), r.low * slope)
    return Pair(r.high, tail)


def _cosine(r: Pair) -> Pair:
    """Cosine for |r| <= pi/4."""
    z = r.high * r.high
    head = fma(z, -0.5, 1.0)
    # What rounding the head lost, z's own rounding included: with both parts of r**2.
    square_low = fma(r.high, r.high, -z)
    lost = fma(square_low, -0.5, fma(z, -0.5, 1.0 - head))
    tail = fma(z * z, z.polynomial(_COS_TAIL[z.format.elem]), fma(-r.high, r.low, lost))
    return Pair(head, tail)


def _flip(x: Expr, bit_one: Expr) -> Expr:
    """-x where bit 1 of the integer is set."""
    fmt = x.format
    return (x.bits() ^ ((bit_one << (fmt.bits - 2)) & -fmt.sign)).as_float(fmt.elem)


def sin(x: Expr) -> Expr:
    fmt = x.format
    quarter, sine, cosine = _kernels(abs(x))
    value = where((quarter & 1).differs(0), cosine, sine)
    return (_flip(value, quarter).bits() ^ (x.bits() & -fmt.sign)).as_float(fmt.elem)


def cos(x: Expr) -> Expr:
    quarter, sine, cosine = _kernels(abs(x))
    return _flip(where((quarter & 1).differs(0), sine, cosine), quarter + 1)


def tan(x: Expr) -> Expr:
    """The quotient sin r / cos r or -cos r / sin r, by the quarter."""
    fmt = x.format
    quarter, r = reduce_quarters_exactly(abs(x))
    sine, cosine = _sine(r), _cosine(r)
    sine = ordered_sum(sine.high, sine.low)
    cosine = ordered_sum(cosine.high, cosine.low)
    odd = (quarter & 1).differs(0)
    ratio = divide(where_pair(odd, -cosine, sine), where_pair(odd, sine, cosine)).high
    # A zero remainder of 0 / 1 is exact; its sign and x's are x's.
    return (ratio.bits() ^ (x.bits() & -fmt.sign)).as_float(fmt.elem)
