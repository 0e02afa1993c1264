"""Orders the groups so that few bytes are alive at once.

In: `unit.groups` in an order in which they can run. Out: the same groups in the order that needs
least memory of three: as given, greedy from the front, greedy from the back. Invariant: producers
come first; the order depends on the module only, so equal modules give equal NEFFs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neuron_compile.passes.graph import Graph, Value
from neuron_compile.passes.unit import GroupPlan, Unit


def schedule(unit: Unit) -> None:
    """Picks the order. On a tie the given one stays: it follows the program, which caches like."""
    flow = Flow.of(unit.graph, unit.groups)
    count = len(unit.groups)
    orders = [list(range(count)), forward_order(flow), backward_order(flow)]
    best = min(orders, key=lambda order: peak_bytes(flow, order))
    unit.groups = [unit.groups[number] for number in best]


@dataclass(frozen=True, slots=True)
class Flow:
    """What groups read and make of each other, by group number."""

    reads: Sequence[frozenset[Value]]  # values of other groups
    makes: Sequence[frozenset[Value]]  # values that other groups read
    home: dict[Value, int]
    readers: dict[Value, frozenset[int]]
    sizes: dict[Value, int]  # bytes in our memory: outputs lie in the caller's

    @staticmethod
    def of(graph: Graph, plans: Sequence[GroupPlan]) -> Flow:
        """Collects the values that cross groups."""
        inside = [{value for node in plan.nodes for value in node.results} for plan in plans]
        home: dict[Value, int] = {}
        for number, values in enumerate(inside):
            for value in values:
                home.setdefault(value, number)
        reads = []
        readers: dict[Value, set[int]] = {}
        for number, plan in enumerate(plans):
            own = inside[number]
            found = frozenset(
                operand
                for node in plan.nodes
                for operand in node.operands
                if operand not in own and operand in home
            )
            reads.append(found)
            for value in found:
                readers.setdefault(value, set()).add(number)
        makes: list[set[Value]] = [set() for _ in plans]
        for value in readers:
            makes[home[value]].add(value)
        outputs = set(graph.outputs)
        return Flow(
            reads,
            [frozenset(values) for values in makes],
            home,
            {value: frozenset(numbers) for value, numbers in readers.items()},
            {value: 0 if value in outputs else value.nbytes for value in readers},
        )


def forward_order(flow: Flow) -> list[int]:
    """Of the groups whose inputs are there, the one that adds fewest bytes."""
    left = {value: len(numbers) for value, numbers in flow.readers.items()}

    def added(number: int) -> int:
        freed = sum(flow.sizes[value] for value in flow.reads[number] if left[value] == 1)
        return sum(flow.sizes[value] for value in flow.makes[number]) - freed

    def place(number: int) -> None:
        for value in flow.reads[number]:
            left[value] -= 1

    waiting = [len({flow.home[value] for value in values}) for values in flow.reads]
    following = [{n for v in values for n in flow.readers[v]} for values in flow.makes]
    return _list_schedule(waiting, following, lambda number: (added(number), number), place)


def backward_order(flow: Flow) -> list[int]:
    """From the end: of the groups whose readers are placed, the one that adds fewest bytes."""
    alive: set[Value] = set()

    def added(number: int) -> int:
        new = sum(flow.sizes[value] for value in flow.reads[number] if value not in alive)
        return new - sum(flow.sizes[value] for value in flow.makes[number])

    def place(number: int) -> None:
        alive.difference_update(flow.makes[number])
        alive.update(flow.reads[number])

    waiting = [len({n for v in values for n in flow.readers[v]}) for values in flow.makes]
    following = [{flow.home[value] for value in values} for values in flow.reads]
    order = _list_schedule(waiting, following, lambda number: (added(number), -number), place)
    return order[::-1]


def _list_schedule(
    waiting: list[int],
    following: Sequence[set[int]],
    rank: Callable[[int], tuple[int, int]],
    place: Callable[[int], None],
) -> list[int]:
    """Places the ready group of lowest rank until all are placed."""
    ready = [number for number, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        best = min(ready, key=rank)
        ready.remove(best)
        order.append(best)
        place(best)
        for number in following[best]:
            waiting[number] -= 1
            if waiting[number] == 0:
                ready.append(number)
    return order


def peak_bytes(flow: Flow, order: Sequence[int]) -> int:
    """The most bytes of group results alive at once."""
    left = {value: len(numbers) for value, numbers in flow.readers.items()}
    alive = peak = 0
    for number in order:
        alive += sum(flow.sizes[value] for value in flow.makes[number])
        peak = max(peak, alive)
        for value in flow.reads[number]:
            left[value] -= 1
            if left[value] == 0:
                alive -= flow.sizes[value]
    return peak
