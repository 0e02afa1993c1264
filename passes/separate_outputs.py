"""Gives every output of `@main` a value of its own, and views of a computed value to its readers.

In: any graph. Out: outputs are distinct values of nodes; where one is a reshape or transpose of a
value, others read that value through the output. Invariant: only views are added.
"""

from __future__ import annotations

from torch_mlir import ir

from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.ops import SOURCES, VIEWS
from neuron_compile.passes.types import i64s
from neuron_compile.passes.unit import Unit


def separate_outputs(unit: Unit) -> None:
    """Copies what is returned twice or not computed, then turns readers towards output views."""
    graph = unit.graph
    _copy_outputs(graph)
    for output in list(graph.outputs):
        node = output.node
        if node is not None and node.name in ("reshape", "transpose"):
            _read_through(graph, node)
    graph.prune()


def _copy_outputs(graph: Graph) -> None:
    seen: set[Value] = set()
    for index, output in enumerate(graph.outputs):
        if output in seen or output.node is None or output.node.name == "constant":
            op = ir.Operation.create(
                "stablehlo.reshape",
                results=[output.ir.type],
                operands=[output.ir],
                loc=graph.terminator.location,
                ip=ir.InsertionPoint(graph.terminator),
            )
            copy = graph.append(op).result
            graph.terminator.operands[index] = copy.ir
            graph.outputs[index] = copy
        seen.add(graph.outputs[index])


def _read_through(graph: Graph, view: Node) -> None:
    """Without this, both the view and its source would be stored."""
    source = view.operands[0]
    producer = source.node
    if producer is None or producer.name in VIEWS or producer.name in SOURCES:
        return
    if source in graph.outputs or all(user is view for user in source.users):
        return
    graph.move_after(view, producer)
    attributes = {}
    if view.name == "transpose":
        order = view.ints("permutation")
        attributes = {"permutation": i64s([order.index(d) for d in range(len(order))])}
    following = graph.nodes[view.order + 1]
    inverse = graph.create(
        view.name, [view.result], [source.ir.type], attributes, before=following, like=view
    )
    graph.replace(source, inverse.result, keep=view)
