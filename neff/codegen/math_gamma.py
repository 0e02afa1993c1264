"""The logarithm of the gamma function and its derivative.

In: an `Expr` of f32 or f64 (f32 is computed in f64). Out: the same type. Invariant: about 2 ulp for
positive arguments; for negative ones the reflection formula leaves an absolute error of some 1e-15
times the size of its terms, which shows where they cancel, next to the zeros between the poles.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from neuron_compile.neff.codegen.math_expr import F32, INFINITY, NAN, Expr, fma, where
from neuron_compile.neff.codegen.math_log import log
from neuron_compile.neff.codegen.math_long import log_pair
from neuron_compile.neff.codegen.math_pair import Pair, add_float, exact_sum, multiply_float
from neuron_compile.neff.codegen.math_trig import cos_kernel, sin_kernel

# lgamma(x) / ((x - 1) (x - 2)) in powers of x - 7/4 for 1 <= x <= 5/2; relative error 2**-54.8.
_LGAMMA_CENTRE = 1.75
_LGAMMA_NEAR = (
    0.4501393121092563, -0.11948158662524273, 0.04452044719851673, -0.019053957830250698,
    0.008776370424663827, -0.004226194125682763, 0.002095533899416904, -0.001060566082754382,
    0.0005448966598671026, -0.00028319049730254214, 0.0001485200747023766, -7.846301624324247e-05,
    4.168443688328159e-05, -2.2273217358342772e-05, 1.203718555600126e-05, -6.472033524353065e-06,
    3.2619813860319707e-06, -1.8002144174068312e-06, 1.411420906994307e-06, -7.142563002219909e-07,
    -1.1345995787738153e-07, 3.2209074770851567e-09, 3.346700034410582e-07, -1.4795525477427557e-07,
    -1.7009873567488176e-08,
)  # fmt: skip
# x (lgamma(x) - Stirling's leading terms) in powers of 1/x**2 for x >= 5/2; absolute error of the
# fit divided by x 2**-58.9. The first coefficients are near those of the series in DLMF 5.11.1.
_STIRLING = (
    0.0833333333333332, -0.002777777777671941, 0.0007936507678994779, -0.0005952351527214073,
    0.0008415585832647457, -0.0019095049920576045, 0.006180356882151061, -0.02475925709807938,
    0.1027825201110653, -0.3723075991242105, 1.0139962969044567, -1.7644768000221605,
    1.439923990710304,
)  # fmt: skip
_HALF_LOG_TWO_PI = 0.9189385332046728

# The zero of digamma, in two parts (DLMF 5.4.19), and digamma(x) / (x - zero) in powers of x - 3/2
# for 1 <= x <= 2; relative error 2**-53.6.
_DIGAMMA_ZERO = (1.4616321449683622, 9.549995429965697e-17)
_DIGAMMA_NEAR = (
    0.951055876031833, -0.4236274212814605, 0.24054248424072935, -0.14840492305389125,
    0.09498872446104052, -0.061922133275505026, 0.040760833491900135, -0.026975796626063465,
    0.017907260964741937, -0.011908221502782913, 0.00792681476350047, -0.005279910973817729,
    0.0035202082564414136, -0.0023457710068382535, 0.0015497620091718303, -0.0010347363752536904,
    0.0007470170678607417, -0.0004922774083837704, 0.00018206572716203097, -0.00013214270863587963,
    0.00029623990499559925, -0.00018887186232167396,
)  # fmt: skip
# x**2 (log x - 1/(2x) - digamma x) in powers of 1/x**2 for x >= 2 (near the series DLMF 5.11.2);
# error / x**2 2**-57.6.
_DIGAMMA_FAR = (
    0.08333333333332622, -0.008333333329683522, 0.003968253306065142, -0.004166604963928281,
    0.007572263554990111, -0.02095999466266502, 0.07970184786575375, -0.36760562611761,
    1.782658316646298, -8.022945443540754, 30.613765128696837, -92.71206939851596,
    210.01357780358055, -330.96703484370914, 321.77604843403185, -144.81290177876045,
)  # fmt: skip


def _sin_cos_pi(a: Expr) -> tuple[Expr, Expr]:
    """|sin(pi a)|, and the c with cot(pi a) = c / |sin(pi a)|, for a >= 0."""
    # The distance to the nearest integer is exact, and the cotangent has the period 1.
    distance = a - (a + 0.5).floor()
    folded = abs(distance)
    # Up to 1/4 directly, then by the complement.
    swap = folded > 0.25
    r = where(swap, 0.5 - folded, folded) * math.pi
    sine, cosine = sin_kernel(r), cos_kernel(r)
    return where(swap, cosine, sine), where(swap, sine, cosine).with_sign_of(distance)


def lgamma(x: Expr) -> Expr:
    """Log of |gamma(x)|; +inf at the poles 0, -1, -2, ... and for x = +-inf."""
    if x.format is F32:
        wide = x.cast("arith.extf", "f64")
        return _lgamma(wide, _log_as_pair).cast("arith.truncf", "f32")
    return _lgamma(x, log_pair)


def _log_as_pair(x: Expr) -> Pair:
    return Pair(log(x), x.constant(0.0))


def _lgamma(x: Expr, logarithm_of: Callable[[Expr], Pair]) -> Expr:
    a = abs(x)
    logarithm = logarithm_of(where(a > 0.0, a, 1.0))
    positive = where(a < 2.5, _lgamma_near(a, logarithm.high), _lgamma_far(a, logarithm))
    # lgamma(-a) = log(pi / (a |sin pi a|)) - lgamma(a); for tiny a both are -log a.
    sine, _ = _sin_cos_pi(a)
    tiny = a < 2.0**-60
    mirrored = log(math.pi / where(tiny, 1.0, a * sine)) - positive
    result = where((x < 0.0) & ~tiny, mirrored, positive)
    pole = (x <= 0.0) & a.floor().equals(a)
    return where(pole | a.equals(INFINITY), INFINITY, result)


def _lgamma_near(a: Expr, log_a: Expr) -> Expr:
    """lgamma(a) for 0 < a <= 5/2; below 1 by gamma(a) = gamma(a + 1) / a."""
    low = a < 1.0
    near = where(low, a + 1.0, a)
    zeros = where(low, a * (a - 1.0), (a - 1.0) * (a - 2.0))
    value = zeros * (near - _LGAMMA_CENTRE).polynomial(_LGAMMA_NEAR)
    return where(low, value - log_a, value + 0.0)  # no -0 at 1


def _lgamma_far(a: Expr, log_a: Pair) -> Expr:
    """(a - 1/2) (log a - 1) + log(2 pi)/2 - 1/2 + fit / a for a >= 5/2."""
    inverse = 1.0 / a
    fit = (inverse * inverse).polynomial(_STIRLING) * inverse
    leading = multiply_float(add_float(log_a, -1.0), a - 0.5)
    leading = add_float(leading, _HALF_LOG_TWO_PI - 0.5)
    value = leading.high + (leading.low + fit)
    return where(a > 1e300, (log_a.high - 1.0) * a, value)  # where the pair may overflow


def digamma(x: Expr) -> Expr:
    """Derivative of log gamma; -inf at +0, +inf at -0, NaN at the other poles, as in PyTorch."""
    if x.format is F32:
        return _digamma(x.cast("arith.extf", "f64")).cast("arith.truncf", "f32")
    return _digamma(x)


def _digamma(x: Expr) -> Expr:
    # Reflection for x < 0 (not below 1, to keep small positive x precise).
    negative = x < 0.0
    p = where(negative, 1.0 - x, x)
    # Below 1 by digamma(p) = digamma(p + 1) - 1/p.
    low = p < 1.0
    near = where(low, p + 1.0, p)
    distance = exact_sum(near, -_DIGAMMA_ZERO[0])
    close = (distance.high + (distance.low - _DIGAMMA_ZERO[1])) * (near - 1.5).polynomial(
        _DIGAMMA_NEAR
    )
    close = where(low, close - 1.0 / p, close)
    inverse = 1.0 / p
    square = inverse * inverse
    far = log(p) - fma(square, square.polynomial(_DIGAMMA_FAR), inverse * 0.5)
    positive = where(p < 2.0, close, far)
    sine, cosine = _sin_cos_pi(abs(x))
    # digamma(x) = digamma(1 - x) - pi cot(pi x), and cot is odd.
    result = where(negative, fma(cosine / sine, math.pi, positive), positive)
    result = where(negative & x.floor().equals(x), NAN, result)
    zero = x.constant(-INFINITY).with_sign_of(-x)
    return where(x.equals(0.0), zero, where(x.equals(INFINITY), x, result))
