"""Short ways to the MLIR types and attributes the rewriting passes create.

In: shapes, dtypes and numbers. Out: `ir.Type` and `ir.Attribute` of the current context.
Invariant: pure functions; nothing is cached across contexts.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from neuron_compile.passes.graph import Node, Value

FLOATS = ("f64", "f32", "f16", "bf16")


def with_shape(like: Value, shape: Sequence[int]) -> ir.Type:
    """The tensor type with the dtype of `like` and another shape."""
    return ir.RankedTensorType.get(shape, element_type(like))


def element_type(value: Value) -> ir.Type:
    """The element type of a value."""
    return ir.RankedTensorType(value.ir.type).element_type


def i64s(numbers: Sequence[int]) -> ir.Attribute:
    """`array<i64: ...>`, what StableHLO uses for dims."""
    return ir.DenseI64ArrayAttr.get(list(numbers))


def splat_value(value: Value) -> int | float | None:
    """The one number a splat constant holds; None for anything else."""
    node = value.node
    if node is None or node.name != "constant" or "complex" in value.dtype:
        return None
    attribute = node.op.attributes["value"]
    if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
        return None
    element = attribute.get_splat_value()
    if isinstance(element, ir.FloatAttr | ir.IntegerAttr | ir.BoolAttr):
        return element.value
    return None


def splat(value_type: ir.Type, number: float) -> ir.Attribute:
    """A splat attribute of a float or integer tensor type. `number` must fit the element type."""
    element = ir.RankedTensorType(value_type).element_type
    if isinstance(element, ir.IntegerType):
        scalar = ir.IntegerAttr.get(element, int(number))
    else:
        scalar = ir.FloatAttr.get(element, number)
    return ir.DenseElementsAttr.get_splat(value_type, scalar)


def same_type(node: Node, operand: Value) -> bool:
    """Whether the result has the shape and dtype of the operand."""
    return node.result.shape == operand.shape and node.result.dtype == operand.dtype
