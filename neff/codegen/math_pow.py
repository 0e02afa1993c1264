"""Powers and roots.

In: `Expr` values of f32 or f64. Out: the same type, within the errors that docs/math.md lists.
Invariant: `pow` has the special values of C17 F.10.4.4 and is exact where the power is a float of
few digits, since f32 is computed in f64 and f64 with a logarithm of twice the precision.
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_exp import LN2_PARTS, exp_short
from neuron_compile.neff.codegen.math_expr import (
    F32,
    INFINITY,
    NAN,
    Expr,
    at_least,
    at_most,
    fma,
    power_of_two,
    where,
)
from neuron_compile.neff.codegen.math_log import split
from neuron_compile.neff.codegen.math_long import exp_pair, log_pair
from neuron_compile.neff.codegen.math_pair import exact_product, multiply_float

# (log1p(f) - f) / f**2 for -1/4 <= f <= 1/2 in f64; error 2**-38, of which a power f32 sees 2**-32.
_SHORT_LOG_TAIL = (
    -0.5000000000997257, 0.33333333360678924, -0.24999997365217755, 0.19999992045283757,
    -0.16666853794350953, 0.14286431756812362, -0.12495097830037404, 0.11085333142056955,
    -0.10033187444406279, 0.09466421423700513, -0.08784622880667718, 0.06275952663223623,
    -0.022390634204537505,
)  # fmt: skip
# m**(-1/3) for 3/4 <= m <= 6; error 2**-8.4.
_INVERSE_CUBE_ROOT = (
    1.568302869796753, -0.8756276965141296, 0.39882346987724304, -0.1007322147488594,
    0.012856649234890938, -0.000646549800876528,
)  # fmt: skip


def rsqrt(x: Expr) -> Expr:
    """1 / sqrt(x), as eager computes it: two rounded operations."""
    return 1.0 / x.square_root()


def _magnitude_f32(a: Expr, y: Expr) -> Expr:
    """a**y for a > 0, with a and y f32 values in f64."""
    k, m = split(a)
    f = m - 1.0
    log_a = fma(k, LN2_PARTS["f64"][0], fma(f * f, f.polynomial(_SHORT_LOG_TAIL), f))
    return exp_short(at_most(at_least(y * log_a, -200.0), 200.0))


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
    """Root of 2**3q * m, 3/4 <= m < 6: m**(-1/3) by polynomial and Halley, then one Newton step."""
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
