"""Rules for views: identities, chains that are one view, and dynamic forms of static shape.

In: a view node. Out: the value that stands for it, or None. Invariant: a view never becomes a
computation, and the canonical form of a view that only adds or drops dims of size 1 is a reshape.
"""

from __future__ import annotations

from torch_mlir import ir

from neuron_compile.passes.graph import Graph, Node, Rule, Value
from neuron_compile.passes.types import i64s, same_type, splat_value


def _producer(node: Node, name: str) -> Node | None:
    producer = node.operands[0].node
    return producer if producer is not None and producer.name == name else None


def _splat_of(graph: Graph, node: Node) -> Value | None:
    """A view of a splat constant is a splat constant."""
    producer = _producer(node, "constant")
    if producer is None or splat_value(producer.result) is None:
        return None
    element = producer.op.attributes["value"].get_splat_value()
    kind = node.result.ir.type
    attribute = ir.DenseElementsAttr.get_splat(kind, element)
    return graph.create("constant", [], [kind], {"value": attribute}, before=node).result


def view_of_splat(graph: Graph, node: Node) -> Value | None:
    """Any view of a splat constant."""
    return _splat_of(graph, node)


def reshape(graph: Graph, node: Node) -> Value | None:
    """Same shape -> nothing; reshape of a reshape -> one reshape."""
    operand = node.operands[0]
    if same_type(node, operand):
        return operand
    inner = _producer(node, "reshape")
    if inner is None:
        return None
    return _reshape_to(graph, inner.operands[0], node)


def _reshape_to(graph: Graph, source: Value, node: Node) -> Value:
    if source.shape == node.result.shape:
        return source
    return graph.create("reshape", [source], [node.result.ir.type], before=node).result


def transpose(graph: Graph, node: Node) -> Value | None:
    """Identity -> nothing; moving only dims of size 1 -> reshape; two transposes -> one."""
    operand = node.operands[0]
    order = node.ints("permutation")
    if order == tuple(range(len(order))):
        return operand
    real = [d for d in order if operand.shape[d] != 1]
    if real == sorted(real):
        return _reshape_to(graph, operand, node)
    inner = _producer(node, "transpose")
    if inner is None:
        return None
    first = inner.ints("permutation")
    return graph.create(
        "transpose",
        [inner.operands[0]],
        [node.result.ir.type],
        {"permutation": i64s([first[d] for d in order])},
        before=node,
    ).result


def broadcast(graph: Graph, node: Node) -> Value | None:
    """Identity -> nothing; no new elements -> reshape; broadcast of a broadcast -> one.

    A reshape below that only adds or drops dims of size 1 is absorbed.
    """
    operand = node.operands[0]
    dims = node.ints("broadcast_dimensions")
    if same_type(node, operand) and dims == tuple(range(len(dims))):
        return operand
    if operand.numel == node.result.numel and operand.numel and dims == tuple(sorted(dims)):
        return _reshape_to(graph, operand, node)
    inner = operand.node
    if inner is None:
        return None
    if inner.name == "broadcast_in_dim":
        first = inner.ints("broadcast_dimensions")
        source, new_dims = inner.operands[0], [dims[d] for d in first]
    elif inner.name == "reshape":
        source = inner.operands[0]
        placed = _unit_reshape_dims(source.shape, operand.shape, dims)
        if placed is None:
            return None
        new_dims = placed
        if source.shape != tuple(s for s in source.shape if s != 1):
            squeezed = [size for size in source.shape if size != 1]
            kind = ir.RankedTensorType.get(
                squeezed, ir.RankedTensorType(source.ir.type).element_type
            )
            if operand.shape == tuple(squeezed):
                return None
            source = graph.create("reshape", [source], [kind], before=node).result
    else:
        return None
    return graph.create(
        "broadcast_in_dim",
        [source],
        [node.result.ir.type],
        {"broadcast_dimensions": i64s(new_dims)},
        before=node,
    ).result


def _unit_reshape_dims(
    source: tuple[int, ...], middle: tuple[int, ...], dims: tuple[int, ...]
) -> list[int] | None:
    """Where the real dims of `source` go, if the reshape to `middle` only moves ones."""
    real_source = [size for size in source if size != 1]
    real_middle = [d for d, size in enumerate(middle) if size != 1]
    if real_source != [middle[d] for d in real_middle]:
        return None
    return [dims[d] for d in real_middle]


def slice_all(_graph: Graph, node: Node) -> Value | None:
    """A slice that takes everything."""
    return node.operands[0] if same_type(node, node.operands[0]) else None


def pad_nothing(_graph: Graph, node: Node) -> Value | None:
    """A pad by nothing."""
    amounts = (
        node.ints("edge_padding_low")
        + node.ints("edge_padding_high")
        + node.ints("interior_padding")
    )
    return None if any(amounts) else node.operands[0]


def concatenate_one(_graph: Graph, node: Node) -> Value | None:
    """A concatenation in which only one operand has elements."""
    full = [operand for operand in node.operands if operand.numel]
    return full[0] if len(full) == 1 and same_type(node, full[0]) else None


def reverse_nothing(_graph: Graph, node: Node) -> Value | None:
    """A reversal of dims of size 1 only."""
    operand = node.operands[0]
    return operand if all(operand.shape[d] == 1 for d in node.ints("dimensions")) else None


def static_iota(graph: Graph, node: Node) -> Value | None:
    """dynamic_iota of a static result type: its operand can only say the same shape."""
    dimension = {"iota_dimension": node.op.attributes["iota_dimension"]}
    return graph.create("iota", [], [node.result.ir.type], dimension, before=node).result


def static_reshape(graph: Graph, node: Node) -> Value | None:
    """dynamic_reshape of a static result type."""
    return _reshape_to(graph, node.operands[0], node)


def static_broadcast(graph: Graph, node: Node) -> Value | None:
    """dynamic_broadcast_in_dim of a static result type."""
    dims = {"broadcast_dimensions": i64s(node.ints("broadcast_dimensions"))}
    return graph.create(
        "broadcast_in_dim", [node.operands[0]], [node.result.ir.type], dims, before=node
    ).result


VIEW_RULES: dict[str, tuple[Rule, ...]] = {
    "reshape": (view_of_splat, reshape),
    "transpose": (view_of_splat, transpose),
    "broadcast_in_dim": (view_of_splat, broadcast),
    "slice": (view_of_splat, slice_all),
    "reverse": (view_of_splat, reverse_nothing),
    "pad": (pad_nothing,),
    "concatenate": (concatenate_one,),
    "dynamic_iota": (static_iota,),
    "dynamic_reshape": (static_reshape,),
    "dynamic_broadcast_in_dim": (static_broadcast,),
}
