"""The order that a sort's comparator means, if it only compares the elements of one operand.

In: a comparator region. Out: an `Order`, or None. What is made only of comparisons of x and y
depends on nothing but how the two compare: its truth table over the six possible cases says all.
An `Order` turns elements into unsigned keys that compare as plain integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuron_compile.neff.codegen.elementwise import compute_elem, total_order_bits
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.program import Node, Region, Tensor, postorder
from neuron_compile.neff.codegen.value import FLOAT_BITS, Val, bits_of


@dataclass(frozen=True, slots=True)
class Order:
    """Ascending or descending order of operand number `operand`.

    `total`: IEEE's total order of floats (-0 before +0, NaN at the ends by sign). Otherwise zeros
    tie, NaNs tie, and `nan_above` says whether NaN counts as larger than every number or as
    smaller.
    """

    operand: int
    descending: bool
    nan_above: bool = True
    total: bool = False

    def key(self, e: Emitter, value: Val, tensor: Tensor) -> Val:
        """Unsigned keys, i32 or i64, of elements in their compute type."""
        key = self._ascending(e, value, tensor)
        return (
            e.binary("arith.xori", key, e.const(key.elem, -1, key.lanes))
            if self.descending
            else key
        )

    def _ascending(self, e: Emitter, value: Val, tensor: Tensor) -> Val:
        lanes = value.lanes
        if value.is_float:
            if not self.total:
                zero = e.const(value.elem, 0.0, lanes)
                value = e.select(e.compare("oeq", value, zero), zero, value)
                nan = e.const(value.elem, math.nan, lanes)
                nan = nan if self.nan_above else e.neg(nan)
                value = e.select(e.compare("uno", value, value), nan, value)
            bits = total_order_bits(e, value)
            return e.binary("arith.xori", bits, e.const(bits.elem, _top(bits.elem), lanes))
        unsigned = tensor.unsigned or value.elem == "i1"
        if bits_of(value.elem) < 32:
            value = e.cast("arith.extui" if unsigned else "arith.extsi", value, "i32")
        if unsigned:
            return value
        return e.binary("arith.xori", value, e.const(value.elem, _top(value.elem), lanes))

    def key_elem(self, tensor: Tensor) -> str:
        return "i64" if bits_of(compute_elem(tensor)) == 64 else "i32"


def _top(elem: str) -> int:
    return 1 << (bits_of(elem) - 1)


_NAN = math.nan
# x and y: less, equal, greater, NaN first, NaN second, both NaN.
_CASES = ((1, 2), (1, 1), (2, 1), (_NAN, 1), (1, _NAN), (_NAN, _NAN))
_LOGIC: dict[str, Callable[..., bool]] = {
    "stablehlo.and": lambda a, b: a and b,
    "stablehlo.or": lambda a, b: a or b,
    "stablehlo.xor": lambda a, b: a != b,
    "stablehlo.not": lambda a: not a,
    "stablehlo.select": lambda c, a, b: a if c else b,
}
_DIRECTIONS: dict[str, Callable[[float, float], bool]] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}


def order_of(region: Region) -> Order | None:
    """The comparator's order; None if it is not one of a single operand's elements."""
    (result,) = region.results
    nodes = list(postorder(region.results))
    used = {region.arguments.index(n) // 2 for n in nodes if n in region.arguments}
    if len(used) != 1:
        return None
    operand = used.pop()
    if not all(_is_comparison(n, region) for n in nodes):
        return None
    floating = region.arguments[2 * operand].elem in FLOAT_BITS
    totals = {
        n.attributes.get("compare_type") == "TOTALORDER" and floating
        for n in nodes
        if n.op == "stablehlo.compare"
    }
    if len(totals) != 1:
        return None
    x, y = region.arguments[2 * operand : 2 * operand + 2]
    table = [bool(_evaluate(result, {x: a, y: b})) for a, b in _CASES]
    less, _, greater, nan_first, nan_second, nan_both = table
    if less == greater:
        return None
    if totals.pop():
        # Only a plain comparison means the same for NaN as for numbers.
        plain = result.op == "stablehlo.compare"
        return Order(operand, descending=greater, total=True) if plain else None
    if not floating:
        return Order(operand, descending=greater)
    if nan_both or (nan_first and nan_second):
        return None
    # NaN behind all numbers where the comparator leaves its place open.
    nan_last = nan_second or not nan_first
    return Order(operand, descending=greater, nan_above=nan_last != greater)


def _is_comparison(node: Node, region: Region) -> bool:
    if node in region.arguments or node.op in _LOGIC:
        return True
    if node.op == "stablehlo.constant":
        return node.elem == "i1"
    if node.op == "stablehlo.convert":
        return node.elem in FLOAT_BITS and _widens(node)
    return node.op == "stablehlo.compare"


def _widens(node: Node) -> bool:
    source = node.operands[0].elem
    return source in FLOAT_BITS and (
        FLOAT_BITS[source] < FLOAT_BITS[node.elem] or source == node.elem
    )


def _evaluate(node: Node, known: dict[Node, Any]) -> Any:
    if node in known:
        return known[node]
    if node.op == "stablehlo.constant":
        return bool(np.asarray(node.attributes["value"]).reshape(-1)[0])
    operands = [_evaluate(o, known) for o in node.operands]
    if node.op == "stablehlo.convert":
        return operands[0]
    if node.op == "stablehlo.compare":
        return _DIRECTIONS[node.attributes["comparison_direction"]](*operands)
    return _LOGIC[node.op](*operands)
