"""Views and moves: reshape, permute, expand, slice, select, cat, split, pad, flip, roll, repeat.

In: one or more tensors and sizes. Out: the same elements elsewhere. Invariant: only StableHLO's
view-like ops are used, so that the fusion passes can fold all of it into index arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
prims = torch.ops.prims
Value = ir.Value


def _dim(dim: int, rank: int) -> int:
    return dim + max(rank, 1) if dim < 0 else dim


@emits(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.view_copy.default,
    aten.squeeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.unsqueeze.default,
    aten.flatten.using_ints,
    aten.unflatten.int,
    aten._reshape_alias.default,
)
def view(b: Builder, x: Value, *_: object) -> Value:
    """The same elements in row-major order: the node tells the new shape."""
    return b.reshape(x, b.result_shape())


@emits(aten.expand.default, aten.expand_copy.default)
def expand(b: Builder, x: Value, size: Sequence[int], *, implicit: bool = False) -> Value:
    """Broadcast to a larger shape."""
    return b.broadcast_to(x, b.result_shape())


@emits(aten.permute.default, aten.permute_copy.default)
def permute(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Dimension i of the result is dims[i] of x."""
    rank = b.rank(x)
    return b.transpose(x, [_dim(d, rank) for d in dims])


@emits(aten.transpose.int)
def transpose(b: Builder, x: Value, dim0: int, dim1: int) -> Value:
    """Two dimensions exchanged."""
    order = list(range(b.rank(x)))
    if order:
        first, second = _dim(dim0, len(order)), _dim(dim1, len(order))
        order[first], order[second] = order[second], order[first]
    return b.transpose(x, order)


@emits(aten.t.default)
def t(b: Builder, x: Value) -> Value:
    """The transposed matrix; 0-d and 1-d tensors are themselves."""
    return b.transpose(x, list(reversed(range(b.rank(x)))))


def _slice_bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Python's clamping of slice bounds (T084)."""
    low, high, _ = slice(start, end).indices(size)
    return low, max(low, high)


@emits(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice_(
    b: Builder,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """x[start:end:step] along one dimension."""
    dim = _dim(dim, b.rank(x))
    low, high = _slice_bounds(b.shape(x)[dim], start, end)
    return b.slice_in_dim(x, dim, low, high, step)


@emits(aten.narrow_copy.default)
def narrow_copy(b: Builder, x: Value, dim: int, start: int, length: int) -> Value:
    """`length` indices of a dimension from `start` on."""
    dim = _dim(dim, b.rank(x))
    low = start + b.shape(x)[dim] if start < 0 else start
    return b.slice_in_dim(x, dim, low, low + length)


@emits(aten.select.int, aten.select_copy.int)
def select(b: Builder, x: Value, dim: int, index: int) -> Value:
    """One index of one dimension, which is dropped."""
    shape = b.shape(x)
    dim = _dim(dim, len(shape))
    at = index + shape[dim] if index < 0 else index
    return b.reshape(b.slice_in_dim(x, dim, at, at + 1), b.result_shape())


@emits(aten.unbind.int, aten.unbind_copy.int)
def unbind(b: Builder, x: Value, dim: int = 0) -> list[Value]:
    """Every index of one dimension."""
    return [select(b, x, dim, i) for i in range(b.shape(x)[_dim(dim, b.rank(x))])]


def _pieces(b: Builder, x: Value, sizes: Sequence[int], dim: int) -> list[Value]:
    dim = _dim(dim, b.rank(x))
    pieces, at = [], 0
    for size in sizes:
        pieces.append(b.slice_in_dim(x, dim, at, at + size))
        at += size
    return pieces


@emits(
    aten.split.Tensor,
    aten.split_with_sizes.default,
    aten.split_with_sizes_copy.default,
    aten.chunk.default,
    aten.unsafe_split.Tensor,
    aten.unsafe_chunk.default,
    aten.tensor_split.sections,
)
def split(b: Builder, x: Value, sizes: object, dim: int = 0) -> list[Value]:
    """Consecutive pieces along one dimension; the node tells their sizes."""
    dim = _dim(dim, b.rank(x))
    return _pieces(b, x, [piece.shape[dim] for piece in b.node.meta["val"]], dim)


@emits(aten.cat.default)
def cat(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Join along one dimension; a 1-d empty tensor is skipped, as eager does for old code."""
    rank = len(b.result_shape())
    parts = [
        sem.convert_like_eager(b, x, b.result_dtype())
        for x in tensors
        if b.shape(x) != (0,) or rank == 1
    ]
    if not parts:
        return b.full(b.result_shape(), 0, b.result_dtype())
    return b.concatenate(parts, _dim(dim, rank))


@emits(aten.stack.default)
def stack(b: Builder, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Join along a new dimension."""
    shape = b.result_shape()
    dim = _dim(dim, len(shape))
    each = (*shape[:dim], 1, *shape[dim + 1 :])
    return b.concatenate(
        [b.reshape(sem.convert_like_eager(b, x, b.result_dtype()), each) for x in tensors], dim
    )


@emits(aten.constant_pad_nd.default)
def constant_pad_nd(b: Builder, x: Value, pad: Sequence[int], value: Scalar = 0) -> Value:
    """Pad from the last dimension on; negative amounts crop."""
    rank = b.rank(x)
    low, high = [0] * rank, [0] * rank
    for i in range(len(pad) // 2):
        low[rank - 1 - i], high[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return b.pad(x, b.scalar(value, b.dtype(x)), low, high)


@emits(aten.flip.default, prims.rev.default)
def flip(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Reverse the order along dimensions."""
    rank = b.rank(x)
    return b.reverse(x, [_dim(d, rank) for d in dims]) if rank else x


@emits(aten.roll.default)
def roll(b: Builder, x: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    """Rotate along dimensions; without dims over the flattened tensor."""
    shape = b.shape(x)
    if not dims:
        flat = b.reshape(x, (torch.Size(shape).numel(),))
        return b.reshape(_rotate(b, flat, 0, shifts[0]), shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rotate(b, x, _dim(dim, len(shape)), shift)
    return x


def _rotate(b: Builder, x: Value, dim: int, shift: int) -> Value:
    size = b.shape(x)[dim]
    cut = -shift % size if size else 0
    if cut == 0:
        return x
    return b.concatenate([b.slice_in_dim(x, dim, cut, size), b.slice_in_dim(x, dim, 0, cut)], dim)


@emits(aten.repeat.default)
def repeat(b: Builder, x: Value, repeats: Sequence[int]) -> Value:
    """Tile: new leading dimensions, each dimension repeated as a whole."""
    lead = len(repeats) - b.rank(x)
    inner = (*([1] * lead), *b.shape(x))
    # Interleave (repeat, size) pairs, broadcast the repeats, and merge the pairs.
    apart = [n for pair in zip(repeats, inner, strict=True) for n in pair]
    sizes = [2 * d + 1 for d in range(len(repeats))]
    spread = b.broadcast_in_dim(b.reshape(x, inner), apart, sizes)
    return b.reshape(spread, b.result_shape())


@emits(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(b: Builder, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A diagonal of two dimensions, as the last dimension of the result."""
    shape = b.shape(x)
    rank = len(shape)
    first, second = _dim(dim1, rank), _dim(dim2, rank)
    rest = [d for d in range(rank) if d not in (first, second)]
    x = b.transpose(x, [*rest, first, second])
    rows, columns = shape[first], shape[second]
    length = b.result_shape()[-1]
    row, column = max(0, -offset), max(0, offset)
    lead = [shape[d] for d in rest]
    square = b.slice(
        x,
        [0] * len(lead) + [row, column],
        [*lead, min(row + length, rows), min(column + length, columns)],
    )
    # Element (i, i) of a length x length square is at i * (length + 1) of the flat square.
    return _square_diagonal(b, square, lead, length)


def _square_diagonal(b: Builder, square: Value, lead: Sequence[int], length: int) -> Value:
    if length == 0:
        return b.reshape(square, (*lead, 0))
    flat = b.reshape(square, (*lead, length * length))
    step = b.slice(
        flat, [0] * (len(lead) + 1), [*lead, length * length], [1] * len(lead) + [length + 1]
    )
    return b.reshape(step, (*lead, length))


@emits(aten.slice_scatter.default)
def slice_scatter(
    b: Builder,
    x: Value,
    source: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    """x with x[start:end:step] replaced by the source."""
    shape = b.shape(x)
    dim = _dim(dim, len(shape))
    low, high = _slice_bounds(shape[dim], start, end)
    count = max(0, -(-(high - low) // step))
    if count == 0:
        return x
    size = [*shape[:dim], count, *shape[dim + 1 :]]
    source = b.broadcast_to(sem.convert_like_eager(b, source, b.dtype(x)), size)
    return _overwrite(b, x, source, dim, low, step)


def _overwrite(b: Builder, x: Value, source: Value, dim: int, low: int, step: int) -> Value:
    """x with `source` at low, low + step, ... of `dim`: by concatenation, or padding and a mask."""
    shape = b.shape(x)
    count, size = b.shape(source)[dim], shape[dim]
    if step == 1:
        parts = [b.slice_in_dim(x, dim, 0, low), source, b.slice_in_dim(x, dim, low + count, size)]
        return b.concatenate([part for part in parts if b.shape(part)[dim]], dim)
    before, between = [0] * len(shape), [0] * len(shape)
    after = list(before)
    before[dim], between[dim] = low, step - 1
    after[dim] = size - low - (count + (count - 1) * (step - 1))
    spread = b.pad(source, b.scalar(0, b.dtype(x)), before, after, between)
    ones = b.full(b.shape(source), True, torch.bool)
    mask = b.pad(ones, b.scalar(False, torch.bool), before, after, between)
    return b.select(mask, spread, x)


@emits(aten.select_scatter.default)
def select_scatter(b: Builder, x: Value, source: Value, dim: int, index: int) -> Value:
    """x with one index of one dimension replaced by the source."""
    shape = b.shape(x)
    dim = _dim(dim, len(shape))
    at = index + shape[dim] if index < 0 else index
    size = [*shape[:dim], 1, *shape[dim + 1 :]]
    source = b.reshape(sem.convert_like_eager(b, source, b.dtype(x)), size)
    return _overwrite(b, x, source, dim, at, 1)


@emits(aten.slice_backward.default)
def slice_backward(
    b: Builder, grad: Value, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Value:
    """Zeros with the gradient where the slice was: a pad."""
    dim = _dim(dim, len(input_sizes))
    low, _ = _slice_bounds(input_sizes[dim], start, end)
    count = b.shape(grad)[dim]
    before, between = [0] * len(input_sizes), [0] * len(input_sizes)
    after = list(before)
    before[dim], between[dim] = low, step - 1
    after[dim] = input_sizes[dim] - low - (count + max(count - 1, 0) * (step - 1))
    return b.pad(grad, b.scalar(0, b.dtype(grad)), before, after, between)


@emits(aten.select_backward.default)
def select_backward(
    b: Builder, grad: Value, input_sizes: Sequence[int], dim: int, index: int
) -> Value:
    """Zeros with the gradient at one index: a pad."""
    dim = _dim(dim, len(input_sizes))
    at = index + input_sizes[dim] if index < 0 else index
    whole = b.reshape(grad, (*input_sizes[:dim], 1, *input_sizes[dim + 1 :]))
    before, after = [0] * len(input_sizes), [0] * len(input_sizes)
    before[dim], after[dim] = at, input_sizes[dim] - at - 1
    return b.pad(whole, b.scalar(0, b.dtype(grad)), before, after)
