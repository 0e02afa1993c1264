"""Sums, means and maxima of rows of a table over bags of ids; the gradients; max_norm.

In: a table [rows, width], ids [n], the first position of each bag. Out: a gather, and a scatter
into the bags. Invariant: padding ids take no part; half precision is added up in float32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.indices import put_along, put_rows, take_rows
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import math_dtype
from neuron_compile.lowering.winners import beyond, lowest

aten = torch.ops.aten

_SUM, _MEAN, _MAX = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Bags:
    """`count` bags; the bag of each id [n]; whether each id takes part [n]."""

    count: int
    owner: ir.Value
    taken: ir.Value


def _bags(b: Builder, ids: ir.Value, offsets: ir.Value, count: int, padding_idx: int) -> _Bags:
    """Only the first `count` offsets start bags: the last may be the end of all."""
    n = b.shape(ids)[0]
    shape = [n, count]
    position = b.broadcast_in_dim(b.iota([n], 0, torch.int64), shape, [0])
    starts = b.broadcast_in_dim(b.convert(b.slice(offsets, [0], [count]), torch.int64), shape, [1])
    begun = b.convert(b.compare(starts, position, "LE"), torch.int64)
    owner = b.reduce(begun, b.scalar(-1, torch.int64), [1], b.add)
    taken = b.compare(ids, b.full_like(ids, padding_idx), "NE")
    return _Bags(count, owner, taken)


def _by_bag(b: Builder, bags: _Bags, rows: ir.Value) -> ir.Value:
    """Rows [n, width] that take part, summed by bag: [count, width]."""
    zeros = b.full([bags.count, b.shape(rows)[1]], 0, b.dtype(rows))
    return put_rows(b, zeros, 0, _owner_or_none(b, bags), rows, b.add)


def _owner_or_none(b: Builder, bags: _Bags) -> ir.Value:
    return b.select(bags.taken, bags.owner, b.full_like(bags.owner, -1))


def _sizes(b: Builder, bags: _Bags) -> ir.Value:
    """How many ids of each bag take part, int64."""
    zeros = b.full([bags.count], 0, torch.int64)
    ones = b.full_like(bags.owner, 1)
    return put_rows(b, zeros, 0, _owner_or_none(b, bags), ones, b.add)


def _over_width(b: Builder, x: ir.Value, like: ir.Value) -> ir.Value:
    """[n] as [n, width]."""
    return b.broadcast_in_dim(b.convert(x, b.dtype(like)), b.shape(like), [0])


def _filled(b: Builder, index: int, value: ir.Value | None) -> ir.Value:
    """Result `index` of the node: the value, or zeros where eager leaves nothing of meaning."""
    shape, dtype = b.result_shape(index), b.result_dtype(index)
    if value is None or b.shape(value) != shape:
        return b.full(shape, 0, dtype)
    return b.convert(value, dtype)


@emits(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def embedding_bag(
    b: Builder,
    weight: ir.Value,
    ids: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> list[ir.Value]:
    """Bags [count, width]; the bag of each id; the sizes; for maxima, which row they came from."""
    del scale_grad_by_freq, sparse, include_last_offset
    dtype = b.dtype(weight)
    bags = _bags(b, ids, offsets, b.result_shape()[0], padding_idx)
    rows = b.convert(take_rows(b, weight, 0, ids), math_dtype(dtype))
    sizes: ir.Value | None = None
    origin: ir.Value | None = None
    if mode == _MAX:
        sizes = _sizes(b, bags)
        made, origin = _maxima(b, bags, rows, ids, sizes)
    else:
        if per_sample_weights is not None:
            rows = b.multiply(rows, _over_width(b, per_sample_weights, rows))
        made = _by_bag(b, bags, rows)
        if mode == _MEAN:
            sizes = origin = _sizes(b, bags)
            divisor = b.maximum(sizes, b.full_like(sizes, 1))
            made = b.divide(made, _over_width(b, divisor, made))
    results = [b.convert(made, dtype)]
    return [*results, _filled(b, 1, bags.owner), _filled(b, 2, sizes), _filled(b, 3, origin)]


def _maxima(
    b: Builder, bags: _Bags, rows: ir.Value, ids: ir.Value, sizes: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Largest elements by bag and the ids they came from, the first of several; 0 if empty."""
    shape, width = [bags.count, b.shape(rows)[1]], b.shape(rows)[1]
    owner = _owner_or_none(b, bags)
    start = b.full(shape, lowest(b.dtype(rows)), b.dtype(rows))
    best = put_rows(b, start, 0, owner, rows, b.maximum)
    position = b.iota([b.shape(ids)[0], width], 0, torch.int64)
    nowhere = b.full_like(position, beyond(torch.int64))
    hit = b.compare(rows, take_rows(b, best, 0, bags.owner), "EQ")
    first = put_rows(
        b,
        b.full(shape, beyond(torch.int64), torch.int64),
        0,
        owner,
        b.select(hit, position, nowhere),
        b.minimum,
    )
    origin = b.convert(take_rows(b, ids, 0, first), torch.int64)
    empty = b.broadcast_in_dim(b.compare(sizes, b.full_like(sizes, 0), "EQ"), shape, [0])
    return (
        b.select(empty, b.full_like(best, 0), best),
        b.select(empty, b.full_like(origin, 0), origin),
    )


# ---- gradients -------------------------------------------------------------------------------


def _plain_frequencies(node: torch.fx.Node) -> str | None:
    # Eager divides the gradient of the i-th distinct id by the count of the i-th id as sorted,
    # which is another id as soon as one repeats: not to be imitated, not to be corrected silently.
    if node.args[7]:
        return "scale_grad_by_freq of embedding_bag is not supported: eager divides by other counts"
    return None


@emits(aten._embedding_bag_backward.default, supports=_plain_frequencies)
def embedding_bag_backward(
    b: Builder,
    grad: ir.Value,
    ids: ir.Value,
    offsets: ir.Value,
    offset2bag: ir.Value,
    bag_size: ir.Value,
    maximum_indices: ir.Value,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: ir.Value | None,
    padding_idx: int = -1,
) -> ir.Value:
    """Gradient [num_weights, width] of the table."""
    del offset2bag, sparse, scale_grad_by_freq
    dtype = b.dtype(grad)
    grad = b.convert(grad, math_dtype(dtype))
    zeros = b.full([num_weights, b.shape(grad)[1]], 0, b.dtype(grad))
    if mode == _MAX:
        some = b.compare(bag_size, b.full_like(bag_size, 0), "GT")
        held = b.broadcast_in_dim(some, b.shape(grad), [0])
        rows = b.select(held, maximum_indices, b.full_like(maximum_indices, -1))
        return b.convert(put_along(b, zeros, 0, rows, grad, b.add), dtype)
    bags = _bags(b, ids, offsets, b.shape(grad)[0], padding_idx)
    share = take_rows(b, grad, 0, bags.owner)
    if mode == _MEAN:
        share = b.divide(share, _over_width(b, take_rows(b, bag_size, 0, bags.owner), share))
    if per_sample_weights is not None:
        share = b.multiply(share, _over_width(b, per_sample_weights, share))
    rows = b.select(bags.taken, ids, b.full_like(ids, -1))
    return b.convert(put_rows(b, zeros, 0, rows, share, b.add), dtype)


@emits(aten._embedding_bag_per_sample_weights_backward.default)
def embedding_bag_weights_backward(
    b: Builder,
    grad: ir.Value,
    weight: ir.Value,
    ids: ir.Value,
    offsets: ir.Value,
    offset2bag: ir.Value,
    mode: int,
    padding_idx: int = -1,
) -> ir.Value:
    """Gradient [n] of the weights of the ids."""
    del offset2bag, mode
    wide = math_dtype(b.dtype(grad))
    bags = _bags(b, ids, offsets, b.shape(grad)[0], padding_idx)
    share = b.convert(take_rows(b, grad, 0, bags.owner), wide)
    rows = b.convert(take_rows(b, weight, 0, ids), wide)
    total = b.reduce(b.multiply(share, rows), b.scalar(0, wide), [1], b.add)
    return b.convert(b.select(bags.taken, total, b.full_like(total, 0)), b.result_dtype())


# ---- max_norm --------------------------------------------------------------------------------


@emits(aten.embedding_renorm.default)
def embedding_renorm(
    b: Builder, weight: ir.Value, ids: ir.Value, max_norm: float, norm_type: float
) -> ir.Value:
    """The table with the named rows shortened to `max_norm`; eager's 1e-7 keeps them below it."""
    dtype = b.dtype(weight)
    rows = b.convert(weight, math_dtype(dtype))
    size = b.abs(rows)
    if norm_type == float("inf"):
        norm = b.reduce(size, b.scalar(0, b.dtype(rows)), [1], b.maximum)
    else:
        powers = b.power(size, b.full_like(size, norm_type))
        total = b.reduce(powers, b.scalar(0, b.dtype(rows)), [1], b.add)
        norm = b.power(total, b.full_like(total, 1 / norm_type))
    named = b.full([b.shape(weight)[0]], False, torch.bool)
    flags = b.full(b.shape(ids), True, torch.bool)
    named = put_rows(b, named, 0, ids, flags, b.or_)
    long = b.and_(named, b.compare(norm, b.full_like(norm, max_norm), "GT"))
    scale = b.divide(b.full_like(norm, max_norm), b.add(norm, b.full_like(norm, 1e-7)))
    scale = b.select(long, scale, b.full_like(scale, 1))
    return b.convert(b.multiply(rows, _over_width(b, scale, rows)), dtype)
