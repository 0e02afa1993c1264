"""Inverse trigonometric functions.

In: `Expr` values of f32 or f64. Out: the same type, within the errors that docs/math.md lists; NaN
outside the domain. Method: arguments are mapped to [0, 1] (arctangent) or [0, 1/2] (arcsine) by the
usual identities; constants such as pi/2 are added in two parts.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_expr import INFINITY, NAN, Expr, fma, where

# (atan(t) / t - 1) / t**2 in powers of t**2 for 0 <= t <= 1; error / t 2**-28.6, 2**-59.8.
_ATAN_TAIL = {
    "f32": (
        -0.33333301544189453, 0.1999862641096115, -0.14265091717243195, 0.1095665693283081,
        -0.08416454493999481, 0.05817786976695061, -0.03139415755867958, 0.011028744280338287,
        -0.0018186505185440183,
    ),
    "f64": (
        -0.3333333333333336, 0.20000000000001583, -0.14285714285657705, 0.1111111110463426,
        -0.09090908874158553, 0.07692303652708954, -0.06666617436367159, 0.058819287946760335,
        -0.052604493874133684, 0.04748668501677781, -0.04297165825370925, 0.03845432160683161,
        -0.033222790157667687, 0.026769456636715393, -0.019298335620620687, 0.011904269190728413,
        -0.005993758767410776, 0.002333187607315269, -0.0006526017411709625,
        0.00011598076972797878, -9.795240975659613e-06,
    ),
}  # fmt: skip
# (asin(s) / s - 1) / s**2 in powers of s**2 for 0 <= s <= 1/2; error / s 2**-27.5, 2**-59.8.
_ASIN_TAIL = {
    "f32": (
        0.16666753590106964, 0.07495252043008804, 0.0454760417342186, 0.024152090772986412,
        0.042211804538965225,
    ),
    "f64": (
        0.16666666666666763, 0.07499999999970128, 0.044642857175256304, 0.030381942676792683,
        0.022372215861095113, 0.017351596340550297, 0.013981008069568472, 0.011397381638889665,
        0.01078880912726976, 0.0036741743099929325, 0.0217856790972609, -0.021109514286200972,
        0.0326975504659782,
    ),
}  # fmt: skip

# pi/2 = high + low, high rounded to nearest.
_HALF_PI = {
    "f32": (1.5707963705062866, -4.371139000186241e-08),
    "f64": (1.5707963267948966, 6.123233995736766e-17),
}


def _atan_unit(t: Expr) -> Expr:
    """Arctangent for 0 <= t <= 1."""
    z = t * t
    return fma(t * z, z.polynomial(_ATAN_TAIL[t.format.elem]), t)


def atan(x: Expr) -> Expr:
    high, low = _HALF_PI[x.format.elem]
    a = abs(x)
    steep = a > 1.0
    p = _atan_unit(where(steep, 1.0, a) / where(steep, a, 1.0))
    return where(steep, high - (p - low), p).with_sign_of(x)


def atan2(y: Expr, x: Expr) -> Expr:
    """The angle of (x, y), signed like y; C17 F.10.1.4 for zeros and infinities."""
    high, low = _HALF_PI[x.format.elem]
    ax, ay = abs(x), abs(y)
    steep = ay > ax
    small, large = where(steep, ax, ay), where(steep, ay, ax)
    ratio = where(small.equals(INFINITY), 1.0, small / large)
    ratio = where(large.equals(0.0), 0.0, ratio)
    p = _atan_unit(ratio)
    backward = x.bits() < 0  # -0 included
    # pi/2 -+ p, pi - p or p: a multiple of pi/2 and the sign of p.
    base = where(steep, x.constant(1.0), where(backward, x.constant(2.0), 0.0))
    p = where((steep ^ backward), -p, p)
    angle = fma(base, high, fma(base, low, p))
    return where(x.is_nan() | y.is_nan(), NAN, angle.with_sign_of(y))


def _asin_parts(x: Expr) -> tuple[Expr, Expr, Expr]:
    """Whether |x| >= 1/2, and s, tail: asin |x| = s + tail, or there pi/2 - 2 (s + tail)."""
    a = abs(x)
    outer = a >= 0.5
    z = where(outer, fma(a, -0.5, 0.5), a * a)
    s = where(outer, z.square_root(), a)
    return outer, s, s * z * z.polynomial(_ASIN_TAIL[x.format.elem])


def asin(x: Expr) -> Expr:
    high, low = _HALF_PI[x.format.elem]
    outer, s, tail = _asin_parts(x)
    # high - 2s loses little: 2s <= 1 and the result is at least 1/2.
    complement = (high - (s + s)) - (tail + tail - low)
    return where(outer, complement, s + tail).with_sign_of(x)


def acos(x: Expr) -> Expr:
    high, low = _HALF_PI[x.format.elem]
    outer, s, tail = _asin_parts(x)
    s, tail = s.with_sign_of(x), tail.with_sign_of(x)
    middle = high - (s - (low - tail))
    twice, twice_tail = s + s, tail + tail
    right = twice + twice_tail
    left = (twice + 2.0 * high) + (twice_tail + 2.0 * low)
    return where(outer, where(x < 0.0, left, right), middle)
