"""Finds attention: a dot whose rows go through a softmax of any form into a second dot.

In: canonical contractions. Out: an `attention` plan per match in `unit.groups`. Invariant: others
read nothing between the dots but row values, and every reduction is over the keys of one row.
"""

from __future__ import annotations

from neuron_compile.passes.dim_classes import INNER, NEITHER, ROW, DimClasses
from neuron_compile.passes.dot_dims import DotDims
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.ops import ELEMENTWISE
from neuron_compile.passes.relations import Relation, relation
from neuron_compile.passes.types import splat_value
from neuron_compile.passes.unit import GroupPlan, Unit

# Softmax with scale, bias, mask, where, safe form and converts takes some 30 ops.
MAX_BETWEEN = 80

_BETWEEN_VIEWS = frozenset(("reshape", "transpose", "broadcast_in_dim"))


def match_attention(unit: Unit) -> None:
    """Appends the plans. Contractions that match nothing stay as they are."""
    graph = unit.graph
    taken: set[Node] = set()
    for node in graph.nodes:
        if node.name != "dot_general" or node in taken:
            continue
        nodes = attention_ending_in(graph, node)
        if nodes is not None and not taken & set(nodes):
            taken.update(nodes)
            unit.groups.append(GroupPlan("attention", nodes))


def attention_ending_in(graph: Graph, second: Node) -> list[Node] | None:
    """The nodes from the score dot to `second` inclusive, or None."""
    weights, values = second.operands
    found = _between(weights)
    if found is None:
        return None
    first, behind = found
    members = _dependents(first, behind)
    members |= _row_tail(members)
    if not _closed(graph, members | {first}, second, weights):
        return None
    reductions = [node for node in members if node.name == "reduce"]
    if len(reductions) < 2 or not any(node.name == "exponential" for node in members):
        return None
    if _depends_on(values, first):
        return None
    if not _rows_agree(first, members, second, weights):
        return None
    nodes = sorted(members | {first, second}, key=lambda node: node.order)
    return nodes + _tail(graph, second)


def _tail(graph: Graph, second: Node) -> list[Node]:
    """What is done to the result on its way to memory: rounding, and putting heads side by side.

    Stored so, the dot that follows reads rows.
    """
    tail: list[Node] = []
    value = second.result
    while len(value.users) == 1 and value not in graph.outputs:
        user = value.users[0]
        order = user.ints("permutation")
        keeps_rows = user.name == "transpose" and order[-1] == len(order) - 1
        rounds = user.name == "convert" and user.result.nbytes < value.nbytes
        if not keeps_rows and not rounds:
            break
        tail.append(user)
        value = user.result
    return tail


def _between(weights: Value) -> tuple[Node, set[Node]] | None:
    """Walks back from the weights over elementwise ops, views and reductions to exactly one dot."""
    first: Node | None = None
    behind: set[Node] = set()
    stack = [weights]
    while stack:
        node = stack.pop().node
        if node is None or node in behind or node is first:
            continue
        if node.name == "dot_general":
            if first is not None:
                return None
            first = node
        elif node.name in ELEMENTWISE or node.name in _BETWEEN_VIEWS or node.name == "reduce":
            behind.add(node)
            if len(behind) > MAX_BETWEEN:
                return None
            stack.extend(node.operands)
    return None if first is None else (first, behind)


def _dependents(first: Node, behind: set[Node]) -> set[Node]:
    """Those of `behind` that depend on the scores; the rest (masks, biases) are inputs."""
    reached = {first}
    for node in sorted(behind, key=lambda node: node.order):
        if any(operand.node in reached for operand in node.operands):
            reached.add(node)
    reached.discard(first)
    return reached


def _is_row_value(value: Value) -> bool:
    """Whether a value is a reduction or elementwise of such: one number per row."""
    node = value.node
    while node is not None and node.name != "reduce":
        rows = [operand for operand in node.operands if splat_value(operand) is None]
        if node.name not in ELEMENTWISE or not rows or rows[0].shape != value.shape:
            return False
        node = rows[0].node
    return node is not None


def _row_tail(members: set[Node]) -> set[Node]:
    """What is computed from row values alone for others to read: the log-sum-exp, its converts."""
    tail: set[Node] = set()
    stack = [node for node in members if _is_row_value(node.result)]
    while stack:
        for user in stack.pop().result.users:
            if user in members or user in tail or user.name not in ELEMENTWISE:
                continue
            known = [operand.node for operand in user.operands if splat_value(operand) is None]
            if all(node in members or node in tail for node in known) and _is_row_value(
                user.result
            ):
                tail.add(user)
                stack.append(user)
    return tail


def _closed(graph: Graph, members: set[Node], second: Node, weights: Value) -> bool:
    """Whether others read no more of what is between the dots than row values."""
    for node in members:
        if len(node.results) != 1:
            return False
        escapes = node.result in graph.outputs
        for user in node.result.users:
            if user is second:
                if node.result is not weights:
                    return False
            elif user not in members:
                escapes = True
        if escapes and not _is_row_value(node.result):
            return False
    return second.operands.count(weights) == 1


def _depends_on(value: Value, first: Node) -> bool:
    """Whether `value` is computed from the result of `first`."""
    stack = [value]
    seen: set[Node] = set()
    while stack:
        node = stack.pop().node
        if node is first:
            return True
        if node is None or node in seen or node.order < first.order:
            continue
        seen.add(node)
        stack.extend(node.operands)
    return False


def _rows_agree(first: Node, members: set[Node], second: Node, weights: Value) -> bool:
    """Whether the keys, and only they, are reduced and contracted."""
    dims = DimClasses()
    for node in [first, *members]:
        dims.add(node.result, ROW if node.name == "reduce" else NEITHER)
    edges: list[tuple[Value, Value, Relation]] = []
    for node in members:
        for slot, operand in enumerate(node.operands):
            if operand.node is first or operand.node in members:
                edges.append((operand, node.result, relation(node, slot)))
    if any(edge[2].opaque for edge in edges) or dims.attempt(edges) is None:
        return False
    return _keys_contracted(first, second, weights, dims)


def _keys_contracted(first: Node, second: Node, weights: Value, dims: DimClasses) -> bool:
    scores = DotDims.of(first)
    products = DotDims.of(second)
    shape = first.result.shape
    keys = set(range(len(shape) - len(scores.rhs_free), len(shape)))
    colours = dims.colours(first.result)
    for d, size in enumerate(shape):
        if size != 1 and (colours[d] == INNER) != (d in keys):
            return False
    if not any(colours[d] == INNER for d in keys):
        return False
    contracted = set(products.lhs_contract)
    for d, (size, colour) in enumerate(zip(weights.shape, dims.colours(weights), strict=True)):
        if size != 1 and (colour == INNER) != (d in contracted):
            return False
    return True
