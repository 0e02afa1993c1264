"""Integer nodes that are functions of their own position, as index expressions.

In: a node made of iotas, constants and views, and an index. Out: its value there as an `Index`, or
a comparison of two such values as a `Condition` on one. So a mask costs one comparison of lane
numbers, and its meaning is known to whoever plans a loop.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from neuron_compile.neff.codegen.index import Index
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.value import INT_BITS
from neuron_compile.neff.codegen.views import PERMUTATIONS, Condition, Indices


def as_index(node: Node, at: Indices) -> Index | None:
    """The node's element at `at`; None where it is no index expression or may wrap around."""
    value = _value(node, at)
    if value is None or node.tensor.unsigned or node.tensor.signless not in INT_BITS:
        return None
    largest = 1 << (INT_BITS[node.tensor.signless] - 1)
    low, high = value.bounds
    return value if -largest <= low and high < largest else None


def _value(node: Node, at: Indices) -> Index | None:
    if node.op == "stablehlo.iota":
        return at[node.attributes["iota_dimension"]]
    if node.op == "stablehlo.constant":
        values = np.asarray(node.attributes["value"]).reshape(-1)
        same = values.size > 0 and values.dtype.kind == "i" and (values == values[0]).all()
        return Index(int(values[0])) if same else None
    if node.op in PERMUTATIONS:
        source = PERMUTATIONS[node.op](node, at)
        return as_index(source.operand, source.indices)
    if node.op == "stablehlo.convert":
        return as_index(node.operands[0], at)
    if node.op in ("stablehlo.add", "stablehlo.subtract"):
        left, right = (as_index(o, at) for o in node.operands)
        if left is None or right is None:
            return None
        return left + right if node.op == "stablehlo.add" else left - right
    return None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Whether `condition` holds; where not `holds`, the opposite."""

    condition: Condition
    holds: bool


def comparison_of(node: Node, at: Indices) -> Comparison | None:
    """What a `compare` of two index expressions says about their difference."""
    if node.op != "stablehlo.compare":
        return None
    left, right = (as_index(o, at) for o in node.operands)
    if left is None or right is None:
        return None
    difference = left - right
    low, high = difference.bounds
    first, after, holds = {
        "EQ": (0, 1, True),
        "NE": (0, 1, False),
        "LT": (min(low, -1), 0, True),
        "GE": (min(low, -1), 0, False),
        "GT": (1, max(high, 1) + 1, True),
        "LE": (1, max(high, 1) + 1, False),
    }[node.attributes["comparison_direction"]]
    return Comparison(Condition(difference, first, after), holds)
