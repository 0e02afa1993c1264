"""Pull rules of the ops that are neither elementwise nor plain views.

In: the evaluator, a node and an index. Out: the value there. A run-time index becomes an atom of an
index expression, clamped as StableHLO says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuron_compile.errors import CodegenError
from neuron_compile.neff.codegen import random_bits, reduction_specs, reductions, views
from neuron_compile.neff.codegen.elementwise import compute_elem, narrow, widen
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.index import Index, constant, contiguous_strides, linear
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.value import FLOAT_BITS, Val, bits_of
from neuron_compile.neff.codegen.views import Condition, Indices

if TYPE_CHECKING:
    from neuron_compile.neff.codegen.evaluate import Evaluator


def _constant(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    array = np.asarray(node.attributes["value"])
    elem = compute_elem(node.tensor)
    flat = array.reshape(-1)
    if flat.size == 1 or (flat[:1] == flat).all():
        return v.e.const(elem, flat[0].item())
    return _small_constant(v, node, at, flat, elem)


def _small_constant(v: Evaluator, node: Node, at: Indices, flat: np.ndarray, elem: str) -> Val:
    """A constant of a few elements: a chain of selects on the linear index."""
    if flat.size > 64:
        raise CodegenError(f"a constant of {flat.size} elements must be a parameter of its group")
    offset = linear(at, contiguous_strides(node.shape))
    if not offset.terms:
        return v.e.const(elem, flat[offset.constant].item())
    result = v.e.const(elem, flat[-1].item())
    for i in range(flat.size - 2, -1, -1):
        here = v.condition(Condition(offset, 0, i + 1))
        piece = v.e.const(elem, flat[i].item())
        result = piece if here is None else v.e.select(here, piece, result)
    return result


def _iota(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    index = at[node.attributes["iota_dimension"]]
    elem = compute_elem(node.tensor)
    whole = "i64" if elem in FLOAT_BITS else elem
    lanes = v.lane.lanes if v.lane and v.varies(index) else 0
    small = index.bounds[1] < 1 << 31 and index.bounds[0] >= -(1 << 31)
    if lanes:
        narrow = "i32" if small and whole in ("i64", "i32") else "i64"
        value = v.lanes_of(index, narrow)
    else:
        value = v.scalar(index)
    if elem in FLOAT_BITS:
        return v.e.cast("arith.sitofp", value, elem)
    if value.elem == whole:
        return value
    from_bits, to_bits = int(value.elem[1:]), int(whole[1:])
    return v.e.cast("arith.trunci" if to_bits < from_bits else "arith.extsi", value, whole)


def _pad(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    outside = v.value(node.operands[1], ())
    source = views.pad_source(node, at)
    if source.never or 0 in source.operand.shape:
        return outside
    value, condition = v.from_source(source, mask)
    return value if condition is None else v.e.select(condition, value, outside)


def _concatenate(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    sources = views.concatenate_sources(node, at)
    result: Val | None = None
    for source in reversed(sources):
        value, condition = v.from_source(source, mask)
        result = (
            value if result is None or condition is None else v.e.select(condition, value, result)
        )
    if result is None:
        raise CodegenError("concatenate of empty tensors has no element")
    return result


def _start(v: Evaluator, node: Node, at: Indices, high: int, mask: Val | None) -> Index:
    """A run-time start index clamped to [0, high], as StableHLO says."""
    if high <= 0:
        return constant(0)
    value = v.value(node, at, mask)
    value = to_i64(v.e, value, node)
    lanes = value.lanes
    value = v.e.binary("arith.maxsi", value, v.e.const("i64", 0, lanes))
    value = v.e.binary("arith.minsi", value, v.e.const("i64", high, lanes))
    return v.runtime(value, 0, high)


def to_i64(e: Emitter, value: Val, node: Node) -> Val:
    """An index operand as i64."""
    if value.elem == "i64":
        return value
    return e.cast(
        "arith.extui" if node.tensor.unsigned or value.elem == "i1" else "arith.extsi", value, "i64"
    )


def _dynamic_slice(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    source, *starts = node.operands
    indices = tuple(
        i + _start(v, s, (), full - part, None)
        for i, s, full, part in zip(at, starts, source.shape, node.shape, strict=True)
    )
    return v.value(source, indices, mask)


def _dynamic_update_slice(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    base, update, *starts = node.operands
    result = v.value(base, at, mask)
    if 0 in update.shape:
        return result
    condition: Val | None = None
    indices: list[Index] = []
    for i, s, full, part in zip(at, starts, base.shape, update.shape, strict=True):
        moved = i - _start(v, s, (), full - part, None)
        condition = v.e.both(condition, v.condition(Condition(moved, 0, part)))
        indices.append(moved.bounded(0, part - 1))
    value = v.value(update, tuple(indices), v.e.both(mask, condition))
    return value if condition is None else v.e.select(condition, value, result)


def _gather(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    operand, starts = node.operands
    dims = node.attributes["dimension_numbers"]
    offset_dims = dims.get("offset_dims", ())
    collapsed = (*dims.get("collapsed_slice_dims", ()), *dims.get("operand_batching_dims", ()))
    vector_dim = dims.get("index_vector_dim", 0)
    batch = [at[d] for d in range(len(at)) if d not in offset_dims]
    kept = [d for d in range(len(operand.shape)) if d not in collapsed]
    indices = [constant(0)] * len(operand.shape)
    for d, o in zip(kept, offset_dims, strict=True):
        indices[d] = at[o]
    batching = zip(
        dims.get("operand_batching_dims", ()),
        dims.get("start_indices_batching_dims", ()),
        strict=True,
    )
    for d, s in batching:
        indices[d] = batch[s if s < vector_dim else s - 1]
    sizes = node.attributes["slice_sizes"]
    for position, d in enumerate(dims.get("start_index_map", ())):
        where = list(batch)
        if vector_dim < len(starts.shape):
            where.insert(vector_dim, constant(position))
        indices[d] = indices[d] + _start(v, starts, tuple(where), operand.shape[d] - sizes[d], mask)
    return v.value(operand, tuple(indices), mask)


def bitcast_to_other_width(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    """Elements of another width over the same bits, the lowest first (little-endian)."""
    e, target = v.e, node.tensor
    source = node.operands[0].tensor
    wide, small = bits_of(target.stored), bits_of(source.stored)
    places = views.width_sources(node, at)
    parts = [
        e.bitcast(narrow(e, v.value(node.operands[0], i, mask), source), f"i{small}")
        for i in places
    ]
    if wide < small:
        shift = at[-1] * wide
        lanes = v.lane.lanes if v.lane and v.varies(shift) else 0
        amount = v.lanes_of(shift) if lanes else v.scalar(shift)
        amount = e.cast("arith.trunci", amount, f"i{small}") if small < 64 else amount
        bits = e.cast("arith.trunci", e.binary("arith.shrui", parts[0], amount), f"i{wide}")
    else:
        bits = e.const(f"i{wide}", 0)
        for j, part in enumerate(parts):
            moved = e.cast("arith.extui", part, f"i{wide}")
            moved = e.binary("arith.shli", moved, e.const(f"i{wide}", j * small))
            bits = e.binary("arith.ori", moved, bits)
    return widen(e, e.bitcast(bits, target.stored), target)


def _reduction(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    return reductions.reduce(v, node, at, mask)


def _barrier(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    return v.value(node.operands[node.result], at, mask)


PULLED = {
    "stablehlo.constant": _constant,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.optimization_barrier": _barrier,
    random_bits.OP: random_bits.random_element,
    **dict.fromkeys(reduction_specs.OPS, _reduction),
}
