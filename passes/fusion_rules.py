"""What may be merged into what.

In: two groups. Out: the kind of the merged group, or None. Invariant: a merge is refused when it
would make a cycle, mix row spaces, repeat expensive work, or break the contract of a kind; what was
refused leaves no trace.
"""

from __future__ import annotations

from math import prod

from neuron_compile.passes.cost import (
    CHEAP_COST,
    MAX_NODES,
    MAX_PORTS,
    PROLOGUE_COST,
    SPREAD,
    WINDOW_COST,
    enough_rows,
)
from neuron_compile.passes.dim_classes import INNER, NEITHER, ROW, DimClasses
from neuron_compile.passes.fusion_edges import Edge
from neuron_compile.passes.graph import Value
from neuron_compile.passes.groups import Group, Groups
from neuron_compile.passes.relations import Relation, squeezed_identity


class Rules:
    """The rules over one set of groups; `dims` remembers which dims are rows, by merge."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.dims = DimClasses()
        for node in groups.edges.heavy:
            group = groups.owner[node]
            colour = ROW if group.kind == "loop" and group.rows is not None else NEITHER
            for value in node.results:
                self.dims.add(value, colour)

    def kind_of_merged(self, a: Group, b: Group) -> str | None:
        """The kind of `a` and `b` as one group if they may merge; then `dims` has joined them."""
        if len(a.nodes) + len(b.nodes) > MAX_NODES:
            return None
        crossing = self.groups.crossing(a, b)
        if crossing and self.groups.owner[crossing[0].source.node] is b:  # type: ignore[index]
            a, b = b, a
        kind = self._kind(a, b, crossing)
        if kind is None:
            return None
        results = self.groups.results_of(a, b)
        if len(results) + len(a.inputs.keys() | b.inputs.keys()) > MAX_PORTS:
            return None
        if not all(self._may_compute_at(edge) for edge in crossing):
            return None
        if self.groups.between(a, b) is None:
            return None
        together = [
            (edge.source, edge.node.result, edge.relation)
            for edge in crossing
            if not edge.relation.opaque
        ]
        if kind == "loop":
            together += same_space(results)
        undo = self.dims.attempt(together)
        if undo is None:
            return None
        if not self._space_allowed(a, b, kind, results):
            self.dims.undo(undo)
            return None
        return kind

    def _kind(self, a: Group, b: Group, crossing: list[Edge]) -> str | None:
        """The kind of the merged group, or None where the kinds do not go together."""
        if a.kind == "loop" and b.kind == "loop":
            return "loop" if _loops_agree(a, b) else None
        if not crossing:
            return None
        if b.kind == "loop":
            return a.kind if self._is_epilogue(a, b) else None
        if a.kind == "loop" and a.rows is None and not a.window:
            if not any(edge.node in b.prologue for edge in crossing):
                return b.kind  # feeds the epilogue
            return b.kind if self._is_prologue(a, b) else None
        return None

    def _is_epilogue(self, a: Group, b: Group) -> bool:
        """Whether loop `b` can run on each result element of anchored `a`."""
        if b.rows is not None or b.window or b.moves:
            return False
        if a.kind == "sort":  # top-k: the beginning of the rows, positions converted
            return b.cost <= CHEAP_COST and b.inputs.keys() <= a.results
        if a.kind in ("attention", "scatter"):  # a view of its result, nothing more
            stays = any(self.groups.escapes(value, a, b) for value in a.results & b.inputs.keys())
            is_view = a.kind == "attention" or b.nodes[0].name == "reshape"
            return b.cost == 0 and len(b.nodes) == 1 and is_view and not stays
        return a.kind in ("contract", "random")

    def _is_prologue(self, a: Group, b: Group) -> bool:
        """Whether loop `a` can run wherever anchored `b` reads it, and is needed nowhere else."""
        if any(self.groups.escapes(value, a, b) for value in a.results):
            return False
        if b.kind == "scatter":
            return True
        if b.kind not in ("contract", "attention") or a.cost > PROLOGUE_COST or a.moves:
            return False
        size = max(value.numel for value in a.results)
        return sum(1 for value in a.inputs if value.numel * SPREAD >= size) <= 1

    def _may_compute_at(self, edge: Edge) -> bool:
        """Whether the producer of `edge` may be computed where the edge reads it."""
        node = edge.node
        producer = self.groups.owner[edge.source.node]  # type: ignore[index]
        if producer.kind == "sort":
            return not edge.relation.opaque
        if producer.kind != "loop":
            return not edge.relation.opaque and not edge.relation.resized and edge.repeats == 1
        if edge.relation.opaque:
            if node.name == "gather":
                return producer.rows is None and producer.cost <= CHEAP_COST
            if node.name == "reduce_window":
                window = prod(node.ints("window_dimensions"))
                repeats = window / max(prod(node.ints("window_strides")), 1)
                return producer.rows is None and producer.cost * repeats <= WINDOW_COST
            return True  # anchors: their prologue was judged by kind
        if edge.repeats <= 1 or edge.hoistable:
            return True
        if producer.rows is not None:
            return self._is_row_value(edge.source)
        return producer.cost <= CHEAP_COST

    def _is_row_value(self, value: Value) -> bool:
        """Whether every dim is a row dim, so that repeats are along the row."""
        colours = self.dims.colours(value)
        return all(
            colour == ROW or size == 1 for colour, size in zip(colours, value.shape, strict=True)
        )

    def _space_allowed(self, a: Group, b: Group, kind: str, results: set[Value]) -> bool:
        """Whether the results share an iteration space."""
        if kind in ("scatter", "sort", "attention"):
            return True
        if kind in ("contract", "random"):
            anchored = self.groups.edges.anchored
            anchor = next(node for g in (a, b) for node in g.nodes if node in anchored)
            size = anchor.results[-1].numel
            return all(value.numel == size or value.node is anchor for value in results)
        rows = a.rows if a.rows is not None else b.rows
        if rows is None:
            return len({squeezed(value) for value in results}) <= 1
        full = [value for value in results if not self._is_row_result(value, rows)]
        if not full:
            return True
        if a.column or b.column or len({squeezed(value) for value in full}) > 1:
            return False
        if not all(self._covers_rows(value, rows) for value in full):
            return False
        return enough_rows(rows, full[0].numel)

    def _is_row_result(self, value: Value, rows: int) -> bool:
        if value.numel != rows:
            return False
        colours = self.dims.colours(value)
        return all(
            colour != INNER or size == 1 for colour, size in zip(colours, value.shape, strict=True)
        )

    def _covers_rows(self, value: Value, rows: int) -> bool:
        """A full result runs over every row, and along the inner dims within one."""
        colours = self.dims.colours(value)
        row_dims = [d for d, size in enumerate(value.shape) if colours[d] == ROW and size != 1]
        last = max((d for d, size in enumerate(value.shape) if size != 1), default=-1)
        return prod(value.shape[d] for d in row_dims) == rows and last not in row_dims


def _loops_agree(a: Group, b: Group) -> bool:
    """Whether the reductions of two loops can share one row loop."""
    if a.window or b.window:
        return a.rows is None and b.rows is None and not (a.window and b.window)
    if a.rows is None or b.rows is None:
        return True
    return a.rows == b.rows and a.column == b.column


def squeezed(value: Value) -> tuple[int, ...]:
    """The shape without ones."""
    return tuple(size for size in value.shape if size != 1)


def same_space(results: set[Value]) -> list[tuple[Value, Value, Relation]]:
    """Results of one iteration space run together, related by data or not."""
    size = max((value.numel for value in results), default=0)
    full = sorted((value for value in results if value.numel == size), key=_program_order)
    return [(full[0], other, squeezed_identity(full[0].shape, other.shape)) for other in full[1:]]


def _program_order(value: Value) -> tuple[int, int]:
    return (value.node.order if value.node is not None else -1, value.index)
