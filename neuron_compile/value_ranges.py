"""What is known beforehand of the values in an integer tensor: the least and the greatest.

In: a static graph. Out: bounds that hold for every call, at worst those of the dtype. Interval
arithmetic, node by node; an operator that it does not know tells nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from neuron_compile.views import VIEWS

aten = torch.ops.aten
prims = torch.ops.prims

Range = tuple[int, int]  # both included

# The values are some of the first operand's.
_SELECTIONS = VIEWS | {
    aten._unsafe_index.Tensor,
    aten.clone.default,
    aten.flip.default,
    aten.gather.default,
    aten.index.Tensor,
    aten.index_select.default,
    aten.lift_fresh_copy.default,
    aten.repeat.default,
    aten.roll.default,
}
_CONVERSIONS = frozenset({aten._to_copy.default, prims.convert_element_type.default})
# Results, by position, that are places along the dimension `args[where]` of the first operand.
_PLACES: dict[Any, tuple[int, int]] = {
    aten.kthvalue.default: (1, 2),
    aten.max.dim: (1, 1),
    aten.median.dim: (1, 1),
    aten.min.dim: (1, 1),
    aten.mode.default: (1, 1),
    aten.sort.default: (1, 1),
    aten.sort.stable: (1, 2),
    aten.topk.default: (1, 2),
}


class ValueRanges:
    """The bounds of all nodes of a graph, found in one walk."""

    def __init__(self, graph: torch.fx.Graph) -> None:
        self._known: dict[torch.fx.Node, Range | None] = {}
        for node in graph.nodes:
            self._known[node] = self._bounds(node)

    def of(self, value: Any) -> Range | None:
        """Bounds of an integer, or of an integer or boolean tensor's node; else None."""
        if isinstance(value, int):
            return int(value), int(value)
        return self._known.get(value) if isinstance(value, torch.fx.Node) else None

    def _bounds(self, node: torch.fx.Node) -> Range | None:
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor) or dtype_range(fake.dtype) is None:
            return None
        return in_dtype(self._computed(node), fake.dtype)

    def _computed(self, node: torch.fx.Node) -> Range | None:
        if node.op == "get_attr":
            return _of_constant(node)
        if node.op != "call_function":
            return None
        if node.target is operator.getitem:
            return _places(node)
        if node.target in _SELECTIONS or node.target in _CONVERSIONS:
            return self.of(node.args[0])
        rule = _RULES.get(node.target)
        return rule(self, node) if rule else None


def dtype_range(dtype: torch.dtype) -> Range | None:
    """All values of an integer dtype."""
    if dtype is torch.bool:
        return 0, 1
    if dtype.is_floating_point or dtype.is_complex:
        return None
    info = torch.iinfo(dtype)
    return info.min, info.max


def in_dtype(found: Range | None, dtype: torch.dtype) -> Range | None:
    """The bounds where values are of this dtype: what leaves its range wraps around."""
    widest = dtype_range(dtype)
    if widest is None or (found is not None and _within(found, widest)):
        return found
    return widest


def _within(inner: Range, outer: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _of_constant(node: torch.fx.Node) -> Range | None:
    value = operator.attrgetter(str(node.target))(node.graph.owning_module)
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor) or not value.numel():
        return None
    with _disable_current_modes():  # a tracing mode would see no values
        low, high = torch.aminmax(value)
        return int(low), int(high)


def _places(node: torch.fx.Node) -> Range | None:
    """An element of a tuple: places in a dimension, where the operator gives them."""
    source, position = node.args
    where = _PLACES.get(source.target) if isinstance(source, torch.fx.Node) else None
    if where is None or where[0] != position:
        return None
    assert isinstance(source, torch.fx.Node)
    dim = source.args[where[1]] if len(source.args) > where[1] else source.kwargs.get("dim", -1)
    return _along(source.args[0], dim)


def _along(operand: Any, dim: Any) -> Range | None:
    """The places along a dimension; all of the operand's without one."""
    fake = operand.meta["val"]
    extent = fake.numel() if dim is None else fake.shape[dim] if fake.ndim else 1
    return (0, extent - 1) if extent else None


_Rule = Callable[[ValueRanges, torch.fx.Node], Range | None]


def _hull(ranges: list[Range | None]) -> Range | None:
    known = [r for r in ranges if r is not None]
    if not known or len(known) != len(ranges):
        return None
    return min(r[0] for r in known), max(r[1] for r in known)


def _binary(combine: Callable[[Range, Range], Range]) -> _Rule:
    def rule(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
        a, b = (ranges.of(x) for x in node.args[:2])
        factor = node.kwargs.get("alpha", node.args[2] if len(node.args) > 2 else 1)
        if a is None or b is None or not isinstance(factor, int):
            return None
        widest = dtype_range(node.meta["val"].dtype)
        if widest is None or not (_within(a, widest) and _within(b, widest)):
            return None  # an operand of another dtype, which wraps around before it is used
        return combine(a, _times(b, (factor, factor)))

    return rule


def _times(a: Range, b: Range) -> Range:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


_add = _binary(lambda a, b: (a[0] + b[0], a[1] + b[1]))
_subtract = _binary(lambda a, b: (a[0] - b[1], a[1] - b[0]))
_multiply = _binary(_times)
_minimum = _binary(lambda a, b: (min(a[0], b[0]), min(a[1], b[1])))
_maximum = _binary(lambda a, b: (max(a[0], b[0]), max(a[1], b[1])))


def _clamp(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    low = node.args[1] if len(node.args) > 1 else node.kwargs.get("min")
    high = node.args[2] if len(node.args) > 2 else node.kwargs.get("max")
    return _clamped(ranges, node, low, high)


def _clamp_min(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    return _clamped(ranges, node, node.args[1], None)


def _clamp_max(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    return _clamped(ranges, node, None, node.args[1])


def _clamped(ranges: ValueRanges, node: torch.fx.Node, low: Any, high: Any) -> Range | None:
    found, widest = ranges.of(node.args[0]), dtype_range(node.meta["val"].dtype)
    if found is None or widest is None:
        return None
    for limit in (low, high):
        if limit is not None and not (isinstance(limit, int) and _within((limit, limit), widest)):
            return None  # one that the dtype does not hold wraps around
    if low is not None:
        found = max(found[0], low), max(found[1], low)
    if high is not None:  # torch: the upper limit wins where they cross
        found = min(found[0], high), min(found[1], high)
    return found


def _remainder(_: ValueRanges, node: torch.fx.Node) -> Range | None:
    divisor = node.args[1]
    widest = dtype_range(node.meta["val"].dtype)
    if not isinstance(divisor, int) or widest is None or not 0 < divisor <= widest[1]:
        return None  # a divisor that the dtype does not hold wraps around
    return 0, divisor - 1


def _negated(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    found = ranges.of(node.args[0])
    return None if found is None else (-found[1], -found[0])


def _absolute(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    found = ranges.of(node.args[0])
    if found is None:
        return None
    low, high = found
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _below_columns(_: ValueRanges, node: torch.fx.Node) -> Range | None:
    """Places in the last dimension of the first operand."""
    return _along(node.args[0], -1)


def _gaps(position: int) -> _Rule:
    """Places before, between and after the sorted elements of an operand's last dimension."""

    def rule(_: ValueRanges, node: torch.fx.Node) -> Range | None:
        boundaries: Any = node.args[position]
        return 0, int(boundaries.meta["val"].shape[-1])

    return rule


def _drawn(_: ValueRanges, node: torch.fx.Node) -> Range | None:
    """Random integers below `high`, from 0 or from `low`."""
    low, high = (0, node.args[0]) if node.target is aten.randint.default else node.args[:2]
    if not isinstance(low, int) or not isinstance(high, int) or high <= low:
        return None
    return low, high - 1


def _where(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    return _hull([ranges.of(x) for x in node.args[1:3]])


def _concatenated(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    parts: Any = node.args[0]
    return _hull([ranges.of(x) for x in parts])


def _filled(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    return ranges.of(node.args[-1])


def _padded(ranges: ValueRanges, node: torch.fx.Node) -> Range | None:
    filling: Any = node.args[2] if len(node.args) > 2 else 0
    whole = int(filling) if filling == filling // 1 else None  # it may be the float 0.0
    return _hull([ranges.of(node.args[0]), ranges.of(whole)])


def _iota(_: ValueRanges, node: torch.fx.Node) -> Range | None:
    length, start, step = node.args[0], node.kwargs.get("start"), node.kwargs.get("step")
    if not isinstance(length, int) or not isinstance(start, int) or not isinstance(step, int):
        return None
    return _progression(start, step, length)


def _arange(_: ValueRanges, node: torch.fx.Node) -> Range | None:
    numbers: Any = node.args
    if not all(isinstance(number, int) for number in numbers):
        return None
    places = range(*numbers)
    return _progression(places.start, places.step, len(places))


def _progression(start: int, step: int, length: int) -> Range | None:
    if length <= 0:
        return None
    last = start + step * (length - 1)
    return min(start, last), max(start, last)


def _argument_of_extreme(_: ValueRanges, node: torch.fx.Node) -> Range | None:
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    return _along(node.args[0], dim)


_RULES: dict[Any, _Rule] = {
    aten.abs.default: _absolute,
    aten.add.Scalar: _add,
    aten.add.Tensor: _add,
    aten.arange.default: _arange,
    aten.arange.start: _arange,
    aten.arange.start_step: _arange,
    aten.argmax.default: _argument_of_extreme,
    aten.argmin.default: _argument_of_extreme,
    aten.bucketize.Scalar: _gaps(1),
    aten.bucketize.Tensor: _gaps(1),
    aten.cat.default: _concatenated,
    aten.clamp.default: _clamp,
    aten.clamp_max.default: _clamp_max,
    aten.clamp_min.default: _clamp_min,
    aten.constant_pad_nd.default: _padded,
    aten.full.default: _filled,
    aten.full_like.default: _filled,
    aten.maximum.default: _maximum,
    aten.minimum.default: _minimum,
    aten.mul.Scalar: _multiply,
    aten.mul.Tensor: _multiply,
    aten.multinomial.default: _below_columns,
    aten.neg.default: _negated,
    aten.randint.default: _drawn,
    aten.randint.low: _drawn,
    aten.remainder.Scalar: _remainder,
    aten.scalar_tensor.default: _filled,
    aten.searchsorted.Scalar: _gaps(0),
    aten.searchsorted.Tensor: _gaps(0),
    aten.stack.default: _concatenated,
    aten.sub.Scalar: _subtract,
    aten.sub.Tensor: _subtract,
    aten.where.self: _where,
    prims.iota.default: _iota,
}
