"""Views around a dot_general become part of its dimension numbers where that costs nothing.

In: any graph. Out: dots whose operands are as close to stored tensors as their dims allow: no
transposes, no merged batch dims, no operand repeated along a batch dim; runs of free or contracted
dims are one dim. Invariant: each product sums the same terms.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from operator import mul

from neuron_compile.passes.dot_dims import DotDims
from neuron_compile.passes.graph import Graph, Node, Value
from neuron_compile.passes.simplify import simplify
from neuron_compile.passes.types import with_shape
from neuron_compile.passes.unit import Unit


def canonicalize_contractions(unit: Unit) -> None:
    """One sweep over the dots, then the views that were freed are simplified."""
    graph = unit.graph
    graph.rewrite({"dot": (dot_as_dot_general,)})
    if graph.rewrite({"dot_general": (rewrite_dot,)}):
        simplify(unit)


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot_general while it changes. Its result is a reshape away from the original's."""

    lhs: Value
    rhs: Value
    dims: DotDims


Step = Callable[[Graph, Node, Dot], Dot | None]


def dot_as_dot_general(graph: Graph, node: Node) -> Value | None:
    """The old `dot`: contracts the last dim of the left with the first of the right."""
    lhs, rhs = node.operands
    dims = DotDims.make((), (), (len(lhs.shape) - 1,), (0,), len(lhs.shape), len(rhs.shape))
    return _emit(graph, node, Dot(lhs, rhs, dims))


def rewrite_dot(graph: Graph, node: Node) -> Value | None:
    """Applies the steps until none of them finds anything."""
    start = Dot(node.operands[0], node.operands[1], DotDims.of(node))
    dot = start
    progress = True
    while progress:
        progress = False
        for step in STEPS:
            changed = step(graph, node, dot)
            if changed is not None:
                dot, progress = changed, True
    return None if dot is start else _emit(graph, node, dot)


def _emit(graph: Graph, node: Node, dot: Dot) -> Value:
    shape = dot.dims.result_shape(dot.lhs.shape, dot.rhs.shape)
    attributes = {"dot_dimension_numbers": dot.dims.attribute()}
    for name in ("precision_config", "algorithm"):
        if name in node.op.attributes:
            attributes[name] = node.op.attributes[name]
    made = graph.create(
        "dot_general",
        [dot.lhs, dot.rhs],
        [with_shape(node.result, shape)],
        attributes,
        before=node,
    ).result
    if made.shape == node.result.shape:
        return made
    return graph.create("reshape", [made], [node.result.ir.type], before=node).result


def _made_by(value: Value, name: str) -> Node | None:
    return value.node if value.node is not None and value.node.name == name else None


def split_merged_batch(graph: Graph, node: Node, dot: Dot) -> Dot | None:
    """[B*H, ..] x [B*H, ..] from reshapes of [B, H, ..] -> two batch dims."""
    dims = dot.dims
    if len(dims.lhs_batch) != 1:
        return None
    left = _split_of(dot.lhs, dims.lhs_batch[0])
    right = _split_of(dot.rhs, dims.rhs_batch[0])
    if left is None and right is None:
        return None
    factors = _coarser(left or right or (), right or left or ())
    if factors is None:
        return None
    lhs = _with_split(graph, node, dot.lhs, dims.lhs_batch[0], factors)
    rhs = _with_split(graph, node, dot.rhs, dims.rhs_batch[0], factors)
    extra = len(factors) - 1

    def move(at: int, ds: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(d + extra if d > at else d for d in ds)

    lb, rb = dims.lhs_batch[0], dims.rhs_batch[0]
    new = DotDims.make(
        tuple(range(lb, lb + len(factors))),
        tuple(range(rb, rb + len(factors))),
        move(lb, dims.lhs_contract),
        move(rb, dims.rhs_contract),
        len(lhs.shape),
        len(rhs.shape),
    )
    return Dot(lhs, rhs, new)


def _split_of(value: Value, dim: int) -> tuple[int, ...] | None:
    """The factors of `dim`, if `value` is a reshape that only merged them."""
    reshape = _made_by(value, "reshape")
    if reshape is None:
        return None
    source = reshape.operands[0].shape
    extra = len(source) - len(value.shape)
    if extra < 1 or source[:dim] != value.shape[:dim]:
        return None
    if source[dim + 1 + extra :] != value.shape[dim + 1 :]:
        return None
    factors = tuple(size for size in source[dim : dim + 1 + extra] if size != 1)
    return factors if len(factors) > 1 else None


def _coarser(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...] | None:
    """Of two factorizations of one size, the one that the other refines; None if neither does."""
    few, many = sorted((left, right), key=len)
    products = set(accumulate(many, mul))
    return few if products.issuperset(accumulate(few, mul)) else None


def _with_split(
    graph: Graph, node: Node, value: Value, dim: int, factors: tuple[int, ...]
) -> Value:
    shape = value.shape[:dim] + factors + value.shape[dim + 1 :]
    reshape = _made_by(value, "reshape")
    if reshape is not None and reshape.operands[0].shape == shape:
        return reshape.operands[0]
    return graph.create("reshape", [value], [with_shape(value, shape)], before=node).result


def fold_transpose(_graph: Graph, _node: Node, dot: Dot) -> Dot | None:
    """An operand that is a transpose is read in place, if its free dims keep their order."""
    dims = dot.dims
    left = _made_by(dot.lhs, "transpose")
    if left is not None:
        order = left.ints("permutation")
        free = tuple(order[d] for d in dims.lhs_free)
        if free == tuple(sorted(free)):
            new = replace(
                dims,
                lhs_batch=tuple(order[d] for d in dims.lhs_batch),
                lhs_contract=tuple(order[d] for d in dims.lhs_contract),
                lhs_free=free,
            )
            return Dot(left.operands[0], dot.rhs, new)
    right = _made_by(dot.rhs, "transpose")
    if right is not None:
        order = right.ints("permutation")
        free = tuple(order[d] for d in dims.rhs_free)
        if free == tuple(sorted(free)):
            new = replace(
                dims,
                rhs_batch=tuple(order[d] for d in dims.rhs_batch),
                rhs_contract=tuple(order[d] for d in dims.rhs_contract),
                rhs_free=free,
            )
            return Dot(dot.lhs, right.operands[0], new)
    return None


def drop_repeated_batch(_graph: Graph, _node: Node, dot: Dot) -> Dot | None:
    """A right operand repeated along every batch dim: the batch dims are free dims of the left."""
    dims = dot.dims
    repeat = _made_by(dot.rhs, "broadcast_in_dim")
    if repeat is None or not dims.lhs_batch:
        return None
    source = repeat.operands[0]
    placed = repeat.ints("broadcast_dimensions")
    if placed != tuple(d for d in range(len(dot.rhs.shape)) if d not in dims.rhs_batch):
        return None
    if source.shape != tuple(dot.rhs.shape[d] for d in placed):
        return None
    if dims.lhs_batch + dims.lhs_free != tuple(sorted(dims.lhs_batch + dims.lhs_free)):
        return None
    new = DotDims.make(
        (),
        (),
        dims.lhs_contract,
        tuple(placed.index(d) for d in dims.rhs_contract),
        len(dot.lhs.shape),
        len(source.shape),
    )
    return Dot(dot.lhs, source, new)


def merge_runs(graph: Graph, node: Node, dot: Dot) -> Dot | None:
    """Neighbouring free dims, and contracted dims that are neighbours on both sides, become one."""
    dims = dot.dims
    for side in ("lhs", "rhs"):
        free = dims.lhs_free if side == "lhs" else dims.rhs_free
        pair = next((d for d, e in itertools.pairwise(free) if e == d + 1), None)
        if pair is not None:
            return _merge_free(graph, node, dot, side, pair)
    for index in range(len(dims.lhs_contract) - 1):
        left = dims.lhs_contract[index : index + 2]
        right = dims.rhs_contract[index : index + 2]
        if left[1] == left[0] + 1 and right[1] == right[0] + 1:
            return _merge_contracted(graph, node, dot, left[0], right[0])
    return None


def _joined(graph: Graph, node: Node, value: Value, dim: int) -> Value:
    shape = value.shape
    merged = (*shape[:dim], prod(shape[dim : dim + 2]), *shape[dim + 2 :])
    return graph.create("reshape", [value], [with_shape(value, merged)], before=node).result


def _without(dims: tuple[int, ...], gone: int) -> tuple[int, ...]:
    """Dim numbers after dim `gone` was merged into the one before it."""
    return tuple(d - 1 if d > gone else d for d in dims if d != gone)


def _merge_free(graph: Graph, node: Node, dot: Dot, side: str, dim: int) -> Dot:
    dims = dot.dims
    if side == "lhs":
        lhs = _joined(graph, node, dot.lhs, dim)
        new = replace(
            dims,
            lhs_batch=_without(dims.lhs_batch, dim + 1),
            lhs_contract=_without(dims.lhs_contract, dim + 1),
            lhs_free=_without(dims.lhs_free, dim + 1),
        )
        return Dot(lhs, dot.rhs, new)
    rhs = _joined(graph, node, dot.rhs, dim)
    new = replace(
        dims,
        rhs_batch=_without(dims.rhs_batch, dim + 1),
        rhs_contract=_without(dims.rhs_contract, dim + 1),
        rhs_free=_without(dims.rhs_free, dim + 1),
    )
    return Dot(dot.lhs, rhs, new)


def _merge_contracted(graph: Graph, node: Node, dot: Dot, left: int, right: int) -> Dot:
    dims = dot.dims
    return Dot(
        _joined(graph, node, dot.lhs, left),
        _joined(graph, node, dot.rhs, right),
        DotDims(
            _without(dims.lhs_batch, left + 1),
            _without(dims.rhs_batch, right + 1),
            _without(dims.lhs_contract, left + 1),
            _without(dims.rhs_contract, right + 1),
            _without(dims.lhs_free, left + 1),
            _without(dims.rhs_free, right + 1),
        ),
    )


STEPS: tuple[Step, ...] = (
    split_merged_batch,
    fold_transpose,
    drop_repeated_batch,
    merge_runs,
)
