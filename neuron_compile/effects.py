"""What a call must refuse: runtime assertions of the graph, and indices out of range.

In: a static graph. Out: the graph without nodes that return nothing, and the checks that each call
makes instead. Invariant: what eager would refuse is refused, before anything of the call is
returned or written to an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from neuron_compile.errors import ExecutionError, IndexRangeError
from neuron_compile.graph_notes import input_name
from neuron_compile.index_bounds import Condition, index_conditions
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
    """Computed output `index`, one element, must be true; else the call raises `error(args)`."""

    index: int
    message: str

    def error(self, _args: Sequence[Any]) -> RuntimeError:
        return RuntimeError(self.message)


@dataclass(frozen=True, slots=True)
class IndexCheck(Check):
    """A check of indices, used in the user's line `where`; `argument` holds them, if one does."""

    where: str
    indices: str
    argument: int | None

    def error(self, args: Sequence[Any]) -> RuntimeError:
        found = "has others"
        if self.argument is not None:
            low, high = torch.aminmax(args[self.argument])
            found = f"has values from {low.item()} to {high.item()}"
        return IndexRangeError(
            self.message,
            where=self.where,
            why=f"{self.indices} {found}",
            remedy="look at the data: labels, tokens and positions must fit the sizes of the model",
        )


def take_index_checks(
    graph: torch.fx.Graph, output_index: Callable[[torch.fx.Node, Layout], int]
) -> tuple[Check, ...]:
    """Checks of the indices that may be out of range; see `index_bounds`."""
    return tuple(
        _index_check(
            condition, output_index(condition.node, layout_on(condition.node, condition.node))
        )
        for condition in index_conditions(graph)
    )


def _index_check(condition: Condition, index: int) -> IndexCheck:
    base = condition.looked_at
    placeholders = base.graph.find_nodes(op="placeholder")
    argument = list(placeholders).index(base) if base.op == "placeholder" else None
    fake = base.meta["val"]
    kind = f"{str(fake.dtype).removeprefix('torch.')}{list(fake.shape)}"
    name = base.name if argument is None else input_name(base)
    return IndexCheck(index, condition.message, condition.where, f"{name} ({kind})", argument)


def take_effects(
    graph: torch.fx.Graph, output_index: Callable[[torch.fx.Node, Layout], int]
) -> tuple[Check, ...]:
    """Remove assertion nodes; what they look at becomes an output, through `output_index`."""
    checks: list[Check] = []
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _ASSERTIONS:
            condition = _truth(graph, node)
            message = node.args[1] if len(node.args) > 1 else "assertion failed in compiled code"
            index = output_index(condition, layout_on(condition, condition))
            checks.append(Check(index, str(message)))
        elif node.target is aten._assert_scalar.default:
            if not node.args[0]:
                raise ExecutionError(str(node.args[1]))
        elif node.target not in _SETTLED:
            continue
        graph.erase_node(node)
    return tuple(checks)


def _truth(graph: torch.fx.Graph, assertion: torch.fx.Node) -> torch.fx.Node:
    """What is asserted, as a boolean of its own: not 0 where it is a number."""
    asserted = assertion.args[0]
    assert isinstance(asserted, torch.fx.Node)
    fake = asserted.meta["val"]
    if fake.dtype is torch.bool and asserted.op != "placeholder":
        return asserted
    with graph.inserting_before(assertion), fake.fake_mode:
        made = graph.call_function(aten.ne.Scalar, (asserted, 0))
        made.meta = {**assertion.meta, "val": aten.ne.Scalar(fake, 0)}
    return made
