"""Reading by index: embedding, index, index_select, gather, take, and their dense gradients.

In: values and index values. Out: `stablehlo.gather` (gradients: scatter). Invariant: compiled code
never reads or writes outside a tensor: an index out of range, for which eager raises IndexError, is
clamped when read and ignored when written. Negative indices wrap once only where eager's do
(index, index_put, take, index_fill), not in embedding, gather or index_select (T074, T083).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.indices import (
    point_shape,
    put_points,
    put_rows,
    replace,
    take_along,
    take_points,
    take_rows,
    wrap_negative,
)
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten

_MASKS = (torch.bool, torch.uint8)


def canonical_dim(dim: int, rank: int) -> int:
    """A dimension counted from the front; a 0-d tensor has one dimension for this purpose."""
    return dim % max(rank, 1)


# ---- embedding -------------------------------------------------------------------------------


@emits(aten.embedding.default)
def embedding(
    b: Builder,
    weight: ir.Value,
    indices: ir.Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> ir.Value:
    """Rows [*, width] of a table [rows, width]."""
    del padding_idx, scale_grad_by_freq, sparse  # they concern the gradient
    return take_rows(b, weight, 0, indices)


@emits(aten.embedding_dense_backward.default)
def embedding_dense_backward(
    b: Builder,
    grad: ir.Value,
    indices: ir.Value,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> ir.Value:
    """Gradient [num_weights, width] of the table; row `padding_idx` stays zero."""
    dtype = b.dtype(grad)
    wide = math_dtype(dtype)
    grad = b.convert(grad, wide)
    if scale_grad_by_freq:
        ones = b.full(b.shape(indices), 1, wide)
        uses = put_rows(b, b.full([num_weights], 0, wide), 0, indices, ones, b.add)
        count = take_rows(b, uses, 0, indices)
        grad = b.divide(grad, b.broadcast_in_dim(count, b.shape(grad), range(b.rank(indices))))
    if 0 <= padding_idx < num_weights:
        # One past the end: a write out of range is ignored.
        padding = b.compare(indices, b.full_like(indices, padding_idx), "EQ")
        indices = b.select(padding, b.full_like(indices, num_weights), indices)
    zeros = b.full([num_weights, b.shape(grad)[-1]], 0, wide)
    return b.convert(put_rows(b, zeros, 0, indices, grad, b.add), dtype)


# ---- gather, index_select, take --------------------------------------------------------------


@emits(aten.gather.default)
def gather(
    b: Builder, x: ir.Value, dim: int, index: ir.Value, *, sparse_grad: bool = False
) -> ir.Value:
    """x at index along `dim`, the other coordinates those of the result."""
    del sparse_grad
    if b.rank(x) == 0 or b.rank(index) == 0:
        flat = [b.reshape(v, b.shape(v) or [1]) for v in (x, index)]
        return b.reshape(take_along(b, flat[0], 0, flat[1]), b.result_shape())
    return take_along(b, x, canonical_dim(dim, b.rank(x)), index)


@emits(aten.index_select.default)
def index_select(b: Builder, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    """The slices `index` (1-d or 0-d) of `dim`."""
    if b.rank(x) == 0:
        return b.reshape(x, b.result_shape())
    flat = b.reshape(index, [math.prod(b.shape(index))])
    return take_rows(b, x, canonical_dim(dim, b.rank(x)), flat)


@emits(aten.take.default)
def take(b: Builder, x: ir.Value, index: ir.Value) -> ir.Value:
    """Elements of the flattened tensor."""
    count = math.prod(b.shape(x))
    return take_rows(b, b.reshape(x, [count]), 0, wrap_negative(b, index, count))


# ---- advanced indexing -----------------------------------------------------------------------


def _index_nodes(node: torch.fx.Node) -> list[torch.fx.Node]:
    indices = node.args[1]
    return [index for index in indices if index is not None]  # type: ignore[union-attr]


def _masks_read(node: torch.fx.Node) -> str | None:
    """Reading by mask gives a result whose size depends on data."""
    if any(index.meta["val"].dtype in _MASKS for index in _index_nodes(node)):
        return "indexing with a mask gives a result whose size depends on the data"
    return None


def _masks_written(node: torch.fx.Node) -> str | None:
    """Writing by mask is a select, if every masked element gets the same value."""
    nodes = _index_nodes(node)
    masks = [index for index in nodes if index.meta["val"].dtype in _MASKS]
    if not masks:
        return None
    if len(nodes) > 1:
        return "index_put with a mask beside other indices is not supported"
    values = node.args[2].meta["val"]  # type: ignore[union-attr]
    tail = node.args[0].meta["val"].dim() - node.args[1].index(masks[0])  # type: ignore[union-attr]
    kept = tail - masks[0].meta["val"].dim()
    if values.dim() > kept and math.prod(values.shape[: values.dim() - kept]) != 1:
        return "index_put with a mask and one value per masked element depends on the data"
    return None


def _vectors(b: Builder, x: ir.Value, dims: Sequence[int], indices: Sequence[ir.Value]) -> ir.Value:
    """Index tensors, broadcast together and wrapped, as vectors [*points, len(dims)]."""
    points = torch.broadcast_shapes(*(b.shape(index) for index in indices))
    dtype = torch.int64 if len({b.dtype(i) for i in indices}) > 1 else b.dtype(indices[0])
    columns = []
    for dim, index in zip(dims, indices, strict=True):
        wrapped = wrap_negative(b, b.convert(index, dtype), b.shape(x)[dim])
        column = b.broadcast_to(wrapped, points)
        columns.append(b.reshape(column, [*points, 1]))
    return b.concatenate(columns, len(points))


@emits(aten.index.Tensor, aten._unsafe_index.Tensor, supports=_masks_read)
def index(b: Builder, x: ir.Value, indices: Sequence[ir.Value | None]) -> ir.Value:
    """x[indices]; None keeps a dimension whole."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if not given:
        return x
    dims, tensors = [dim for dim, _ in given], [index for _, index in given]
    return take_points(b, x, dims, _vectors(b, x, dims, tensors))


@emits(aten.index_put.default, aten._unsafe_index_put.default, supports=_masks_written)
def index_put(
    b: Builder,
    x: ir.Value,
    indices: Sequence[ir.Value | None],
    values: ir.Value,
    accumulate: bool = False,
) -> ir.Value:
    """x with x[indices] = values, or += values: then repeated indices add up (T078)."""
    given = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    if not given:
        fresh = b.broadcast_to(values, b.shape(x))
        return b.add(x, fresh) if accumulate else fresh
    if b.dtype(given[0][1]) in _MASKS:
        return _put_masked(b, x, given[0][0], given[0][1], values, accumulate)
    dims, tensors = [dim for dim, _ in given], [index for _, index in given]
    if 0 in b.shape(x):
        return x
    vectors = _vectors(b, x, dims, tensors)
    size, _ = point_shape(b, x, dims, b.shape(vectors)[:-1])
    update = b.broadcast_to(_drop_leading_ones(b, values, len(size)), size)
    return put_points(b, x, dims, vectors, update, b.add if accumulate else replace)


def _put_masked(
    b: Builder, x: ir.Value, dim: int, mask: ir.Value, values: ir.Value, accumulate: bool
) -> ir.Value:
    """The mask covers dimensions dim, dim + 1, ...; `values` spans those after it."""
    shape = b.shape(x)
    if b.dtype(mask) is not torch.bool:
        mask = b.compare(mask, b.full_like(mask, 0), "NE")
    covered = range(dim, dim + b.rank(mask))
    where = b.broadcast_in_dim(mask, shape, covered)
    kept = len(shape) - dim - b.rank(mask)
    narrow = _drop_leading_ones(b, values, kept)
    fresh = b.broadcast_to(narrow, shape)
    return b.select(where, b.add(x, fresh) if accumulate else fresh, x)


def _drop_leading_ones(b: Builder, x: ir.Value, rank: int) -> ir.Value:
    """x with at most `rank` dimensions; those dropped have size 1."""
    return b.reshape(x, b.shape(x)[max(0, b.rank(x) - rank) :])
