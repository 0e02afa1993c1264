"""The vector math library: `f(emitter, value)` for every elementary function, and by StableHLO name.

In: f32 or f64 values, scalar or vector. Out: the same type. Invariant: no function becomes a call of a
library; a scalar and a lane of a vector give the same bits, on every target.
"""

from __future__ import annotations

from collections.abc import Callable

from neuron_compile.neff.codegen import math_erf, math_exp, math_log, math_misc, math_pow
from neuron_compile.neff.codegen.emitter import Emitter, Val
from neuron_compile.neff.codegen.math_expr import Expr

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
erf = _unary(math_erf.erf)
rsqrt = _unary(math_pow.rsqrt)
cbrt = _unary(math_pow.cbrt)
pow = _binary(math_pow.pow)  # noqa: A001 - the name of the function in C
fmod = _binary(math_misc.fmod)


def exp_nonpositive(e: Emitter, x: Val) -> Val:
    """e**x for x <= 0 or NaN, as in a softmax: one instruction less."""
    return math_exp.exp(Expr(e, x), nonpositive=True).value


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
    "chlo.sinh": sinh,
    "chlo.cosh": cosh,
    "chlo.erf": erf,
}
BINARY: dict[str, Binary] = {}
