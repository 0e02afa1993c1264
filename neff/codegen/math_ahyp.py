"""Inverse hyperbolic functions.

In: an `Expr` of f32 or f64. Out: the same type, within the errors that docs/math.md lists; NaN
outside the domain. Method: log1p of an argument computed to twice the precision, so that its
rounding does not show in a small result.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_expr import INFINITY, NAN, Expr, where
from neuron_compile.neff.codegen.math_log import log1p
from neuron_compile.neff.codegen.math_pair import (
    Pair,
    add,
    add_float,
    divide,
    exact_product,
    exact_sum,
    multiply,
    square_root,
)

_LN2 = 0.6931471805599453
# From here on the functions are log(2x) to the last bit, and up to here x**2 does not overflow.
_LARGE = {"f32": 2.0**26, "f64": 2.0**55}


def _log1p_or_log_twice(large: Expr, a: Expr, u: Pair) -> Expr:
    """log(2a) where `large`, else log(1 + u)."""
    result = log1p(where(large, a, u.high), where(large, 0.0, u.low))
    return where(large, result + _LN2, result)


def asinh(x: Expr) -> Expr:
    """log1p(a + a**2 / (1 + sqrt(1 + a**2))), a = |x|."""
    a = abs(x)
    large = a > _LARGE[x.format.elem]
    square = exact_product(a, a)
    root = square_root(add_float(square, 1.0))
    u = add_float(divide(square, add_float(root, 1.0)), a)
    result = _log1p_or_log_twice(large, a, u)
    # The square of a small a underflows, and asinh a is a.
    return where(a < 2.0 ** -(x.format.mantissa // 2 + 3), a, result).with_sign_of(x)


def acosh(x: Expr) -> Expr:
    """log1p(t + sqrt(t (t + 2))), t = x - 1."""
    large = x > _LARGE[x.format.elem]
    t = exact_sum(x, -1.0)
    root = square_root(multiply(t, add_float(t, 2.0)))
    result = _log1p_or_log_twice(large, x, add(t, root))
    return where(x > 1.0, result, where(x.equals(1.0), x.constant(0.0), NAN))


def atanh(x: Expr) -> Expr:
    """log1p(2a / (1 - a)) / 2, a = |x|."""
    a = abs(x)
    u = divide(Pair(a + a, a.constant(0.0)), exact_sum(a.constant(1.0), -a))
    result = log1p(u.high, u.low) * 0.5
    result = where(a < 2.0 ** -(x.format.mantissa // 2 + 3), a, result)
    beyond = where(a.equals(1.0), x.constant(INFINITY), NAN)
    return where(a < 1.0, result, beyond).with_sign_of(x)
