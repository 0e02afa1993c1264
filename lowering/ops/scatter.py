"""Writing by index: scatter, scatter_reduce, index_add and relatives, masked_scatter, histc.

In: values and index values. Out: `stablehlo.scatter`, or selects where few indices make those
cheaper to fuse. Invariant: an index out of range (an error in eager) writes nothing; repeated
indices all take part; unique indices are never claimed (T078, T079).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.indices import (
    Combine,
    put_along,
    put_rows,
    replace,
    take_rows,
    wrap_negative,
)
from neuron_compile.lowering.ops.indexing import canonical_dim
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.scans import running_sum
from neuron_compile.lowering.semantics import (
    convert_like_eager,
    floor_divide,
    is_nan,
    math_dtype,
)
from neuron_compile.lowering.winners import highest, lowest

aten = torch.ops.aten

# put(target, source, combine): write a source to the places of one node's index.
_Put = Callable[[ir.Value, ir.Value | Scalar, Combine], ir.Value]


# ---- scatter: the index has the rank of the tensor -------------------------------------------


def _put(
    b: Builder,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    src: ir.Value | Scalar,
    combine: Combine,
) -> ir.Value:
    """`put_along` with eager's liberties: a source larger than the index, scalars, 0-d tensors."""
    shape = b.shape(x)
    x = b.reshape(x, shape or [1])
    index = b.reshape(index, b.shape(index) or [1])
    size = b.shape(index)
    if isinstance(src, ir.Value):
        src = b.reshape(src, b.shape(src) or [1])
        update = b.slice(src, [0] * len(size), size)
    else:
        update = b.full(size, src, b.dtype(x))
    made = put_along(b, x, canonical_dim(dim, len(shape)), index, update, combine)
    return b.reshape(made, shape)


@emits(aten.scatter.src)
def scatter(b: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    """x with src at index along `dim`."""
    return _put(b, x, dim, index, src, replace)


@emits(aten.scatter.value)
def scatter_value(b: Builder, x: ir.Value, dim: int, index: ir.Value, value: Scalar) -> ir.Value:
    """x with one value at index along `dim`."""
    return _put(b, x, dim, index, value, replace)


@emits(aten.scatter_add.default)
def scatter_add(b: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    """x with src added at index along `dim`."""
    return _put(b, x, dim, index, src, b.add)


@emits(aten.scatter.reduce)
def scatter_with_reduce(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, *, reduce: str
) -> ir.Value:
    """x with src added to ("add") or multiplied into ("multiply") the elements at index."""
    return _put(b, x, dim, index, src, b.add if reduce == "add" else b.multiply)


@emits(aten.scatter.value_reduce)
def scatter_value_with_reduce(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, value: Scalar, *, reduce: str
) -> ir.Value:
    """As `scatter_with_reduce`, with one value."""
    return _put(b, x, dim, index, value, b.add if reduce == "add" else b.multiply)


# ---- named reductions: scatter_reduce, index_reduce ------------------------------------------


def _combine(b: Builder, reduce: str) -> Combine:
    return {
        "sum": b.add,
        "mean": b.add,
        "prod": b.multiply,
        "amax": b.maximum,
        "amin": b.minimum,
    }[reduce]


def _identity(reduce: str, dtype: torch.dtype) -> Scalar:
    if reduce == "amax":
        return lowest(dtype)
    if reduce == "amin":
        return highest(dtype)
    return 1 if reduce == "prod" else 0


def _fold_into(
    b: Builder, x: ir.Value, src: ir.Value, reduce: str, include_self: bool, put: _Put
) -> ir.Value:
    """x with src folded in; without `include_self`, places that are written forget their value."""
    dtype = b.dtype(x)
    wide = math_dtype(dtype)
    start, src = b.convert(x, wide), b.convert(src, wide)
    if not include_self:
        start = put(start, _identity(reduce, wide), replace)
    folded = put(start, src, _combine(b, reduce))
    if reduce == "mean":
        kind = wide if wide.is_floating_point else torch.int64
        ones = b.full(b.shape(x), int(include_self), kind)
        counts = put(ones, 1, b.add)
        counts = b.convert(b.maximum(counts, b.full_like(counts, 1)), wide)
        if wide.is_floating_point:
            folded = b.divide(folded, counts)
        else:
            folded = floor_divide(b, folded, counts, counts)
    return b.convert(folded, dtype)


@emits(aten.scatter_reduce.two)
def scatter_reduce(
    b: Builder,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    src: ir.Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> ir.Value:
    """Reduce is sum, prod, mean, amax or amin; integer means are rounded down."""

    def put(target: ir.Value, source: ir.Value | Scalar, combine: Combine) -> ir.Value:
        return _put(b, target, dim, index, source, combine)

    return _fold_into(b, x, src, reduce, include_self, put)


@emits(aten.index_reduce.default)
def index_reduce(
    b: Builder,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> ir.Value:
    """As `scatter_reduce`, over whole slices of `dim`; reduce is prod, mean, amax or amin."""

    def put(target: ir.Value, given: ir.Value | Scalar, combine: Combine) -> ir.Value:
        return _put_slices(b, target, dim, index, given, combine)

    return _fold_into(b, x, source, reduce, include_self, put)


# ---- whole slices: index_add, index_copy, index_fill -----------------------------------------


def _put_slices(
    b: Builder,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value | Scalar,
    combine: Combine,
) -> ir.Value:
    """`put_rows` for a 1-d or 0-d index, a 0-d tensor, or one value for all slices."""
    shape = b.shape(x)
    target = b.reshape(x, shape or [1])
    dim = canonical_dim(dim, len(shape))
    flat = b.reshape(index, [math.prod(b.shape(index))])
    size = list(b.shape(target))
    size[dim] = b.shape(flat)[0]
    if isinstance(source, ir.Value):
        update = b.reshape(source, size)
    else:
        update = b.full(size, source, b.dtype(x))
    return b.reshape(put_rows(b, target, dim, flat, update, combine), shape)


@emits(aten.index_add.default)
def index_add(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, *, alpha: Scalar = 1
) -> ir.Value:
    """x with alpha * source added to the slices `index` of `dim`."""
    dtype = b.dtype(x)
    wide = math_dtype(dtype)
    target, fresh = b.convert(x, wide), b.convert(source, wide)
    if alpha != 1:
        fresh = b.multiply(fresh, b.full_like(fresh, alpha))
    return b.convert(_put_slices(b, target, dim, index, fresh, b.add), dtype)


@emits(aten.index_copy.default)
def index_copy(b: Builder, x: ir.Value, dim: int, index: ir.Value, source: ir.Value) -> ir.Value:
    """x with the slices `index` of `dim` replaced."""
    return _put_slices(b, x, dim, index, source, replace)


@emits(aten.index_fill.int_Scalar)
def index_fill(b: Builder, x: ir.Value, dim: int, index: ir.Value, value: Scalar) -> ir.Value:
    """x with the slices `index` of `dim` set to one value; negative indices wrap."""
    wrapped = wrap_negative(b, index, (b.shape(x) or (1,))[canonical_dim(dim, b.rank(x))])
    return _put_slices(b, x, dim, wrapped, value, replace)


@emits(aten.index_fill.int_Tensor)
def index_fill_tensor(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, value: ir.Value
) -> ir.Value:
    """As `index_fill`, with a 0-d tensor."""
    shape = b.shape(x) or (1,)
    dim = canonical_dim(dim, b.rank(x))
    size = list(shape)
    size[dim] = math.prod(b.shape(index))
    fresh = b.broadcast_to(convert_like_eager(b, value, b.dtype(x)), size)
    return _put_slices(b, x, dim, wrap_negative(b, index, shape[dim]), fresh, replace)


@emits(aten.put.default)
def put(
    b: Builder, x: ir.Value, index: ir.Value, source: ir.Value, accumulate: bool = False
) -> ir.Value:
    """x with elements of its flattened form replaced or added to; negative indices wrap."""
    count = math.prod(b.shape(x))
    flat = wrap_negative(b, b.reshape(index, [math.prod(b.shape(index))]), count)
    update = b.reshape(source, b.shape(flat))
    combine = b.add if accumulate else replace
    return b.reshape(put_rows(b, b.reshape(x, [count]), 0, flat, update, combine), b.shape(x))


# ---- by mask, by value -----------------------------------------------------------------------


@emits(aten.masked_scatter.default)
def masked_scatter(b: Builder, x: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    """x with its masked elements replaced, in order, by the first elements of source."""
    shape = b.result_shape()
    count = math.prod(shape)
    if count == 0 or 0 in b.shape(source):
        return b.broadcast_to(x, shape)
    flat = b.reshape(b.broadcast_to(mask, shape), [count])
    taken = running_sum(b, b.convert(flat, torch.int64), 0)
    position = b.reshape(b.subtract(taken, b.full_like(taken, 1)), shape)
    values = take_rows(b, b.reshape(source, [math.prod(b.shape(source))]), 0, position)
    return b.select(b.reshape(flat, shape), values, b.broadcast_to(x, shape))


@emits(aten.masked_scatter_backward.default)
def masked_scatter_backward(
    b: Builder, grad: ir.Value, mask: ir.Value, sizes: Sequence[int]
) -> ir.Value:
    """The masked elements of grad, in order, in the first elements of a tensor of these sizes."""
    shape, size = b.shape(grad), math.prod(sizes)
    count = math.prod(shape)
    zeros = b.full([size], 0, b.dtype(grad))
    if 0 in (count, size):
        return b.reshape(zeros, sizes)
    flat = b.reshape(b.broadcast_to(mask, shape), [count])
    taken = running_sum(b, b.convert(flat, torch.int64), 0)
    minus_one = b.full_like(taken, -1)
    place = b.select(flat, b.add(taken, minus_one), minus_one)
    return b.reshape(put_rows(b, zeros, 0, place, b.reshape(grad, [count]), replace), sizes)


@emits(aten.histc.default)
def histc(
    b: Builder,
    x: ir.Value,
    bins: int = 100,
    min: Scalar = 0,
    max: Scalar = 0,
) -> ir.Value:
    """How many elements fall into each of `bins` equal parts of [min, max]; the last is closed.

    With min == max the range is that of the data; NaN and what lies outside is not counted.
    """
    dtype = b.dtype(x)
    wide = math_dtype(dtype)
    count = math.prod(b.shape(x))
    flat = b.reshape(b.convert(x, wide), [count])
    low, high = b.scalar(min, wide), b.scalar(max, wide)
    if min == max and count:
        low = b.reduce(flat, b.scalar(highest(wide), wide), [0], b.minimum)
        high = b.reduce(flat, b.scalar(lowest(wide), wide), [0], b.maximum)
    one = b.scalar(1, wide)
    flat_range = b.compare(low, high, "EQ")
    low = b.select(flat_range, b.subtract(low, one), low)
    high = b.select(flat_range, b.add(high, one), high)
    edge, end = (b.broadcast_to(v, [count]) for v in (low, high))
    scaled = b.multiply(b.subtract(flat, edge), b.full([count], bins, wide))
    place = b.floor(b.divide(scaled, b.subtract(end, edge)))
    place = b.minimum(place, b.full_like(place, bins - 1))
    inside = b.and_(b.compare(flat, edge, "GE"), b.compare(flat, end, "LE"))
    inside = b.and_(inside, b.not_(is_nan(b, place)))
    where = b.convert(b.select(inside, place, b.full_like(place, bins)), torch.int64)
    zeros = b.full([bins], 0, wide)
    return b.convert(put_rows(b, zeros, 0, where, b.full([count], 1, wide), b.add), dtype)
