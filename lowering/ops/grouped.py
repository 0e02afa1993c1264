"""Products of sorted row groups with one matrix each: what a mixture of experts computes.

In: rows [S, K] sorted by group, matrices [G, K, N], the end of each group (data, not known here).
Out: one batched `dot_general` over blocks of rows of equal length, each with its group's matrix.
Invariant: shapes are static: groups are cut into blocks, as many as the worst case needs. Rows past
the last group's end give zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.indices import put_rows, take_rows
from neuron_compile.lowering.registry import emits, emits_named
from neuron_compile.lowering.scans import running_sum
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten

# To copy a matrix element costs as much as about so many multiplications with it (10 GB/s against
# 200 GFLOP/s): the length of blocks balances copies against rows that fill a group's last block up.
_COPY_COST = 80


@dataclass(frozen=True, slots=True)
class _Blocks:
    """How the rows are cut.

    `group` [B]: the group of each block; `row` [B, T]: the row at each place; `valid` [B, T]: if it
    is one; `place` [S]: where in the flat [B * T] each row is; `inside` [S]: if it has a group.
    """

    group: ir.Value
    row: ir.Value
    valid: ir.Value
    place: ir.Value
    inside: ir.Value


def _block_length(rows: int, groups: int) -> int:
    """The power of two T that minimises (rows / T + groups) * (T + copy cost)."""
    best = math.sqrt(_COPY_COST * rows / groups)
    return min(1 << max(0, round(math.log2(best))), 1 << (rows - 1).bit_length())


def _cut(b: Builder, ends: ir.Value, rows: int) -> _Blocks:
    """Blocks for groups that end at `ends` [G]; rows >= 1."""
    groups = b.shape(ends)[0]
    length = _block_length(rows, groups)
    count = (rows + min(groups, rows) * (length - 1)) // length
    ends = b.convert(ends, torch.int64)
    zero = b.full([1], 0, torch.int64)
    starts = b.concatenate([zero, b.slice(ends, [0], [groups - 1])], 0)
    padded = b.add(b.subtract(ends, starts), b.full_like(ends, length - 1))
    sizes = b.divide(padded, b.full_like(ends, length))
    block_ends = running_sum(b, sizes, 0)
    first = b.subtract(block_ends, sizes)

    block = b.iota([count], 0, torch.int64)
    group = _how_many_end_by(b, block_ends, block)
    shape = [count, length]
    offset = b.multiply(
        b.subtract(block, take_rows(b, first, 0, group)), b.full_like(block, length)
    )
    start = b.add(take_rows(b, starts, 0, group), offset)
    row = b.add(b.broadcast_in_dim(start, shape, [0]), b.iota(shape, 1, torch.int64))
    limit = b.broadcast_in_dim(take_rows(b, ends, 0, group), shape, [0])

    every = b.iota([rows], 0, torch.int64)
    owner = _how_many_end_by(b, ends, every)
    begun = b.multiply(take_rows(b, first, 0, owner), b.full_like(every, length))
    place = b.add(begun, b.subtract(every, take_rows(b, starts, 0, owner)))
    last = b.broadcast_in_dim(b.slice(ends, [groups - 1], [groups]), [rows], [0])
    return _Blocks(group, row, b.compare(row, limit, "LT"), place, b.compare(every, last, "LT"))


def _how_many_end_by(b: Builder, ends: ir.Value, at: ir.Value) -> ir.Value:
    """For each position [n] the number of ends [G] not after it, at most G - 1: its group."""
    groups = b.shape(ends)[0]
    shape = [b.shape(at)[0], groups]
    past = b.compare(b.broadcast_in_dim(ends, shape, [1]), b.broadcast_in_dim(at, shape, [0]), "LE")
    count = b.reduce(b.convert(past, torch.int64), b.scalar(0, torch.int64), [1], b.add)
    return b.minimum(count, b.full_like(count, groups - 1))


def _keep(b: Builder, x: ir.Value, mask: ir.Value, dims: Sequence[int]) -> ir.Value:
    """x where the mask along `dims` holds, else 0."""
    return b.select(b.broadcast_in_dim(mask, b.shape(x), dims), x, b.full_like(x, 0))


def _rows_by_group(
    b: Builder, x: ir.Value, matrices: ir.Value, blocks: _Blocks, contract: int
) -> ir.Value:
    """x [S, K] times matrices [G, K, N] by group: [S, N]; `contract` is K's dimension there."""
    product = b.dot_general(
        take_rows(b, x, 0, blocks.row),
        take_rows(b, matrices, 0, blocks.group),
        contract=((2,), (contract,)),
        batch=((0,), (0,)),
        dtype=math_dtype(b.dtype(x)),
    )
    count, length, width = b.shape(product)
    flat = b.reshape(b.convert(product, b.dtype(x)), [count * length, width])
    # Rows that only fill a block up are never read.
    return _keep(b, take_rows(b, flat, 0, blocks.place), blocks.inside, [0])


def _columns_by_group(
    b: Builder, x: ir.Value, y: ir.Value, blocks: _Blocks, groups: int
) -> ir.Value:
    """x [S, M] and y [S, N]: for each group the sum over its rows of x outer y, [G, M, N]."""
    wide = math_dtype(b.dtype(x))
    left = _keep(b, take_rows(b, x, 0, blocks.row), blocks.valid, [0, 1])
    right = _keep(b, take_rows(b, y, 0, blocks.row), blocks.valid, [0, 1])
    product = b.dot_general(left, right, contract=((1,), (1,)), batch=((0,), (0,)), dtype=wide)
    zeros = b.full([groups, *b.shape(product)[1:]], 0, wide)
    return b.convert(put_rows(b, zeros, 0, blocks.group, product, b.add), b.dtype(x))


# ---- aten ------------------------------------------------------------------------------------


def _grouped_reason(node: torch.fx.Node) -> str | None:
    if len(node.args) > 3 and node.args[3] is not None:
        return "a grouped product with bias is not supported"
    left, right = (arg.meta["val"] for arg in node.args[:2])  # type: ignore[union-attr]
    if left.dim() == 3 and right.dim() == 2:
        return "a grouped product of matrices with the columns of one matrix is not supported"
    return None


@emits(aten._grouped_mm.default, supports=_grouped_reason)
def grouped_mm(
    b: Builder,
    x: ir.Value,
    y: ir.Value,
    offs: ir.Value | None = None,
    bias: None = None,
    out_dtype: torch.dtype | None = None,
) -> ir.Value:
    """[S, K] x [G, K, N] by rows; [M, S] x [S, N] by shares of S; [G, M, K] x [G, K, N] plain."""
    del bias, out_dtype
    if offs is None or 0 in b.result_shape():
        made = b.dot_general(
            x, y, contract=((2,), (1,)), batch=((0,), (0,)), dtype=math_dtype(b.dtype(x))
        )
    elif b.rank(y) == 3:
        made = _rows_by_group(b, x, y, _cut(b, offs, b.shape(x)[0]), 1)
    else:
        blocks = _cut(b, offs, b.shape(y)[0])
        made = _columns_by_group(b, b.transpose(x, [1, 0]), y, blocks, b.shape(offs)[0])
    return b.convert(made, b.result_dtype())


# ---- transformers' own operator, used where _grouped_mm is not -------------------------------


@emits_named("transformers::grouped_mm_fallback")
def grouped_mm_fallback(b: Builder, x: ir.Value, weight: ir.Value, offs: ir.Value) -> ir.Value:
    """Rows [S, K] by matrices [G, K, N]: [S, N]."""
    if 0 in b.shape(x):
        return b.full(b.result_shape(), 0, b.dtype(x))
    return _rows_by_group(b, x, weight, _cut(b, offs, b.shape(x)[0]), 1)


@emits_named("transformers::grouped_mm_fallback_backward")
def grouped_mm_fallback_backward(
    b: Builder, x: ir.Value, weight: ir.Value, offs: ir.Value, grad: ir.Value
) -> list[ir.Value]:
    """Gradients of rows and matrices."""
    if 0 in b.shape(x):
        return [b.full_like(x, 0), b.full_like(weight, 0)]
    blocks = _cut(b, offs, b.shape(x)[0])
    return [
        _rows_by_group(b, grad, weight, blocks, 2),
        _columns_by_group(b, x, grad, blocks, b.shape(offs)[0]),
    ]
