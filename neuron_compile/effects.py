"""Nodes of a graph that return nothing but must not be dropped: runtime assertions.

In: a static graph. Out: the graph without them, and the checks that each call makes instead.
Invariant: what eager would refuse is refused, before anything of the call is returned or written
back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.fx

from neuron_compile.errors import ExecutionError
from neuron_compile.views import Layout, layout_on

aten = torch.ops.aten

# Already settled by Dynamo's guards, or about symbolic sizes that are numbers by now.
_SETTLED = frozenset(
    {
        aten._assert_tensor_metadata.default,
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
    }
)
_ASSERTIONS = frozenset({aten._assert_async.default, aten._assert_async.msg})


@dataclass(frozen=True, slots=True)
class Check:
    """Computed output `index`, one element, must be true; else the call raises
    RuntimeError(message).
    """

    index: int
    message: str


def take_effects(
    graph: torch.fx.Graph, output_index: Callable[[torch.fx.Node, Layout], int]
) -> tuple[Check, ...]:
    """Remove assertion nodes; what they look at becomes an output, through `output_index`."""
    checks: list[Check] = []
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _ASSERTIONS:
            condition = node.args[0]
            message = node.args[1] if len(node.args) > 1 else "assertion failed in compiled code"
            checks.append(
                Check(output_index(condition, layout_on(condition, condition)), str(message))
            )
        elif node.target is aten._assert_scalar.default:
            if not node.args[0]:
                raise ExecutionError(str(node.args[1]))
        elif node.target not in _SETTLED:
            continue
        graph.erase_node(node)
    return tuple(checks)
