"""Views by explicit strides: as_strided, unfold.

In: a tensor, sizes and strides in elements. Out: a gather from its memory, or slice, reshape and
transpose where the strides only order the dimensions. Invariant: the input's memory is dense, so
its elements in order of address are all there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value


def by_address(strides: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Dimensions from the outermost in memory to the innermost; ties by size, then by position."""
    return sorted(range(len(sizes)), key=lambda d: (-strides[d], -sizes[d], d))


def _source(node: torch.fx.Node) -> torch.Tensor:
    return node.args[0].meta["val"]  # type: ignore[union-attr]


def _dense_input(node: torch.fx.Node) -> str | None:
    source = _source(node)
    if source.numel() and not _is_permutation(source.shape, source.stride(), source.numel()):
        return "the input has gaps or overlaps in memory, so what lies there is not in the graph"
    made = node.meta["val"]
    first = made.storage_offset() - source.storage_offset()
    return outside(source, made.shape, made.stride(), first)


def outside(
    source: torch.Tensor, size: Sequence[int], stride: Sequence[int], first: int
) -> str | None:
    """Says so where a view, from element `first` of a dense tensor on, is not within it."""
    if 0 in size:
        return None
    last = first + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if first < 0 or last >= source.numel():
        return "the view reaches outside of its input"
    return None


@emits(aten.as_strided.default, aten.as_strided_copy.default, supports=_dense_input)
def as_strided(
    b: Builder,
    x: Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Value:
    """Element (i, j, ..) is i * stride[0] + j * stride[1] + .. elements from the offset."""
    source = _source(b.node)
    if math.prod(size) == 0:
        return b.full(size, 0, b.dtype(x))
    order = by_address(source.stride(), source.shape)
    memory = b.reshape(b.transpose(x, order), (source.numel(),))
    start = 0 if storage_offset is None else storage_offset - source.storage_offset()
    wanted = by_address(stride, size)
    if _is_permutation(size, stride, math.prod(size)):
        block = b.slice_in_dim(memory, 0, start, start + math.prod(size))
        ordered = b.reshape(block, [size[d] for d in wanted])
        return b.transpose(ordered, [wanted.index(d) for d in range(len(size))])
    return _from_memory(b, memory, size, stride, start)


def _is_permutation(size: Sequence[int], stride: Sequence[int], count: int) -> bool:
    expected = 1
    for d in reversed(by_address(stride, size)):
        if size[d] != 1 and stride[d] != expected:
            return False
        expected *= size[d]
    return expected == count


def _from_memory(
    b: Builder, memory: Value, size: Sequence[int], stride: Sequence[int], start: int
) -> Value:
    where = b.full(size, start, torch.int64)
    for d, step in enumerate(stride):
        if step and size[d] > 1:
            along = b.multiply(b.iota(size, d, torch.int64), b.full(size, step, torch.int64))
            where = b.add(where, along)
    return b.gather(
        memory,
        where,
        offset_dims=[],
        collapsed_slice_dims=[0],
        start_index_map=[0],
        index_vector_dim=len(size),
        slice_sizes=[1],
    )


@emits(aten.unfold.default, aten.unfold_copy.default)
def unfold(b: Builder, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows of `size` every `step` along a dimension; the window is the last dimension."""
    shape = b.shape(x)
    if not shape:
        return b.reshape(x, b.result_shape())
    dim = dimension % len(shape)
    made = b.result_shape()
    windows, last = made[dim], len(made) - 1
    table = (windows, size)
    start = b.multiply(b.iota(table, 0, torch.int64), b.full(table, step, torch.int64))
    where = b.add(start, b.iota(table, 1, torch.int64))
    slices = [1 if d == dim else n for d, n in enumerate(shape)]
    offsets = [d for d in range(len(made)) if d not in (dim, last)]
    return b.gather(
        x,
        where,
        offset_dims=offsets,
        collapsed_slice_dims=[dim],
        start_index_map=[dim],
        index_vector_dim=2,
        slice_sizes=slices,
    )


@emits(aten.unfold_backward.default)
def unfold_backward(
    b: Builder, grad: Value, input_sizes: Sequence[int], dim: int, size: int, step: int
) -> Value:
    """Each window added back to where it came from: one padded term per position in the window."""
    if not input_sizes:
        return b.reshape(grad, ())
    dim %= len(input_sizes)
    dtype, last = b.dtype(grad), b.rank(grad) - 1
    windows = b.shape(grad)[dim]
    # istft hands over one window for all rows.
    whole = [windows if d == dim else n for d, n in enumerate(input_sizes)]
    grad = b.broadcast_to(grad, (*whole, size))
    total = b.full(input_sizes, 0, dtype)
    zero = b.scalar(0, dtype)
    for at in range(size):
        piece = b.slice_in_dim(grad, last, at, at + 1)
        piece = b.reshape(piece, b.shape(piece)[:-1])
        low, high, between = ([0] * len(input_sizes) for _ in range(3))
        low[dim], between[dim] = at, step - 1
        high[dim] = input_sizes[dim] - at - (windows + max(windows - 1, 0) * (step - 1))
        total = b.add(total, b.pad(piece, zero, low, high, between))
    return total
