"""Computes what depends on constants only, with the reference interpreter itself.

In: any graph. Out: uniform values (all elements equal) and small ones are constants. Invariant: no
constant grows beyond a splat or `SMALL` elements; an op the interpreter refuses stays.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.passmanager import PassManager

import neuron_compile.passes.dialects  # noqa: F401  registers the pass `_evaluate` runs
from neuron_compile.passes.fusion_edges import SMALL_CONSTANT
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.ops import ELEMENTWISE, VIEWS
from neuron_compile.passes.types import splat_value
from neuron_compile.passes.unit import Unit

SMALL = SMALL_CONSTANT
_SMALL_OPS = frozenset(("iota", "concatenate", "pad"))


def fold_constants(unit: Unit) -> None:
    """Evaluates all foldable nodes in one run of the interpreter."""
    graph = unit.graph
    uniform, small = foldable(graph)
    wanted = [node for node in graph.nodes if _is_wanted(node, uniform, small, graph)]
    if not wanted:
        return
    answers = _evaluate(graph, uniform, wanted)
    by_node = dict(zip(wanted, answers, strict=True))
    for node, answer in by_node.items():
        kind = node.result.ir.type
        if node in uniform:
            answer = ir.DenseElementsAttr.get_splat(kind, answer.get_splat_value())
        made = graph.create("constant", [], [kind], {"value": answer}, before=node)
        graph.replace(node.result, made.result)
    graph.prune()


def foldable(graph: Graph) -> tuple[set[Node], set[Node]]:
    """Nodes of equal elements, and nodes of at most `SMALL` elements; constants included."""
    uniform: set[Node] = set()
    small: set[Node] = set()
    for node in graph.nodes:
        if len(node.results) != 1 or node.captures or _ends_the_interpreter(node):
            continue
        producers = [operand.node for operand in node.operands]
        known = all(producer is not None for producer in producers)
        if node.name == "constant":
            if splat_value(node.result) is not None:
                uniform.add(node)
            elif node.result.numel <= SMALL:
                small.add(node)
        elif not known or (not producers and node.name != "iota"):
            continue
        elif (node.name in ELEMENTWISE or node.name in VIEWS) and all(
            producer in uniform for producer in producers
        ):
            if node.result.numel:
                uniform.add(node)
        elif (
            0 < node.result.numel <= SMALL
            and (node.name in ELEMENTWISE or node.name in VIEWS or node.name in _SMALL_OPS)
            and all(producer in small or producer in uniform for producer in producers)
            and node.name != "iota"
        ):
            small.add(node)
    return uniform, small


def _ends_the_interpreter(node: Node) -> bool:
    """On complex numbers and empty tensors it ends the process."""
    return any("complex" in v.dtype or not v.numel for v in (*node.operands, *node.results))


def _is_wanted(node: Node, uniform: set[Node], small: set[Node], graph: Graph) -> bool:
    """Whether a folded node is read by something that is not folded itself."""
    if node.name == "constant" or (node not in uniform and node not in small):
        return False
    if node.result in graph.outputs:
        return True
    return any(user not in uniform and user not in small for user in node.result.users)


def _evaluate(graph: Graph, uniform: set[Node], wanted: list[Node]) -> list[ir.Attribute]:
    """The values of `wanted`; uniform nodes are computed as scalars."""
    module = ir.Module.create()
    kinds = [_scalar_type(n.result) if n in uniform else n.result.ir.type for n in wanted]
    main = ir.Operation.create(
        "func.func",
        attributes={
            "sym_name": ir.StringAttr.get("main"),
            "function_type": ir.TypeAttr.get(ir.FunctionType.get([], kinds)),
        },
        regions=1,
        ip=ir.InsertionPoint(module.body),
    )
    block = main.regions[0].blocks.append()
    at_end = ir.InsertionPoint(block)
    made: dict[Node, ir.Value] = {}
    needed = _needed(wanted)
    for node in graph.nodes:
        if node not in needed:
            continue
        if node in uniform:
            made[node] = _scalar_op(node, made, at_end)
        else:
            operands = []
            for operand in node.operands:
                assert operand.node is not None
                value = made[operand.node]
                if operand.node in uniform:
                    value = _spread(value, operand, at_end)
                operands.append(value)
            clone = node.op.clone(ip=at_end).operation
            for index, value in enumerate(operands):
                clone.operands[index] = value
            made[node] = clone.results[0]
    ir.Operation.create("func.return", operands=[made[node] for node in wanted], ip=at_end)
    PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
    return list(_stablehlo.eval_module(module, []))


def _needed(wanted: list[Node]) -> set[Node]:
    found = set(wanted)
    stack = list(wanted)
    while stack:
        for operand in stack.pop().operands:
            producer = operand.node
            if producer is not None and producer not in found:
                found.add(producer)
                stack.append(producer)
    return found


def _scalar_type(value: Value) -> ir.Type:
    return ir.RankedTensorType.get([], ir.RankedTensorType(value.ir.type).element_type)


def _scalar_op(node: Node, made: dict[Node, ir.Value], at_end: ir.InsertionPoint) -> ir.Value:
    """The scalar that every element of a uniform node equals."""
    operands = [made[operand.node] for operand in node.operands if operand.node is not None]
    if node.name in VIEWS:
        return operands[0]
    attributes = {name: node.op.attributes[name] for name in node.op.attributes}
    kind = _scalar_type(node.result)
    if node.name == "constant":
        element = attributes["value"].get_splat_value()
        attributes = {"value": ir.DenseElementsAttr.get_splat(kind, element)}
    return ir.Operation.create(
        node.op.name, results=[kind], operands=operands, attributes=attributes, ip=at_end
    ).results[0]


def _spread(value: ir.Value, like: Value, at_end: ir.InsertionPoint) -> ir.Value:
    return ir.Operation.create(
        "stablehlo.broadcast_in_dim",
        results=[like.ir.type],
        operands=[value],
        attributes={"broadcast_dimensions": ir.DenseI64ArrayAttr.get([])},
        ip=at_end,
    ).results[0]
