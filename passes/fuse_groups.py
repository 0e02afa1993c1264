"""Grouping: merges heavy nodes pairwise, the pair that saves most memory traffic first.

In: a unit without plans for its pull ops. Out: `unit.groups`, every heavy node in exactly one.
Invariant: groups are acyclic, and each obeys the contract of its kind (see `fusion_rules`).
"""

from __future__ import annotations

import heapq

from neuron_compile.passes.cost import LAUNCH_BYTES
from neuron_compile.passes.fusion_edges import Edges, find_edges
from neuron_compile.passes.fusion_rules import Rules
from neuron_compile.passes.graph import Node, Value
from neuron_compile.passes.groups import Group, Groups
from neuron_compile.passes.unit import GroupPlan, Unit

# Merges of last resort. A contraction's result that is stored anyway can be read by any kernel: its
# readers first look for each other, then for a place in the epilogue. What feeds a contraction
# first looks for a kernel that computes it on the way: a prologue may be computed once per tile.
WEAK = 1 << 20


def fuse_groups(unit: Unit) -> None:
    """Fills `unit.groups`; plans that are already there keep their nodes and may gain more."""
    graph = unit.graph
    edges = find_edges(graph, (node for plan in unit.groups for node in plan.nodes))
    groups = Groups(graph, edges, unit.groups)
    merge_all(groups, Rules(groups))
    unit.groups = [
        GroupPlan(group.kind, with_free_nodes(group.nodes, edges)) for group in groups.all()
    ]


def merge_all(groups: Groups, rules: Rules) -> None:
    """Takes the most profitable pair that is allowed until none is left."""
    heap: list[tuple[float, int, int, int, int]] = []

    def push(a: Group, b: Group) -> None:
        first, second = (a, b) if a.number < b.number else (b, a)
        benefit = saved_bytes(groups, first, second)
        if benefit > 0:
            versions = (first.version, second.version)
            heapq.heappush(heap, (-benefit, first.number, second.number, *versions))

    for group in groups.all():
        for other in groups.neighbours(group):
            if other.number > group.number:
                push(group, other)
    while heap:
        _, first, second, version_a, version_b = heapq.heappop(heap)
        a, b = groups.by_number.get(first), groups.by_number.get(second)
        if a is None or b is None or a.version != version_a or b.version != version_b:
            continue  # stale: the merged group pushed its pairs again
        kind = rules.kind_of_merged(a, b)
        if kind is not None:
            merged = groups.merge(a, b, kind)
            for other in groups.neighbours(merged):
                push(merged, other)


def saved_bytes(groups: Groups, a: Group, b: Group) -> float:
    """Bytes no longer moved, plus a launch, if `a` and `b` became one group."""
    saved = LAUNCH_BYTES
    weak = False
    for one, other in ((a, b), (b, a)):
        for value in one.results & other.inputs.keys():
            dies = not groups.escapes(value, a, b)
            saved += value.nbytes * (2 if dies else 1)
            weak = weak or (one.kind != "loop" and not dies) or _feeds_anchor(value, other)
    saved += sum(value.nbytes for value in a.inputs.keys() & b.inputs.keys())
    return saved / WEAK if weak else saved


def _feeds_anchor(value: Value, reader: Group) -> bool:
    return any(edge.node in reader.prologue for edge in reader.inputs[value])


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
