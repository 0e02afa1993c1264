"""Powers and roots.

In: `Expr` values of f32 or f64. Out: the same type, within the errors that `math_table` lists.
Invariant: `pow` has the special values of C17 F.10.4.4 and is exact where the power is a float of few
digits, since f32 is computed in f64 and f64 with a logarithm of twice the precision.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_exp import EXP_TAIL, LN2_PARTS, LOG2_E, reduce
from neuron_compile.neff.codegen.math_expr import (
    F32,
    INFINITY,
    NAN,
    Expr,
    at_least,
    at_most,
    fma,
    power_of_two,
    scale_by_power_of_two,
    where,
)
from neuron_compile.neff.codegen.math_log import split
from neuron_compile.neff.codegen.math_pair import (
    Pair,
    add,
    constant_pair,
    exact_product,
    exact_sum,
    multiply,
    multiply_float,
    ordered_sum,
)

# (log1p(f) - f) / f**2 for -1/4 <= f <= 1/2 in f64; error 2**-38, of which a power f32 sees 2**-32.
_SHORT_LOG_TAIL = (
    -0.5000000000997257, 0.33333333360678924, -0.24999997365217755, 0.19999992045283757,
    -0.16666853794350953, 0.14286431756812362, -0.12495097830037404, 0.11085333142056955,
    -0.10033187444406279, 0.09466421423700513, -0.08784622880667718, 0.06275952663223623,
    -0.022390634204537505,
)  # fmt: skip
# (e**r - 1 - r) / r**2 in f64; error 2**-39.6.
_SHORT_EXP_TAIL = (
    0.49999999999501193, 0.16666666790212387, 0.04166666706535755, 0.008333280238517203,
    0.0013888794637628296, 0.00019909914873072421, 2.4888444453300138e-05,
)  # fmt: skip
# The terms of 2 (atanh(s) / s - 1) / s**2 after 2/3 + 2/5 s**2; error relative to s 2**-75.
_ATANH_REST = (
    0.2857142857142792, 0.22222222222505492, 0.1818181813198987, 0.15384620080129735,
    0.13333071453445483, 0.11773616680185438, 0.10345173173358754, 0.1152335336820157,
)  # fmt: skip
_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
_TWO_FIFTHS = (0.4, -2.220446049250313e-17)
# ln 2 = high + low; high has 42 bits, so its product with an exponent is exact.
_LN2_LONG = (0.6931471805598903, 5.497923018708371e-14)

# m**(-1/3) for 3/4 <= m <= 6; error 2**-8.4.
_INVERSE_CUBE_ROOT = (
    1.568302869796753, -0.8756276965141296, 0.39882346987724304, -0.1007322147488594,
    0.012856649234890938, -0.000646549800876528,
)  # fmt: skip


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x), as eager computes it: two rounded operations."""
    return 1.0 / x.square_root()


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


def _magnitude_f32(a: Expr, y: Expr) -> Expr:
    """a**y for a > 0, with a and y f32 values in f64."""
    k, m = split(a)
    f = m - 1.0
    log_a = fma(k, LN2_PARTS["f64"][0], fma(f * f, f.polynomial(_SHORT_LOG_TAIL), f))
    x = at_most(at_least(y * log_a, -200.0), 200.0)
    t, n, r = reduce(x, LN2_PARTS["f64"][:1])
    return scale_by_power_of_two(r.polynomial((1.0, 1.0, *_SHORT_EXP_TAIL)), n, t)


def _magnitude_f64(a: Expr, y: Expr) -> Expr:
    """a**y for a > 0. A |y| above 2**70 decides between 0, 1 and inf like 2**70 does."""
    y = at_most(at_least(y, -(2.0**70)), 2.0**70)
    product = multiply_float(log_pair(a), y)
    return exp_pair(product.high, product.low)


def pow(x: Expr, y: Expr) -> Expr:  # noqa: A001 - the name of the function in C
    a = abs(x)
    if x.format is F32:
        wide = _magnitude_f32(a.cast("arith.extf", "f64"), y.cast("arith.extf", "f64"))
        power = wide.cast("arith.truncf", "f32")
    else:
        power = _magnitude_f64(a, y)
    half = y * 0.5
    is_integer = y.floor().equals(y)
    is_odd = is_integer & half.floor().differs(half)
    grows = ((a > 1.0) & (y > 0.0)) | ((a < 1.0) & (y < 0.0))
    at_edge = a.equals(0.0) | a.equals(INFINITY) | abs(y).equals(INFINITY)
    power = where(at_edge, where(grows, x.constant(INFINITY), 0.0), power)
    power = where(a.equals(1.0), 1.0, power)
    power = where(is_odd, power.with_sign_of(x), power)
    power = where((x < 0.0) & (x > -INFINITY) & ~is_integer, NAN, power)
    power = where(x.is_nan() | y.is_nan(), NAN, power)
    return where(x.equals(1.0) | y.equals(0.0), 1.0, power)


def pow_constant(x: Expr, exponent: float) -> Expr | None:
    """x**exponent where eager has a shorter way for this exponent, else None."""
    match exponent:
        case 0.5:
            return x.square_root()
        case 1.0:
            return x
        case 2.0:
            return x * x
        case 3.0:
            return x * x * x
        case -0.5:
            return rsqrt(x)
        case -1.0:
            return 1.0 / x
        case -2.0:
            return 1.0 / (x * x)
    return None


def cbrt(x: Expr) -> Expr:
    """X = 2**3q * m with 3/4 <= m < 6; the inverse root by polynomial and Halley, then one Newton step."""
    fmt = x.format
    a = abs(x)
    k, mantissa = split(a)
    q = ((k + 0.5) * (1.0 / 3.0)).floor()
    rest = k - q * 3.0
    factor = where(rest > 1.5, x.constant(4.0), where(rest > 0.5, x.constant(2.0), 1.0))
    m = mantissa * factor
    r = m.polynomial(_INVERSE_CUBE_ROOT)
    for _ in range(1 if fmt is F32 else 2):  # the relative error e becomes 14/81 e**3
        h = fma(-(m * r), r * r, 1.0)
        r = fma(r * h, fma(h, 2.0 / 9.0, 1.0 / 3.0), r)
    root = m * r * r
    square = exact_product(root, root)
    error = fma(-square.low, root, fma(-square.high, root, m))
    root = fma(error * (r * r), 1.0 / 3.0, root)
    exponent = (q + fmt.magic).bits() - x.constant(fmt.magic).bits()
    scaled = root * power_of_two(exponent, fmt)
    return where((a > 0.0) & (a < INFINITY), scaled, a + a).with_sign_of(x)
