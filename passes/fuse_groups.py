"""Grouping: merges heavy nodes pairwise, the pair that saves most memory traffic first.

In: a unit without plans for its pull ops. Out: `unit.groups`, every heavy node in exactly one.
Invariant: groups are acyclic, and each obeys the contract of its kind (see `fusion_rules`).
"""

from __future__ import annotations

import heapq

from neuron_compile.passes.cost import LAUNCH_BYTES
from neuron_compile.passes.fusion_edges import Edges, find_edges
from neuron_compile.passes.fusion_rules import Fusion, Group
from neuron_compile.passes.graph import Node
from neuron_compile.passes.unit import GroupPlan, Unit

# A contraction's result that is stored anyway can be read by any kernel: its readers first look for
# each other, then for a place in the epilogue.
WEAK = 1 << 20


def fuse_groups(unit: Unit) -> None:
    """Fills `unit.groups`."""
    graph = unit.graph
    edges = find_edges(graph, (node for plan in unit.groups for node in plan.nodes))
    fusion = Fusion(graph, edges, unit.threads, unit.groups)
    merge_all(fusion)
    unit.groups = [
        GroupPlan(group.kind, with_free_nodes(group.nodes, edges)) for group in fusion.groups()
    ]


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
    linked = weak = False
    for one, other in ((a, b), (b, a)):
        for value in one.results & other.inputs.keys():
            linked = True
            dies = value not in fusion.outputs and all(
                fusion.owner[reader] in (a, b) for reader in fusion.edges.readers[value]
            )
            saved += value.nbytes * (2 if dies else 1)
            weak = weak or (one.kind != "loop" and not dies)
    shared = sum(value.nbytes for value in a.inputs.keys() & b.inputs.keys())
    if not linked and shared == 0:
        return 0.0
    total = saved + shared + LAUNCH_BYTES
    return total / WEAK if weak else total


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
