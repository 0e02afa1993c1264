"""What a call must refuse: runtime assertions, indices out of range, division by zero.

In: a static graph. Out: the graph without nodes that return nothing, and the checks that each call
makes instead. Invariant: what eager would refuse is refused, before anything of the call is
returned or written to an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from neuron_compile.demands import Condition, Demand, demanded
from neuron_compile.errors import ExecutionError
from neuron_compile.graph_notes import input_name
from neuron_compile.placement import user_line

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
    """What a call raises where a computed boolean is false."""

    message: str

    def error(self, _args: Sequence[Any]) -> RuntimeError:
        return RuntimeError(self.message)


@dataclass(frozen=True, slots=True)
class DemandCheck(Check):
    """A check of integers, described as `operand`, in the user's line `where`; `argument` holds
    them, if one does.
    """

    where: str
    operand: str
    argument: int | None
    kind: type[Demand]

    def error(self, args: Sequence[Any]) -> RuntimeError:
        found = "has other values"
        if self.argument is not None:
            values = args[self.argument].detach().numpy()  # torch has no aminmax of uint16
            found = f"has values from {values.min()} to {values.max()}"
        return self.kind.error(
            self.message,
            where=self.where,
            why=f"{self.operand} {found}",
            remedy=self.kind.remedy,
        )


def take_demands(graph: torch.fx.Graph) -> list[tuple[torch.fx.Node, Check]]:
    """Checks of the integers that operators may refuse, and what computes them; see `demands`."""
    return [(found.node, _demand_check(found)) for found in demanded(graph)]


def _demand_check(condition: Condition) -> DemandCheck:
    base = condition.looked_at
    placeholders = base.graph.find_nodes(op="placeholder")
    argument = list(placeholders).index(base) if base.op == "placeholder" else None
    fake = base.meta["val"]
    name = base.name if argument is None else input_name(base)
    return DemandCheck(
        condition.message,
        where=user_line(condition.asked_by),
        operand=f"{name} ({str(fake.dtype).removeprefix('torch.')}{list(fake.shape)})",
        argument=argument,
        kind=type(condition.demand),
    )


def take_effects(graph: torch.fx.Graph) -> list[tuple[torch.fx.Node, Check]]:
    """Remove assertion nodes; returns what they look at, with what to say where it is false."""
    checks: list[tuple[torch.fx.Node, Check]] = []
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if node.target in _ASSERTIONS:
            message = node.args[1] if len(node.args) > 1 else "assertion failed in compiled code"
            checks.append((_truth(graph, node), Check(str(message))))
        elif node.target is aten._assert_scalar.default:
            if not node.args[0]:
                raise ExecutionError(str(node.args[1]))
        elif node.target not in _SETTLED:
            continue
        graph.erase_node(node)
    return checks


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
