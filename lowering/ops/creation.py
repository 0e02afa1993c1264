"""Tensors from nothing: full, zeros, arange, linspace, eye, scalar_tensor, tri-indices.

In: sizes and Python scalars. Out: constants and iotas of the node's shape and dtype. Invariant: an
`empty` is zero, so a graph that reads it is deterministic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar, is_integer
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
prims = torch.ops.prims
Value = ir.Value


@emits(aten.full.default)
def full(
    b: Builder,
    size: Sequence[int],
    fill_value: Scalar,
    dtype: torch.dtype | None = None,
) -> Value:
    """A constant."""
    return b.full(b.result_shape(), fill_value, b.result_dtype())


@emits(aten.full_like.default, aten.new_full.default)
def full_like(b: Builder, x: Value, *args: object, dtype: torch.dtype | None = None) -> Value:
    """A constant; the fill value is the last positional argument."""
    fill = args[-1]
    assert isinstance(fill, (bool, int, float, complex))
    return b.full(b.result_shape(), fill, b.result_dtype())


@emits(
    aten.zeros.default,
    aten.zeros_like.default,
    aten.new_zeros.default,
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.new_empty.default,
    aten.empty_strided.default,
    aten.new_empty_strided.default,
    aten.empty_permuted.default,
)
def zeros(b: Builder, *_: object, dtype: torch.dtype | None = None) -> Value:
    """Zeros."""
    return b.full(b.result_shape(), 0, b.result_dtype())


@emits(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(b: Builder, *_: object, dtype: torch.dtype | None = None) -> Value:
    """Ones."""
    return b.full(b.result_shape(), 1, b.result_dtype())


@emits(aten.fill.Scalar, aten.fill.Tensor)
def fill(b: Builder, x: Value, value: sem.Operand) -> Value:
    """The value in the shape and dtype of x."""
    return sem.operand(b, value, b.shape(x), b.dtype(x))


@emits(aten.zero.default)
def zero(b: Builder, x: Value) -> Value:
    """Zeros like x."""
    return b.full_like(x, 0)


@emits(aten.scalar_tensor.default)
def scalar_tensor(b: Builder, s: Scalar, dtype: torch.dtype | None = None) -> Value:
    """A 0-d constant."""
    return b.scalar(s, b.result_dtype())


def _progression(b: Builder, start: Scalar, step: Scalar) -> Value:
    """Start + i * step of the node's shape: integers exactly in int64 (T043), floats in float64.

    Eager's kernel for floats accumulates in double for float32 too, then rounds once.
    """
    dtype, shape = b.result_dtype(), b.result_shape()
    exact = torch.int64 if is_integer(dtype) or dtype is torch.bool else torch.float64
    index = b.iota(shape, 0, exact)
    made = index if step == 1 else b.multiply(index, b.full(shape, step, exact))
    if start != 0:
        made = b.add(made, b.full(shape, start, exact))
    return sem.convert_like_eager(b, made, dtype)


@emits(aten.arange.start_step)
def arange_start_step(
    b: Builder,
    start: Scalar,
    end: Scalar,
    step: Scalar = 1,
    dtype: torch.dtype | None = None,
) -> Value:
    """start, start + step, ... before end."""
    return _progression(b, start, step)


@emits(aten.arange.start)
def arange_start(
    b: Builder,
    start: Scalar,
    end: Scalar,
    dtype: torch.dtype | None = None,
) -> Value:
    """start, start + 1, ... before end."""
    return _progression(b, start, 1)


@emits(aten.arange.default)
def arange(b: Builder, end: Scalar, dtype: torch.dtype | None = None) -> Value:
    """0, 1, ... before end."""
    return _progression(b, 0, 1)


@emits(prims.iota.default)
def iota(
    b: Builder,
    length: int,
    *,
    start: int,
    step: int,
    dtype: torch.dtype,
    requires_grad: bool,
) -> Value:
    """Start + step * i."""
    return _progression(b, start, step)


@emits(aten.linspace.default)
def linspace(
    b: Builder, start: Scalar, end: Scalar, steps: int, dtype: torch.dtype | None = None
) -> Value:
    """`steps` points from start to end, the second half counted from the end as eager does it."""
    assert not isinstance(start, complex)
    assert not isinstance(end, complex)
    dtype, shape = b.result_dtype(), b.result_shape()
    if steps <= 1:
        return b.full(shape, start, dtype)
    wide = torch.float64
    step = b.full(shape, (float(end) - float(start)) / (steps - 1), wide)
    index = b.iota(shape, 0, wide)
    from_start = b.add(b.full(shape, start, wide), b.multiply(step, index))
    back = b.subtract(b.full(shape, steps - 1, wide), index)
    from_end = b.subtract(b.full(shape, end, wide), b.multiply(step, back))
    first_half = b.compare(index, b.full(shape, steps // 2, wide), "LT")
    return sem.convert_like_eager(b, b.select(first_half, from_start, from_end), dtype)


@emits(aten.eye.default, aten.eye.m)
def eye(b: Builder, *_: object, dtype: torch.dtype | None = None) -> Value:
    """Ones on the diagonal."""
    shape = b.result_shape()
    diagonal = b.compare(b.iota(shape, 0, torch.int64), b.iota(shape, 1, torch.int64), "EQ")
    return b.convert(diagonal, b.result_dtype())


def _triangle(b: Builder, x: Value, diagonal: int, direction: str) -> Value:
    shape = b.shape(x)
    rank = len(shape)
    column = b.iota(shape, rank - 1, torch.int64)
    row = b.iota(shape, rank - 2, torch.int64)
    if diagonal:
        row = b.add(row, b.full(shape, diagonal, torch.int64))
    return b.select(b.compare(column, row, direction), x, b.full_like(x, 0))


@emits(aten.tril.default)
def tril(b: Builder, x: Value, diagonal: int = 0) -> Value:
    """The lower triangle of the last two dimensions, zero above."""
    return _triangle(b, x, diagonal, "LE")


@emits(aten.triu.default)
def triu(b: Builder, x: Value, diagonal: int = 0) -> Value:
    """The upper triangle of the last two dimensions, zero below."""
    return _triangle(b, x, diagonal, "GE")


@emits(aten.tril_indices.default)
def tril_indices(
    b: Builder, row: int, col: int, offset: int = 0, dtype: torch.dtype | None = None
) -> Value:
    """Rows and columns of the lower triangle, row by row."""
    return b.array(torch.tril_indices(row, col, offset, dtype=b.result_dtype()))


@emits(aten.triu_indices.default)
def triu_indices(
    b: Builder, row: int, col: int, offset: int = 0, dtype: torch.dtype | None = None
) -> Value:
    """Rows and columns of the upper triangle, row by row."""
    return b.array(torch.triu_indices(row, col, offset, dtype=b.result_dtype()))
