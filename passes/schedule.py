"""Orders the groups so that few bytes are alive at once.

In: `unit.groups` in any order. Out: the same groups, producers before consumers. Invariant: the
order depends on the module only (ties go to program order), so equal modules give equal NEFFs.
"""

from __future__ import annotations

from neuron_compile.passes.graph import Graph, Value
from neuron_compile.passes.unit import GroupPlan, Unit


def schedule(unit: Unit) -> None:
    """Greedy list scheduling: of the groups that are ready, the one that frees most memory."""
    unit.groups = ordered(unit.graph, unit.groups)


def ordered(graph: Graph, plans: list[GroupPlan]) -> list[GroupPlan]:
    """`plans` in the order they are to run."""
    home: dict[Value, int] = {}
    for number, plan in enumerate(plans):
        for node in plan.nodes:
            for value in node.results:
                home.setdefault(value, number)
    reads: list[set[Value]] = []
    for plan in plans:
        inside = {value for node in plan.nodes for value in node.results}
        reads.append(
            {
                operand
                for node in plan.nodes
                for operand in node.operands
                if operand not in inside and operand in home
            }
        )
    readers: dict[Value, set[int]] = {}
    for number, values in enumerate(reads):
        for value in values:
            readers.setdefault(value, set()).add(number)
    outputs = set(graph.outputs)
    made: list[list[Value]] = [[] for _ in plans]
    for value in readers:
        if value not in outputs:  # outputs live in buffers of the caller
            made[home[value]].append(value)
    waiting = [len({home[value] for value in values}) for values in reads]
    left = {value: len(numbers) for value, numbers in readers.items()}
    allocated = [sum(value.nbytes for value in values) for values in made]
    ready = [number for number, count in enumerate(waiting) if count == 0]
    order: list[GroupPlan] = []
    while ready:
        best = min(
            ready,
            key=lambda n: (
                allocated[n] - sum(v.nbytes for v in reads[n] if left[v] == 1 and v not in outputs),
                n,
            ),
        )
        ready.remove(best)
        order.append(plans[best])
        for value in reads[best]:
            left[value] -= 1
        following = {
            number
            for node in plans[best].nodes
            for v in node.results
            if home[v] == best  # other groups may hold a copy
            for number in readers.get(v, ())
        }
        for number in sorted(following):
            waiting[number] -= 1
            if waiting[number] == 0:
                ready.append(number)
    return order
