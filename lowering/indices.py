"""Gather and scatter in the forms aten knows: along one dimension, by rows, at points.

In: values, index values, Python integers. Out: StableHLO gather and scatter, or selects where few
indices make those cheaper to fuse. Invariant: an index out of range is clamped when read and
ignored when written (eager raises IndexError; see ops/indexing.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.semantics import math_dtype

Combine = Callable[[ir.Value, ir.Value], ir.Value]


# Up to so many writes per row are done by comparing every position with each index: that is a pure
# function of the position and fuses, a scatter is a kernel of its own.
_FEW = 4


def replace(old: ir.Value, new: ir.Value) -> ir.Value:
    """The scatter body that overwrites."""
    del old
    return new


def wrap_negative(b: Builder, index: ir.Value, size: int) -> ir.Value:
    """Indices below zero count from the end, once, as in Python."""
    below = b.compare(index, b.full_like(index, 0), "LT")
    return b.select(below, b.add(index, b.full_like(index, size)), index)


# ---- along one dimension (gather, scatter) ---------------------------------------------------


def take_along(b: Builder, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    """x[.., index[.., i, ..], ..] at [.., i, ..]; `index` may be shorter in other dimensions."""
    shape = list(b.shape(index))
    if 0 in shape:
        return b.full(shape, 0, b.dtype(x))
    limits = [b.shape(x)[d] if d == dim else n for d, n in enumerate(shape)]
    others = [d for d in range(len(shape)) if d != dim]
    return b.gather(
        b.slice(x, [0] * len(shape), limits),
        index,
        offset_dims=[],
        collapsed_slice_dims=[dim],
        start_index_map=[dim],
        index_vector_dim=len(shape),
        slice_sizes=[1] * len(shape),
        operand_batching_dims=others,
        start_indices_batching_dims=others,
    )


def put_along(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, update: ir.Value, combine: Combine
) -> ir.Value:
    """x with combine(old, update[.., i, ..]) at [.., index[.., i, ..], ..].

    `update` has the shape of `index`; other dimensions of both may be shorter than those of `x`.
    Anything but `replace` is accumulated in float32 for half precision.
    """
    if 0 in b.shape(index):
        return x
    shape = b.shape(x)
    missing = [
        0 if d == dim else n - m for d, (n, m) in enumerate(zip(shape, b.shape(index), strict=True))
    ]
    none = [0] * len(shape)
    index = b.pad(index, b.scalar(-1, b.dtype(index)), none, missing)
    update = b.pad(update, b.scalar(0, b.dtype(update)), none, missing)
    if b.shape(index)[dim] <= _FEW:
        return _put_few(b, x, dim, index, update, combine)
    others = [d for d in range(len(shape)) if d != dim]
    return accumulate(
        b,
        x,
        update,
        combine,
        lambda wide, fresh: b.scatter(
            wide,
            index,
            fresh,
            combine,
            update_window_dims=[],
            inserted_window_dims=[dim],
            scatter_dims_to_operand_dims=[dim],
            index_vector_dim=len(shape),
            input_batching_dims=others,
            scatter_indices_batching_dims=others,
        ),
    )


def _put_few(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, update: ir.Value, combine: Combine
) -> ir.Value:
    shape = b.shape(x)
    every = list(range(len(shape)))
    position = b.iota(shape, dim, b.dtype(index))

    def write(wide: ir.Value, fresh: ir.Value) -> ir.Value:
        for i in range(b.shape(index)[dim]):
            here = b.broadcast_in_dim(b.slice_in_dim(index, dim, i, i + 1), shape, every)
            value = b.broadcast_in_dim(b.slice_in_dim(fresh, dim, i, i + 1), shape, every)
            wide = b.select(b.compare(position, here, "EQ"), combine(wide, value), wide)
        return wide

    return accumulate(b, x, update, combine, write)


def accumulate(
    b: Builder,
    x: ir.Value,
    update: ir.Value,
    combine: Combine,
    write: Callable[[ir.Value, ir.Value], ir.Value],
) -> ir.Value:
    """write(x, update) at a precision in which repeated `combine` does not lose digits."""
    dtype = b.dtype(x)
    wide = math_dtype(dtype)
    if combine is replace or wide is dtype:
        return write(x, update)
    return b.convert(write(b.convert(x, wide), b.convert(update, wide)), dtype)


# ---- whole slices of one dimension (index_select, index_add, embedding) ----------------------


def take_rows(b: Builder, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    """x with dimension `dim` replaced by the dimensions of `index`."""
    shape = b.shape(x)
    count = b.rank(index)
    result = [*shape[:dim], *b.shape(index), *shape[dim + 1 :]]
    if 0 in result:
        return b.full(result, 0, b.dtype(x))
    offset = [d if d < dim else d + count - 1 for d in range(len(shape)) if d != dim]
    return b.gather(
        x,
        index,
        offset_dims=offset,
        collapsed_slice_dims=[dim],
        start_index_map=[dim],
        index_vector_dim=count,
        slice_sizes=[1 if d == dim else n for d, n in enumerate(shape)],
    )


def put_rows(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, update: ir.Value, combine: Combine
) -> ir.Value:
    """x with combine(old, update) at the slices `index` of `dim`.

    `update` has the shape of `x` with dimension `dim` replaced by the dimensions of `index`.
    """
    if 0 in b.shape(update):
        return x
    count = b.rank(index)
    window = [d if d < dim else d + count - 1 for d in range(b.rank(x)) if d != dim]
    return accumulate(
        b,
        x,
        update,
        combine,
        lambda wide, fresh: b.scatter(
            wide,
            index,
            fresh,
            combine,
            update_window_dims=window,
            inserted_window_dims=[dim],
            scatter_dims_to_operand_dims=[dim],
            index_vector_dim=count,
        ),
    )


# ---- points given by several index tensors (index, index_put) --------------------------------


def point_shape(
    b: Builder, x: ir.Value, dims: Sequence[int], points: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Shape of x[indices], and where in it the dimensions that are not indexed stand.

    `points` is the broadcast shape of the indices. Indexed dimensions that are neighbours are
    replaced in place, others go to the front (NumPy's rule).
    """
    shape = b.shape(x)
    rest = [d for d in range(len(shape)) if d not in dims]
    together = list(dims) == list(range(dims[0], dims[0] + len(dims)))
    start = dims[0] if together else 0
    size = [shape[d] for d in rest]
    size[start:start] = points
    window = [i if i < start else i + len(points) for i in range(len(rest))]
    return size, window


def take_points(b: Builder, x: ir.Value, dims: Sequence[int], vectors: ir.Value) -> ir.Value:
    """x at index vectors [*points, len(dims)], the rest of the dimensions whole."""
    shape = b.shape(x)
    points = b.shape(vectors)[:-1]
    result, window = point_shape(b, x, dims, points)
    if 0 in result:
        return b.full(result, 0, b.dtype(x))
    return b.gather(
        x,
        vectors,
        offset_dims=window,
        collapsed_slice_dims=list(dims),
        start_index_map=list(dims),
        index_vector_dim=len(points),
        slice_sizes=[1 if d in dims else n for d, n in enumerate(shape)],
    )


def put_points(
    b: Builder,
    x: ir.Value,
    dims: Sequence[int],
    vectors: ir.Value,
    update: ir.Value,
    combine: Combine,
) -> ir.Value:
    """x with combine(old, update) at index vectors; `update` has the shape `take_points` gives."""
    if 0 in b.shape(update):
        return x
    points = b.shape(vectors)[:-1]
    _, window = point_shape(b, x, dims, points)
    return accumulate(
        b,
        x,
        update,
        combine,
        lambda wide, fresh: b.scatter(
            wide,
            vectors,
            fresh,
            combine,
            update_window_dims=window,
            inserted_window_dims=list(dims),
            scatter_dims_to_operand_dims=list(dims),
            index_vector_dim=len(points),
        ),
    )
