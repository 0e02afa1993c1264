"""Which nodes are free to repeat, and the edges between the others seen through them.

In: a graph. Out: `Edges`: the heavy nodes and, for each, what it reads through views, masks and
widening converts. Invariant: a free node that is an output or feeds a lone op counts as heavy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch_mlir import ir

from neuron_compile.passes.cost import MASK_COST
from neuron_compile.passes.graph import BITS, Graph, Node, Value
from neuron_compile.passes.ops import ANCHORS, ELEMENTWISE, VIEWS, element_cost, is_pull
from neuron_compile.passes.relations import Relation, compose, identity, relation

SMALL_CONSTANT = 16  # elements; larger dense constants stay in `@main`


@dataclass(slots=True, eq=False)
class Edge:
    """`node` reads `source`, a value of another heavy node or from outside, through free nodes."""

    node: Node
    source: Value
    relation: Relation
    repeats: float  # times each source element is read for one element at that operand
    hoistable: bool  # the repeats are along trailing dims: computed once per row
    slot: int


@dataclass(slots=True)
class Edges:
    """The graph as fusion sees it."""

    heavy: list[Node]
    free: set[Node]
    reads: dict[Node, list[Edge]]
    readers: dict[Value, list[Node]]
    anchored: dict[Node, str]  # node -> kind


def anchor_kind(node: Node) -> str | None:
    """The kind of a node that must have a group of its own kind; None for pull ops."""
    kind = ANCHORS.get(node.name)
    if kind is not None:
        return kind
    if node.name == "reduce_window" and is_scan(node):
        return "scan"
    return None if is_pull(node.name) and not node.captures else "single"


def is_scan(node: Node) -> bool:
    """Whether a reduce_window is cumulative: a window as long as a dim, all but one padded."""
    window = node.ints("window_dimensions")
    padding = node.ints("padding")
    shape = node.operands[0].shape
    if not padding or any(s != 1 for s in node.ints("window_strides")):
        return False
    if any(s != 1 for s in node.ints("base_dilations") + node.ints("window_dilations")):
        return False
    long_dims = [d for d, size in enumerate(window) if size > 1]
    if len(long_dims) != 1:
        return False
    d = long_dims[0]
    low, high = padding[2 * d], padding[2 * d + 1]
    return window[d] == shape[d] and sorted((low, high)) == [0, shape[d] - 1]


def is_small_constant(node: Node) -> bool:
    """Whether a constant is repeated in the groups that read it instead of passed to them."""
    if node.result.numel <= SMALL_CONSTANT:
        return True
    value = node.op.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat


def width(dtype: str) -> int:
    """Bits of an element."""
    return BITS.get(dtype) or int(dtype.lstrip("uif"))


class EdgeBuilder:
    """Walks the graph once; see `find_edges`."""

    def __init__(self, graph: Graph, planned: set[Node]) -> None:
        self.graph = graph
        self.planned = planned
        self.outputs = set(graph.outputs)
        self.free: set[Node] = set()
        # For each value of a free node: its sources with the relation, and its cost if maskable.
        self.roots: dict[Value, list[tuple[Value, Relation]]] = {}
        self.mask_cost: dict[Value, int] = {}
        self.lone_operands: set[Value] = set()

    def build(self) -> Edges:
        anchored: dict[Node, str] = {}
        for node in self.graph.nodes:
            kind = anchor_kind(node)
            if kind is not None:
                anchored[node] = kind
                if kind in ("single", "sort", "scan"):
                    self.lone_operands.update(node.operands)
        heavy = []
        reads: dict[Node, list[Edge]] = {}
        readers: dict[Value, list[Node]] = {}
        for node in self.graph.nodes:
            if node not in anchored and node not in self.planned and self._try_free(node):
                continue
            if node.name == "constant":
                continue  # a large one: stays in `@main`
            heavy.append(node)
            edges = self._edges(node)
            reads[node] = edges
            for edge in edges:
                listed = readers.setdefault(edge.source, [])
                if not listed or listed[-1] is not node:
                    listed.append(node)
        return Edges(heavy, self.free, reads, readers, anchored)

    def _try_free(self, node: Node) -> bool:
        if len(node.results) != 1 or node.result in self.outputs:
            return False
        name = node.name
        value = node.result
        if name == "constant":
            return is_small_constant(node) and self._set_free(node, [], 0)
        if name == "iota":
            return value not in self.lone_operands and self._set_free(node, [], 1)
        mask = self._mask(node)
        if mask is not None:
            return self._set_free(node, [], mask)
        if value in self.lone_operands:
            return False
        source = node.operands[0]
        if name in VIEWS or (
            name == "convert"
            and (source.dtype == "i1" or width(source.dtype) <= width(value.dtype))
        ):
            step = relation(node, 0)
            found = self.roots.get(source)
            if found is None:
                return self._set_free(node, [(source, step)], None)
            return self._set_free(node, [(s, compose(r, step)) for s, r in found], None)
        return False

    def _mask(self, node: Node) -> int | None:
        """The summed cost of a node fed by iota and constants only, if small enough to repeat."""
        if node.name in VIEWS or node.name in ELEMENTWISE or node.name in ("concatenate", "pad"):
            cost = element_cost(node.name)
            for operand in node.operands:
                known = self.mask_cost.get(operand)
                if known is None:
                    return None
                cost += known
            lone = node.result in self.lone_operands and cost > 0
            return cost if cost <= MASK_COST and not lone else None
        return None

    def _set_free(
        self, node: Node, roots: list[tuple[Value, Relation]], mask_cost: int | None
    ) -> bool:
        self.free.add(node)
        self.roots[node.result] = roots
        if mask_cost is not None:
            self.mask_cost[node.result] = mask_cost
        return True

    def _edges(self, node: Node) -> list[Edge]:
        edges = []
        for slot, operand in enumerate(node.operands):
            own = relation(node, slot)
            for source, path in self.roots.get(operand, [(operand, identity(operand.shape))]):
                repeats = operand.numel / max(source.numel, 1)
                whole = own if source is operand else compose(path, own)
                edges.append(Edge(node, source, whole, repeats, _trailing(operand, path), slot))
        return edges


def _trailing(operand: Value, path: Relation) -> bool:
    """Whether the last real dim of `operand` is one the source does not vary along."""
    last = max((d for d, size in enumerate(operand.shape) if size != 1), default=-1)
    return last >= 0 and not any(result >> last & 1 for _, result in path.blocks)


def find_edges(graph: Graph, planned: Iterable[Node] = ()) -> Edges:
    """The heavy nodes of `graph`, `planned` among them, and their edges through free nodes."""
    return EdgeBuilder(graph, set(planned)).build()
