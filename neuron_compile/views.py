"""Views in a graph: which nodes only look at another node's memory, and how.

In: nodes of a static graph with FakeTensors in their meta. Out: the node whose memory a view shows,
and the view's layout on it. Invariant: a view found here has its base's dtype, so sizes, strides
and an offset rebuild it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.fx

aten = torch.ops.aten

VIEWS = frozenset(
    {
        aten._unsafe_view.default,
        aten.alias.default,
        aten.as_strided.default,
        aten.detach.default,
        aten.diagonal.default,
        aten.expand.default,
        aten.permute.default,
        aten.select.int,
        aten.slice.Tensor,
        aten.squeeze.default,
        aten.squeeze.dim,
        aten.squeeze.dims,
        aten.t.default,
        aten.transpose.int,
        aten.unfold.default,
        aten.unsqueeze.default,
        aten.view.default,
    }
)

# Operators that give several views at once; `getitem` picks one.
MULTI_VIEWS = frozenset(
    {aten.split.Tensor, aten.split_with_sizes.default, aten.unbind.int, aten.split.sizes}
)

# Elements of a layout that are looked at one by one to see whether they overlap.
_LARGEST_TRIED = 1 << 16


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes and strides in elements, and the offset in elements from the base's first element."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0


def base_of(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory `node` shows; itself if it is no view."""
    while (source := _source(node)) is not None:
        node = source
    return node


def path_from(base: torch.fx.Node, view: torch.fx.Node) -> list[torch.fx.Node] | None:
    """The nodes that make `view` of `base`, in order, with the operators that give several views;
    None if it is none.
    """
    path: list[torch.fx.Node] = []
    node: torch.fx.Node = view
    while node is not base:
        source = _source(node)
        if source is None:
            return None
        path.append(node)
        if node.target is operator.getitem:
            path.append(node.args[0])  # type: ignore[arg-type]
        node = source
    return path[::-1]


def layout_on(node: torch.fx.Node, base: torch.fx.Node) -> Layout:
    """Where `node`, a view of `base`, lies on it."""
    view, whole = node.meta["val"], base.meta["val"]
    return Layout(tuple(view.shape), view.stride(), view.storage_offset() - whole.storage_offset())


def is_dense(layout: Layout) -> bool:
    """True if the elements fill one block of memory without gap or overlap, in whatever order."""
    dims = sorted(
        (stride, size) for size, stride in zip(layout.size, layout.stride, strict=True) if size != 1
    )
    if any(size == 0 for _, size in dims):
        return True
    expected = 1
    for stride, size in dims:
        if stride != expected:
            return False
        expected *= size
    return True


def overlaps_itself(layout: Layout) -> bool:
    """True if two indices name the same element.

    Sorted by stride, each step that leaves the extent of the smaller ones rules it out. Layouts
    that interleave are tried out, unless they are so large that they are called overlapping unseen.
    """
    dims = sorted(
        (stride, size) for size, stride in zip(layout.size, layout.stride, strict=True) if size != 1
    )
    if any(size == 0 for _, size in dims):
        return False
    extent = 0
    for stride, size in dims:
        if stride <= extent:
            return _tried_to_overlap(dims)
        extent += stride * (size - 1)
    return False


def _tried_to_overlap(dims: Sequence[tuple[int, int]]) -> bool:
    count = math.prod(size for _, size in dims)
    if count > _LARGEST_TRIED:
        return True
    offsets = {0}
    for stride, size in dims:
        offsets = {offset + stride * i for offset in offsets for i in range(size)}
    return len(offsets) < count


def same_memory_order(a: Layout, b: Layout) -> bool:
    """True if both put every element in the same place; strides of single-element dimensions do not
    matter.
    """
    if a.size != b.size:
        return False
    if 0 in a.size:
        return True
    return all(size == 1 or x == y for size, x, y in zip(a.size, a.stride, b.stride, strict=True))


def _source(node: torch.fx.Node) -> torch.fx.Node | None:
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        parent = node.args[0]
        if not isinstance(parent, torch.fx.Node) or parent.target not in MULTI_VIEWS:
            return None
        return parent.args[0]  # type: ignore[return-value]
    return node.args[0] if node.target in VIEWS else None  # type: ignore[return-value]
