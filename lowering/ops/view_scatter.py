"""Writing through a view: diagonal_scatter, as_strided_scatter.

In: a tensor, what a view of it should become. Out: the tensor with those elements replaced: a
select along the diagonal, a scatter into its memory for strides. Invariant: the rest is untouched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.indices import put_rows, replace
from neuron_compile.lowering.ops.strided import by_address, outside
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten


# ---- diagonal --------------------------------------------------------------------------------


@emits(aten.diagonal_scatter.default)
def diagonal_scatter(
    b: Builder, x: ir.Value, src: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ir.Value:
    """x with the diagonal of two dimensions replaced; src has them replaced by the last one."""
    return _on_diagonal(b, x, src, offset, dim1, dim2)


@emits(aten.diagonal_backward.default)
def diagonal_backward(
    b: Builder, grad: ir.Value, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> ir.Value:
    """Zeros with the gradient on the diagonal."""
    zeros = b.full(input_sizes, 0, b.dtype(grad))
    return _on_diagonal(b, zeros, grad, offset, dim1, dim2)


def _on_diagonal(
    b: Builder, x: ir.Value, src: ir.Value, offset: int, dim1: int, dim2: int
) -> ir.Value:
    shape = b.shape(x)
    rank = len(shape)
    row_dim, column_dim = dim1 % rank, dim2 % rank
    length = b.shape(src)[-1]
    if length == 0:
        return x
    # Element i of the diagonal stands in row `first` + i.
    first = max(0, -offset)
    low, high = [0] * (rank - 1), [0] * (rank - 1)
    low[-1], high[-1] = first, shape[row_dim] - first - length
    by_row = b.pad(src, b.scalar(0, b.dtype(src)), low, high)
    kept = [d for d in range(rank) if d not in (row_dim, column_dim)]
    order = sorted(range(rank - 1), key=lambda i: [*kept, row_dim][i])
    by_row = b.transpose(by_row, order)
    spread = b.broadcast_in_dim(by_row, shape, sorted([*kept, row_dim]))
    row = b.iota(shape, row_dim, torch.int64)
    column = b.iota(shape, column_dim, torch.int64)
    on = b.compare(b.add(row, b.full_like(row, offset)), column, "EQ")
    return b.select(on, spread, x)


# ---- strides ---------------------------------------------------------------------------------


def _dense_target(node: torch.fx.Node) -> str | None:
    target = node.args[0].meta["val"]  # type: ignore[union-attr]
    if target.numel() != _extent(target):
        return "the tensor written to has gaps or overlaps in memory"
    size, stride = node.args[2], node.args[3]
    return outside(target, size, stride, _first(node))  # type: ignore[arg-type]


def _first(node: torch.fx.Node) -> int:
    """Where the view begins, in elements from the beginning of the tensor written to."""
    given = node.args[4] if len(node.args) > 4 else node.kwargs.get("storage_offset")
    target = node.args[0].meta["val"]  # type: ignore[union-attr]
    return 0 if given is None else given - target.storage_offset()  # type: ignore[operator]


def _extent(tensor: torch.Tensor) -> int:
    """How many elements lie between the first and the last in memory, inclusive."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


@emits(aten.as_strided_scatter.default, supports=_dense_target)
def as_strided_scatter(
    b: Builder,
    x: ir.Value,
    src: ir.Value,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> ir.Value:
    """x with its element i * stride[0] + .. from the offset replaced by src[i, ..]."""
    target = b.node.args[0].meta["val"]  # type: ignore[union-attr]
    count = math.prod(size)
    if count == 0:
        return x
    order = by_address(target.stride(), target.shape)
    memory = b.reshape(b.transpose(x, order), [target.numel()])
    where = b.full(size, _first(b.node), torch.int64)
    for d, step in enumerate(stride):
        along = b.multiply(b.iota(size, d, torch.int64), b.full(size, step, torch.int64))
        where = b.add(where, along)
    written = put_rows(b, memory, 0, b.reshape(where, [count]), b.reshape(src, [count]), replace)
    ordered = b.reshape(written, [target.shape[d] for d in order])
    return b.transpose(ordered, [order.index(d) for d in range(len(order))])
