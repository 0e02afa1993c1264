"""Moves reshapes and transposes from before an elementwise op to after it.

In: any graph. Out: elementwise ops next to their producers, views next to contractions, where they
become dimension numbers. Invariant: only where it adds no view; the same elements are computed.
"""

from __future__ import annotations

from torch_mlir import ir

from neuron_compile.passes.graph import Graph, Node, Rule, Value
from neuron_compile.passes.ops import ELEMENTWISE
from neuron_compile.passes.types import element_type, splat_value, with_shape
from neuron_compile.passes.unit import Unit

_VIEWS = ("reshape", "transpose")


def sink_views(unit: Unit) -> None:
    """One sweep in program order: a view sinks through a whole chain."""
    rules: dict[str, tuple[Rule, ...]] = dict.fromkeys(ELEMENTWISE, (sink,))
    unit.graph.rewrite(rules)


def sink(graph: Graph, node: Node) -> Value | None:
    """op(view(x), c) -> view(op(x, c)), also where all operands come through the same view."""
    shape = node.result.shape
    if not all(operand.shape == shape for operand in node.operands):
        return None  # scalar operands of select and clamp
    view: Node | None = None
    for operand in node.operands:
        if splat_value(operand) is not None:
            continue
        producer = operand.node
        if producer is None or producer.name not in _VIEWS:
            return None
        if any(user is not node for user in operand.users) or operand in graph.outputs:
            return None
        if view is not None and not _same_view(view, producer):
            return None
        view = producer
    if view is None:
        return None
    source_shape = view.operands[0].shape
    operands = [_before(graph, node, operand, source_shape) for operand in node.operands]
    attributes = {name: node.op.attributes[name] for name in node.op.attributes}
    computed = graph.create(
        node.op.name, operands, [with_shape(node.result, source_shape)], attributes, before=node
    )
    kept = {name: view.op.attributes[name] for name in view.op.attributes}
    return graph.create(
        view.name, [computed.result], [node.result.ir.type], kept, before=node, like=view
    ).result


def _same_view(first: Node, second: Node) -> bool:
    return (
        first.name == second.name
        and first.operands[0].shape == second.operands[0].shape
        and first.ints("permutation") == second.ints("permutation")
    )


def _before(graph: Graph, node: Node, operand: Value, shape: tuple[int, ...]) -> Value:
    """The operand as it was before the view."""
    if splat_value(operand) is None:
        assert operand.node is not None
        return operand.node.operands[0]
    assert operand.node is not None
    element = operand.node.op.attributes["value"].get_splat_value()
    kind = ir.RankedTensorType.get(shape, element_type(operand))
    attribute = ir.DenseElementsAttr.get_splat(kind, element)
    return graph.create("constant", [], [kind], {"value": attribute}, before=node).result
