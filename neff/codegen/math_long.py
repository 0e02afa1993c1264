"""Logarithm and exponential of f64 beyond its precision, for what is built on them.

In: `Expr` values of f64. Out: a `Pair` good to about 2**-68, and e**(high + low) rounded once from
2**-57. Invariant: finite operands; a logarithm's are positive.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_exp import EXP_TAIL, LN2_PARTS, LOG2_E
from neuron_compile.neff.codegen.math_expr import (
    Expr,
    at_least,
    at_most,
    fma,
    scale_by_power_of_two,
    where,
)
from neuron_compile.neff.codegen.math_log import split
from neuron_compile.neff.codegen.math_pair import (
    Pair,
    add,
    constant_pair,
    exact_sum,
    multiply,
    ordered_sum,
)

# The terms of 2 (atanh(s) / s - 1) / s**2 after 2/3 + 2/5 s**2; error relative to s 2**-75.
_ATANH_REST = (
    0.2857142857142792, 0.22222222222505492, 0.1818181813198987, 0.15384620080129735,
    0.13333071453445483, 0.11773616680185438, 0.10345173173358754, 0.1152335336820157,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_TWO_FIFTHS = (0.4, -2.220446049250313e-17)
# ln 2 = high + low; high has 42 bits, so its product with an exponent is exact.
_LN2_LONG = (0.6931471805598903, 5.497923018708371e-14)


def log_pair(x: Expr) -> Pair:
    """Log x of a positive finite f64 to about 2**-68."""
    k, m = split(x)
    f = m - 1.0
    divisor = ordered_sum(x.constant(2.0), f)
    reciprocal = 1.0 / divisor.high
    s_high = f * reciprocal
    rest = fma(-s_high, divisor.low, fma(-s_high, divisor.high, f))
    s = Pair(s_high, rest * reciprocal)
    z = multiply(s, s)
    series = exact_sum(z.high * z.high.polynomial(_ATANH_REST), _TWO_FIFTHS[0])
    series = Pair(series.high, series.low + _TWO_FIFTHS[1])
    series = add(constant_pair(x, *_TWO_THIRDS), multiply(series, z))
    tail = multiply(multiply(series, z), s)
    log_m = add(Pair(s.high + s.high, s.low + s.low), tail)
    return add(Pair(k * _LN2_LONG[0], k * _LN2_LONG[1]), log_m)


def exp_pair(high: Expr, low: Expr) -> Expr:
    """e**(high + low) of f64, correctly rounded but for about 1 case in 10."""
    limit = 1100.0  # far out of range; there low may be large too
    low = where(abs(high) < limit, low, 0.0)
    x = at_most(at_least(high, -limit), limit)
    t = fma(x, LOG2_E, x.format.magic)
    n = t - x.format.magic
    r0 = fma(n, -LN2_PARTS["f64"][0], x)
    # `low` reaches half an ulp of `high`, which is much more than an ulp of r0.
    rest = exact_sum(r0, fma(n, -LN2_PARTS["f64"][1], low))
    r = rest.high
    one = ordered_sum(x.constant(1.0), r)
    tail = fma(r * r, r.polynomial(EXP_TAIL["f64"]), rest.low * one.high)
    return scale_by_power_of_two(one.high + (one.low + tail), n, t)
