"""Index arithmetic without inputs, computed with NumPy and put back as iota or splat.

In: any graph. Out: integers and bools that depend on nothing but iota and constants, however they
were made (gather of arange, cumulative sums, wrapped indices), are affine in the index or a splat,
where they are; gathers at such indices are slices. Invariant: exact; no table is stored.
"""

from __future__ import annotations

import numpy as np
from torch_mlir import ir

from neuron_compile.passes.fold_gathers import as_slice
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.integer_arrays import Array, evaluate
from neuron_compile.passes.types import splat
from neuron_compile.passes.unit import Unit

# Larger values are masks of queries by keys, which seldom collapse; their parts are smaller.
MAX_NUMEL = 1 << 16

# Ops that are already as simple as what would replace them.
_SIMPLE = frozenset(("constant", "iota", "broadcast_in_dim", "reshape", "transpose"))


def fold_indices(unit: Unit) -> None:
    """One sweep in program order; the nodes that fed what was replaced go away as dead code."""
    graph = unit.graph
    arrays: dict[Value, Array] = {}
    for node in list(graph.nodes):
        if len(node.results) != 1 or node.captures:
            continue
        operands = [arrays.get(operand) for operand in node.operands]
        if node.name == "gather" and operands[0] is None and operands[1] is not None:
            sliced = as_slice(graph, node, operands[1])
            if sliced is not None:
                graph.replace(node.result, sliced)
            continue
        if node.result.numel > MAX_NUMEL or any(operand is None for operand in operands):
            continue
        array = evaluate(node, [operand for operand in operands if operand is not None])
        if array is None:
            continue
        arrays[node.result] = array
        if node.name in _SIMPLE or not array.size:
            continue
        form = affine(array)
        if form is not None and (node.name not in _CHEAP or not any(form[1])):
            made = _build(graph, node, *form)
            arrays[made] = array
            graph.replace(node.result, made)
    graph.prune()


# Elementwise ops are replaced where they turn out uniform only.
_CHEAP = frozenset(
    ("add", "subtract", "multiply", "negate", "compare", "and", "or", "not", "convert", "slice")
)


def affine(array: Array) -> tuple[int, list[int]] | None:
    """Base and step per dim, if every element is base + sum of step * index; exact."""
    base = int(array.flat[0])
    steps = []
    if array.dtype == np.bool_:
        return (base, [0] * array.ndim) if (array == array.flat[0]).all() else None
    for d, size in enumerate(array.shape):
        at = [0] * array.ndim
        if size == 1:
            steps.append(0)
            continue
        at[d] = 1
        steps.append(int(array[tuple(at)]) - base)
    expected = np.full((), base, np.int64)
    for d, (size, step) in enumerate(zip(array.shape, steps, strict=True)):
        if abs(step) > 1 << 31:
            return None
        shape = [1] * array.ndim
        shape[d] = size
        expected = expected + (np.arange(size, dtype=np.int64) * step).reshape(shape)
    return (base, steps) if (array == expected).all() else None


def _build(graph: Graph, node: Node, base: int, steps: list[int]) -> Value:
    """Emits base + sum of step * iota with the type of the node's result."""
    kind = node.result.ir.type

    def constant(number: int) -> Value:
        attributes = {"value": splat(kind, number)}
        return graph.create("constant", [], [kind], attributes, before=node).result

    def binary(name: str, a: Value, b: Value) -> Value:
        return graph.create(name, [a, b], [kind], before=node).result

    total: Value | None = None
    for d, step in enumerate(steps):
        if step == 0:
            continue
        dimension = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), d)
        attributes = {"iota_dimension": dimension}
        term = graph.create("iota", [], [kind], attributes, before=node).result
        if step != 1:
            term = binary("multiply", term, constant(step))
        total = term if total is None else binary("add", total, term)
    if total is None:
        return constant(base)
    return total if base == 0 else binary("add", total, constant(base))
