"""Ops whose result elements are elements of an operand.

How an index of the result maps to one of the operand.

In: a node and an index of its result. Out: for each operand that may be read, a `Source`: the
operand, the index in it, and the conditions under which the element comes from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from neuron_compile.neff.codegen.index import ZERO, Index, contiguous_strides, linear, unravel
from neuron_compile.neff.codegen.program import Node

Indices = tuple[Index, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """`low <= index < high`, and `index % multiple == 0`."""

    index: Index
    low: int
    high: int
    multiple: int = 1

    @property
    def always(self) -> bool:
        a, b = self.index.bounds
        return self.low <= a and b < self.high and self.multiple == 1

    @property
    def never(self) -> bool:
        a, b = self.index.bounds
        return b < self.low or a >= self.high


@dataclass(frozen=True, slots=True)
class Source:
    operand: Node
    indices: Indices
    conditions: tuple[Condition, ...] = ()

    @property
    def never(self) -> bool:
        return any(c.never for c in self.conditions)


def _transpose(node: Node, at: Indices) -> Source:
    indices = [ZERO] * len(at)
    for position, dimension in enumerate(node.attributes["permutation"]):
        indices[dimension] = at[position]
    return Source(node.operands[0], tuple(indices))


def _reshape(node: Node, at: Indices) -> Source:
    source = node.operands[0]
    return Source(source, unravel(linear(at, contiguous_strides(node.shape)), source.shape))


def _broadcast(node: Node, at: Indices) -> Source:
    source = node.operands[0]
    dimensions = node.attributes["broadcast_dimensions"]
    return Source(
        source,
        tuple(ZERO if n == 1 else at[d] for n, d in zip(source.shape, dimensions, strict=True)),
    )


def _slice(node: Node, at: Indices) -> Source:
    starts, steps = node.attributes["start_indices"], node.attributes["strides"]
    return Source(
        node.operands[0],
        tuple(i * step + start for i, start, step in zip(at, starts, steps, strict=True)),
    )


def _reverse(node: Node, at: Indices) -> Source:
    flipped = node.attributes["dimensions"]
    return Source(
        node.operands[0],
        tuple(
            i * -1 + (n - 1) if d in flipped else i
            for d, (i, n) in enumerate(zip(at, node.shape, strict=True))
        ),
    )


PERMUTATIONS: dict[str, Callable[[Node, Indices], Source]] = {
    "stablehlo.transpose": _transpose,
    "stablehlo.reshape": _reshape,
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.slice": _slice,
    "stablehlo.reverse": _reverse,
}


def padded(operand: Node, at: Indices, low: tuple[int, ...], interior: tuple[int, ...]) -> Source:
    """The element of `operand` that lands at `at` when `low` cells are put before and `interior`
    between.
    """
    indices: list[Index] = []
    conditions: list[Condition] = []
    for i, before, between, extent in zip(at, low, interior, operand.shape, strict=True):
        moved = i + -before
        step = between + 1
        condition = Condition(moved, 0, (extent - 1) * step + 1, 1 if step == 1 else step)
        if not condition.always:
            conditions.append(condition)
        indices.append((moved // step).bounded(0, max(extent - 1, 0)) if step > 1 else moved)
    return Source(operand, tuple(indices), tuple(conditions))


def pad_source(node: Node, at: Indices) -> Source:
    return padded(
        node.operands[0],
        at,
        node.attributes["edge_padding_low"],
        node.attributes["interior_padding"],
    )


def concatenate_sources(node: Node, at: Indices) -> list[Source]:
    """One source per operand that the range of the index can reach."""
    dimension = node.attributes["dimension"]
    start = 0
    sources: list[Source] = []
    for operand in node.operands:
        extent = operand.shape[dimension]
        condition = Condition(at[dimension], start, start + extent)
        if extent and not condition.never:
            moved = (*at[:dimension], at[dimension] + -start, *at[dimension + 1 :])
            sources.append(Source(operand, moved, () if condition.always else (condition,)))
        start += extent
    return sources


def changes_width(node: Node) -> bool:
    """Whether the node reads the same bits as elements of another width."""
    return node.op == "stablehlo.bitcast_convert" and node.shape != node.operands[0].shape


def width_sources(node: Node, at: Indices) -> list[Indices]:
    """Where the bits of a `changes_width` node lie: one wide element, or several small ones."""
    source = node.operands[0].shape
    if len(source) < len(node.shape):
        return [at[:-1]]
    return [(*at, Index(j)) for j in range(source[-1])]
