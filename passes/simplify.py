"""Views that do nothing or can be one view, and arithmetic with neutral elements.

In: any graph. Out: fewer nodes of the same meaning. Invariant: exact for NaN, inf and signed zero;
x + 0.0 stays (it turns -0.0 into 0.0), x * 0 stays for floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from neuron_compile.passes.graph import Graph, Node, Rule, Value
from neuron_compile.passes.simplify_views import VIEW_RULES
from neuron_compile.passes.types import FLOATS, same_type, splat, splat_value
from neuron_compile.passes.unit import Unit

MAX_SWEEPS = 4


def simplify(unit: Unit) -> None:
    """Sweeps until nothing changes (a sweep sees simplified operands, so two are the rule)."""
    graph = unit.graph
    for _ in range(MAX_SWEEPS):
        if not graph.rewrite(RULES):
            break
    graph.merge_equal()


def _is_float(value: Value) -> bool:
    return value.dtype in FLOATS


def _is_minus_zero(number: float) -> bool:
    return number == 0 and math.copysign(1.0, number) < 0


def neutral(left: Callable[[float, bool], bool], right: Callable[[float, bool], bool]) -> Rule:
    """op(c, x) -> x where `left(c, is_float)`, op(x, c) -> x where `right(c, is_float)`."""

    def rule(_graph: Graph, node: Node) -> Value | None:
        a, b = node.operands
        number = splat_value(b)
        if number is not None:
            return a if right(number, _is_float(a)) else None
        number = splat_value(a)
        return b if number is not None and left(number, _is_float(b)) else None

    return rule


def _never(_number: float, _is_float: bool) -> bool:
    return False


def _adds_nothing(number: float, is_float: bool) -> bool:
    return _is_minus_zero(number) if is_float else number == 0


def _subtracts_nothing(number: float, is_float: bool) -> bool:
    return number == 0 and not (is_float and _is_minus_zero(number))


def _is_one(number: float, _is_float: bool) -> bool:
    return number == 1 and not isinstance(number, bool)


def _is_zero_bits(number: float, _is_float: bool) -> bool:
    return number == 0


def _is_all_ones(number: float, _is_float: bool) -> bool:
    return number is True or number == -1


def divide_by_power_of_two(graph: Graph, node: Node) -> Value | None:
    """X / 2^k -> x * 2^-k, exact as long as the reciprocal is a normal number."""
    x, divisor = node.operands
    number = splat_value(divisor)
    if number is None or not _is_float(x) or number == 0 or not math.isfinite(number):
        return None
    mantissa, exponent = math.frexp(number)
    # 2^14 is f16's largest power of two whose reciprocal is normal; 2^-14 the smallest.
    if abs(mantissa) != 0.5 or abs(exponent - 1) > 14 or number == 1:
        return None
    kind = divisor.ir.type
    reciprocal = graph.create(
        "constant", [], [kind], {"value": splat(kind, 1.0 / number)}, before=node
    )
    return graph.create(
        "multiply", [x, reciprocal.result], [node.result.ir.type], before=node
    ).result


def power_as_product(graph: Graph, node: Node) -> Value | None:
    """pow(x, 1), pow(x, 2): the product is the correctly rounded power, for every x."""
    x, exponent = node.operands
    number = splat_value(exponent)
    if number == 1:
        return x
    if number == 2:
        return graph.create("multiply", [x, x], [node.result.ir.type], before=node).result
    return None


def select_known(_graph: Graph, node: Node) -> Value | None:
    """Select with a constant predicate, or with equal branches."""
    predicate, on_true, on_false = node.operands
    if on_true is on_false:
        return on_true
    number = splat_value(predicate)
    if number is None:
        return None
    return on_true if number else on_false


def undo_twice(_graph: Graph, node: Node) -> Value | None:
    """not(not(x)) and negate(negate(x)) -> x."""
    producer = node.operands[0].node
    if producer is not None and producer.name == node.name:
        return producer.operands[0]
    return None


def same_operands(_graph: Graph, node: Node) -> Value | None:
    """and(x, x), or(x, x) -> x."""
    a, b = node.operands
    return a if a is b else None


def convert_to_itself(_graph: Graph, node: Node) -> Value | None:
    """A convert between equal types."""
    return node.operands[0] if same_type(node, node.operands[0]) else None


_ARITHMETIC: dict[str, tuple[Rule, ...]] = {
    "add": (neutral(_adds_nothing, _adds_nothing),),
    "subtract": (neutral(_never, _subtracts_nothing),),
    "multiply": (neutral(_is_one, _is_one),),
    "divide": (neutral(_never, _is_one), divide_by_power_of_two),
    "power": (power_as_product,),
    "and": (same_operands, neutral(_is_all_ones, _is_all_ones)),
    "or": (same_operands, neutral(_is_zero_bits, _is_zero_bits)),
    "xor": (neutral(_is_zero_bits, _is_zero_bits),),
    "select": (select_known,),
    "not": (undo_twice,),
    "negate": (undo_twice,),
    "convert": (convert_to_itself,),
}

RULES: Mapping[str, tuple[Rule, ...]] = {**VIEW_RULES, **_ARITHMETIC}
