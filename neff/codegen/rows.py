"""Which reductions of a nest share a loop, and which values their loops keep for later loops of
the same row.

In: the roots of a nest. Out: a `RowPlan`. Reductions over the same rows that do not need each
other run in one loop; a costly value that several loops need is computed in the first one and
kept in a row buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from neuron_compile.neff.codegen.elementwise import RULES
from neuron_compile.neff.codegen.program import Node, postorder

ROW_BYTES = 65536  # of all row buffers together: they must stay in the first cache levels
CHEAP = {
    "stablehlo.add",
    "stablehlo.subtract",
    "stablehlo.multiply",
    "stablehlo.negate",
    "stablehlo.abs",
    "stablehlo.convert",
    "stablehlo.compare",
    "stablehlo.select",
    "stablehlo.maximum",
    "stablehlo.minimum",
    "stablehlo.and",
    "stablehlo.or",
    "stablehlo.not",
}
CHEAP_COST, COSTLY_COST, KEEP_COST = 1, 10, 8


@dataclass(frozen=True, slots=True)
class RowPlan:
    """By operation number: the operations of its loop; the nodes to keep while it runs.

    `levels`: how many loops must have run, one after another, before a node can be computed.
    """

    siblings: Mapping[int, tuple[Node, ...]]
    keep: Mapping[int, tuple[Node, ...]]
    levels: Mapping[Node, int]


def plan_rows(roots: Sequence[Node], is_leaf: Callable[[Node], bool]) -> RowPlan:
    order = list(postorder(tuple(roots), is_leaf))
    levels: dict[Node, int] = {}
    for node in order:
        below = max((levels[o] for o in node.operands if o in levels), default=0)
        levels[node] = below + (node.op == "stablehlo.reduce")
    loops: dict[tuple[int, tuple[int, ...], tuple[int, ...]], dict[int, Node]] = {}
    for node in order:
        if node.op == "stablehlo.reduce":
            key = (levels[node], node.operands[0].shape, node.attributes["dimensions"])
            loops.setdefault(key, {}).setdefault(node.operation, node)
    siblings = {op: tuple(loop.values()) for loop in loops.values() for op in loop}
    return RowPlan(siblings, _keep(roots, loops), levels)


def _keep(
    roots: Sequence[Node],
    loops: Mapping[tuple[int, tuple[int, ...], tuple[int, ...]], Mapping[int, Node]],
) -> dict[int, tuple[Node, ...]]:
    """Walk the loops in order.

    What a later one needs again of a costly value is kept by the earlier one.
    """
    ordered = sorted(loops.items(), key=lambda item: item[0][0])
    reached = [
        {
            n
            for node in loop.values()
            for o in node.operands[: len(node.operands) // 2]
            for n in _same_index(o)
        }
        for _, loop in ordered
    ]
    final = {n for r in roots for n in _same_index(r)}
    kept: dict[int, tuple[Node, ...]] = {}
    budget = ROW_BYTES
    taken: set[Node] = set()
    for position, ((_, shape, dimensions), loop) in enumerate(ordered):
        later = set().union(final, *reached[position + 1 :])
        wanted = [n for n in reached[position] & later if n.shape == shape and n not in taken]
        costly = [n for n in wanted if _cost(n) >= KEEP_COST]
        hidden = {o for n in costly for o in n.operands}
        chosen = [n for n in costly if n not in hidden]
        size = prod(shape[d] for d in dimensions) * 8
        for node in sorted(chosen, key=lambda n: n.operation):
            if size <= budget:
                budget -= size
                taken.add(node)
                first = next(iter(loop))
                kept[first] = (*kept.get(first, ()), node)
    return kept


def _same_index(root: Node) -> Iterator[Node]:
    """Elementwise nodes reached from `root` at the root's own index."""
    stack, seen = [root], {root}
    while stack:
        node = stack.pop()
        if node.op not in RULES:
            continue
        yield node
        for o in node.operands:
            if o.shape == node.shape and o not in seen:
                seen.add(o)
                stack.append(o)


def _cost(node: Node) -> int:
    """Instructions to compute the node again from what lies in memory."""
    return sum(CHEAP_COST if n.op in CHEAP else COSTLY_COST for n in _same_index(node))
