"""Floating-point remainder.

In: `Expr` values of f32 or f64. Out: the same type. Invariant: exact, as in C: what is taken off in
one fused operation is a multiple that leaves a remainder which needs no rounding.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_expr import (
    INFINITY,
    NAN,
    Expr,
    any_lane,
    fma,
    power_of_two,
    where,
)


def _exponent_of(x: Expr) -> Expr:
    """floor(log2 x) of a positive finite x as an integer, denormals included."""
    fmt = x.format
    small = x < fmt.tiny
    field = where(small, x * 2.0**fmt.mantissa, x).bits() >> fmt.mantissa
    return field - where(small, field.constant(fmt.bias + fmt.mantissa), fmt.bias)


def fmod(x: Expr, y: Expr) -> Expr:
    """Exact x - trunc(x / y) * y with the sign of x; NaN if x is inf or y is 0.

    Each turn of the loop takes off a multiple of y * 2**k that leaves less than that, with k such
    that the quotient is below 2**mantissa. One turn does unless |x / y| is at least 2**mantissa.
    """
    fmt = x.format
    e = x.e
    invalid = ~((abs(x) < INFINITY) & (abs(y) > 0.0)) | y.is_nan()
    divisor = where(invalid | abs(y).equals(INFINITY), 1.0, abs(y))
    start = where(invalid, 0.0, abs(x))
    divisor_exponent = _exponent_of(divisor)

    def turn(rest: Expr) -> Expr:
        k = _exponent_of(rest) - divisor_exponent - (fmt.mantissa - 1)
        k = where(k > 0, k, 0)
        first = k >> 1  # k may exceed the largest exponent
        scaled = divisor * power_of_two(first, fmt) * power_of_two(k - first, fmt)
        quotient = (rest / scaled).floor()
        left = fma(-quotient, scaled, rest)
        # The rounded quotient may be one too large.
        return where(left < 0.0, left + scaled, left)

    def reduce(rest: Expr) -> Expr:
        return where(rest >= divisor, turn(rest), rest)

    with e.outside(max(start.value.depth, divisor.value.depth)):
        (value,) = e.while_loop(
            (start.value,),
            lambda state: any_lane(Expr(e, state[0]) >= divisor),
            lambda state: (reduce(Expr(e, state[0])).value,),
        )
    result = Expr(e, value).with_sign_of(x)
    result = where(abs(y).equals(INFINITY), x, result)
    return where(invalid, NAN, result)
