"""Special functions that StableHLO has no op for: Bessel functions of imaginary argument, trigamma,
and functions of the bits of a float.

In: one or two tensors. Out: one or two tensors. Invariant: series and asymptotic expansions are
those of Abramowitz & Stegun, long enough for the dtype's last place.
"""

from __future__ import annotations

import math
from fractions import Fraction

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value

# Where the power series gives way to the asymptotic one: there e^-2x, the error the latter cannot
# avoid, is below the last place. (boundary, terms of the power series, of the asymptotic one)
_BESSEL = {torch.float32: (12.0, 26, 12), torch.float64: (20.0, 46, 24)}


def _horner(b: Builder, x: Value, coefficients: list[float]) -> Value:
    """Sum of coefficients[k] * x**k."""
    made = b.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        made = b.add(b.multiply(made, x), b.full_like(x, coefficient))
    return made


def _bessel_i(b: Builder, x: Value, order: int, *, scaled: bool) -> Value:
    """I_order(x), times e^-|x| if scaled: A&S 9.6.10 and 9.7.1."""
    boundary, terms, tail = _BESSEL[b.dtype(x)]
    size = b.abs(x)
    near_x = b.minimum(size, b.full_like(x, boundary))
    quarter = b.multiply(b.multiply(near_x, near_x), b.full_like(x, 0.25))
    near = _horner(
        b, quarter, [1.0 / (math.factorial(k) * math.factorial(k + order)) for k in range(terms)]
    )
    if order == 1:
        near = b.multiply(near, b.multiply(near_x, b.full_like(x, 0.5)))
    far_x = b.maximum(size, b.full_like(x, boundary))
    coefficients, term = [], Fraction(1)
    for k in range(tail):
        coefficients.append(float(term))
        term *= Fraction(-(4 * order * order - (2 * k + 1) ** 2), 8 * (k + 1))
    inverse = b.divide(b.full_like(x, 1.0), far_x)
    root = b.rsqrt(b.multiply(far_x, b.full_like(x, 2.0 * math.pi)))
    far = b.multiply(_horner(b, inverse, coefficients), root)
    if scaled:
        near = b.multiply(near, b.exp(b.negate(near_x)))
    else:
        # In two steps: e^x overflows before I(x) does.
        half = b.exp(b.multiply(far_x, b.full_like(x, 0.5)))
        far = b.multiply(b.multiply(far, half), half)
    made = b.select(b.compare(size, b.full_like(x, boundary), "LE"), near, far)
    made = b.select(sem.is_nan(b, x), x, made)
    return sem.copysign(b, made, x) if order == 1 else made


def _computed(b: Builder, x: Value, order: int, *, scaled: bool) -> Value:
    dtype = b.result_dtype()
    wide = sem.convert_like_eager(b, x, sem.math_dtype(dtype))
    return b.convert(_bessel_i(b, wide, order, scaled=scaled), dtype)


@emits(aten.i0.default, aten.special_modified_bessel_i0.default)
def i0(b: Builder, x: Value) -> Value:
    """I_0."""
    return _computed(b, x, 0, scaled=False)


@emits(aten.special_i0e.default)
def i0e(b: Builder, x: Value) -> Value:
    """I_0 e^-|x|."""
    return _computed(b, x, 0, scaled=True)


@emits(aten.special_i1.default, aten.special_modified_bessel_i1.default)
def i1(b: Builder, x: Value) -> Value:
    """I_1."""
    return _computed(b, x, 1, scaled=False)


@emits(aten.special_i1e.default)
def i1e(b: Builder, x: Value) -> Value:
    """I_1 e^-|x|."""
    return _computed(b, x, 1, scaled=True)


def _low_order(node: torch.fx.Node) -> str | None:
    return None if node.args[0] in (0, 1) else "polygamma of an order above 1"


@emits(aten.polygamma.default, supports=_low_order)
def polygamma(b: Builder, n: int, x: Value) -> Value:
    """The derivative of order n of digamma, n at most 1."""
    dtype = b.result_dtype()
    wide = sem.convert_like_eager(b, x, sem.math_dtype(dtype))
    made = b.unary("chlo.digamma", wide) if n == 0 else _trigamma(b, wide)
    return b.convert(made, dtype)


def _trigamma(b: Builder, x: Value) -> Value:
    """A&S 6.4.7 (reflection), 6.4.6 (recurrence), 6.4.12 (asymptotic, with Bernoulli numbers)."""
    one = b.full_like(x, 1.0)
    left = b.compare(x, b.full_like(x, 0.5), "LT")
    at = b.select(left, b.subtract(one, x), x)
    total = b.full_like(x, 0.0)
    for _ in range(8):
        total = b.add(total, b.divide(one, b.multiply(at, at)))
        at = b.add(at, one)
    inverse = b.divide(one, at)
    square = b.multiply(inverse, inverse)
    bernoulli = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]
    series = b.multiply(_horner(b, square, bernoulli), b.multiply(square, inverse))
    tail = b.add(b.add(inverse, b.multiply(square, b.full_like(x, 0.5))), series)
    right_side = b.add(total, tail)
    sine = b.sine(b.multiply(x, b.full_like(x, math.pi)))
    turned = b.divide(b.full_like(x, math.pi * math.pi), b.multiply(sine, sine))
    return b.select(left, b.subtract(turned, right_side), right_side)


@emits(aten.nextafter.default)
def nextafter(b: Builder, x: Value, y: Value) -> Value:
    """The next representable number from x towards y."""
    return sem.elementwise(b, lambda p, q: b.binary("chlo.next_after", p, q), x, y)


@emits(aten.ldexp.Tensor)
def ldexp(b: Builder, x: Value, exponent: Value) -> Value:
    """x * 2 ** exponent."""
    dtype = sem.math_dtype(b.result_dtype())

    def combine(x: Value, exponent: Value) -> Value:
        return b.multiply(x, b.power(b.full_like(x, 2.0), exponent))

    return sem.elementwise(b, combine, x, exponent, compute=dtype)


@emits(aten.angle.default)
def angle(b: Builder, x: Value) -> Value:
    """pi for negative numbers, 0 for others, NaN for NaN."""
    value = sem.convert_like_eager(b, x, b.result_dtype())
    zero = b.full_like(value, 0.0)
    made = b.select(b.compare(value, zero, "LT"), b.full_like(value, math.pi), zero)
    return b.select(sem.is_nan(b, value), value, made)
