"""Where functionalization would not do what eager does: Dynamo's graph, put right before
AOTAutograd.

In: the graph as Dynamo captured it. Out: that graph, or a changed copy. Invariant: a write to
memory that overlaps itself never becomes silent other numbers (T010), and what eager returns as the
input itself stays the input itself (T008).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F
from torch.fx.experimental.symbolic_shapes import statically_known_true

from neuron_compile.errors import LoweringError
from neuron_compile.placement import user_line
from neuron_compile.views import Layout, overlaps_itself

# In-place methods that change no element.
_METADATA_ONLY = frozenset(
    {
        "as_strided_",
        "detach_",
        "requires_grad_",
        "resize_",
        "set_",
        "squeeze_",
        "swapaxes_",
        "swapdims_",
        "t_",
        "transpose_",
        "unsqueeze_",
    }
)
# These write the same value everywhere, so eager lets them write an element more than once.
_FILLS = frozenset({"fill_", "zero_"})
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
_DROPOUTS = frozenset(
    {
        F.alpha_dropout,
        F.dropout,
        F.dropout1d,
        F.dropout2d,
        F.dropout3d,
        F.feature_alpha_dropout,
    }
)
# Built-in functions have no signature to ask: (input, p, train).
_BUILTIN_DROPOUTS = frozenset(
    {
        torch.alpha_dropout,
        torch.alpha_dropout_,
        torch.dropout,
        torch.dropout_,
        torch.feature_alpha_dropout,
        torch.feature_alpha_dropout_,
        torch.feature_dropout,
        torch.feature_dropout_,
    }
)
# Attributes that Dynamo sets on graphs and AOTAutograd reads.
_GRAPH_ATTRIBUTES = ("_param_name_to_source", "_source_to_user_stacks")


def prepare(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with inactive dropouts and fills of expanded tensors replaced; never changed
    itself.

    Raises LoweringError for any other in-place operator on a tensor that overlaps itself.
    """
    todo = [(node, change) for node in graph.graph.nodes if (change := _change(node))]
    if not todo:
        return graph
    changed, copies = _copy(graph)
    for node, change in todo:
        change(changed.graph, copies[node])
    changed.recompile()
    return changed


_Change = Callable[[torch.fx.Graph, torch.fx.Node], None]


def _change(node: torch.fx.Node) -> _Change | None:
    if node.op == "call_function" and _is_inactive_dropout(node):
        return _replace_by_input
    if not _overlaps(_written(node)):
        return None
    if node.target in _FILLS and _written_strides(node).count(0):
        return _fill_each_element_once
    value = node.args[0].meta["example_value"]  # type: ignore[union-attr]
    raise LoweringError(
        f"unsupported operation: {node.target} writes to a tensor in which more than one element "
        f"refers to a single memory location "
        f"(shape {tuple(value.shape)}, stride {value.stride()})",
        where=user_line(node),
        why="the result would depend on the order of the writes",
        remedy="clone() the tensor before the operation",
    )


def _is_inactive_dropout(node: torch.fx.Node) -> bool:
    if node.target in _DROPOUTS:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # type: ignore[arg-type]
        bound.apply_defaults()
        p, training = bound.arguments["p"], bound.arguments["training"]
    elif node.target in _BUILTIN_DROPOUTS and len(node.args) == 3:
        p, training = node.args[1:]
    else:
        return False
    return training is False or (isinstance(p, int | float) and p == 0)


def _replace_by_input(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    node.replace_all_uses_with(node.args[0] if node.args else node.kwargs["input"])  # type: ignore[arg-type]
    graph.erase_node(node)


def _fill_each_element_once(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    target = node.args[0]
    strides, size = _written_strides(node), target.meta["example_value"].shape  # type: ignore[union-attr]
    with graph.inserting_before(node):
        for dim, step in enumerate(strides):
            if step == 0 and size[dim] > 1:
                target = graph.call_method("narrow", (target, dim, 0, 1))
                target.meta["stack_trace"] = node.meta.get("stack_trace")
        once = graph.call_method(str(node.target), (target, *node.args[1:]), node.kwargs)
    once.meta = {**node.meta}
    once.meta.pop("example_value", None)
    node.replace_all_uses_with(node.args[0])  # type: ignore[arg-type]
    graph.erase_node(node)


def _written(node: torch.fx.Node) -> Any:
    """The tensor an in-place operator writes to, as Dynamo saw it; None for other nodes."""
    inplace = (
        node.target.endswith("_")
        and not node.target.endswith("__")
        and node.target not in _METADATA_ONLY
        if node.op == "call_method" and isinstance(node.target, str)
        else node.op == "call_function" and node.target in _INPLACE_OPERATORS
    )
    if not inplace or not node.args or not isinstance(node.args[0], torch.fx.Node):
        return None
    return node.args[0].meta.get("example_value")


def _written_strides(node: torch.fx.Node) -> tuple[int, ...]:
    return tuple(_written(node).stride())


def _overlaps(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return False
    sizes, strides = tuple(value.shape), value.stride()
    if all(isinstance(number, int) for number in (*sizes, *strides)):
        return overlaps_itself(Layout(sizes, strides))
    # Of symbolic sizes only what holds for all of them: to ask for more would add guards.
    return any(
        isinstance(step, int) and step == 0 and statically_known_true(size > 1)
        for size, step in zip(sizes, strides, strict=True)
    )


def _copy(
    graph: torch.fx.GraphModule,
) -> tuple[torch.fx.GraphModule, dict[torch.fx.Node, torch.fx.Node]]:
    nodes = torch.fx.Graph()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    nodes.output(nodes.graph_copy(graph.graph, copies))
    for old, new in copies.items():
        if hasattr(old, "_dynamo_source"):
            new._dynamo_source = old._dynamo_source  # type: ignore[attr-defined]
    changed = torch.fx.GraphModule(graph, nodes)
    changed.meta = {**graph.meta}
    for name in _GRAPH_ATTRIBUTES:
        if hasattr(graph, name):
            setattr(changed, name, getattr(graph, name))
    return changed, copies
