"""Arithmetic of two or three tensors or scalars: add .. remainder, pow, clamp, lerp, where.

In: values and Python scalars as aten has them. Out: one value with eager's promotion, broadcasting,
wrap-around and division. Invariant: 16-bit floats meet scalars at full precision, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar, is_integer
from neuron_compile.lowering.registry import emits, emits_named
from neuron_compile.lowering.semantics import Operand

aten = torch.ops.aten
Value = ir.Value


def _scaled(b: Builder, x: Operand, y: Operand, alpha: Scalar, *, subtract: bool) -> Value:
    # Unlike products, eager's sums of 16-bit floats round a scalar operand first.
    dtype = b.result_dtype() if alpha == 1 else sem.math_dtype(b.result_dtype())

    def combine(x: Value, y: Value) -> Value:
        if alpha != 1:
            y = b.multiply(y, b.full_like(y, alpha))
        return b.subtract(x, y) if subtract else b.add(x, y)

    return sem.elementwise(b, combine, x, y, compute=dtype)


@emits(aten.add.Tensor, aten.add.Scalar)
def add(b: Builder, x: Operand, y: Operand, alpha: Scalar = 1) -> Value:
    """x + alpha * y."""
    return _scaled(b, x, y, alpha, subtract=False)


@emits(aten.sub.Tensor, aten.sub.Scalar)
def sub(b: Builder, x: Operand, y: Operand, alpha: Scalar = 1) -> Value:
    """x - alpha * y."""
    return _scaled(b, x, y, alpha, subtract=True)


@emits(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(b: Builder, x: Operand, y: Operand, alpha: Scalar = 1) -> Value:
    """Y - alpha * x."""
    return _scaled(b, y, x, alpha, subtract=True)


@emits(aten.mul.Tensor, aten.mul.Scalar)
def mul(b: Builder, x: Operand, y: Operand) -> Value:
    """x * y."""
    return sem.elementwise(b, b.multiply, x, y)


@emits(aten.div.Tensor, aten.div.Scalar)
def div(b: Builder, x: Operand, y: Operand) -> Value:
    """True division; integers become floats first."""
    return sem.elementwise(b, b.divide, x, y)


@emits(aten.div.Tensor_mode, aten.div.Scalar_mode)
def div_mode(b: Builder, x: Operand, y: Operand, *, rounding_mode: str | None) -> Value:
    """Division with rounding_mode None, "trunc" or "floor"."""
    if rounding_mode is None:
        return div(b, x, y)
    if rounding_mode == "floor":
        return floor_divide(b, x, y)
    dtype = sem.math_dtype(b.result_dtype())
    return sem.elementwise(b, lambda p, q: sem.truncate_divide(b, p, q, y), x, y, compute=dtype)


@emits(aten.floor_divide.default, aten.floor_divide.Scalar)
def floor_divide(b: Builder, x: Operand, y: Operand) -> Value:
    """Python's //."""
    dtype = sem.math_dtype(b.result_dtype())
    return sem.elementwise(b, lambda p, q: sem.floor_divide(b, p, q, y), x, y, compute=dtype)


@emits(aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor)
def remainder(b: Builder, x: Operand, y: Operand) -> Value:
    """Python's %."""
    dtype = sem.math_dtype(b.result_dtype())
    return sem.elementwise(b, lambda p, q: sem.python_remainder(b, p, q, y), x, y, compute=dtype)


@emits(aten.fmod.Tensor, aten.fmod.Scalar)
def fmod(b: Builder, x: Operand, y: Operand) -> Value:
    """C's fmod."""
    dtype = sem.math_dtype(b.result_dtype())
    return sem.elementwise(b, lambda p, q: sem.c_remainder(b, p, q, y), x, y, compute=dtype)


@emits(aten.maximum.default)
def maximum(b: Builder, x: Operand, y: Operand) -> Value:
    """The larger; NaN if either is NaN."""
    return sem.elementwise(b, b.maximum, x, y)


@emits(aten.minimum.default)
def minimum(b: Builder, x: Operand, y: Operand) -> Value:
    """The smaller; NaN if either is NaN."""
    return sem.elementwise(b, b.minimum, x, y)


@emits(aten.fmax.default)
def fmax(b: Builder, x: Operand, y: Operand) -> Value:
    """The larger; the other one if one is NaN."""
    return sem.elementwise(b, lambda p, q: _ignoring_nan(b, p, q, b.maximum(p, q)), x, y)


@emits(aten.fmin.default)
def fmin(b: Builder, x: Operand, y: Operand) -> Value:
    """The smaller; the other one if one is NaN."""
    return sem.elementwise(b, lambda p, q: _ignoring_nan(b, p, q, b.minimum(p, q)), x, y)


def _ignoring_nan(b: Builder, x: Value, y: Value, chosen: Value) -> Value:
    if b.dtype(x) not in sem.FLOATS:
        return chosen
    return b.select(sem.is_nan(b, x), y, b.select(sem.is_nan(b, y), x, chosen))


@emits(aten.clamp.default, aten.clamp.Tensor)
def clamp(
    b: Builder,
    x: Operand,
    min: Operand | None = None,
    max: Operand | None = None,
) -> Value:
    """min(max(x, low), high): NaN of any of them wins; high wins over low."""
    bounds = [bound for bound in (min, max) if bound is not None]
    dtype, shape = sem.compute_dtype(b, [x, *bounds], b.result_dtype()), b.result_shape()
    made = sem.operand(b, x, shape, dtype)
    if dtype in sem.FLOATS and _is_number(min):
        made = sem.at_least(b, made, min)
    elif min is not None:
        made = b.maximum(made, sem.operand(b, min, shape, dtype))
    if dtype in sem.FLOATS and _is_number(max):
        made = sem.at_most(b, made, max)
    elif max is not None:
        made = b.minimum(made, sem.operand(b, max, shape, dtype))
    return b.convert(made, b.result_dtype())


def _is_number(bound: Operand | None) -> TypeGuard[Scalar]:
    return isinstance(bound, (int, float)) and bound == bound


@emits(aten.clamp_min.default, aten.clamp_min.Tensor)
def clamp_min(b: Builder, x: Operand, low: Operand) -> Value:
    """max(x, low)."""
    return clamp(b, x, low, None)


@emits(aten.clamp_max.default, aten.clamp_max.Tensor)
def clamp_max(b: Builder, x: Operand, high: Operand) -> Value:
    """min(x, high)."""
    return clamp(b, x, None, high)


@emits(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(b: Builder, x: Operand, y: Operand) -> Value:
    """x ** y."""
    dtype = sem.math_dtype(b.result_dtype())
    if is_integer(dtype):
        return sem.elementwise(b, lambda p, q: _integer_power(b, p, q), x, y, compute=dtype)
    return sem.elementwise(b, b.power, x, y, compute=dtype)


def _integer_power(b: Builder, x: Value, y: Value) -> Value:
    """Negative exponents: 1 -> 1, -1 -> by parity, anything else (also 0) -> 0, as eager."""
    if b.dtype(x) in sem.UNSIGNED:
        return b.power(x, y)
    zero, one = b.full_like(x, 0), b.full_like(x, 1)
    negative = b.compare(y, zero, "LT")
    made = b.power(x, b.select(negative, zero, y))
    odd = b.compare(b.and_(y, one), zero, "NE")
    minus_one = b.compare(x, b.full_like(x, -1), "EQ")
    inverse = b.select(minus_one, b.select(odd, x, one), zero)
    inverse = b.select(b.compare(x, one, "EQ"), one, inverse)
    return b.select(negative, inverse, made)


@emits(aten.pow.Tensor_Scalar)
def power_scalar(b: Builder, x: Value, exponent: Scalar) -> Value:
    """x ** exponent; small exponents without a pow, as eager's kernel has it."""
    dtype = sem.math_dtype(b.result_dtype())
    special = None if isinstance(exponent, complex) else _small_power(b, exponent, dtype)
    if special is None:
        return power(b, x, exponent)
    return sem.elementwise(b, special, x, compute=dtype)


def _small_power(
    b: Builder, exponent: float, dtype: torch.dtype
) -> Callable[[Value], Value] | None:
    def inverse(x: Value) -> Value:
        return b.divide(b.full_like(x, 1.0), x)

    cases: dict[float, Callable[[Value], Value]] = {
        0.0: lambda x: b.full_like(x, 1),
        1.0: lambda x: x,
        2.0: lambda x: b.multiply(x, x),
        3.0: lambda x: b.multiply(b.multiply(x, x), x),
    }
    if dtype in sem.FLOATS:
        cases |= {-1.0: inverse, -2.0: lambda x: inverse(b.multiply(x, x))}
    # A root of -0.0 and of -inf is another than pow's: eager takes roots, but not in float16.
    if dtype in sem.FLOATS and b.result_dtype() != torch.float16:
        cases |= {0.5: b.sqrt, -0.5: lambda x: inverse(b.sqrt(x))}
    return cases.get(float(exponent))


@emits(aten.addcmul.default)
def addcmul(b: Builder, x: Value, y: Value, z: Value, *, value: Scalar = 1) -> Value:
    """x + value * y * z."""

    def combine(x: Value, y: Value, z: Value) -> Value:
        product = (
            b.multiply(y, z) if value == 1 else b.multiply(b.multiply(b.full_like(y, value), y), z)
        )
        return b.add(x, product)

    return sem.elementwise(b, combine, x, y, z, compute=sem.math_dtype(b.result_dtype()))


@emits(aten.addcdiv.default)
def addcdiv(b: Builder, x: Value, y: Value, z: Value, *, value: Scalar = 1) -> Value:
    """x + value * y / z."""

    def combine(x: Value, y: Value, z: Value) -> Value:
        scaled = y if value == 1 else b.multiply(b.full_like(y, value), y)
        return b.add(x, b.divide(scaled, z))

    return sem.elementwise(b, combine, x, y, z, compute=sem.math_dtype(b.result_dtype()))


@emits_named("prims::fma")  # What Dynamo makes of addcmul_, addcdiv_ and add_ with a factor.
def multiply_add(b: Builder, x: Operand, y: Operand, z: Operand) -> Value:
    """x * y + z; at least x and z are tensors."""

    def combine(x: Value, y: Value, z: Value) -> Value:
        return b.add(b.multiply(x, y), z)

    return sem.elementwise(b, combine, x, y, z, compute=sem.math_dtype(b.result_dtype()))


@emits(aten.lerp.Scalar, aten.lerp.Tensor)
def lerp(b: Builder, start: Value, end: Value, weight: Operand) -> Value:
    """Start + weight * (end - start), from the nearer end as eager does it."""

    def combine(start: Value, end: Value, weight: Value) -> Value:
        one = b.full_like(weight, 1.0)
        span = b.subtract(end, start)
        near_start = b.add(start, b.multiply(weight, span))
        near_end = b.subtract(end, b.multiply(span, b.subtract(one, weight)))
        small = b.compare(b.abs(weight), b.full_like(weight, 0.5), "LT")
        return b.select(small, near_start, near_end)

    return sem.elementwise(b, combine, start, end, weight, compute=sem.math_dtype(b.result_dtype()))


@emits(aten.where.self)
def where(b: Builder, condition: Value, x: Operand, y: Operand) -> Value:
    """x where the condition holds, else y."""
    shape, dtype = b.result_shape(), b.result_dtype()
    predicate = sem.operand(b, condition, shape, torch.bool)
    return b.select(predicate, sem.operand(b, x, shape, dtype), sem.operand(b, y, shape, dtype))


@emits(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(b: Builder, x: Value, mask: Value, value: Operand) -> Value:
    """The value where the mask holds, in the dtype of `x`; both broadcast (T081)."""
    shape, dtype = b.result_shape(), b.result_dtype()
    return b.select(
        sem.operand(b, mask, shape, torch.bool),
        sem.operand(b, value, shape, dtype),
        sem.operand(b, x, shape, dtype),
    )


@emits(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(b: Builder, x: Operand, y: Operand) -> Value:
    """|x| with the sign of y."""
    return sem.elementwise(b, lambda p, q: sem.copysign(b, p, q), x, y)


@emits(aten.atan2.default)
def atan2(b: Builder, x: Operand, y: Operand) -> Value:
    """The angle of the point (y, x)."""
    return sem.elementwise(b, b.atan2, x, y)


@emits(aten.hypot.default)
def hypot(b: Builder, x: Operand, y: Operand) -> Value:
    """sqrt(x*x + y*y), scaled so that it does not overflow early."""
    dtype = sem.math_dtype(b.result_dtype())
    return sem.elementwise(b, lambda p, q: hypotenuse(b, p, q), x, y, compute=dtype)


def hypotenuse(b: Builder, x: Value, y: Value) -> Value:
    """sqrt(x*x + y*y) of floats of one type; infinite if either is, even beside NaN."""
    x, y = b.abs(x), b.abs(y)
    large, small = b.maximum(x, y), b.minimum(x, y)
    zero, one = b.full_like(x, 0.0), b.full_like(x, 1.0)
    ratio = b.divide(small, b.select(b.compare(large, zero, "EQ"), one, large))
    made = b.multiply(large, b.sqrt(b.add(one, b.multiply(ratio, ratio))))
    infinite = b.full_like(x, float("inf"))
    any_infinite = b.or_(b.compare(x, infinite, "EQ"), b.compare(y, infinite, "EQ"))
    return b.select(any_infinite, infinite, made)
