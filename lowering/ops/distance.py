"""Distances between vectors: dist, cdist, pdist, the gradient of cdist; trilinear forms.

In: rows of vectors, the order p of the norm. Out: distances or gradients. Invariant: computed as
norms of differences, without the expansion into products that cancels for close vectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.ops.reduction import norm_of_sizes, sum_over
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value


@emits(aten.dist.default)
def dist(b: Builder, x: Value, y: Value, p: float = 2) -> Value:
    """The p-norm of the whole difference."""
    shape = torch.broadcast_shapes(b.shape(x), b.shape(y))
    dtype = sem.math_dtype(b.result_dtype())
    gap = b.subtract(sem.operand(b, x, shape, dtype), sem.operand(b, y, shape, dtype))
    made = norm_of_sizes(b, b.abs(gap), float(p), list(range(len(shape))))
    return b.convert(made, b.result_dtype())


def _gaps(b: Builder, x1: Value, x2: Value) -> Value:
    """x1[.., i, :] - x2[.., j, :] of shape (.., i, j, :)."""
    first, second = b.shape(x1), b.shape(x2)
    batch = torch.broadcast_shapes(first[:-2], second[:-2])
    shape = (*batch, first[-2], second[-2], first[-1])
    rows = b.reshape(x1, (*first[:-1], 1, first[-1]))
    columns = b.reshape(x2, (*second[:-2], 1, *second[-2:]))
    return b.subtract(b.broadcast_to(rows, shape), b.broadcast_to(columns, shape))


@emits(aten._cdist_forward.default)
def cdist(b: Builder, x1: Value, x2: Value, p: float, compute_mode: int | None) -> Value:
    """Distances of each row of x1 to each row of x2."""
    gaps = _gaps(b, x1, x2)
    return norm_of_sizes(b, b.abs(gaps), float(p), [b.rank(gaps) - 1])


@emits(aten._cdist_backward.default)
def cdist_backward(
    b: Builder, grad: Value, x1: Value, x2: Value, p: float, distances: Value
) -> Value:
    """The gradient of x1."""
    gaps = _gaps(b, x1, x2)
    slopes = _slopes(b, gaps, grad, distances, float(p))
    made = sum_over(b, slopes, [b.rank(slopes) - 2])
    return b.reshape(made, b.result_shape())


def _slopes(b: Builder, gaps: Value, grad: Value, distances: Value, p: float) -> Value:
    """grad * d |gap|_p / d gap, 0 where the distance is 0."""
    shape = b.shape(gaps)
    rows = list(range(len(shape) - 1))
    grad = b.broadcast_in_dim(b.broadcast_to(grad, shape[:-1]), shape, rows)
    whole = b.broadcast_in_dim(b.broadcast_to(distances, shape[:-1]), shape, rows)
    zero, one = b.full_like(gaps, 0.0), b.full_like(gaps, 1.0)
    apart = b.compare(whole, zero, "NE")
    if p == 0:
        return zero
    if p == 2:
        slope = b.divide(gaps, b.select(apart, whole, one))
    elif p == 1:
        slope = b.sign(gaps)
    elif math.isinf(p):
        slope = b.select(b.compare(b.abs(gaps), whole, "EQ"), b.sign(gaps), zero)
    else:
        ratio = b.divide(b.abs(gaps), b.select(apart, whole, one))
        moved = b.compare(gaps, zero, "NE")
        power = b.power(b.select(moved, ratio, one), b.full_like(gaps, p - 1.0))
        slope = b.select(moved, b.multiply(b.sign(gaps), power), zero)
    return b.select(apart, b.multiply(grad, slope), zero)


def _pairs_below(b: Builder, n: int) -> tuple[Value, Value]:
    rows, columns = torch.triu_indices(n, n, 1).unbind()
    return b.array(rows), b.array(columns)


def _take_rows(b: Builder, x: Value, index: Value) -> Value:
    return b.gather(
        x,
        index,
        offset_dims=[1],
        collapsed_slice_dims=[0],
        start_index_map=[0],
        index_vector_dim=1,
        slice_sizes=[1, b.shape(x)[1]],
    )


@emits(aten._pdist_forward.default)
def pdist(b: Builder, x: Value, p: float = 2) -> Value:
    """Distances of each pair of different rows, in the order of the upper triangle."""
    if not b.result_shape()[0]:
        return b.full((0,), 0.0, b.result_dtype())
    rows, columns = _pairs_below(b, b.shape(x)[0])
    gaps = b.subtract(_take_rows(b, x, rows), _take_rows(b, x, columns))
    return norm_of_sizes(b, b.abs(gaps), float(p), [1])


@emits(aten._trilinear.default)
def trilinear(
    b: Builder,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """The sum over `sumdim` of the product of three tensors, each with dimensions of 1 inserted."""
    dtype = sem.math_dtype(b.result_dtype())
    tensors = []
    for value, added in ((i1, expand1), (i2, expand2), (i3, expand3)):
        shape = list(b.shape(value))
        for dim in sorted(added):
            shape.insert(dim, 1)
        tensors.append(b.reshape(b.convert(value, dtype), shape))
    shape = list(torch.broadcast_shapes(*(b.shape(v) for v in tensors)))
    first, second, third = (b.broadcast_to(v, shape) for v in tensors)
    made = sum_over(b, b.multiply(b.multiply(first, second), third), sorted(sumdim))
    return b.convert(made, b.result_dtype())
