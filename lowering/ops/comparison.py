"""Comparison, logic and bits.

In: tensors and Python scalars. Out: bool tensors, or integers for the bitwise ops. Invariant: two
sides are compared in their common dtype, as torch.result_type has it.
"""

from __future__ import annotations

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import Operand

aten = torch.ops.aten
Value = ir.Value


def _compare(b: Builder, x: Operand, y: Operand, direction: str) -> Value:
    dtype, shape = sem.promoted_dtype(b, [x, y]), b.result_shape()
    return b.compare(sem.operand(b, x, shape, dtype), sem.operand(b, y, shape, dtype), direction)


@emits(aten.eq.Tensor, aten.eq.Scalar)
def eq(b: Builder, x: Operand, y: Operand) -> Value:
    """x == y."""
    return _compare(b, x, y, "EQ")


@emits(aten.ne.Tensor, aten.ne.Scalar)
def ne(b: Builder, x: Operand, y: Operand) -> Value:
    """x != y; true for NaN."""
    return _compare(b, x, y, "NE")


@emits(aten.lt.Tensor, aten.lt.Scalar)
def lt(b: Builder, x: Operand, y: Operand) -> Value:
    """x < y."""
    return _compare(b, x, y, "LT")


@emits(aten.le.Tensor, aten.le.Scalar)
def le(b: Builder, x: Operand, y: Operand) -> Value:
    """x <= y."""
    return _compare(b, x, y, "LE")


@emits(aten.gt.Tensor, aten.gt.Scalar)
def gt(b: Builder, x: Operand, y: Operand) -> Value:
    """x > y."""
    return _compare(b, x, y, "GT")


@emits(aten.ge.Tensor, aten.ge.Scalar)
def ge(b: Builder, x: Operand, y: Operand) -> Value:
    """x >= y."""
    return _compare(b, x, y, "GE")


@emits(aten.logical_and.default)
def logical_and(b: Builder, x: Value, y: Value) -> Value:
    """Both nonzero."""
    return sem.elementwise(b, b.and_, x, y)


@emits(aten.logical_or.default)
def logical_or(b: Builder, x: Value, y: Value) -> Value:
    """Either nonzero."""
    return sem.elementwise(b, b.or_, x, y)


@emits(aten.logical_xor.default)
def logical_xor(b: Builder, x: Value, y: Value) -> Value:
    """Exactly one nonzero."""
    return sem.elementwise(b, b.xor, x, y)


@emits(aten.logical_not.default)
def logical_not(b: Builder, x: Value) -> Value:
    """Is zero."""
    return b.compare(x, b.full_like(x, 0), "EQ")


@emits(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_and.Scalar_Tensor)
def bitwise_and(b: Builder, x: Operand, y: Operand) -> Value:
    """x & y."""
    return sem.elementwise(b, b.and_, x, y)


@emits(aten.bitwise_or.Tensor, aten.bitwise_or.Scalar, aten.bitwise_or.Scalar_Tensor)
def bitwise_or(b: Builder, x: Operand, y: Operand) -> Value:
    """x | y."""
    return sem.elementwise(b, b.or_, x, y)


@emits(aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_xor.Scalar_Tensor)
def bitwise_xor(b: Builder, x: Operand, y: Operand) -> Value:
    """x ^ y."""
    return sem.elementwise(b, b.xor, x, y)


@emits(aten.bitwise_not.default)
def bitwise_not(b: Builder, x: Value) -> Value:
    """~x."""
    return b.not_(x)


@emits(
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_left_shift.Scalar_Tensor,
    aten.__lshift__.Scalar,
    aten.__lshift__.Tensor,
)
def bitwise_left_shift(b: Builder, x: Operand, y: Operand) -> Value:
    """x << y; 0 when y is negative or not below the width."""
    return sem.elementwise(b, b.shift_left, x, y)


@emits(
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Scalar_Tensor,
    aten.__rshift__.Scalar,
    aten.__rshift__.Tensor,
)
def bitwise_right_shift(b: Builder, x: Operand, y: Operand) -> Value:
    """x >> y, arithmetic for signed dtypes; all sign bits when y is out of range."""
    unsigned = b.result_dtype() in sem.UNSIGNED
    return sem.elementwise(b, b.shift_right_logical if unsigned else b.shift_right_arithmetic, x, y)


@emits(aten.isnan.default)
def isnan(b: Builder, x: Value) -> Value:
    """Is NaN; never for integers."""
    return sem.is_nan(b, x)


@emits(aten.isinf.default)
def isinf(b: Builder, x: Value) -> Value:
    """Is infinite; never for integers."""
    if b.dtype(x) not in sem.FLOATS:
        return b.full(b.shape(x), False, torch.bool)
    return b.compare(b.abs(x), b.full_like(x, float("inf")), "EQ")


@emits(aten.isposinf.default)
def isposinf(b: Builder, x: Value) -> Value:
    """Is plus infinity."""
    if b.dtype(x) not in sem.FLOATS:
        return b.full(b.shape(x), False, torch.bool)
    return b.compare(x, b.full_like(x, float("inf")), "EQ")


@emits(aten.isneginf.default)
def isneginf(b: Builder, x: Value) -> Value:
    """Is minus infinity."""
    if b.dtype(x) not in sem.FLOATS:
        return b.full(b.shape(x), False, torch.bool)
    return b.compare(x, b.full_like(x, float("-inf")), "EQ")


@emits(aten.signbit.default)
def signbit(b: Builder, x: Value) -> Value:
    """The sign bit."""
    if b.dtype(x) is torch.bool:
        return b.full(b.shape(x), False, torch.bool)
    return sem.sign_bit(b, x)
