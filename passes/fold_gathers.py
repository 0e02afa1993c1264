"""A gather at known indices that walk straight through the rows is a slice, spread by repeats.

In: a gather and the array of its start indices. Out: slice, reshape and broadcast that give the
same rows, or None. Invariant: no element is read that the gather would not read.
"""

from __future__ import annotations

from math import prod

import numpy as np
from torch_mlir._mlir_libs._stablehlo import GatherDimensionNumbers

from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.integer_arrays import Array
from neuron_compile.passes.types import i64s, with_shape


def as_slice(graph: Graph, node: Node, starts: Array) -> Value | None:
    """Position tables and `x[batch, position]` of plain aranges are the usual cases."""
    rows = gathered_rows(node, starts)
    if rows is None or not rows.size:
        return None
    found = straight(rows)
    if found is None:
        return None
    first, kept = found
    source = node.operands[0]
    shape = source.shape
    inner = node.result.shape[rows.ndim :]
    count = prod(rows.shape[d] for d in kept)
    table_rows = prod(shape) // max(prod(inner), 1)
    flat = _reshape(graph, node, source, (table_rows, *inner))
    if count != table_rows:
        limits = (first + count, *inner)
        starts_at = (first, *(0 for _ in inner))
        flat = graph.create(
            "slice",
            [flat],
            [with_shape(source, (count, *inner))],
            {
                "start_indices": i64s(starts_at),
                "limit_indices": i64s(limits),
                "strides": i64s([1] * len(limits)),
            },
            before=node,
        ).result
    block = _reshape(graph, node, flat, (*(rows.shape[d] for d in kept), *inner))
    if block.shape == node.result.shape:
        return block
    dims = [*kept, *range(rows.ndim, len(node.result.shape))]
    return graph.create(
        "broadcast_in_dim",
        [block],
        [node.result.ir.type],
        {"broadcast_dimensions": i64s(dims)},
        before=node,
    ).result


def gathered_rows(node: Node, starts: Array) -> Array | None:
    """The row number behind each batch element, if the gather takes whole rows of leading dims."""
    dims = GatherDimensionNumbers(node.op.attributes["dimension_numbers"])
    shape = node.operands[0].shape
    sizes = node.ints("slice_sizes")
    indexed = list(dims.start_index_map)
    count = len(indexed)
    vector = dims.index_vector_dim
    if list(dims.operand_batching_dims) or sorted(indexed) != list(range(count)):
        return None
    if sorted(dims.collapsed_slice_dims) != list(range(count)):
        return None
    if sizes[count:] != shape[count:] or 0 in shape:
        return None
    starts = np.expand_dims(starts, vector) if vector == starts.ndim else starts
    starts = np.moveaxis(starts, vector, -1).astype(np.int64)
    batch = starts.ndim - 1
    if list(dims.offset_dims) != list(range(batch, batch + len(shape) - count)):
        return None
    rows = np.zeros(starts.shape[:-1], np.int64)
    for d in range(count):
        at = np.clip(starts[..., indexed.index(d)], 0, shape[d] - 1)
        rows = rows * shape[d] + at
    return rows


def straight(rows: Array) -> tuple[int, list[int]] | None:
    """First row and the dims that count up through consecutive rows; the others repeat them."""
    first = int(rows.flat[0])
    kept = []
    for d, size in enumerate(rows.shape):
        at = [0] * rows.ndim
        at[d] = 1
        if size > 1 and int(rows[tuple(at)]) != first:
            kept.append(d)
    counts = [rows.shape[d] for d in kept]
    block = first + np.arange(prod(counts)).reshape(counts)
    shape = [rows.shape[d] if d in kept else 1 for d in range(rows.ndim)]
    return (first, kept) if (rows == block.reshape(shape)).all() else None


def _reshape(graph: Graph, node: Node, value: Value, shape: tuple[int, ...]) -> Value:
    if value.shape == shape:
        return value
    return graph.create("reshape", [value], [with_shape(value, shape)], before=node).result
