"""Grouping: merges heavy nodes pairwise, the pair that saves most memory traffic first.

In: a unit without plans for its pull ops. Out: `unit.groups`, every heavy node in exactly one.
Invariant: groups are acyclic, and each obeys the contract of its kind (see `fusion_rules`).
"""

from __future__ import annotations

import heapq

from torch_mlir import ir

from neuron_compile.passes.cost import LAUNCH_BYTES
from neuron_compile.passes.fusion_edges import Edges, find_edges
from neuron_compile.passes.fusion_rules import Fusion, Group
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.unit import GroupPlan, Unit


def fuse_groups(unit: Unit) -> None:
    """Fills `unit.groups`."""
    graph = unit.graph
    separate_outputs(graph)
    edges = find_edges(graph)
    fusion = Fusion(graph, edges, unit.threads)
    merge_all(fusion)
    unit.groups = [
        GroupPlan(group.kind, with_free_nodes(group.nodes, edges)) for group in fusion.groups()
    ]


def separate_outputs(graph: Graph) -> None:
    """Gives every output a value of its own: one that is an argument or a repeat gets a copy."""
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


def merge_all(fusion: Fusion) -> None:
    """Takes the most profitable pair that is allowed until none is left."""
    heap: list[tuple[float, int, int, int, int]] = []

    def push(a: Group, b: Group) -> None:
        first, second = (a, b) if a.first < b.first else (b, a)
        benefit = saved_bytes(fusion, first, second)
        if benefit > 0:
            entry = (-benefit, first.first, second.first, first.version, second.version)
            heapq.heappush(heap, entry)

    for group in fusion.groups():
        for other in fusion.neighbours(group):
            if other.first > group.first:
                push(group, other)
    while heap:
        _, first, second, version_a, version_b = heapq.heappop(heap)
        a, b = fusion.by_first.get(first), fusion.by_first.get(second)
        if a is None or b is None or a.version != version_a or b.version != version_b:
            continue  # stale: the merged group pushed its pairs again
        merged = fusion.try_merge(a, b)
        if merged is not None:
            for other in fusion.neighbours(merged):
                push(merged, other)


def saved_bytes(fusion: Fusion, a: Group, b: Group) -> float:
    """Bytes no longer moved, plus a launch, if `a` and `b` became one group."""
    saved = 0.0
    linked = False
    for one, other in ((a, b), (b, a)):
        for value in one.results & other.inputs.keys():
            linked = True
            saved += value.nbytes
            if value not in fusion.outputs and all(
                fusion.owner[reader] in (a, b) for reader in fusion.edges.readers[value]
            ):
                saved += value.nbytes
    shared = sum(value.nbytes for value in a.inputs.keys() & b.inputs.keys())
    if not linked and shared == 0:
        return 0.0
    return saved + shared + LAUNCH_BYTES


def with_free_nodes(nodes: list[Node], edges: Edges) -> list[Node]:
    """`nodes` and the free nodes they read, in program order."""
    found = set(nodes)
    stack = list(nodes)
    while stack:
        for operand in stack.pop().operands:
            producer = operand.node
            if producer is not None and producer in edges.free and producer not in found:
                found.add(producer)
                stack.append(producer)
    return sorted(found, key=lambda node: node.order)
