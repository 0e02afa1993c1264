"""The vector math library: `f(emitter, value)` for each elementary function, and by operation name.

In: f32 or f64 values, scalar or vector. Out: the same type; docs/math.md lists errors and costs.
Invariant: no function becomes a call of a library; a scalar and a lane of a vector give the same
bits, on every target.
"""

from __future__ import annotations

from collections.abc import Callable

from neuron_compile.neff.codegen import (
    math_ahyp,
    math_atrig,
    math_erf,
    math_exp,
    math_gamma,
    math_log,
    math_misc,
    math_pow,
    math_trig,
)
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.math_expr import Expr
from neuron_compile.neff.codegen.value import Val

Unary = Callable[[Emitter, Val], Val]
Binary = Callable[[Emitter, Val, Val], Val]


def _unary(formula: Callable[[Expr], Expr]) -> Unary:
    def call(e: Emitter, x: Val) -> Val:
        return formula(Expr(e, x)).value

    return call


def _binary(formula: Callable[[Expr, Expr], Expr]) -> Binary:
    def call(e: Emitter, x: Val, y: Val) -> Val:
        x, y = e.match(x, y)
        return formula(Expr(e, x), Expr(e, y)).value

    return call


exp = _unary(math_exp.exp)
exp2 = _unary(math_exp.exp2)
expm1 = _unary(math_exp.expm1)
logistic = _unary(math_exp.logistic)
tanh = _unary(math_exp.tanh)
sinh = _unary(math_exp.sinh)
cosh = _unary(math_exp.cosh)
log = _unary(math_log.log)
log2 = _unary(math_log.log2)
log1p = _unary(math_log.log1p)
asinh = _unary(math_ahyp.asinh)
acosh = _unary(math_ahyp.acosh)
atanh = _unary(math_ahyp.atanh)
sin = _unary(math_trig.sin)
cos = _unary(math_trig.cos)
tan = _unary(math_trig.tan)
asin = _unary(math_atrig.asin)
acos = _unary(math_atrig.acos)
atan = _unary(math_atrig.atan)
atan2 = _binary(math_atrig.atan2)
erf = _unary(math_erf.erf)
erfc = _unary(math_erf.erfc)
erf_inv = _unary(math_erf.erf_inv)
lgamma = _unary(math_gamma.lgamma)
digamma = _unary(math_gamma.digamma)
rsqrt = _unary(math_pow.rsqrt)
cbrt = _unary(math_pow.cbrt)
pow = _binary(math_pow.pow)  # noqa: A001 - the name of the function in C
fmod = _binary(math_misc.fmod)


def exp_nonpositive(e: Emitter, x: Val) -> Val:
    """e**x for x <= 0 or NaN, as in a softmax: one instruction less."""
    return math_exp.exp(Expr(e, x), nonpositive=True).value


def share(e: Emitter, part: Val, whole: Val) -> Val:
    """part / whole to 1.5 ulp, for 0 <= part <= whole and 1 <= whole, or NaN.

    The reciprocal is a scalar's or at least a row's: one division for all parts of a whole.
    """
    return e.mul(part, e.div(e.const(whole.elem, 1.0, whole.lanes), whole))


def pow_constant(e: Emitter, x: Val, exponent: float) -> Val:
    """x**exponent with eager's short ways for -2, -1, -1/2, 1/2, 1, 2 and 3."""
    base = Expr(e, x)
    short = math_pow.pow_constant(base, exponent)
    return (math_pow.pow(base, base.constant(exponent)) if short is None else short).value


UNARY: dict[str, Unary] = {
    "stablehlo.exponential": exp,
    "stablehlo.exponential_minus_one": expm1,
    "stablehlo.logistic": logistic,
    "stablehlo.tanh": tanh,
    "stablehlo.log": log,
    "stablehlo.log_plus_one": log1p,
    "stablehlo.rsqrt": rsqrt,
    "stablehlo.cbrt": cbrt,
    "stablehlo.sine": sin,
    "stablehlo.cosine": cos,
    "stablehlo.tan": tan,
    "chlo.tan": tan,
    "chlo.sinh": sinh,
    "chlo.cosh": cosh,
    "chlo.asin": asin,
    "chlo.acos": acos,
    "chlo.atan": atan,
    "chlo.asinh": asinh,
    "chlo.acosh": acosh,
    "chlo.atanh": atanh,
    "chlo.erf": erf,
    "chlo.erfc": erfc,
    "chlo.erf_inv": erf_inv,
    "chlo.lgamma": lgamma,
    "chlo.digamma": digamma,
}
BINARY: dict[str, Binary] = {"stablehlo.atan2": atan2}
