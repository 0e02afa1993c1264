"""Functions of one tensor: exp, log, trigonometry, rounding, signs.

In: one value. Out: one value of the node's dtype. Invariant: an integer argument is converted to
the float result dtype first; composites of 16-bit floats are computed in float32, rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch._ops import OpOverload
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value

# One op each, in the result's dtype: StableHLO and CHLO mean what eager means.
_SINGLE: dict[OpOverload, str] = {
    aten.exp.default: "stablehlo.exponential",
    aten.expm1.default: "stablehlo.exponential_minus_one",
    aten.log.default: "stablehlo.log",
    aten.log1p.default: "stablehlo.log_plus_one",
    aten.sqrt.default: "stablehlo.sqrt",
    aten.rsqrt.default: "stablehlo.rsqrt",
    aten.sin.default: "stablehlo.sine",
    aten.cos.default: "stablehlo.cosine",
    aten.tan.default: "stablehlo.tan",
    aten.tanh.default: "stablehlo.tanh",
    aten.sigmoid.default: "stablehlo.logistic",
    aten.asin.default: "chlo.asin",
    aten.acos.default: "chlo.acos",
    aten.atan.default: "chlo.atan",
    aten.sinh.default: "chlo.sinh",
    aten.cosh.default: "chlo.cosh",
    aten.asinh.default: "chlo.asinh",
    aten.acosh.default: "chlo.acosh",
    aten.atanh.default: "chlo.atanh",
    aten.erf.default: "chlo.erf",
    aten.erfc.default: "chlo.erfc",
    aten.erfinv.default: "chlo.erf_inv",
    aten.lgamma.default: "chlo.lgamma",
    aten.digamma.default: "chlo.digamma",
}


def _single(name: str) -> Callable[[Builder, Value], Value]:
    def emit(b: Builder, x: Value) -> Value:
        return b.unary(name, sem.convert_like_eager(b, x, b.result_dtype()))

    return emit


for _overload, _name in _SINGLE.items():
    emits(_overload)(_single(_name))


def _in_math_dtype(b: Builder, x: Value, function: Callable[[Value], Value]) -> Value:
    dtype = b.result_dtype()
    computed = function(sem.convert_like_eager(b, x, sem.math_dtype(dtype)))
    return b.convert(computed, dtype)


@emits(aten.exp2.default)
def exp2(b: Builder, x: Value) -> Value:
    """2 ** x."""
    return _in_math_dtype(b, x, lambda v: b.power(b.full_like(v, 2.0), v))


@emits(aten.log2.default)
def log2(b: Builder, x: Value) -> Value:
    """Logarithm to base 2."""
    return _in_math_dtype(b, x, lambda v: _log_to_base(b, v, 2.0))


@emits(aten.log10.default)
def log10(b: Builder, x: Value) -> Value:
    """Logarithm to base 10."""
    return _in_math_dtype(b, x, lambda v: _log_to_base(b, v, 10.0))


def _log_to_base(b: Builder, x: Value, base: float) -> Value:
    return b.multiply(b.log(x), b.full_like(x, 1.0 / math.log(base)))


@emits(aten.reciprocal.default)
def reciprocal(b: Builder, x: Value) -> Value:
    """1 / x."""
    value = sem.convert_like_eager(b, x, b.result_dtype())
    return b.divide(b.full_like(value, 1.0), value)


@emits(aten.neg.default, aten._neg_view.default)
def neg(b: Builder, x: Value) -> Value:
    """-x; integers wrap (T039)."""
    return b.negate(x)


@emits(aten.abs.default)
def abs_(b: Builder, x: Value) -> Value:
    """|x|."""
    dtype = b.dtype(x)
    return x if dtype in sem.UNSIGNED or dtype is torch.bool else b.abs(x)


@emits(aten.sign.default, aten.sgn.default)
def sign(b: Builder, x: Value) -> Value:
    """-1, 0 or 1; 0 for NaN and both zeros, as eager's (x > 0) - (x < 0)."""
    dtype = b.dtype(x)
    if dtype is torch.bool:
        return x
    zero, one = b.full_like(x, 0), b.full_like(x, 1)
    positive = b.select(b.compare(x, zero, "GT"), one, zero)
    if dtype in sem.UNSIGNED:
        return positive
    return b.select(b.compare(x, zero, "LT"), b.full_like(x, -1), positive)


@emits(aten.floor.default)
def floor(b: Builder, x: Value) -> Value:
    """Largest integer not above x; integers are themselves."""
    return b.floor(x) if b.dtype(x) in sem.FLOATS else x


@emits(aten.ceil.default)
def ceil(b: Builder, x: Value) -> Value:
    """Smallest integer not below x; integers are themselves."""
    return b.ceil(x) if b.dtype(x) in sem.FLOATS else x


@emits(aten.trunc.default)
def trunc(b: Builder, x: Value) -> Value:
    """Towards zero; integers are themselves."""
    return sem.truncate(b, x)


@emits(aten.frac.default)
def frac(b: Builder, x: Value) -> Value:
    """x - trunc(x)."""
    return b.subtract(x, sem.truncate(b, x))


@emits(aten.round.default)
def round_(b: Builder, x: Value) -> Value:
    """Nearest integer, ties to even (T072); integers are themselves."""
    return b.round_half_even(x) if b.dtype(x) in sem.FLOATS else x


@emits(aten.round.decimals)
def round_decimals(b: Builder, x: Value, *, decimals: int) -> Value:
    """round(x * 10**decimals) / 10**decimals, the scale on the side that keeps it exact."""
    if b.dtype(x) not in sem.FLOATS or decimals == 0:
        return round_(b, x)

    def combine(v: Value) -> Value:
        scale = b.full_like(v, 10.0 ** abs(decimals))
        if decimals > 0:
            return b.divide(b.round_half_even(b.multiply(v, scale)), scale)
        return b.multiply(b.round_half_even(b.divide(v, scale)), scale)

    return _in_math_dtype(b, x, combine)


@emits(aten.sinc.default)
def sinc(b: Builder, x: Value) -> Value:
    """sin(pi x) / (pi x), 1 at 0."""

    def combine(v: Value) -> Value:
        angle = b.multiply(v, b.full_like(v, math.pi))
        at_zero = b.compare(v, b.full_like(v, 0.0), "EQ")
        return b.select(at_zero, b.full_like(v, 1.0), b.divide(b.sine(angle), angle))

    return _in_math_dtype(b, x, combine)


@emits(aten.logit.default)
def logit(b: Builder, x: Value, eps: float | None = None) -> Value:
    """log(x / (1 - x)), x first clamped to [eps, 1 - eps]."""

    def combine(v: Value) -> Value:
        one = b.full_like(v, 1.0)
        if eps is not None:
            v = b.minimum(b.maximum(v, b.full_like(v, eps)), b.full_like(v, 1.0 - eps))
        return b.log(b.divide(v, b.subtract(one, v)))

    return _in_math_dtype(b, x, combine)


@emits(aten.nan_to_num.default)
def nan_to_num(
    b: Builder,
    x: Value,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Value:
    """NaN and infinities replaced; by default 0 and the largest finite numbers."""
    dtype = b.dtype(x)
    if dtype not in sem.FLOATS:
        return x
    limits = torch.finfo(dtype)
    made = b.select(sem.is_nan(b, x), b.full_like(x, 0.0 if nan is None else nan), x)
    cases = ((math.inf, posinf, limits.max), (-math.inf, neginf, limits.min))
    for infinite, given, default in cases:
        is_it = b.compare(x, b.full_like(x, infinite), "EQ")
        made = b.select(is_it, b.full_like(x, default if given is None else given), made)
    return made


def _constant_scaled(b: Builder, x: Value, factor: Scalar) -> Value:
    return _in_math_dtype(b, x, lambda v: b.multiply(v, b.full_like(v, factor)))


@emits(aten.deg2rad.default)
def deg2rad(b: Builder, x: Value) -> Value:
    """Degrees to radians."""
    return _constant_scaled(b, x, math.pi / 180.0)


@emits(aten.rad2deg.default)
def rad2deg(b: Builder, x: Value) -> Value:
    """Radians to degrees."""
    return _constant_scaled(b, x, 180.0 / math.pi)
