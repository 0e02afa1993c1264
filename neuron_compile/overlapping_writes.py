"""Writes to memory where several elements share an address: eager refuses them, so do we.

In: the graph as Dynamo captured it. Out: nothing, or the error eager would raise. Invariant:
functionalization never gets to make numbers out of such a write that eager would not have made
(T010).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
import torch.fx

from neuron_compile.errors import LoweringError
from neuron_compile.placement import user_line
from neuron_compile.views import Layout, overlaps_itself

# In-place methods that change no element, or that eager allows because every write is the same
# value.
_HARMLESS = frozenset(
    {
        "as_strided_",
        "detach_",
        "fill_",
        "requires_grad_",
        "resize_",
        "set_",
        "squeeze_",
        "swapaxes_",
        "swapdims_",
        "t_",
        "transpose_",
        "unsqueeze_",
        "zero_",
    }
)
_INPLACE_OPERATORS = frozenset(
    {
        operator.iadd,
        operator.iand,
        operator.ifloordiv,
        operator.ilshift,
        operator.imod,
        operator.imul,
        operator.ior,
        operator.ipow,
        operator.irshift,
        operator.isub,
        operator.itruediv,
        operator.ixor,
    }
)


def refuse_overlapping_writes(graph: torch.fx.GraphModule) -> None:
    """Raises LoweringError for an in-place operator on a tensor that overlaps itself."""
    for node, target in _writes(graph):
        value = target.meta.get("example_value")
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            continue
        sizes = (*value.shape, *value.stride())
        if not all(isinstance(number, int) for number in sizes):
            continue  # comparing symbolic sizes would add guards
        if overlaps_itself(Layout(tuple(value.shape), value.stride())):
            raise LoweringError(
                f"unsupported operation: {node.target} writes to a tensor in which more than one "
                "element refers to a single memory location "
                f"(shape {tuple(value.shape)}, stride {value.stride()})",
                where=user_line(node),
                why="the result would depend on the order of the writes; eager refuses it too",
                remedy="clone() the tensor before the operation",
            )


def _writes(graph: torch.fx.GraphModule) -> Iterator[tuple[torch.fx.Node, torch.fx.Node]]:
    for node in graph.graph.nodes:
        if not node.args or not isinstance(node.args[0], torch.fx.Node):
            continue
        if (
            node.op == "call_method"
            and node.target.endswith("_")
            and not node.target.endswith("__")
            and node.target not in _HARMLESS
        ) or (node.op == "call_function" and node.target in _INPLACE_OPERATORS):
            yield node, node.args[0]
