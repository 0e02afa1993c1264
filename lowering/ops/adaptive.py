"""Adaptive pooling: windows of unequal length that cover the input evenly; and the gradients.

In: [N, C, *spatial] or [C, *spatial] values. Out: equal windows by reshape or `reduce_window`,
others by a gather at constant positions and a reduction. Invariant: means are summed in float32 for
half precision, as in eager.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch_mlir import ir

from neuron_compile.lowering import taps, winners
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.indices import take_along
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.resample import apply_taps, take_at
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten


def _divide(b: Builder, x: ir.Value, dims: Sequence[int], windows: Sequence[taps.Taps]) -> ir.Value:
    """x, indexed by the windows along `dims`, over the number of elements of each window."""
    for dim, window in zip(dims, windows, strict=True):
        counts = window.valid.sum(axis=1)
        if len(set(counts.tolist())) == 1:
            divisor = b.full_like(x, int(counts[0]))
        else:
            lengths = b.array(torch.from_numpy(counts).to(b.dtype(x)))
            divisor = b.broadcast_in_dim(lengths, b.shape(x), [dim])
        x = b.divide(x, divisor)
    return x


def _mean(b: Builder, x: ir.Value, rank: int) -> ir.Value:
    dtype, out = b.dtype(x), b.result_shape()
    if 0 in out:
        return b.full(out, 0, dtype)
    dims = range(len(out) - rank, len(out))
    windows = [taps.windows(b.shape(x)[d], out[d]) for d in dims]
    total = b.convert(x, math_dtype(dtype))
    for dim, window in zip(dims, windows, strict=True):
        total = apply_taps(b, total, dim, window)
    return b.convert(_divide(b, total, dims, windows), dtype)


def _mean_backward(b: Builder, grad: ir.Value, rank: int) -> ir.Value:
    dtype, shape = b.dtype(grad), b.result_shape()
    if 0 in b.shape(grad) or 0 in shape:
        return b.full(shape, 0, dtype)
    dims = range(len(shape) - rank, len(shape))
    windows = [taps.windows(shape[d], b.shape(grad)[d]) for d in dims]
    share = _divide(b, b.convert(grad, math_dtype(dtype)), dims, windows)
    for dim, window in zip(dims, windows, strict=True):
        share = apply_taps(b, share, dim, taps.transpose(window, shape[dim]))
    return b.convert(share, dtype)


@emits(aten._adaptive_avg_pool2d.default)
def adaptive_avg_pool2d(b: Builder, x: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """Mean of each window."""
    del output_size
    return _mean(b, x, 2)


@emits(aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool3d(b: Builder, x: ir.Value, output_size: Sequence[int]) -> ir.Value:
    """Mean of each window."""
    del output_size
    return _mean(b, x, 3)


@emits(aten._adaptive_avg_pool2d_backward.default)
def adaptive_avg_pool2d_backward(b: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """Gradient with respect to the input."""
    del x
    return _mean_backward(b, grad, 2)


@emits(aten._adaptive_avg_pool3d_backward.default)
def adaptive_avg_pool3d_backward(b: Builder, grad: ir.Value, x: ir.Value) -> ir.Value:
    """Gradient with respect to the input."""
    del x
    return _mean_backward(b, grad, 3)


def _max(b: Builder, x: ir.Value, rank: int) -> list[ir.Value]:
    """Largest element of each window and its flat index within the spatial dimensions.

    Short windows repeat their last element, which changes neither the largest nor its index.
    """
    shape, out, dtype = b.shape(x), b.result_shape(), b.dtype(x)
    lead = len(shape) - rank
    space = shape[lead:]
    kind = winners.index_dtype(math.prod(space))
    flat = b.reshape(b.iota([math.prod(space)], 0, kind), space)
    where = b.broadcast_in_dim(flat, shape, range(lead, len(shape)))
    reduced: list[int] = []
    # From the last dimension on, so that the positions of those before stay.
    for dim in reversed(range(lead, len(shape))):
        index = taps.windows(shape[dim], out[dim]).index
        x, where = _windowed(b, x, dim, index), _windowed(b, where, dim, index)
        reduced = [dim + 1, *(d + 1 for d in reduced)]
    values, indices = b.reduce_many(
        [x, where],
        [b.scalar(winners.lowest(dtype), dtype), b.scalar(winners.beyond(kind), kind)],
        reduced,
        winners.winner(b, last_nan=True),
    )
    return [values, b.convert(indices, torch.int64)]


def _windowed(b: Builder, x: ir.Value, dim: int, index: np.ndarray) -> ir.Value:
    """Dimension `dim` becomes [windows, elements]."""
    shape = b.shape(x)
    if index.size == shape[dim]:
        return b.reshape(x, [*shape[:dim], *index.shape, *shape[dim + 1 :]])
    return take_at(b, x, dim, index)


@emits(aten.adaptive_max_pool2d.default)
def adaptive_max_pool2d(b: Builder, x: ir.Value, output_size: Sequence[int]) -> list[ir.Value]:
    """Largest element of each window and its flat index."""
    del output_size
    return _max(b, x, 2)


@emits(aten.adaptive_max_pool3d.default)
def adaptive_max_pool3d(b: Builder, x: ir.Value, output_size: Sequence[int]) -> list[ir.Value]:
    """Largest element of each window and its flat index."""
    del output_size
    return _max(b, x, 3)


# ---- windows at random places ----------------------------------------------------------------


def _fractional_starts(
    b: Builder, samples: ir.Value, column: int, size: int, out: int, kernel: int
) -> ir.Value:
    """First positions [N, C, out] of windows spread over `size` by a random sample each."""
    lead = b.shape(samples)[:2]
    shape = [*lead, out]
    sample = b.slice_in_dim(samples, 2, column, column + 1)
    shift = b.broadcast_in_dim(b.reshape(sample, lead), shape, [0, 1])
    step = b.full_like(shift, (size - kernel) / (out - 1) if out > 1 else 0.0)
    at = b.convert(b.iota(shape, 2, torch.int32), b.dtype(shift))
    start = b.subtract(
        b.convert(b.multiply(b.add(at, shift), step), torch.int32),
        b.convert(b.multiply(shift, step), torch.int32),
    )
    last = b.compare(b.iota(shape, 2, torch.int32), b.full(shape, out - 1, torch.int32), "EQ")
    return b.select(last, b.full_like(start, size - kernel), start)


def _fractional_max(
    b: Builder, x: ir.Value, kernel: Sequence[int], samples: ir.Value
) -> list[ir.Value]:
    """Largest element of each window and its flat index; [N, C, *out] or [C, *out]."""
    rank = len(kernel)
    space, out = b.shape(x)[-rank:], b.result_shape()[-rank:]
    lead = list(b.shape(samples)[:2])
    count, cells = math.prod(space), [n for pair in zip(out, kernel, strict=True) for n in pair]
    shape = [*lead, *cells]
    flat: ir.Value | None = None
    for d, (size, m, k) in enumerate(zip(space, out, kernel, strict=True)):
        # In eager the samples of an image are (x, y), those of a volume (z, y, x).
        column = 1 - d if rank == 2 else d
        starts = _fractional_starts(b, samples, column, size, m, k)
        at = b.add(
            b.broadcast_in_dim(starts, shape, [0, 1, 2 + 2 * d]),
            b.iota(shape, 3 + 2 * d, torch.int32),
        )
        flat = at if flat is None else b.add(b.multiply(flat, b.full_like(flat, size)), at)
    assert flat is not None
    line = b.reshape(flat, [*lead, math.prod(cells)])
    values = take_along(b, b.reshape(x, [*lead, count]), 2, line)
    dtype = b.dtype(x)
    best, where = b.reduce_many(
        [b.reshape(values, shape), flat],
        [
            b.scalar(winners.lowest(dtype), dtype),
            b.scalar(winners.beyond(torch.int32), torch.int32),
        ],
        [3 + 2 * d for d in range(rank)],
        winners.winner(b, last_nan=True),
    )
    where = b.convert(where, torch.int64)
    return [b.reshape(best, b.result_shape(0)), b.reshape(where, b.result_shape(1))]


@emits(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(
    b: Builder,
    x: ir.Value,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    random_samples: ir.Value,
) -> list[ir.Value]:
    """Graham 2014: windows at pseudo-random places, from uniform samples [N, C, rank]."""
    del output_size
    return _fractional_max(b, x, kernel_size, random_samples)
