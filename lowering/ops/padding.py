"""Padding by reflection or by repeating the border; and the gradients.

In: values whose last dimensions are padded, (low, high) pairs from the last dimension on. Out:
slices, reversals and concatenations; the gradients add the folded borders back. Invariant: negative
amounts crop, as in eager; half precision gradients are added up in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten

# extend(b, x, dim, low, high), with low, high >= 0
_Along = Callable[[Builder, ir.Value, int, int, int], ir.Value]


def _per_dim(rank: int, padding: Sequence[int]) -> list[tuple[int, int, int]]:
    """(dim, low, high) for each padded dimension."""
    return [(rank - 1 - i, padding[2 * i], padding[2 * i + 1]) for i in range(len(padding) // 2)]


def _pad(b: Builder, x: ir.Value, padding: Sequence[int], extend: _Along) -> ir.Value:
    for dim, low, high in _per_dim(b.rank(x), padding):
        x = extend(b, x, dim, max(0, low), max(0, high))
        # Cropped afterwards: what is cut off is mirrored all the same.
        size = b.shape(x)[dim]
        x = b.slice_in_dim(x, dim, max(0, -low), size - max(0, -high))
    return x


def _pad_backward(b: Builder, grad: ir.Value, padding: Sequence[int], fold: _Along) -> ir.Value:
    dtype = b.dtype(grad)
    grad = b.convert(grad, math_dtype(dtype))
    zero = b.scalar(0, b.dtype(grad))
    for dim, low, high in _per_dim(b.rank(grad), padding):
        before, after = [0] * b.rank(grad), [0] * b.rank(grad)
        before[dim], after[dim] = max(0, -low), max(0, -high)
        grad = b.pad(grad, zero, before, after)
        grad = fold(b, grad, dim, max(0, low), max(0, high))
    return b.convert(grad, dtype)


# ---- reflection ------------------------------------------------------------------------------


def _reflect(b: Builder, x: ir.Value, dim: int, low: int, high: int) -> ir.Value:
    """The border itself is not repeated."""
    size = b.shape(x)[dim]
    parts = [x]
    if low:
        parts.insert(0, b.reverse(b.slice_in_dim(x, dim, 1, 1 + low), [dim]))
    if high:
        parts.append(b.reverse(b.slice_in_dim(x, dim, size - 1 - high, size - 1), [dim]))
    return b.concatenate(parts, dim)


def _fold_reflection(b: Builder, grad: ir.Value, dim: int, low: int, high: int) -> ir.Value:
    size = b.shape(grad)[dim] - low - high
    total = b.slice_in_dim(grad, dim, low, low + size)
    if low:
        part = b.reverse(b.slice_in_dim(grad, dim, 0, low), [dim])
        total = b.add(total, _placed(b, part, dim, 1, size))
    if high:
        part = b.reverse(b.slice_in_dim(grad, dim, low + size, low + size + high), [dim])
        total = b.add(total, _placed(b, part, dim, size - 1 - high, size))
    return total


def _placed(b: Builder, x: ir.Value, dim: int, start: int, size: int) -> ir.Value:
    """Zeros of length `size` along `dim` with x from `start` on."""
    low, high = [0] * b.rank(x), [0] * b.rank(x)
    low[dim], high[dim] = start, size - start - b.shape(x)[dim]
    return b.pad(x, b.scalar(0, b.dtype(x)), low, high)


@emits(aten.reflection_pad1d.default, aten.reflection_pad2d.default, aten.reflection_pad3d.default)
def reflection_pad(b: Builder, x: ir.Value, padding: Sequence[int]) -> ir.Value:
    """Mirror images beyond the borders."""
    return _pad(b, x, padding, _reflect)


@emits(
    aten.reflection_pad1d_backward.default,
    aten.reflection_pad2d_backward.default,
    aten.reflection_pad3d_backward.default,
)
def reflection_pad_backward(
    b: Builder, grad: ir.Value, x: ir.Value, padding: Sequence[int]
) -> ir.Value:
    """Gradient with respect to the input."""
    del x
    return _pad_backward(b, grad, padding, _fold_reflection)


# ---- replication -----------------------------------------------------------------------------


def _replicate(b: Builder, x: ir.Value, dim: int, low: int, high: int) -> ir.Value:
    size = b.shape(x)[dim]

    def border(at: int, times: int) -> ir.Value:
        shape = [times if d == dim else n for d, n in enumerate(b.shape(x))]
        return b.broadcast_in_dim(b.slice_in_dim(x, dim, at, at + 1), shape, range(len(shape)))

    parts = [x]
    if low:
        parts.insert(0, border(0, low))
    if high:
        parts.append(border(size - 1, high))
    return b.concatenate(parts, dim)


def _fold_replication(b: Builder, grad: ir.Value, dim: int, low: int, high: int) -> ir.Value:
    size = b.shape(grad)[dim] - low - high
    total = b.slice_in_dim(grad, dim, low, low + size)
    line = [1 if d == dim else n for d, n in enumerate(b.shape(grad))]
    zero = b.scalar(0, b.dtype(grad))
    for start, count, at in ((0, low, 0), (low + size, high, size - 1)):
        if count:
            border = b.slice_in_dim(grad, dim, start, start + count)
            part = b.reshape(b.reduce(border, zero, [dim], b.add), line)
            total = b.add(total, _placed(b, part, dim, at, size))
    return total


@emits(
    aten.replication_pad1d.default, aten.replication_pad2d.default, aten.replication_pad3d.default
)
def replication_pad(b: Builder, x: ir.Value, padding: Sequence[int]) -> ir.Value:
    """The border repeated."""
    return _pad(b, x, padding, _replicate)


@emits(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def replication_pad_backward(
    b: Builder, grad: ir.Value, x: ir.Value, padding: Sequence[int]
) -> ir.Value:
    """Gradient with respect to the input."""
    del x
    return _pad_backward(b, grad, padding, _fold_replication)
