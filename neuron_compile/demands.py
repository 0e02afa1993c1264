"""What operators demand of integer values: indices within what they count, divisors that are not 0.

In: a static graph. Out: the conditions to compute, as nodes, with what to say where one is
false. Compiled code reads at the nearest place and divides to 0 instead, which would be a silent
wrong answer where eager raises (a label, a token of another vocabulary). Where the values are known
to fit, there is nothing to compute; equal questions are asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.fx

from neuron_compile.errors import ExecutionError, IndexRangeError
from neuron_compile.value_ranges import Range, ValueRanges, dtype_range, in_dtype
from neuron_compile.views import base_of

aten = torch.ops.aten
prims = torch.ops.prims

_Comparison = tuple[Any, int]  # an operator on a tensor and a number, and the number


@dataclass(frozen=True, slots=True)
class Within:
    """All elements of `operand`, which are indices, must be in [low, end), or be `ignored`."""

    operand: torch.fx.Node
    low: int
    end: int
    ignored: int | None = None

    error: ClassVar = IndexRangeError
    remedy: ClassVar = "look at the data: labels, tokens and positions must fit the model's sizes"

    def comparisons(self, known: Range) -> list[_Comparison]:
        """Those that the known values do not settle; all must hold."""
        open_ends = (
            (aten.ge.Scalar, self.low, known[0] < self.low),
            (aten.lt.Scalar, self.end, known[1] >= self.end),
        )
        return [(compare, number) for compare, number, is_open in open_ends if is_open]

    def message(self, operator: Any) -> str:
        other = "" if self.ignored is None else f", or {self.ignored} to ignore one"
        taken = f"{self.low} to {self.end - 1}{other}" if self.end else "none"
        return f"index out of range: {operator} takes {taken}"


@dataclass(frozen=True, slots=True)
class NotZero:
    """No element of `operand`, a divisor, may be 0."""

    operand: torch.fx.Node
    dtype: torch.dtype  # of the division: in another one the divisor may become 0
    ignored: None = None

    error: ClassVar = ExecutionError
    remedy: ClassVar = "divide by other values where it is 0 (torch.where, clamp), or as floats"

    def comparisons(self, known: Range) -> list[_Comparison]:
        """Those that the known values do not settle; all must hold."""
        return [(aten.ne.Scalar, 0)] if known[0] <= 0 <= known[1] else []

    def message(self, operator: Any) -> str:
        return f"integer division by zero: {operator}"


Demand = Within | NotZero


@dataclass(frozen=True, slots=True)
class Condition:
    """`node` computes one boolean: whether the demand of the operator `asked_by` is met."""

    node: torch.fx.Node
    demand: Demand
    asked_by: torch.fx.Node

    @property
    def message(self) -> str:
        return self.demand.message(self.asked_by.target)

    @property
    def looked_at(self) -> torch.fx.Node:
        """The operand, or the tensor that it is a view of."""
        return base_of(self.demand.operand)


def demanded(graph: torch.fx.Graph) -> list[Condition]:
    """Insert what computes the conditions of all demands that may not be met."""
    asking = [node for node in graph.nodes if node.target in _DEMANDS]
    if not asking:
        return []
    ranges = ValueRanges(graph)
    conditions: dict[Demand, Condition] = {}
    for node in asking:
        for demand in _DEMANDS[node.target](node):
            if demand not in conditions and (made := _condition(node, demand, ranges)):
                conditions[demand] = Condition(made, demand, node)
    return list(conditions.values())


# -- what operators demand -------------------------------------------------------------------------


def _extent(node: Any, dim: Any) -> int:
    shape = node.meta["val"].shape
    return int(shape[dim]) if shape else 1


def _count(node: Any) -> int:
    return int(node.meta["val"].numel())


def _elements(node: Any) -> torch.fx.Node:
    """The smallest tensor with the same elements: what a node repeats or puts in other order."""
    while node.target in _SAME_ELEMENTS and _count(node):
        node = node.args[0]
    return node  # type: ignore[no-any-return]


# Views that show every element of what they are of, once or several times, and copies.
_SAME_ELEMENTS = frozenset(
    {
        aten._unsafe_view.default,
        aten.alias.default,
        aten.clone.default,
        aten.detach.default,
        aten.expand.default,
        aten.permute.default,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unsqueeze.default,
        aten.view.default,
    }
)


def _embedding(node: torch.fx.Node) -> Iterator[Demand]:
    table, index = node.args[:2]
    yield Within(_elements(index), 0, _extent(table, 0))


def _along_dimension(node: torch.fx.Node) -> Iterator[Demand]:
    operand, dim, index = node.args[:3]
    if _count(node) or node.target is aten.index_select.default:  # else nobody looks
        yield Within(_elements(index), 0, _extent(operand, dim))


def _from_either_end(node: torch.fx.Node) -> Iterator[Demand]:
    operand, dim, index = node.args[:3]
    extent = _extent(operand, dim)
    if _count(node):
        yield Within(_elements(index), -extent, extent)


def _anywhere(node: torch.fx.Node) -> Iterator[Demand]:
    operand, index = node.args[:2]
    count = operand.meta["val"].numel()  # type: ignore[union-attr]
    yield Within(_elements(index), -count, count)


def _per_dimension(node: torch.fx.Node) -> Iterator[Demand]:
    operand, indices = node.args[:2]
    dim = 0
    if not _count(node) or any(_count(i) == 0 for i in indices if i is not None):  # type: ignore[union-attr]
        return  # they select nothing
    for index in indices:  # type: ignore[union-attr]
        fake = index.meta["val"] if isinstance(index, torch.fx.Node) else None
        if fake is None:
            dim += 1
        elif fake.dtype in (torch.bool, torch.uint8):  # a mask of so many dimensions
            dim += fake.ndim
        else:
            extent = _extent(operand, dim)
            yield Within(_elements(index), -extent, extent)
            dim += 1


def _labels(node: torch.fx.Node) -> Iterator[Demand]:
    scores, labels, _weight, _reduction, ignored = node.args
    shape = scores.meta["val"].shape  # type: ignore[union-attr]
    classes = int(shape[1 if len(shape) > 1 else 0])
    yield Within(_elements(labels), 0, classes, ignored)  # type: ignore[arg-type]


def _divisor(node: torch.fx.Node) -> Iterator[Demand]:
    """Of a division whose result is an integer: others give infinities and NaN."""
    result, divisor = node.meta["val"], node.args[1]
    if isinstance(divisor, torch.fx.Node) and dtype_range(result.dtype) and result.numel():
        yield NotZero(_elements(divisor), result.dtype)


_DEMANDS: dict[Any, Callable[[torch.fx.Node], Iterator[Demand]]] = {
    aten._embedding_bag.default: _embedding,
    aten._embedding_bag_forward_only.default: _embedding,
    aten.div.Tensor_mode: _divisor,
    aten.embedding.default: _embedding,
    aten.floor_divide.default: _divisor,
    aten.fmod.Tensor: _divisor,
    aten.gather.default: _along_dimension,
    aten.index.Tensor: _per_dimension,
    aten.index_add.default: _along_dimension,
    aten.index_copy.default: _along_dimension,
    aten.index_fill.int_Scalar: _from_either_end,
    aten.index_fill.int_Tensor: _from_either_end,
    aten.index_put.default: _per_dimension,
    aten.index_reduce.default: _along_dimension,
    aten.index_select.default: _along_dimension,
    aten.nll_loss2d_forward.default: _labels,
    aten.nll_loss_forward.default: _labels,
    aten.put.default: _anywhere,
    aten.remainder.Scalar_Tensor: _divisor,
    aten.remainder.Tensor: _divisor,
    aten.scatter.reduce: _along_dimension,
    aten.scatter.src: _along_dimension,
    aten.scatter.value: _along_dimension,
    aten.scatter.value_reduce: _along_dimension,
    aten.scatter_add.default: _along_dimension,
    aten.scatter_reduce.two: _along_dimension,
    aten.take.default: _anywhere,
}


# -- conditions as nodes ---------------------------------------------------------------------------


def _condition(before: torch.fx.Node, demand: Demand, ranges: ValueRanges) -> torch.fx.Node | None:
    """Whether all elements are as demanded; None if they are known to be."""
    operand, known = demand.operand, ranges.of(demand.operand)
    if known is None or not _count(operand):
        return None
    with before.graph.inserting_before(before):
        if isinstance(demand, NotZero) and operand.meta["val"].dtype != demand.dtype:
            operand = _call(before, prims.convert_element_type.default, operand, demand.dtype)
            known = in_dtype(known, demand.dtype)
            assert known is not None
        parts = [_call(before, op, operand, number) for op, number in demand.comparisons(known)]
        if not parts:
            return None
        holds = parts[0] if len(parts) == 1 else _call(before, aten.bitwise_and.Tensor, *parts)
        if demand.ignored is not None:
            ignored = _call(before, aten.eq.Scalar, operand, demand.ignored)
            holds = _call(before, aten.bitwise_or.Tensor, holds, ignored)
        return _call(before, aten.all.default, holds)


def _call(like: torch.fx.Node, operator: Any, *args: Any) -> torch.fx.Node:
    node = like.graph.call_function(operator, args)
    fakes = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
    with fakes[0].fake_mode:
        value = operator(*fakes)
    node.meta = {"val": value, "stack_trace": like.meta.get("stack_trace")}
    return node
