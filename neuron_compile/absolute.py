"""Views at absolute positions: `as_strided` counts from the beginning of the storage, not of the
tensor, and shows what lies around the tensor as well.

In: a graph, and where the inputs lie in their storages in one call. Out: a graph that gets whole
storages for such inputs. Invariant: nothing in a static graph depends on where an input begins, for
neither Dynamo's guards nor the key know it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.fx

aten = torch.ops.aten

# What a graph of Dynamo calls them.
_CALLS = frozenset(
    {
        "as_strided",
        "as_strided_",
        "as_strided_scatter",
        torch.as_strided,
        torch.as_strided_,
        torch.as_strided_copy,
        torch.as_strided_scatter,
    }
)
# Operator -> the position of its offset; the view is taken of the first argument.
_OPERATORS = {
    aten.as_strided.default: 3,
    aten.as_strided_copy.default: 3,
    aten.as_strided_scatter.default: 4,
}
# These show the memory; as_strided_scatter gives a tensor like its first argument.
_SHOWS = frozenset({aten.as_strided.default, aten.as_strided_copy.default})


def bakes_offsets(graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> bool:
    """Whether AOTAutograd's graphs of this one of Dynamo's hold where its inputs begin: the
    gradient of `as_strided` is computed with the offsets of the trace.
    """
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in example_inputs):
        return False
    graphs = (m.graph for m in graph.modules() if isinstance(m, torch.fx.GraphModule))
    return any(node.target in _CALLS for g in graphs for node in g.nodes)


def viewed_inputs(graph: torch.fx.GraphModule) -> dict[torch.fx.Node, torch.fx.Node]:
    """Every node that takes a view at an absolute position of an input -> the input's
    placeholder.
    """
    found = {}
    for node in graph.graph.nodes:
        if is_absolute(node):
            root = _root(node.args[0])
            if root.op == "placeholder":
                found[node] = root
    return found


def can_show_storage(node: torch.fx.Node, root: torch.fx.Node) -> bool:
    """Whether the view would be the same if it were taken of the whole storage of `root`."""
    source: torch.Tensor = node.args[0].meta["val"]  # type: ignore[union-attr]
    return node.target in _SHOWS and source.dtype == root.meta["val"].dtype


def storage_length(tensor: torch.Tensor) -> int:
    """In elements of the tensor's dtype."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def whole_storage(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's storage as one row, of the same memory and version counter."""
    return tensor.detach().as_strided((storage_length(tensor),), (1,), 0)


def is_absolute(node: torch.fx.Node) -> bool:
    """Whether the node takes a view at an absolute position; without an offset, the view begins
    where the viewed tensor does.
    """
    position = _OPERATORS.get(node.target)  # type: ignore[arg-type]
    if position is None:
        return False
    given = node.args[position] if len(node.args) > position else node.kwargs.get("storage_offset")
    return given is not None


def _root(node: torch.fx.Node) -> torch.fx.Node:
    """The node whose memory `node` shows: the first one with this storage."""
    while True:
        source = next((n for n in node.all_input_nodes if _shares(n, node)), None)
        if source is None:
            return node
        node = source


def _shares(a: torch.fx.Node, b: torch.fx.Node) -> bool:
    return not _storages(a.meta.get("val")).isdisjoint(_storages(b.meta.get("val")))


def _storages(value: Any) -> set[int]:
    if isinstance(value, torch.Tensor):
        return {value.untyped_storage()._cdata}
    if isinstance(value, list | tuple):
        return set().union(*map(_storages, value))
    return set()
