"""A reduction of many elements to few becomes two, so that the first has work for every thread.

In: any graph. Out: reduce(x) -> reduce(reduce(reshape(x))) where parallel work was missing.
Invariant: only the order of the terms changes, and only where the init value is neutral.
"""

from __future__ import annotations

import math

from torch_mlir import ir

from neuron_compile.passes.cost import PIECES, SMALL_NUMEL
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.types import FLOATS, i64s, splat_value, with_shape
from neuron_compile.passes.unit import Unit

# Columns are reduced a vector block at a time; two AVX-512 registers of f32.
COLUMN_BLOCK = 32


def split_reductions(unit: Unit) -> None:
    """One sweep; the two new reductions are not split again."""

    def rule(graph: Graph, node: Node) -> Value | None:
        return split(graph, node, PIECES)

    unit.graph.rewrite({"reduce": (rule,)})


def split(graph: Graph, node: Node, pieces: int) -> Value | None:
    """Splits `node` unless it already has `pieces` independent parts or is small."""
    if len(node.results) != 1 or not has_neutral_init(node):
        return None
    source = node.operands[0]
    dims = node.ints("dimensions")
    if source.numel < 2 * SMALL_NUMEL or not dims:
        return None
    last = max((d for d, size in enumerate(source.shape) if size != 1), default=0)
    parts = node.result.numel if last in dims else node.result.numel / COLUMN_BLOCK
    if parts >= pieces:
        return None
    at = max(dims, key=lambda d: (source.shape[d], -d))
    factor = _factor(source.shape[at], math.ceil(pieces / max(parts, 1)))
    if factor is None:
        return None
    shape = (*source.shape[:at], factor, source.shape[at] // factor, *source.shape[at + 1 :])
    reshaped = graph.create("reshape", [source], [with_shape(source, shape)], before=node).result
    first_dims = tuple(d + 1 if d >= at else d for d in dims)
    kept = [size for d, size in enumerate(shape) if d not in first_dims]
    first = _reduce(graph, node, reshaped, first_dims, with_shape(node.result, kept))
    position = sum(1 for d in range(at) if d not in first_dims)
    return _reduce(graph, node, first, (position,), node.result.ir.type)


def _factor(size: int, wanted: int) -> int | None:
    """The smallest divisor of `size` that is at least `wanted`, and leaves something to reduce."""
    for candidate in range(wanted, min(size // 2, 64 * wanted) + 1):
        if size % candidate == 0:
            return candidate
    return None


def _reduce(
    graph: Graph, node: Node, source: Value, dims: tuple[int, ...], result: ir.Type
) -> Value:
    made = ir.Operation.create(
        "stablehlo.reduce",
        results=[result],
        operands=[source.ir, node.operands[1].ir],
        attributes={"dimensions": i64s(dims)},
        regions=1,
        loc=node.op.location,
        ip=ir.InsertionPoint(node.op),
    ).operation
    body = node.op.regions[0].blocks[0]
    arguments = [argument.type for argument in body.arguments]
    block = made.regions[0].blocks.append(*arguments, arg_locs=[node.op.location] * 2)
    inside = dict(zip(body.arguments, block.arguments, strict=True))
    at_end = ir.InsertionPoint(block)
    for op in body.operations:
        clone = op.operation.clone(ip=at_end).operation
        for index, operand in enumerate(op.operation.operands):
            clone.operands[index] = inside[operand]
        inside.update(zip(op.operation.results, clone.results, strict=True))
    return graph.adopt(made, node).result


def reducer(node: Node) -> str | None:
    """The op of a body that is one binary op of its two arguments; None for others."""
    body = list(node.op.regions[0].blocks[0].operations)
    if len(body) != 2:
        return None
    arguments = list(node.op.regions[0].blocks[0].arguments)
    operands = list(body[0].operation.operands)
    if operands not in (arguments, arguments[::-1]):
        return None
    return body[0].operation.name.removeprefix("stablehlo.")


def has_neutral_init(node: Node) -> bool:
    """Whether applying the init value twice is the same as once."""
    name = reducer(node)
    number = splat_value(node.operands[1])
    if number is None:
        return False
    is_float = node.result.dtype in FLOATS
    if name in ("add", "or", "xor"):
        return number == 0
    if name == "multiply":
        return number == 1
    # Idempotent: any init value may be applied any number of times.
    return name in ("maximum", "minimum", "and") and (not is_float or not math.isnan(number))
