"""Integer and bool ops of StableHLO on NumPy arrays, as far as index arithmetic needs them.

In: a node and the arrays of its operands. Out: the array of its result, or None for an op or dtype
that is not covered. Invariant: wraps like StableHLO; agrees with the interpreter on every op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_mlir import ir
from torch_mlir._mlir_libs._stablehlo import (
    ComparisonDirectionAttr,
    GatherDimensionNumbers,
)

from neuron_compile.passes.fusion_edges import is_scan
from neuron_compile.passes.graph import Node
from neuron_compile.passes.split_reductions import reducer
from neuron_compile.passes.types import splat_value

Array = NDArray[Any]
Rule = Callable[[Node, list[Array]], "Array | None"]

_DTYPES = {
    "i1": np.dtype(np.bool_),
    **{f"i{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
}
_UFUNCS: dict[str, Any] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "negate": np.negative,
    "abs": np.abs,
    "sign": np.sign,
}
_COMPARISONS = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def evaluate(node: Node, operands: list[Array]) -> Array | None:
    """The result of `node`, whose operands are all integers or bools."""
    if node.result.dtype not in _DTYPES:
        return None
    with np.errstate(all="ignore"):
        ufunc = _UFUNCS.get(node.name)
        if ufunc is not None:
            return _arithmetic(node, ufunc, operands)
        rule = _RULES.get(node.name)
        return None if rule is None else rule(node, operands)


def _arithmetic(node: Node, ufunc: Any, operands: list[Array]) -> Array | None:
    if node.result.dtype == "i1" and node.name not in ("and", "or", "xor", "not"):
        return None  # arithmetic of bools: left to the interpreter
    made: Array = ufunc(*operands)
    return made


def _constant(node: Node, _: list[Array]) -> Array | None:
    dtype = _DTYPES[node.result.dtype]
    number = splat_value(node.result)
    if number is not None:
        return np.full(node.result.shape, number, dtype)
    attribute = node.op.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr) or not node.result.numel:
        return None
    return np.array(attribute).astype(dtype).reshape(node.result.shape)


def _iota(node: Node, _: list[Array]) -> Array | None:
    if node.result.dtype == "i1":
        return None
    d = node.int("iota_dimension")
    shape = node.result.shape
    line = np.arange(shape[d], dtype=np.int64).astype(_DTYPES[node.result.dtype])
    return np.broadcast_to(line.reshape([-1 if e == d else 1 for e in range(len(shape))]), shape)


def _compare(node: Node, operands: list[Array]) -> Array | None:
    direction = ComparisonDirectionAttr(node.op.attributes["comparison_direction"]).value
    made: Array = _COMPARISONS[direction](*operands)
    return made


def _select(_: Node, operands: list[Array]) -> Array | None:
    return np.where(*operands)


def _clamp(_: Node, operands: list[Array]) -> Array | None:
    low, x, high = operands
    made: Array = np.minimum(np.maximum(x, low), high)
    return made


def _convert(node: Node, operands: list[Array]) -> Array | None:
    return operands[0].astype(_DTYPES[node.result.dtype])


def _broadcast(node: Node, operands: list[Array]) -> Array | None:
    shape = [1] * len(node.result.shape)
    order = node.ints("broadcast_dimensions")
    for d, size in zip(order, operands[0].shape, strict=True):
        shape[d] = size
    turned = operands[0].transpose(np.argsort(order)) if order else operands[0]
    return np.broadcast_to(turned.reshape(shape), node.result.shape)


def _reshape(node: Node, operands: list[Array]) -> Array | None:
    return operands[0].reshape(node.result.shape)


def _transpose(node: Node, operands: list[Array]) -> Array | None:
    return operands[0].transpose(node.ints("permutation"))


def _slice(node: Node, operands: list[Array]) -> Array | None:
    ranges = zip(
        node.ints("start_indices"), node.ints("limit_indices"), node.ints("strides"), strict=True
    )
    return operands[0][tuple(slice(*bounds) for bounds in ranges)]


def _reverse(node: Node, operands: list[Array]) -> Array | None:
    return np.flip(operands[0], node.ints("dimensions"))


def _concatenate(node: Node, operands: list[Array]) -> Array | None:
    return np.concatenate(operands, node.int("dimension"))


def _pad(node: Node, operands: list[Array]) -> Array | None:
    low, high = node.ints("edge_padding_low"), node.ints("edge_padding_high")
    if not low:
        return operands[0]
    if any(node.ints("interior_padding")) or min((*low, *high)) < 0:
        return None
    amounts = list(zip(low, high, strict=True))
    return np.pad(operands[0], amounts, constant_values=operands[1][()])


def _scan(node: Node, operands: list[Array]) -> Array | None:
    """A cumulative sum, forwards or backwards."""
    if len(operands) != 2 or not is_scan(node) or reducer(node) != "add" or operands[1][()] != 0:
        return None
    window = node.ints("window_dimensions")
    d = max(range(len(window)), key=lambda e: window[e])
    forwards = node.ints("padding")[2 * d] > 0
    x = operands[0] if forwards else np.flip(operands[0], d)
    made: Array = np.cumsum(x, d, dtype=x.dtype)
    return made if forwards else np.flip(made, d)


def _reduce(node: Node, operands: list[Array]) -> Array | None:
    ufunc = _UFUNCS.get(reducer(node) or "")
    if ufunc is None or len(operands) != 2 or node.result.dtype == "i1":
        return None
    x, init = operands
    if 0 in x.shape:  # NumPy has no maximum of nothing
        return np.full(node.result.shape, init, x.dtype)
    made: Array = ufunc.reduce(x, axis=node.ints("dimensions"), dtype=x.dtype)
    return np.asarray(ufunc(made, init), x.dtype)


def _gather(node: Node, operands: list[Array]) -> Array | None:
    """StableHLO's gather without batching dims: start indices are clamped, not wrapped."""
    x, starts = operands
    dims = GatherDimensionNumbers(node.op.attributes["dimension_numbers"])
    if len(dims.operand_batching_dims):
        return None
    sizes = node.ints("slice_sizes")
    vector = dims.index_vector_dim
    starts = np.expand_dims(starts, vector) if vector == starts.ndim else starts
    starts = np.moveaxis(starts, vector, -1).astype(np.int64)
    batch = starts.shape[:-1]
    offset_dims = list(dims.offset_dims)
    kept = [d for d in range(x.ndim) if d not in list(dims.collapsed_slice_dims)]
    count = len(batch)
    index: list[Array] = []
    for d in range(x.ndim):
        start = np.zeros(batch, np.int64)
        if d in list(dims.start_index_map):
            position = list(dims.start_index_map).index(d)
            start = np.clip(starts[..., position], 0, x.shape[d] - sizes[d])
        start = start.reshape(batch + (1,) * len(kept))
        if d in kept:
            shape = [1] * (count + len(kept))
            shape[count + kept.index(d)] = sizes[d]
            start = start + np.arange(sizes[d]).reshape(shape)
        index.append(start)
    made = x[tuple(index)]
    rank = count + len(kept)
    order = [0] * rank
    batch_positions = [d for d in range(rank) if d not in offset_dims]
    for position, source in zip(batch_positions, range(count), strict=True):
        order[position] = source
    for offset, source in zip(offset_dims, range(count, rank), strict=True):
        order[offset] = source
    turned: Array = made.transpose(order)
    return turned if turned.shape == node.result.shape else None


_RULES: dict[str, Rule] = {
    "constant": _constant,
    "iota": _iota,
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "convert": _convert,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "concatenate": _concatenate,
    "pad": _pad,
    "reduce_window": _scan,
    "reduce": _reduce,
    "gather": _gather,
}
