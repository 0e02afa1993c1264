"""Results that are cheaper to compute again in their readers than to store.

In: `unit.groups` from grouping. Out: the same groups; a result that is a few instructions on a
value that is stored in any case is computed where it is read. Invariant: `@main` returns the same,
and readers come to depend only on what their producer depended on, or on its other results.
"""

from __future__ import annotations

from neuron_compile.passes.cost import CHEAP_COST, SPREAD
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.ops import ELEMENTWISE, SOURCES, VIEWS, element_cost
from neuron_compile.passes.unit import GroupPlan, Unit


def rematerialize(unit: Unit) -> None:
    """One sweep over the groups; groups left without results go away."""
    graph = unit.graph
    plans = Plans(graph, unit.groups)
    for plan in unit.groups:
        if plan.kind != "loop":
            continue
        for value in plans.results(plan):
            cone = cheap_cone(plans, plan, value)
            if cone is not None:
                plans.move(value, cone)
    unit.groups = plans.needed()


class Plans:
    """Who holds and who reads what, while nodes are copied between plans."""

    def __init__(self, graph: Graph, plans: list[GroupPlan]) -> None:
        self.outputs = set(graph.outputs)
        self.plans = plans
        self.members = {id(plan): set(plan.nodes) for plan in plans}
        self.home: dict[Node, GroupPlan] = {}  # where a value is stored from
        self.readers: dict[Value, list[GroupPlan]] = {}
        for plan in plans:
            inside = self.members[id(plan)]
            for node in plan.nodes:
                self.home.setdefault(node, plan)
            for value in {v for node in plan.nodes for v in node.operands if v.node not in inside}:
                self.readers.setdefault(value, []).append(plan)

    def results(self, plan: GroupPlan) -> list[Value]:
        """What the plan stores only for other plans to read, in program order."""
        return [
            value
            for node in plan.nodes
            if self.home[node] is plan and len(node.results) == 1
            for value in node.results
            if value not in self.outputs and self.readers.get(value)
        ]

    def is_stored(self, value: Value) -> bool:
        """Whether a value lies in memory: an argument, a large constant, or a result."""
        return value.node is None or value in self.outputs or bool(self.readers.get(value))

    def move(self, value: Value, cone: set[Node]) -> None:
        """Copies `cone`, which computes `value`, into every reader."""
        for plan in self.readers.pop(value):
            inside = self.members[id(plan)]
            fresh = cone - inside
            inside |= fresh
            plan.nodes = sorted(inside, key=lambda node: node.order)
            for operand in {v for node in fresh for v in node.operands if v.node not in inside}:
                listed = self.readers.setdefault(operand, [])
                if plan not in listed:
                    listed.append(plan)

    def needed(self) -> list[GroupPlan]:
        """The plans that still store something."""
        return [
            plan
            for plan in self.plans
            if any(
                value in self.outputs or self.readers.get(value)
                for node in plan.nodes
                if self.home[node] is plan
                for value in node.results
            )
        ]


def cheap_cone(plans: Plans, plan: GroupPlan, value: Value) -> set[Node] | None:
    """The nodes from stored values to `value`, if computing them again moves no more bytes."""
    if any(reads_through_anchor(reader, value) for reader in plans.readers[value]):
        return None
    inside = plans.members[id(plan)]
    cone: set[Node] = set()
    sources: set[Value] = set()
    cost = 0
    stack = [value]
    while stack:
        operand = stack.pop()
        node = operand.node
        stored = plans.is_stored(operand) and operand is not value
        if node is None or node not in inside or (stored and node.name not in SOURCES):
            sources.add(operand)
            continue
        if node in cone:
            continue
        if node.name not in ELEMENTWISE and node.name not in VIEWS and node.name not in SOURCES:
            return None
        cone.add(node)
        cost += element_cost(node.name)
        if cost > CHEAP_COST:
            return None
        stack.extend(node.operands)
    large = [source for source in sources if source.numel * SPREAD > value.numel]
    if len(large) > 1 or any(source.nbytes > value.nbytes for source in large):
        return None
    return cone


def reads_through_anchor(plan: GroupPlan, value: Value) -> bool:
    """Whether a contraction or the like reads `value`: there every instruction counts."""
    if plan.kind == "loop":
        return False
    inside = set(plan.nodes)
    stack = [value]
    seen: set[Value] = set()
    while stack:
        operand = stack.pop()
        if operand in seen:
            continue
        seen.add(operand)
        for user in operand.users:
            if user not in inside:
                continue
            if user.name not in ELEMENTWISE and user.name not in VIEWS:
                return True
            stack.extend(user.results)
    return False
