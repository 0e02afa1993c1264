"""Which nodes are free to repeat, and the edges between the others seen through them.

In: a graph. Out: `Edges`: the heavy nodes and, for each, what it reads through views, masks and
widening converts. Invariant: a free node that is an output or feeds a lone op counts as heavy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch_mlir import ir

from neuron_compile.passes.cost import CHEAP_COST, MASK_COST, SPREAD
from neuron_compile.passes.graph import Graph, Node, Value, constant_text, width
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
    if "complex" in node.result.dtype:
        return "dense<(" in constant_text(node.op)
    value = node.op.attributes["value"]
    return isinstance(value, ir.DenseElementsAttr) and value.is_splat


Root = tuple[Value, Relation]


def is_widening(node: Node) -> bool:
    """Whether a convert reads no more bytes than its result has."""
    if node.name != "convert":
        return False
    source = node.operands[0].dtype
    return source == "i1" or width(source) <= width(node.result.dtype)


def _is_cheaper_than_its_bytes(value: Value, roots: list[Root], cost: int) -> bool:
    """Whether recomputing `value` in each reader moves no more bytes than reading it would.

    That is so for masks (no sources), for what is spread from small sources, and for few
    instructions on one argument of `@main`, which is in memory in any case.
    """
    large = {source for source, _ in roots if source.numel * SPREAD > value.numel}
    if not large:
        return not roots or cost <= 2 * CHEAP_COST
    only = next(iter(large))
    return (
        len(large) == 1
        and only.node is None
        and only.nbytes <= value.nbytes
        and only.numel <= value.numel
        and cost <= CHEAP_COST
    )


class EdgeBuilder:
    """Walks the graph once; see `find_edges`."""

    def __init__(self, graph: Graph, planned: set[Node]) -> None:
        self.graph = graph
        self.planned = planned
        self.outputs = set(graph.outputs)
        self.free: set[Node] = set()
        # For each value of a free node: its sources, and its cost per element.
        self.roots: dict[Value, list[Root]] = {}
        self.cost: dict[Value, int] = {}
        self.lone_operands: set[Value] = set()
        self.anchor_operands: set[Value] = set()

    def build(self) -> Edges:
        anchored: dict[Node, str] = {}
        for node in self.graph.nodes:
            kind = anchor_kind(node)
            if kind is not None:
                anchored[node] = kind
                if kind == "single":
                    self.lone_operands.update(node.operands)
                self._mark_anchor_operands(node)
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

    def _mark_anchor_operands(self, anchor: Node) -> None:
        """What an anchor reads through views and converts: not the place for more instructions."""
        stack = list(anchor.operands)
        while stack:
            value = stack.pop()
            if value in self.anchor_operands:
                continue
            self.anchor_operands.add(value)
            node = value.node
            if node is not None and (node.name in VIEWS or node.name == "convert"):
                stack.append(node.operands[0])

    def _try_free(self, node: Node) -> bool:
        if len(node.results) != 1 or node.result in self.outputs:
            return False
        name = node.name
        value = node.result
        if name == "constant":
            return is_small_constant(node) and self._set_free(node, [], 0)
        if value in self.lone_operands:
            return False
        if name == "iota":
            return self._set_free(node, [], 1)
        if name in VIEWS:
            return self._set_free(node, self._roots(node), self._cost(node))
        if name in ELEMENTWISE or name in ("concatenate", "pad"):
            cost = self._cost(node)
            if cost <= MASK_COST:
                roots = self._roots(node)
                anchored = bool(roots) and value in self.anchor_operands
                cheap = not anchored and _is_cheaper_than_its_bytes(value, roots, cost)
                if is_widening(node) or cheap:
                    return self._set_free(node, roots, cost)
        return False

    def _roots(self, node: Node) -> list[Root]:
        """The sources of all operands, each with its relation to the result of `node`."""
        found: list[Root] = []
        for slot, operand in enumerate(node.operands):
            step = relation(node, slot)
            known = self.roots.get(operand)
            if known is None:
                found.append((operand, step))
            else:
                found += [(source, compose(path, step)) for source, path in known]
        return found

    def _cost(self, node: Node) -> int:
        """Instructions per element of recomputing `node` and the free nodes below it."""
        return element_cost(node.name) + sum(self.cost.get(v, 0) for v in node.operands)

    def _set_free(self, node: Node, roots: list[Root], cost: int) -> bool:
        self.free.add(node)
        self.roots[node.result] = roots
        self.cost[node.result] = cost
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
