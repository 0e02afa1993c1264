"""Exponential functions and those made of one exponential.

In: an `Expr` of f32 or f64. Out: the same type, within the errors that docs/math.md lists; NaN
kept. Method: x = n ln 2 + r with |r| <= ln(2)/2 (Cody and Waite, "Software Manual for the
Elementary Functions", 1980), a minimax polynomial of r, and one scaling by 2**n. The coefficients
are our own fits (linear programming on mpmath residuals); the tests derive their error bounds anew.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_expr import (
    Expr,
    at_least,
    at_most,
    fma,
    has_avx512,
    scale_by_power_of_two,
    where,
)

LOG2_E = 1.4426950408889634

# ln 2 in two parts. The first is cut off short of the format's precision, so both are positive:
# then n = 0 leaves the sign of a zero alone.
LN2_PARTS = {
    "f32": (0.6931471228599548, 5.7699990475432854e-08),
    "f64": (0.6931471805599453, 2.3190468138462996e-17),
}
# The same rounded to nearest, where the second part is below what the result can show.
LN2_SHORT = {"f32": (0.6931471824645996,), "f64": LN2_PARTS["f64"]}

# (e**r - 1 - r) / r**2 for |r| <= 0.3483; error relative to e**r 2**-28.1 (f32), 2**-57.9 (f64).
EXP_TAIL = {
    "f32": (
        0.5, 0.166665181517601, 0.04166638106107712, 0.008369036950170994, 0.0013942570658400655,
    ),
    "f64": (
        0.5000000000000013, 0.16666666666666702, 0.04166666666650978, 0.008333333333305663,
        0.0013888888948656742, 0.00019841269920451053, 2.480148810085438e-05,
        2.7557213713041397e-06, 2.7631981380480834e-07, 2.5118647936664466e-08,
    ),
}  # fmt: skip
# (e**r - 1 - r) / r**2 in f64; error 2**-39.6.
_EXP_TAIL_SHORT = (
    0.49999999999501193, 0.16666666790212387, 0.04166666706535755, 0.008333280238517203,
    0.0013888794637628296, 0.00019909914873072421, 2.4888444453300138e-05,
)  # fmt: skip
# (2**r - 1) / r for |r| <= 0.5; error 2**-28.3, 2**-57.9.
EXP2_TAIL = {
    "f32": (
        0.6931471824645996, 0.24022650718688965, 0.05550359562039375, 0.009618062525987625,
        0.0013390985550358891, 0.0001546286221127957,
    ),
    "f64": (
        0.6931471805599453, 0.2402265069591012, 0.05550410866482261, 0.00961812910759767,
        0.0013333558146255515, 0.00015403530453519522, 1.525273394865723e-05, 1.321543678640712e-06,
        1.0178021370342543e-07, 7.0735594860939544e-09, 4.4603508428693786e-10,
    ),
}  # fmt: skip
# (sinh(x) / x - 1) / x**2 as a polynomial of x**2 for |x| <= 1; error 2**-31.5, 2**-61.7.
SINH_TAIL = {
    "f32": (
        0.1666666716337204, 0.008333311416208744, 0.00019842635083477944, 2.7839255380968098e-06,
    ),
    "f64": (
        0.16666666666666669, 0.008333333333332915, 0.00019841269841589247, 2.755731910848479e-06,
        2.5052130675329932e-08, 1.605668716305188e-10, 7.775687808838415e-13,
    ),
}  # fmt: skip

# Beyond these e**x is 0 or inf whatever the rounding.
_EXP_RANGE = {"f32": (-104.0, 89.0), "f64": (-746.0, 710.0)}
_EXP2_RANGE = {"f32": (-151.0, 129.0), "f64": (-1076.0, 1025.0)}
# Below this e**x - 1 rounds to -1.
_EXPM1_LOW = {"f32": -18.0, "f64": -40.0}
# Here tanh rounds to 1, and e**2x is so large that adding 2 does not change it.
_TANH_ONE = {"f32": 10.0, "f64": 20.0}
# sinh and cosh overflow before this, and e**x / 2 can still be scaled.
_SINH_HIGH = {"f32": 90.0, "f64": 711.0}


def reduce(x: Expr, parts: tuple[float, ...]) -> tuple[Expr, Expr, Expr]:
    """X = n * sum(parts) + r: n + magic, n and r. x must be finite and of the exponent's size."""
    magic = x.format.magic
    t = fma(x, LOG2_E, magic)
    n = t - magic
    r = x
    for part in parts:
        r = fma(n, -part, r)
    return t, n, r


def exp(x: Expr, low: Expr | None = None, *, nonpositive: bool = False) -> Expr:
    """e**x, or e**(x + low) for a small correction `low`; `nonpositive`: x <= 0 or NaN."""
    return exp_scaled(x, 0, low, _EXP_RANGE[x.format.elem], nonpositive=nonpositive)


def exp_scaled(
    x: Expr,
    power: int,
    low: Expr | None,
    limits: tuple[float, float],
    *,
    nonpositive: bool = False,
) -> Expr:
    """e**x * 2**power, rounded once; 0 below `limits`, as at the upper limit above them.

    What is surely 0 (a masked score) is selected, not computed: a result that underflows costs the
    processor some 150 cycles. AVX-512 leaves it out of the scaling, others compute e**0 instead.
    """
    elem = x.format.elem
    counts = ~(x < limits[0])
    if not has_avx512(x):
        x = where(counts, x, 0.0)
    if not nonpositive:
        x = at_most(x, limits[1])
    t, n, r = reduce(x, LN2_PARTS[elem])
    if low is not None:
        r = r + low
    if power:
        t, n = t + float(power), n + float(power)
    scaled = scale_by_power_of_two(r.polynomial((1.0, 1.0, *EXP_TAIL[elem])), n, t)
    return where(counts, scaled, 0.0)


def exp_short(x: Expr) -> Expr:
    """e**x of f64 to 2**-39, for |x| <= 600: what an f32 result needs."""
    t, n, r = reduce(x, LN2_PARTS["f64"][:1])
    return scale_by_power_of_two(r.polynomial((1.0, 1.0, *_EXP_TAIL_SHORT)), n, t)


def exp2(x: Expr) -> Expr:
    elem = x.format.elem
    low, high = _EXP2_RANGE[elem]
    x = at_most(at_least(x, low), high)
    t = x + x.format.magic
    n = t - x.format.magic
    p = (x - n).polynomial((1.0, *EXP2_TAIL[elem]))
    return scale_by_power_of_two(p, n, t)


def _shifted_power(t: Expr, shift: int) -> Expr:
    """2**(n + shift) from n + magic, within the normal range."""
    fmt = t.format
    return ((t.bits() << fmt.mantissa) + ((fmt.bias + shift) << fmt.mantissa)).as_float(fmt.elem)


def expm1_of_reduced(r: Expr) -> Expr:
    """e**r - 1 for |r| <= ln(2)/2."""
    return fma(r * r, r.polynomial(EXP_TAIL[r.format.elem]), r)


def expm1(x: Expr) -> Expr:
    """e**x - 1 = 2 * (2**(n-1) (e**r - 1) + (2**(n-1) - 1/2)); halved because 2**n may overflow."""
    elem = x.format.elem
    y = at_most(at_least(x, _EXPM1_LOW[elem]), _EXP_RANGE[elem][1])
    t, _, r = reduce(y, LN2_PARTS[elem])
    power = _shifted_power(t, -1)
    half = fma(expm1_of_reduced(r), power, power - 0.5)
    # Halving loses a bit of a denormal and the sign of a zero; there e**x - 1 is x.
    return where(abs(x) < 2.0 ** -(x.format.mantissa + 2), x, half + half)


def logistic(x: Expr) -> Expr:
    """1 / (1 + e**-x), written with e**-|x| so that a small result keeps its precision."""
    e = exp(-abs(x), nonpositive=True)
    return where(x < 0.0, e, 1.0) / (e + 1.0)


def tanh(x: Expr) -> Expr:
    """(e**2x - 1) / (e**2x + 1), with e**r - 1 near zero so that nothing cancels."""
    elem = x.format.elem
    a = at_most(abs(x), _TANH_ONE[elem])
    t, _, r = reduce(a + a, LN2_SHORT[elem])
    m = expm1_of_reduced(r)
    power = _shifted_power(t, 0)
    denominator = fma(m, power, power + 1.0)
    # Far from zero the exact difference makes the rounding of the denominator harmless.
    numerator = where(a < 0.5, fma(m, power, power - 1.0), denominator - 2.0)
    return (numerator / denominator).with_sign_of(x)


def _half_exp(a: Expr) -> tuple[Expr, Expr]:
    """e**a / 2 and e**-a / 2 for a >= 0."""
    grown = exp_scaled(a, -1, None, (0.0, _SINH_HIGH[a.format.elem]))
    return grown, 0.25 / grown


def sinh(x: Expr) -> Expr:
    a = abs(x)
    grown, shrunk = _half_exp(a)
    square = a * a
    small = fma(a * square, square.polynomial(SINH_TAIL[x.format.elem]), a)
    return where(a < 1.0, small, grown - shrunk).with_sign_of(x)


def cosh(x: Expr) -> Expr:
    grown, shrunk = _half_exp(abs(x))
    return grown + shrunk
