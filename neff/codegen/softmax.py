"""What is known beforehand of the values inside a softmax, however it was written.

In: a node. Out: whether its values lie in the range that allows a shorter computation. It rests on
the node's own operands: a row less its greatest element, and e to that over its own sum.
"""

from __future__ import annotations

import numpy as np

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.index import ZERO, of
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.reduction_specs import spec_of
from neuron_compile.neff.codegen.views import PERMUTATIONS


def is_below_maximum(node: Node) -> bool:
    """Whether all elements are at most 0, or NaN: a - max(a)."""
    return shifted_rows(node) is not None


def is_share(node: Node) -> bool:
    """Whether this is a quotient with 0 <= dividend <= divisor and 1 <= divisor, or of NaNs.

    It is e / sum(e) with e = exp(a - max(a)) over the same rows: one e of each row is exactly 1.
    """
    if node.op != "stablehlo.divide" or node.operands[0].op != "stablehlo.exponential":
        return False
    dividend, divisor = node.operands
    shifted = shifted_rows(dividend.operands[0])
    rows = _reduced_rows(divisor, "add")
    return shifted is not None and rows == (dividend, shifted)


def shifted_rows(node: Node) -> tuple[int, ...] | None:
    """The dimensions of a row where the node is a - max(a), a row's greatest element."""
    if node.op != "stablehlo.subtract":
        return None
    rows = _reduced_rows(node.operands[1], "maximum")
    return rows[1] if rows is not None and rows[0] is node.operands[0] else None


def _reduced_rows(node: Node, kind: str) -> tuple[Node, tuple[int, ...]] | None:
    """(a, dimensions) where each element is the reduction of a's row at the element's own place.

    Rows that are masked everywhere may have another value, see `_unless_empty`.
    """
    own = at = tuple(of(domain.variable(n)) for n in node.shape)
    while True:
        if node.op in PERMUTATIONS:
            source = PERMUTATIONS[node.op](node, at)
            node, at = source.operand, source.indices
        elif (value := _unless_empty(node, kind)) is not None:
            node = value
        else:
            break
    if node.op != "stablehlo.reduce" or len(node.operands) != 2:
        return None
    operand, start = node.operands
    result = node.regions[0].results[0]
    if result.op != f"stablehlo.{kind}" or set(result.operands) != set(node.regions[0].arguments):
        return None
    if not _is_constant(start, 0.0 if kind == "add" else -np.inf):
        return None
    dimensions = tuple(node.attributes["dimensions"])
    where = spec_of(node).sources(at, (ZERO,) * len(dimensions))[0].indices
    same = (where[d] == own[d] for d in range(len(own)) if d not in dimensions)
    return (operand, dimensions) if len(where) == len(own) and all(same) else None


def _unless_empty(node: Node, kind: str) -> Node | None:
    """The row value x of a `select` that gives rows of -inf alone other values.

    Instead of a maximum of -inf, 0; instead of some sums, 1: then neither is the cause of a NaN.
    """
    if node.op != "stablehlo.select":
        return None
    condition, instead, value = node.operands
    if kind == "add":
        return value if _is_constant(instead, 1.0) else None
    if condition.op != "stablehlo.compare" or condition.operands[0] is not value:
        return None
    is_empty = condition.attributes["comparison_direction"] in ("EQ", "LE")
    empty = is_empty and _is_constant(condition.operands[1], -np.inf)
    return value if empty and _is_constant(instead, 0.0) else None


def _is_constant(node: Node, value: float) -> bool:
    while node.op in PERMUTATIONS:
        node = node.operands[0]
    return node.op == "stablehlo.constant" and bool(np.all(node.attributes["value"] == value))
