"""Moves each planned group into a private function; equal groups become one function.

In: `unit.groups` in the order they are to run. Out: `@main` of large constants, calls and return.
Invariant: two calls share a function only if ops, attributes, types, wiring and strides are equal.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from torch_mlir import ir

from neuron_compile.passes.graph import Graph, Node, Value, attributes_of
from neuron_compile.passes.unit import GroupPlan, Unit

STRIDES = "neuron.strides"
KIND = "neuron.kind"


@dataclass(slots=True)
class Ports:
    """What a group reads from outside, in order of first use, and what others read of it."""

    inputs: list[Value]
    outputs: list[Value]


def outline(unit: Unit) -> None:
    """Replaces the groups by calls."""
    graph = unit.graph
    strides = read_strides(graph)
    made: dict[Hashable, str] = {}
    counts: dict[str, int] = {}
    current: dict[Value, ir.Value] = {}
    for plan, ports in zip(unit.groups, find_ports(graph, unit.groups), strict=True):
        key = structural_key(plan, ports, strides)
        name = made.get(key)
        if name is None:
            number = counts.get(plan.kind, 0)
            counts[plan.kind] = number + 1
            name = f"{plan.kind}_{number}"
            made[key] = name
            _build_function(graph, name, plan, ports, strides)
        call = ir.Operation.create(
            "func.call",
            results=[value.ir.type for value in ports.outputs],
            operands=[current.get(value, value.ir) for value in ports.inputs],
            attributes={"callee": ir.FlatSymbolRefAttr.get(name)},
            loc=plan.nodes[-1].op.location,
            ip=ir.InsertionPoint(graph.terminator),
        ).operation
        current.update(zip(ports.outputs, call.results, strict=True))
    for index, output in enumerate(graph.outputs):
        graph.terminator.operands[index] = current[output]
    _drop_grouped(graph, unit.groups)
    unit.invalidate()
    unit.groups = []


def read_strides(graph: Graph) -> dict[Value, ir.Attribute]:
    """The `neuron.strides` of the arguments and outputs of `@main` that have one."""
    found: dict[Value, ir.Attribute] = {}
    for attribute, values in (("arg_attrs", graph.args), ("res_attrs", graph.outputs)):
        if attribute not in graph.func.attributes:
            continue
        for value, entries in zip(values, graph.func.attributes[attribute], strict=True):
            entries = ir.DictAttr(entries)
            if STRIDES in entries:
                found[value] = entries[STRIDES]
    return found


def find_ports(graph: Graph, plans: list[GroupPlan]) -> list[Ports]:
    """Inputs and outputs of each plan; puts its nodes into their canonical order."""
    members = [set(plan.nodes) for plan in plans]
    needed: set[Value] = set(graph.outputs)
    for plan, inside in zip(plans, members, strict=True):
        for node in plan.nodes:
            needed.update(operand for operand in node.operands if operand.node not in inside)
    claimed: set[Value] = set()
    ports = []
    for plan, inside in zip(plans, members, strict=True):
        outputs = [
            value
            for node in plan.nodes
            for value in node.results
            if value in needed and value not in claimed
        ]
        claimed.update(outputs)
        plan.nodes = _from_results(outputs, inside)
        inputs: dict[Value, None] = {}
        for node in plan.nodes:
            for operand in node.operands:
                if operand.node not in inside:
                    inputs[operand] = None
        ports.append(Ports(list(inputs), outputs))
    return ports


def _from_results(outputs: list[Value], inside: set[Node]) -> list[Node]:
    """The nodes in depth-first order from the results.

    Program order will not do: a mask or a table that several layers share is written once, inside
    the first of them, so equal layers would look different.
    """
    order: list[Node] = []
    done: set[Node] = set()
    for output in outputs:
        stack = [(output.node, False)]
        while stack:
            node, operands_done = stack.pop()
            if node is None or node not in inside or node in done:
                continue
            if operands_done:
                done.add(node)
                order.append(node)
                continue
            stack.append((node, True))
            stack += [(operand.node, False) for operand in reversed(node.operands)]
    return order


def structural_key(plan: GroupPlan, ports: Ports, strides: dict[Value, ir.Attribute]) -> Hashable:
    """Equal for groups that compute the same; names and locations play no part."""
    numbers: dict[Value, int] = {value: n for n, value in enumerate(ports.inputs)}
    parts: list[Hashable] = [plan.kind]
    parts += [(value.ir.type, strides.get(value)) for value in ports.inputs]
    for node in plan.nodes:
        for value in node.results:
            numbers[value] = len(numbers)
        own = len(node.operands) - node.captures
        captured = {operand.ir: numbers[operand] for operand in node.operands[own:]}
        parts.append(
            (
                node.name,
                tuple(numbers[operand] for operand in node.operands),
                tuple(value.ir.type for value in node.results),
                _attributes(node.op),
                _regions_key(node.op, captured),
            )
        )
    parts += [(numbers[value], strides.get(value)) for value in ports.outputs]
    return tuple(parts)


def _attributes(op: ir.Operation) -> Hashable:
    return tuple(attributes_of(op).items())


def _regions_key(op: ir.Operation, outer: dict[ir.Value, int]) -> Hashable:
    """The regions of an op, values numbered from -1 down; `outer` numbers what they may capture."""
    if not len(op.regions):
        return ()
    numbers = dict(outer)
    parts: list[Hashable] = []
    for region in op.regions:
        for block in region.blocks:
            parts.append(tuple(argument.type for argument in block.arguments))
            for argument in block.arguments:
                numbers[argument] = -1 - len(numbers)
            for nested in block.operations:
                nested = nested.operation
                parts.append(
                    (
                        nested.name,
                        tuple(numbers[operand] for operand in nested.operands),
                        tuple(result.type for result in nested.results),
                        _attributes(nested),
                        _regions_key(nested, numbers),
                    )
                )
                for result in nested.results:
                    numbers[result] = -1 - len(numbers)
    return tuple(parts)


def _build_function(
    graph: Graph, name: str, plan: GroupPlan, ports: Ports, strides: dict[Value, ir.Attribute]
) -> None:
    inputs = [value.ir.type for value in ports.inputs]
    results = [value.ir.type for value in ports.outputs]
    attributes = {
        "sym_name": ir.StringAttr.get(name),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, results)),
        KIND: ir.StringAttr.get(plan.kind),
    }
    for attribute, values in (("arg_attrs", ports.inputs), ("res_attrs", ports.outputs)):
        if any(value in strides for value in values):
            attributes[attribute] = ir.ArrayAttr.get(
                [ir.DictAttr.get({STRIDES: strides[v]} if v in strides else {}) for v in values]
            )
    location = plan.nodes[-1].op.location
    function = ir.Operation.create(
        "func.func",
        attributes=attributes,
        regions=1,
        loc=location,
        ip=ir.InsertionPoint(graph.module.body),
    ).operation
    block = function.regions[0].blocks.append(*inputs, arg_locs=[location] * len(inputs))
    inside: dict[ir.Value, ir.Value] = {
        value.ir: argument for value, argument in zip(ports.inputs, block.arguments, strict=True)
    }
    at_end = ir.InsertionPoint(block)
    for node in plan.nodes:
        clone = node.op.clone(ip=at_end).operation
        _rewire(clone, node, inside)
        inside.update(
            (value.ir, result) for value, result in zip(node.results, clone.results, strict=True)
        )
    ir.Operation.create(
        "func.return",
        operands=[inside[value.ir] for value in ports.outputs],
        loc=location,
        ip=at_end,
    )


def _rewire(clone: ir.Operation, node: Node, inside: dict[ir.Value, ir.Value]) -> None:
    operands = clone.operands
    own = len(node.operands) - node.captures
    for index, operand in enumerate(node.operands[:own]):
        operands[index] = inside[operand.ir]
    if not node.captures:
        return

    def visit(nested: ir.Operation) -> ir.WalkResult:
        for index, operand in enumerate(list(nested.operands)):
            if operand in inside:
                nested.operands[index] = inside[operand]
        return ir.WalkResult.ADVANCE

    for region in clone.regions:
        for block in region.blocks:
            for nested in block.operations:
                nested.operation.walk(visit)


def _drop_grouped(graph: Graph, plans: list[GroupPlan]) -> None:
    grouped = {node for plan in plans for node in plan.nodes}
    for node in reversed(graph.nodes):
        # What is in no group is a constant of `@main`, or was left without readers.
        if node in grouped or node.name != "constant" or not any(v.users for v in node.results):
            node.op.erase()
