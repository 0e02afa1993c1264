"""The groups while they grow: who owns which node, who reads what, in which order they can run.

In: heavy nodes with their edges, and plans made by earlier passes. Out: `Groups`, which merges two
of them. Invariant: `order` is a topological order of the groups, so a cycle shows within a window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from neuron_compile.passes.fusion_edges import Edge, Edges
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.ops import REDUCTIONS, WINDOWS, element_cost
from neuron_compile.passes.unit import GroupPlan

MANY_READERS = 8


class Group:
    """Heavy nodes that will be one kernel."""

    __slots__ = (
        "column",
        "cost",
        "inputs",
        "kind",
        "moves",
        "nodes",
        "number",
        "prologue",
        "rank",
        "results",
        "rows",
        "version",
        "window",
    )

    def __init__(self, node: Node, kind: str) -> None:
        self.nodes = [node]
        self.kind = kind
        self.number = node.order  # its name: unique, and kept by the merged group
        self.rank = 0  # position in `Groups.order`
        self.version = 0  # grows with each merge
        self.cost = element_cost(node.name)
        self.inputs: dict[Value, list[Edge]] = {}
        self.results: set[Value] = set()  # what others, or the caller, read
        self.rows: int | None = None  # row count, if a loop that holds a reduction
        self.column = False  # its reductions keep the last dim
        self.window = node.name in WINDOWS and kind == "loop"
        self.moves = False  # an edge inside reads at a shifted, partial or unrelated index
        # The anchor and what it reads; the rest of an anchored group is its epilogue.
        self.prologue = {node} if kind != "loop" else set()
        if node.name in REDUCTIONS and kind == "loop":
            shape = node.operands[0].shape
            last = max((d for d, size in enumerate(shape) if size != 1), default=-1)
            self.rows = node.result.numel
            self.column = last >= 0 and last not in node.ints("dimensions")


class Groups:
    """All groups of a graph; at first one for each heavy node and each plan."""

    def __init__(self, graph: Graph, edges: Edges, planned: Sequence[GroupPlan]) -> None:
        self.edges = edges
        self.outputs = set(graph.outputs)
        self.owner: dict[Node, Group] = {}
        self.by_number: dict[int, Group] = {}
        self.order: list[Group | None] = []
        for node in edges.heavy:
            group = Group(node, edges.anchored.get(node, "loop"))
            self.owner[node] = group
            self.by_number[group.number] = group
            group.rank = len(self.order)
            self.order.append(group)
            group.results = {
                value for value in node.results if value in edges.readers or value in self.outputs
            }
            for edge in edges.reads[node]:
                group.inputs.setdefault(edge.source, []).append(edge)
        for plan in planned:
            self._adopt(plan)

    def _adopt(self, plan: GroupPlan) -> None:
        """One group for a plan: all of it is prologue, its reductions are its own affair."""
        nodes = [node for node in plan.nodes if node in self.owner]
        kept = self.owner[nodes[0]]
        kept.kind, kept.rows, kept.prologue = plan.kind, None, set(nodes)
        for node in nodes[1:]:
            other = self.owner[node]
            other.kind, other.rows = plan.kind, None
            kept = self.merge(kept, other, plan.kind)

    def all(self) -> list[Group]:
        """Every group, in an order in which they can run."""
        return [group for group in self.order if group is not None]

    def successors(self, group: Group) -> Iterator[Group]:
        """The groups that read a result of `group` (with repeats)."""
        readers, owner = self.edges.readers, self.owner
        for value in group.results:
            for reader in readers.get(value, ()):
                other = owner[reader]
                if other is not group:
                    yield other

    def neighbours(self, group: Group) -> list[Group]:
        """Producers, consumers and groups that read an input of `group`, each once, in order.

        Inputs with many readers (tables and masks of all layers) do not make neighbours: there
        would be a pair for every two layers, and nearly all of them would make a cycle.
        """
        readers, owner = self.edges.readers, self.owner
        found = {other.number: other for other in self.successors(group)}
        for value in group.inputs:
            if value.node in owner:
                producer = owner[value.node]
                found[producer.number] = producer
            if len(readers[value]) <= MANY_READERS:
                for reader in readers[value]:
                    other = owner[reader]
                    found[other.number] = other
        found.pop(group.number, None)
        return [found[number] for number in sorted(found)]

    def escapes(self, value: Value, a: Group, b: Group) -> bool:
        """Whether somebody besides `a` and `b` reads `value`."""
        if value in self.outputs:
            return True
        owner = self.owner
        return any(
            owner[reader] is not a and owner[reader] is not b
            for reader in self.edges.readers.get(value, ())
        )

    def results_of(self, a: Group, b: Group) -> set[Value]:
        """The results of `a` and `b` as one group."""
        return {
            value
            for one, other in ((a, b), (b, a))
            for value in one.results
            if value not in other.inputs or self.escapes(value, a, b)
        }

    def crossing(self, a: Group, b: Group) -> list[Edge]:
        """The edges between the two groups, both ways."""
        owner = self.owner
        return [
            edge
            for one, other in ((a, b), (b, a))
            for value, edges in one.inputs.items()
            if value.node in owner and owner[value.node] is other
            for edge in edges
        ]

    def between(self, a: Group, b: Group) -> set[int] | None:
        """The groups that depend on the earlier of the two and lie before the later, by number.

        None if the later depends on one of them: merging would make a cycle.
        """
        first, last = (a, b) if a.rank < b.rank else (b, a)
        limit = last.rank
        found: set[int] = set()
        stack = [group for group in self.successors(first) if group is not last]
        while stack:
            group = stack.pop()
            if group is last:
                return None
            if group.rank > limit or group.number in found:
                continue
            found.add(group.number)
            stack.extend(self.successors(group))
        return found

    def merge(self, a: Group, b: Group, kind: str) -> Group:
        """Makes one group of two that `between` allows to merge; the other one's name is gone."""
        behind = self.between(a, b)
        assert behind is not None, "a merge that makes a cycle"
        crossing = self.crossing(a, b)
        results = self.results_of(a, b)
        kept, gone = (a, b) if a.number < b.number else (b, a)
        del self.by_number[gone.number]
        self._reorder(kept, gone, behind)
        for value, edges in gone.inputs.items():
            kept.inputs[value] = kept.inputs[value] + edges if value in kept.inputs else edges
        for node in gone.nodes:
            self.owner[node] = kept
        for edge in crossing:
            kept.inputs.pop(edge.source, None)
        kept.nodes += gone.nodes
        kept.kind = kind
        kept.version += 1
        kept.cost += gone.cost
        kept.results = results
        kept.rows = kept.rows if kept.rows is not None else gone.rows
        kept.column = kept.column or gone.column
        kept.window = kept.window or gone.window
        kept.prologue |= gone.prologue
        kept.moves = (
            kept.moves
            or gone.moves
            or any(edge.relation.opaque or edge.relation.resized for edge in crossing)
        )
        return kept

    def _reorder(self, kept: Group, gone: Group, behind: set[int]) -> None:
        """Puts the merged group after everything in the window that does not depend on it."""
        start, stop = sorted((kept.rank, gone.rank))
        window = [group for group in self.order[start : stop + 1] if group is not None]
        before = [g for g in window if g not in (kept, gone) and g.number not in behind]
        after = [g for g in window if g.number in behind]
        placed: list[Group | None] = [*before, kept, *after]
        placed += [None] * (stop + 1 - start - len(placed))
        self.order[start : stop + 1] = placed
        for rank, group in enumerate(placed, start):
            if group is not None:
                group.rank = rank
