"""Order along a dimension: sort, topk, kthvalue, median, mode, cummax, searchsorted.

In: values. Out: `stablehlo.sort` of (value, index) pairs, running folds, or unrolled searches.
Invariant: NaN is larger than every number; sorting is stable, so of equal values the first stands
first (eager leaves that open for topk, kthvalue and median).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.indices import take_along
from neuron_compile.lowering.ops.indexing import canonical_dim
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.scans import running, running_sum
from neuron_compile.lowering.semantics import convert_like_eager, scalar_dtype
from neuron_compile.lowering.winners import (
    beyond,
    highest,
    index_dtype,
    lowest,
    precedes,
    winner,
    worst,
)

aten = torch.ops.aten

# Up to so many largest elements are found by that many reductions, which fuse with what stands
# around them (a router's top 2 of 8 experts); more by sorting.
_FEW = 4


def _sorted(b: Builder, x: ir.Value, dim: int, *, descending: bool) -> tuple[ir.Value, ir.Value]:
    """Values and narrow indices, stable."""
    where = b.iota(b.shape(x), dim, index_dtype(b.shape(x)[dim]))
    if b.shape(x)[dim] <= 1 or 0 in b.shape(x):
        return x, where

    def before(x0: ir.Value, x1: ir.Value, i0: ir.Value, i1: ir.Value) -> ir.Value:
        del i0, i1
        return precedes(b, x0, x1, largest=descending)

    values, indices = b.sort([x, where], dim, before, stable=True)
    return values, indices


def _as_vector(b: Builder, x: ir.Value) -> ir.Value:
    return b.reshape(x, b.shape(x) or [1])


def _results(b: Builder, values: ir.Value, indices: ir.Value) -> list[ir.Value]:
    """The pair in the shape the node has, with int64 indices."""
    return [
        b.reshape(values, b.result_shape(0)),
        b.reshape(b.convert(indices, torch.int64), b.result_shape(1)),
    ]


@emits(aten.sort.default)
def sort(b: Builder, x: ir.Value, dim: int = -1, descending: bool = False) -> list[ir.Value]:
    """Sorted values and where they came from."""
    dim = canonical_dim(dim, b.rank(x))
    return _results(b, *_sorted(b, _as_vector(b, x), dim, descending=descending))


@emits(aten.sort.stable)
def sort_stable(
    b: Builder, x: ir.Value, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> list[ir.Value]:
    """As `sort`, which is stable anyway."""
    del stable
    return sort(b, x, dim, descending)


@emits(aten.argsort.default)
def argsort(b: Builder, x: ir.Value, dim: int = -1, descending: bool = False) -> ir.Value:
    """Where the sorted values came from."""
    dim = canonical_dim(dim, b.rank(x))
    indices = _sorted(b, _as_vector(b, x), dim, descending=descending)[1]
    return b.reshape(b.convert(indices, torch.int64), b.result_shape())


@emits(aten.argsort.stable)
def argsort_stable(
    b: Builder, x: ir.Value, *, stable: bool, dim: int = -1, descending: bool = False
) -> ir.Value:
    """As `argsort`, which is stable anyway."""
    del stable
    return argsort(b, x, dim, descending)


# ---- the k-th of a row -----------------------------------------------------------------------


@emits(aten.topk.default)
def topk(
    b: Builder,
    x: ir.Value,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
) -> list[ir.Value]:
    """The k largest (smallest) values, in order, and where they are."""
    del sorted  # in order anyway
    dim = canonical_dim(dim, b.rank(x))
    x = _as_vector(b, x)
    return _results(b, *first_of_order(b, x, k, dim, largest=largest))


def first_of_order(
    b: Builder, x: ir.Value, k: int, dim: int, *, largest: bool
) -> tuple[ir.Value, ir.Value]:
    """The first k values of a row from the largest (smallest) on, and their narrow indices."""
    if 1 <= k <= _FEW and b.shape(x)[dim] > 1:
        return _first_few(b, x, k, dim, largest)
    values, indices = _sorted(b, x, dim, descending=largest)
    return b.slice_in_dim(values, dim, 0, k), b.slice_in_dim(indices, dim, 0, k)


def _first_few(
    b: Builder, x: ir.Value, k: int, dim: int, largest: bool
) -> tuple[ir.Value, ir.Value]:
    """K winners one after the other; a winner then stands back as the worst value, past the end."""
    shape, dtype = b.shape(x), b.dtype(x)
    kind = index_dtype(shape[dim])
    loser = worst(dtype, largest=largest)
    where = b.iota(shape, dim, kind)
    found: list[tuple[ir.Value, ir.Value]] = []
    kept = [d for d in range(len(shape)) if d != dim]
    line = [1 if d == dim else n for d, n in enumerate(shape)]
    rest, at = x, where
    for _ in range(k):
        if found:
            taken = b.compare(where, b.broadcast_in_dim(found[-1][1], shape, kept), "EQ")
            rest = b.select(taken, b.full_like(x, loser), rest)
            at = b.select(taken, b.full_like(at, beyond(kind)), at)
        value, index = b.reduce_many(
            [rest, at],
            [b.scalar(loser, dtype), b.scalar(beyond(kind), kind)],
            [dim],
            winner(b, largest=largest),
        )
        found.append((value, index))
    values = b.concatenate([b.reshape(v, line) for v, _ in found], dim)
    return values, b.concatenate([b.reshape(i, line) for _, i in found], dim)


def _pick(b: Builder, pair: Sequence[ir.Value], dim: int, position: int) -> list[ir.Value]:
    return [b.slice_in_dim(v, dim, position, position + 1) for v in pair]


@emits(aten.kthvalue.default)
def kthvalue(
    b: Builder, x: ir.Value, k: int, dim: int = -1, keepdim: bool = False
) -> list[ir.Value]:
    """The k-th smallest value (from 1) and where it is."""
    del keepdim  # shows in the result's shape
    dim = canonical_dim(dim, b.rank(x))
    pair = _sorted(b, _as_vector(b, x), dim, descending=False)
    return _results(b, *_pick(b, pair, dim, k - 1))


def _median(b: Builder, x: ir.Value, dim: int, skip_nan: bool) -> tuple[ir.Value, ir.Value]:
    """The lower median of `dim` (kept, size 1); NaN if there is one, unless `skip_nan`."""
    values, indices = _sorted(b, x, dim, descending=False)
    size = b.shape(x)[dim]
    if not b.dtype(x).is_floating_point:
        value, index = _pick(b, (values, indices), dim, (size - 1) // 2)
        return value, index
    line = [1 if d == dim else n for d, n in enumerate(b.shape(x))]
    kind = index_dtype(size)
    numbers = b.convert(b.compare(x, x, "EQ"), kind)
    count = b.reshape(b.reduce(numbers, b.scalar(0, kind), [dim], b.add), line)
    # Sorting put the NaNs last: the first of them stands at `count`.
    last = b.maximum(b.subtract(count, b.full_like(count, 1)), b.full_like(count, 0))
    middle = b.divide(last, b.full_like(last, 2))
    if not skip_nan:
        middle = b.select(b.compare(count, b.full_like(count, size), "LT"), count, middle)
    return take_along(b, values, dim, middle), take_along(b, indices, dim, middle)


@emits(aten.median.dim)
def median_dim(b: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> list[ir.Value]:
    """The lower median and where it is; NaN if the row holds one."""
    del keepdim
    dim = canonical_dim(dim, b.rank(x))
    return _results(b, *_median(b, _as_vector(b, x), dim, skip_nan=False))


@emits(aten.nanmedian.dim)
def nanmedian_dim(b: Builder, x: ir.Value, dim: int, keepdim: bool = False) -> list[ir.Value]:
    """The lower median of what is not NaN, and where it is."""
    del keepdim
    dim = canonical_dim(dim, b.rank(x))
    return _results(b, *_median(b, _as_vector(b, x), dim, skip_nan=True))


def _flat_median(b: Builder, x: ir.Value, skip_nan: bool) -> ir.Value:
    flat = b.reshape(x, [math.prod(b.shape(x))])
    if 0 in b.shape(flat):
        missing = math.nan if b.dtype(x).is_floating_point else lowest(b.dtype(x))
        return b.scalar(missing, b.dtype(x))
    return b.reshape(_median(b, flat, 0, skip_nan)[0], ())


@emits(aten.median.default)
def median(b: Builder, x: ir.Value) -> ir.Value:
    """The lower median of all elements."""
    return _flat_median(b, x, skip_nan=False)


@emits(aten.nanmedian.default)
def nanmedian(b: Builder, x: ir.Value) -> ir.Value:
    """The lower median of all elements that are not NaN."""
    return _flat_median(b, x, skip_nan=True)


@emits(aten.mode.default)
def mode(b: Builder, x: ir.Value, dim: int = -1, keepdim: bool = False) -> list[ir.Value]:
    """The most frequent value, the smallest of several, and the last place where it stands."""
    del keepdim
    dim = canonical_dim(dim, b.rank(x))
    x = _as_vector(b, x)
    shape = b.shape(x)
    values, indices = _sorted(b, x, dim, descending=False)
    kind = b.dtype(indices)
    where = b.iota(shape, dim, kind)
    # In sorted order a run of equal values starts where the one before differs.
    before = b.concatenate(
        [b.slice_in_dim(values, dim, 0, 1), b.slice_in_dim(values, dim, 0, shape[dim] - 1)], dim
    )
    fresh = b.or_(b.compare(values, before, "NE"), b.compare(where, b.full_like(where, 0), "EQ"))
    start = running(
        b,
        [b.select(fresh, where, b.full_like(where, 0))],
        [b.scalar(0, kind)],
        dim,
        b.maximum,
    )[0]
    length = b.subtract(where, start)
    longest = b.reduce_many(
        [length, where],
        [b.scalar(-1, kind), b.scalar(beyond(kind), kind)],
        [dim],
        winner(b, largest=True),
    )[1]
    line = [1 if d == dim else n for d, n in enumerate(shape)]
    place = b.reshape(longest, line)
    # Sorting is stable, so the end of the run is the last place of the value.
    return _results(b, take_along(b, values, dim, place), take_along(b, indices, dim, place))


# ---- running extremes ------------------------------------------------------------------------


def _running_extreme(b: Builder, x: ir.Value, dim: int, *, largest: bool) -> list[ir.Value]:
    dim = canonical_dim(dim, b.rank(x))
    x = _as_vector(b, x)
    dtype, kind = b.dtype(x), index_dtype(b.shape(x)[dim])
    start = lowest(dtype) if largest else highest(dtype)
    # Eager moves on to a later equal value, and NaN replaces everything.
    body = winner(b, largest=largest, last=True, nan_wins=True)
    pair = [x, b.iota(b.shape(x), dim, kind)]
    values, indices = running(b, pair, [b.scalar(start, dtype), b.scalar(-1, kind)], dim, body)
    return _results(b, values, indices)


@emits(aten.cummax.default)
def cummax(b: Builder, x: ir.Value, dim: int) -> list[ir.Value]:
    """The largest so far, and the last place where it stands."""
    return _running_extreme(b, x, dim, largest=True)


@emits(aten.cummin.default)
def cummin(b: Builder, x: ir.Value, dim: int) -> list[ir.Value]:
    """The smallest so far, and the last place where it stands."""
    return _running_extreme(b, x, dim, largest=False)


# ---- searches in sorted rows -----------------------------------------------------------------


def search(
    b: Builder, rows: ir.Value, values: ir.Value, right: bool, sorter: ir.Value | None = None
) -> ir.Value:
    """Binary search of values [*lead, m] in sorted rows [*lead, n], unrolled; int64 [*lead, m].

    Takes the same steps as eager, so that rows that are not sorted, or end in NaN, agree too.
    """
    shape, size = b.shape(values), b.shape(rows)[-1]
    last = len(shape) - 1
    low = b.full(shape, 0, torch.int64)
    high = b.full(shape, size, torch.int64)
    one = b.full(shape, 1, torch.int64)
    for _ in range(size.bit_length()):
        open_ = b.compare(low, high, "LT")
        middle = b.add(low, b.shift_right_arithmetic(b.subtract(high, low), one))
        at = middle if sorter is None else take_along(b, sorter, last, middle)
        seen = take_along(b, rows, last, at)
        # not (seen >= value), so that NaN moves right.
        go_right = b.not_(b.compare(seen, values, "GT" if right else "GE"))
        low = b.select(b.and_(open_, go_right), b.add(middle, one), low)
        high = b.select(b.and_(open_, b.not_(go_right)), middle, high)
    return low


@emits(aten.searchsorted.Tensor)
def searchsorted(
    b: Builder,
    sorted_sequence: ir.Value,
    x: ir.Value,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    """Where x would have to be inserted to keep each row sorted."""
    del out_int32  # shows in the result's dtype
    common = torch.promote_types(b.dtype(sorted_sequence), b.dtype(x))
    rows, values = (convert_like_eager(b, v, common) for v in (sorted_sequence, x))
    if b.rank(rows) == 1:
        values = b.reshape(values, [math.prod(b.shape(values))])
    if 0 in b.result_shape():
        return b.full(b.result_shape(), 0, b.result_dtype())
    found = search(b, rows, values, right or side == "right", sorter)
    return b.reshape(b.convert(found, b.result_dtype()), b.result_shape())


@emits(aten.searchsorted.Scalar)
def searchsorted_scalar(
    b: Builder,
    sorted_sequence: ir.Value,
    x: Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    """As `searchsorted`, for one number."""
    value = b.scalar(x, _scalar_like(b, sorted_sequence, x))
    return searchsorted(
        b, sorted_sequence, value, out_int32=out_int32, right=right, side=side, sorter=sorter
    )


def _scalar_like(b: Builder, sequence: ir.Value, x: Scalar) -> torch.dtype:
    dtype = b.dtype(sequence)
    return dtype if dtype.is_floating_point or isinstance(x, int) else scalar_dtype(x)


@emits(aten.bucketize.Tensor)
def bucketize(
    b: Builder, x: ir.Value, boundaries: ir.Value, *, out_int32: bool = False, right: bool = False
) -> ir.Value:
    """Which bucket of the sorted boundaries each element falls into."""
    return searchsorted(b, boundaries, x, out_int32=out_int32, right=right)


@emits(aten.bucketize.Scalar)
def bucketize_scalar(
    b: Builder, x: Scalar, boundaries: ir.Value, *, out_int32: bool = False, right: bool = False
) -> ir.Value:
    """As `bucketize`, for one number."""
    return searchsorted_scalar(b, boundaries, x, out_int32=out_int32, right=right)


@emits(aten.repeat_interleave.Tensor)
def repeat_interleave(b: Builder, repeats: ir.Value, *, output_size: int | None = None) -> ir.Value:
    """Index i repeated repeats[i] times; the result's size is known beforehand."""
    del output_size
    size = b.result_shape()[0]
    if size == 0:
        return b.full([0], 0, b.result_dtype())
    ends = running_sum(b, b.convert(repeats, torch.int64), 0)
    found = search(b, ends, b.iota([size], 0, torch.int64), right=True)
    return b.convert(found, b.result_dtype())
