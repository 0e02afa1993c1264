"""Indices that eager would refuse: each call looks whether they lie within what they count.

In: a static forward graph. Out: the conditions to compute, as nodes, with what to say where one is
false. Compiled code reads at the nearest place instead, which would be a silent wrong answer (a
label, a token of another vocabulary). Where an index's values are known to fit, there is nothing to
compute; equal questions are asked once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from neuron_compile.placement import user_line
from neuron_compile.value_ranges import ValueRanges
from neuron_compile.views import base_of

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Demand:
    """All elements of `index` must be in [low, end), or be `ignored`."""

    index: torch.fx.Node
    low: int
    end: int
    ignored: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """`node` computes one boolean; `asked_by` uses the indices that it looks at."""

    node: torch.fx.Node
    demand: Demand
    asked_by: torch.fx.Node

    @property
    def message(self) -> str:
        demand = self.demand
        other = "" if demand.ignored is None else f", or {demand.ignored} to ignore one"
        taken = f"{demand.low} to {demand.end - 1}{other}" if demand.end else "none"
        return f"index out of range: {self.asked_by.target} takes {taken}"

    @property
    def where(self) -> str:
        return user_line(self.asked_by)

    @property
    def looked_at(self) -> torch.fx.Node:
        """The indices, or the tensor that they are a view of."""
        return base_of(self.demand.index)


def index_conditions(graph: torch.fx.Graph) -> list[Condition]:
    """Insert what computes the conditions of all indices that may be out of range."""
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


def _extent(node: Any, dim: int) -> int:
    shape = node.meta["val"].shape
    return int(shape[dim]) if shape else 1


def _embedding(node: torch.fx.Node) -> Iterator[Demand]:
    table, index = node.args[:2]
    yield Demand(index, 0, _extent(table, 0))  # type: ignore[arg-type]


def _along_dimension(node: torch.fx.Node) -> Iterator[Demand]:
    operand, dim, index = node.args[:3]
    yield Demand(index, 0, _extent(operand, dim))  # type: ignore[arg-type]


def _from_either_end(node: torch.fx.Node) -> Iterator[Demand]:
    operand, dim, index = node.args[:3]
    extent = _extent(operand, dim)  # type: ignore[arg-type]
    yield Demand(index, -extent, extent)  # type: ignore[arg-type]


def _anywhere(node: torch.fx.Node) -> Iterator[Demand]:
    operand, index = node.args[:2]
    count = operand.meta["val"].numel()  # type: ignore[union-attr]
    yield Demand(index, -count, count)  # type: ignore[arg-type]


def _per_dimension(node: torch.fx.Node) -> Iterator[Demand]:
    operand, indices = node.args[:2]
    dim = 0
    for index in indices:  # type: ignore[union-attr]
        fake = index.meta["val"] if isinstance(index, torch.fx.Node) else None
        if fake is None:
            dim += 1
        elif fake.dtype in (torch.bool, torch.uint8):  # a mask of so many dimensions
            dim += fake.ndim
        else:
            extent = _extent(operand, dim)
            yield Demand(index, -extent, extent)  # type: ignore[arg-type]
            dim += 1


def _labels(node: torch.fx.Node) -> Iterator[Demand]:
    scores, labels, _weight, _reduction, ignored = node.args
    shape = scores.meta["val"].shape  # type: ignore[union-attr]
    yield Demand(labels, 0, int(shape[1 if len(shape) > 1 else 0]), ignored)  # type: ignore[arg-type]


_DEMANDS = {
    aten._embedding_bag.default: _embedding,
    aten._embedding_bag_forward_only.default: _embedding,
    aten.embedding.default: _embedding,
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
    known = ranges.of(demand.index)
    assert known is not None
    if not demand.index.meta["val"].numel():
        return None
    index = demand.index
    with before.graph.inserting_before(before):
        parts = []
        if known[0] < demand.low:
            parts.append(_call(before, aten.ge.Scalar, index, demand.low))
        if known[1] >= demand.end:
            parts.append(_call(before, aten.lt.Scalar, index, demand.end))
        if not parts:
            return None
        holds = parts[0] if len(parts) == 1 else _call(before, aten.bitwise_and.Tensor, *parts)
        if demand.ignored is not None:
            ignored = _call(before, aten.eq.Scalar, index, demand.ignored)
            holds = _call(before, aten.bitwise_or.Tensor, holds, ignored)
        return _call(before, aten.all.default, holds)


def _call(like: torch.fx.Node, operator: Any, *args: Any) -> torch.fx.Node:
    node = like.graph.call_function(operator, args)
    fakes = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
    with fakes[0].fake_mode:
        value = operator(*fakes)
    node.meta = {"val": value, "stack_trace": like.meta.get("stack_trace")}
    return node
