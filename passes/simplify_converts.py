"""convert(convert(x)) -> one convert, where the first loses nothing.

In: any graph. Out: fewer converts. Invariant: exact; a first convert that rounds or wraps stays.
"""

from __future__ import annotations

from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.unit import Unit

# Bits of precision: significand of floats, value bits of integers.
_FLOAT_PRECISION = {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}
_FLOAT_EXPONENT = {"bf16": 8, "f16": 5, "f32": 8, "f64": 11}


def simplify_converts(unit: Unit) -> None:
    """One sweep: operands come first, so chains of any length collapse."""
    unit.graph.rewrite({"convert": (skip_lossless,)})


def skip_lossless(graph: Graph, node: Node) -> Value | None:
    """Reads the source of a lossless convert directly."""
    inner = node.operands[0].node
    if inner is None or inner.name != "convert":
        return None
    source = inner.operands[0]
    if not lossless(source.dtype, inner.result.dtype):
        return None
    if source.dtype == node.result.dtype:
        return source
    return graph.create("convert", [source], [node.result.ir.type], before=node).result


def lossless(source: str, result: str) -> bool:
    """Whether every value of `source` converts to `result` and back."""
    if source == result:
        return True
    if source in _FLOAT_PRECISION and result in _FLOAT_PRECISION:
        return (
            _FLOAT_PRECISION[source] <= _FLOAT_PRECISION[result]
            and _FLOAT_EXPONENT[source] <= _FLOAT_EXPONENT[result]
        )
    if "complex" in source or "complex" in result or source in _FLOAT_PRECISION:
        return False
    if result == "i1":
        return False  # x != 0, not a truncation
    unsigned = source.startswith("u") or source == "i1"
    bits = int(source.lstrip("ui"))
    if result in _FLOAT_PRECISION:
        return bits - (0 if unsigned else 1) <= _FLOAT_PRECISION[result]
    result_bits = int(result.lstrip("ui"))
    if result.startswith("u"):
        return unsigned and bits <= result_bits
    return bits < result_bits if unsigned else bits <= result_bits
