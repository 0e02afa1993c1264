"""The groups while they grow, and what may be merged into what.

In: edges between heavy nodes. Out: `Fusion.try_merge`, which answers the merged group or None.
Invariant: a merge is refused when it would make a cycle, mix row spaces, repeat expensive work, or
break the contract of a kind; a refused merge changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from neuron_compile.passes.cost import (
    CHEAP_COST,
    MAX_NODES,
    MAX_PORTS,
    PROLOGUE_COST,
    WINDOW_COST,
    enough_rows,
)
from neuron_compile.passes.dim_classes import INNER, NEITHER, ROW, DimClasses
from neuron_compile.passes.fusion_edges import Edge, Edges
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.ops import REDUCTIONS, WINDOWS, element_cost
from neuron_compile.passes.relations import Relation, squeezed_identity
from neuron_compile.passes.unit import GroupPlan


class Group:
    """Heavy nodes that will be one kernel."""

    __slots__ = (
        "column",
        "cost",
        "first",
        "inputs",
        "kind",
        "last",
        "moves",
        "nodes",
        "results",
        "rows",
        "version",
        "window",
    )

    def __init__(self, node: Node, kind: str) -> None:
        self.nodes = [node]
        self.kind = kind
        self.first = node.order  # names the group: unique, and kept by the merged group
        self.last = node.order
        self.version = 0
        self.cost = element_cost(node.name)
        self.inputs: dict[Value, list[Edge]] = {}
        self.results: set[Value] = set()
        self.rows: int | None = None  # row count, if the group holds a reduction
        self.column = False  # its reductions keep the last dim
        self.window = False  # holds a reduce_window
        self.moves = False  # an inner edge reads at a shifted, partial or unrelated index
        if node.name in REDUCTIONS and kind == "loop":
            shape = node.operands[0].shape
            last = max((d for d, size in enumerate(shape) if size != 1), default=-1)
            self.rows = node.result.numel
            self.column = last >= 0 and last not in node.ints("dimensions")
        self.window = node.name in WINDOWS and kind == "loop"


class Fusion:
    """All groups of a graph."""

    def __init__(
        self, graph: Graph, edges: Edges, threads: int, planned: Sequence[GroupPlan]
    ) -> None:
        self.edges = edges
        self.threads = threads
        self.outputs = set(graph.outputs)
        self.owner: dict[Node, Group] = {}
        self.by_first: dict[int, Group] = {}
        self.dims = DimClasses()
        for node in edges.heavy:
            group = Group(node, edges.anchored.get(node, "loop"))
            self.owner[node] = group
            self.by_first[group.first] = group
            for value in node.results:
                if value in edges.readers or value in self.outputs:
                    group.results.add(value)
                self.dims.add(value, ROW if group.rows is not None else NEITHER)
            for edge in edges.reads[node]:
                group.inputs.setdefault(edge.source, []).append(edge)
        for plan in planned:
            self._adopt(plan)

    def _adopt(self, plan: GroupPlan) -> None:
        """Makes one group of the heavy nodes of a plan that an earlier pass made."""
        nodes = [node for node in plan.nodes if node in self.owner]
        kept = self.owner[nodes[0]]
        kept.kind = plan.kind
        kept.rows = None  # its reductions are its own affair
        for node in nodes[1:]:
            other = self.owner[node]
            other.kind = plan.kind
            crossing = self._crossing(kept, other)
            results = self._results(kept, other)
            kept = self._merge(kept, other, plan.kind, results, None, crossing)

    def groups(self) -> list[Group]:
        """Every group, by its first node."""
        return list(self.by_first.values())

    def successors(self, group: Group) -> Iterator[Group]:
        """The groups that read a result of `group` (with repeats)."""
        for value in group.results:
            for reader in self.edges.readers.get(value, ()):
                other = self.owner[reader]
                if other is not group:
                    yield other

    def neighbours(self, group: Group) -> list[Group]:
        """Producers, consumers and groups that read an input of `group`, each once, in order."""
        found: dict[int, Group] = {}
        for other in self.successors(group):
            found[other.first] = other
        for value in group.inputs:
            if value.node is not None and value.node in self.owner:
                found[self.owner[value.node].first] = self.owner[value.node]
            for reader in self.edges.readers[value]:
                other = self.owner[reader]
                if other is not group:
                    found[other.first] = other
        return [found[first] for first in sorted(found)]

    def try_merge(self, a: Group, b: Group) -> Group | None:
        """Merges two groups if every rule allows it."""
        if len(a.nodes) + len(b.nodes) > MAX_NODES:
            return None
        a_feeds_b = any(value in b.inputs for value in a.results)
        b_feeds_a = any(value in a.inputs for value in b.results)
        if b_feeds_a and not a_feeds_b:
            a, b = b, a
        linked = a_feeds_b or b_feeds_a
        kind = self._kind(a, b, linked)
        if kind is None or not self._results_known(a, b):
            return None
        results = self._results(a, b)
        ports = len(results) + len(a.inputs.keys() | b.inputs.keys())
        if ports > MAX_PORTS:
            return None
        crossing = self._crossing(a, b)
        if not all(self._edge_allowed(edge, self.owner[edge.source.node]) for edge in crossing):
            return None
        if a.rows is not None and b.rows is not None and a.rows != b.rows:
            return None
        if self._makes_cycle(a, b):
            return None
        together = [
            (edge.source, edge.node.result, edge.relation)
            for edge in crossing
            if not edge.relation.opaque
        ]
        together += self._same_space(a, b, results)
        undo = self.dims.attempt(together)
        if undo is None:
            return None
        rows = a.rows if a.rows is not None else b.rows
        if not self._space_allowed(a, b, kind, results, rows):
            self.dims.undo(undo)
            return None
        return self._merge(a, b, kind, results, rows, crossing)

    def _kind(self, a: Group, b: Group, linked: bool) -> str | None:
        """The kind of the merged group, or None where the kinds do not go together."""
        if a.kind == "loop" and b.kind == "loop":
            if (a.window or b.window) and (a.rows is not None or b.rows is not None):
                return None
            if a.window and b.window:
                return None
            return "loop"
        if not linked:
            return None
        if b.kind == "loop" and a.kind == "attention":
            one = b.cost == 0 and not b.moves and len(b.nodes) == 1
            return a.kind if one and not any(self._escapes(v, a, b) for v in a.results) else None
        if b.kind == "loop":
            plain = b.rows is None and not b.window and not b.moves
            return a.kind if a.kind in ("contract", "random") and plain else None
        if a.kind == "loop" and a.rows is None and not a.window:
            if b.kind == "scatter":
                return b.kind
            if b.kind in ("contract", "attention") and a.cost <= PROLOGUE_COST and not a.moves:
                large = [v for v in a.inputs if v.numel * 8 >= max(r.numel for r in a.results)]
                return b.kind if len(large) <= 1 else None
        return None

    def _results_known(self, a: Group, b: Group) -> bool:
        """A prologue's values must not be needed by anybody else."""
        if b.kind in ("contract", "attention", "scatter") and a.kind == "loop":
            return not any(self._escapes(value, a, b) for value in a.results)
        return True

    def _escapes(self, value: Value, a: Group, b: Group) -> bool:
        if value in self.outputs:
            return True
        return any(
            self.owner[r] is not a and self.owner[r] is not b
            for r in self.edges.readers.get(value, ())
        )

    def _results(self, a: Group, b: Group) -> set[Value]:
        kept = set()
        for one, other in ((a, b), (b, a)):
            for value in one.results:
                if value not in other.inputs or self._escapes(value, a, b):
                    kept.add(value)
        return kept

    def _crossing(self, a: Group, b: Group) -> list[Edge]:
        """The edges between the two groups, both ways."""
        return [
            edge
            for one, other in ((a, b), (b, a))
            for value, edges in one.inputs.items()
            if value.node is not None and self.owner.get(value.node) is other
            for edge in edges
        ]

    def _same_space(
        self, a: Group, b: Group, results: set[Value]
    ) -> list[tuple[Value, Value, Relation]]:
        """Results of one iteration space run together, related by data or not."""
        if a.kind != "loop" or b.kind != "loop":
            return []
        size = max((value.numel for value in results), default=0)
        full = sorted((v for v in results if v.numel == size), key=_program_order)
        return [
            (full[0], other, squeezed_identity(full[0].shape, other.shape)) for other in full[1:]
        ]

    def _edge_allowed(self, edge: Edge, producer: Group) -> bool:
        """Whether the producer may be computed where the edge reads it."""
        node = edge.node
        if producer.kind in ("contract", "random"):
            return not edge.relation.opaque and not edge.relation.resized and edge.repeats == 1
        if edge.relation.opaque:
            if node.name == "gather":
                return edge.slot == 1 and producer.rows is None and producer.cost <= CHEAP_COST
            if node.name == "reduce_window":
                repeats = prod(node.ints("window_dimensions")) / max(
                    prod(node.ints("window_strides") or (1,)), 1
                )
                return producer.rows is None and producer.cost * repeats <= WINDOW_COST
            return True  # anchors: their prologue was judged by kind
        if edge.repeats <= 1 or edge.hoistable:
            return True
        if producer.rows is not None:
            return self.dims_are_rows(edge)
        return producer.cost <= CHEAP_COST

    def dims_are_rows(self, edge: Edge) -> bool:
        """Whether the source is a row value, so that the repeats are along the row."""
        return all(
            colour == ROW or size == 1
            for colour, size in zip(self.dims.colours(edge.source), edge.source.shape, strict=True)
        )

    def _makes_cycle(self, a: Group, b: Group) -> bool:
        """Whether a third group lies between the two, in either direction."""
        limit = max(a.last, b.last)
        seen: set[int] = {a.first, b.first}
        stack = [g for g in self.successors(a) if g is not b]
        stack += [g for g in self.successors(b) if g is not a]
        while stack:
            group = stack.pop()
            if group is a or group is b:
                return True
            if group.first in seen or group.first > limit:
                continue
            seen.add(group.first)
            stack.extend(self.successors(group))
        return False

    def _space_allowed(
        self, a: Group, b: Group, kind: str, results: set[Value], rows: int | None
    ) -> bool:
        """Whether the results share an iteration space."""
        if kind in ("scatter", "attention"):
            return True
        if kind in ("contract", "random"):
            anchor = next(n for g in (a, b) for n in g.nodes if n in self.edges.anchored)
            size = anchor.results[-1].numel
            return all(v.numel == size or v.node is anchor for v in results)
        full: set[tuple[int, ...]] = set()
        for value in results:
            if rows is not None and self._is_row_result(value, rows):
                continue
            full.add(tuple(size for size in value.shape if size != 1))
            if rows is not None and not self._covers_rows(value, rows):
                return False
        if len(full) > 1:
            return False
        if rows is None or not full:
            return True
        if a.column or b.column:
            return False
        return enough_rows(rows, self.threads, prod(next(iter(full))))

    def _is_row_result(self, value: Value, rows: int) -> bool:
        return value.numel == rows and all(
            colour != INNER or size == 1
            for colour, size in zip(self.dims.colours(value), value.shape, strict=True)
        )

    def _covers_rows(self, value: Value, rows: int) -> bool:
        """A full result runs over every row, and along the inner dims within one."""
        colours = self.dims.colours(value)
        row_dims = [d for d, size in enumerate(value.shape) if colours[d] == ROW and size != 1]
        last = max((d for d, size in enumerate(value.shape) if size != 1), default=-1)
        return prod(value.shape[d] for d in row_dims) == rows and last not in row_dims

    def _merge(
        self,
        a: Group,
        b: Group,
        kind: str,
        results: set[Value],
        rows: int | None,
        crossing: list[Edge],
    ) -> Group:
        kept, gone = (a, b) if a.first < b.first else (b, a)
        del self.by_first[gone.first]
        inputs = dict(kept.inputs)
        for value, edges in gone.inputs.items():
            inputs[value] = inputs[value] + edges if value in inputs else edges
        for node in gone.nodes:
            self.owner[node] = kept
        for value in [v for v in inputs if v.node is not None and self.owner.get(v.node) is kept]:
            del inputs[value]
        kept.nodes += gone.nodes
        kept.kind = kind
        kept.last = max(kept.last, gone.last)
        kept.version += 1
        kept.cost += gone.cost
        kept.inputs = inputs
        kept.results = results
        kept.rows = rows
        kept.column = kept.column or gone.column
        kept.window = kept.window or gone.window
        kept.moves = (
            kept.moves
            or gone.moves
            or any(edge.relation.opaque or edge.relation.resized for edge in crossing)
        )
        return kept


def _program_order(value: Value) -> tuple[int, int]:
    return (value.node.order if value.node is not None else -1, value.index)
