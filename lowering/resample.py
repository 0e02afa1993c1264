"""Taps applied to values: weighted sums of neighbours along one dimension.

In: a value, `Taps`. Out: gathers at constant positions, multiplied and added; a reshape where the
taps are equal blocks. Invariant: an input that is no tap of an output never touches it, so its NaN
or infinity stays where it is.
"""

from __future__ import annotations

import numpy as np
import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.indices import take_rows
from neuron_compile.lowering.taps import Taps

# Up to so many taps are added one by one; more become a dimension that is reduced.
_FEW = 4


def take_at(b: Builder, x: ir.Value, dim: int, index: np.ndarray) -> ir.Value:
    """X at constant positions [n] or [n, taps] of `dim`: a view where they are regular."""
    if index.ndim == 1 and index.size:
        step = int(index[1] - index[0]) if index.size > 1 else 1
        if step > 0 and np.all(np.diff(index) == step):
            return b.slice_in_dim(x, dim, int(index[0]), int(index[-1]) + 1, step)
        size = b.shape(x)[dim]
        if index.size % size == 0 and np.array_equal(
            index, np.repeat(np.arange(size), index.size // size)
        ):
            return repeat_each(b, x, dim, index.size // size)
    return take_rows(b, x, dim, b.array(torch.from_numpy(index.astype(np.int32))))


def repeat_each(b: Builder, x: ir.Value, dim: int, times: int) -> ir.Value:
    """Each slice of `dim` `times` times in a row."""
    shape = list(b.shape(x))
    spread = [*shape[: dim + 1], times, *shape[dim + 1 :]]
    kept = [d if d <= dim else d + 1 for d in range(len(shape))]
    shape[dim] *= times
    return b.reshape(b.broadcast_in_dim(x, spread, kept), shape)


def apply_taps(b: Builder, x: ir.Value, dim: int, taps: Taps) -> ir.Value:
    """The weighted sums along `dim`; x in the dtype to add up in."""
    outputs, count = taps.index.shape
    blocks = _equal_blocks(taps, b.shape(x)[dim])
    if blocks is not None:
        return _sum_blocks(b, x, dim, blocks)
    if count == 0:
        shape = [outputs if d == dim else n for d, n in enumerate(b.shape(x))]
        return b.full(shape, 0, b.dtype(x))
    if count <= _FEW:
        total = _tap(b, x, dim, taps, 0)
        for t in range(1, count):
            total = b.add(total, _tap(b, x, dim, taps, t))
        return total
    taken = take_at(b, x, dim, taps.index)
    weighted = _weigh(b, taken, [dim, dim + 1], taps.weight, taps.valid)
    return b.reduce(weighted, b.scalar(0, b.dtype(x)), [dim + 1], b.add)


def _tap(b: Builder, x: ir.Value, dim: int, taps: Taps, t: int) -> ir.Value:
    taken = take_at(b, x, dim, taps.index[:, t])
    return _weigh(b, taken, [dim], taps.weight[:, t], taps.valid[:, t])


def _weigh(
    b: Builder, x: ir.Value, dims: list[int], weight: np.ndarray, valid: np.ndarray
) -> ir.Value:
    """Weight * x where valid, else 0; the arrays lie along `dims`."""
    shape, dtype = b.shape(x), b.dtype(x)
    if not np.all(weight[valid] == 1.0):
        factors = b.array(torch.from_numpy(np.ascontiguousarray(weight)).to(dtype))
        x = b.multiply(x, b.broadcast_in_dim(factors, shape, dims))
    if not valid.all():
        mask = b.array(torch.from_numpy(np.ascontiguousarray(valid)))
        x = b.select(b.broadcast_in_dim(mask, shape, dims), x, b.full_like(x, 0))
    return x


def _equal_blocks(taps: Taps, inputs: int) -> int | None:
    """The block length if output i sums inputs i * length .. (i + 1) * length - 1."""
    outputs, count = taps.index.shape
    if outputs * count != inputs or count < 2 or not taps.valid.all():
        return None
    regular = np.array_equal(taps.index.reshape(-1), np.arange(inputs))
    return count if regular and np.all(taps.weight == 1.0) else None


def _sum_blocks(b: Builder, x: ir.Value, dim: int, length: int) -> ir.Value:
    shape = b.shape(x)
    split = [*shape[:dim], shape[dim] // length, length, *shape[dim + 1 :]]
    return b.reduce(b.reshape(x, split), b.scalar(0, b.dtype(x)), [dim + 1], b.add)
