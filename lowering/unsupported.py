"""Which nodes of a graph cannot be lowered, all found before any work is done.

In: an FX graph. Out: records, or one UnsupportedOpError with every one of them. Invariant: asks
the registry's `supports` predicates and the table of Torch-MLIR's operators, never the converter.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx
from torch._higher_order_ops.effects import with_effects
from torch._ops import OpOverload

from neuron_compile.errors import LEAVE_TO_PYTORCH, UnsupportedOpError
from neuron_compile.lowering import locations
from neuron_compile.lowering.element_types import SUPPORTED_DTYPES
from neuron_compile.lowering.registry import is_complex, rule_for_node
from neuron_compile.lowering.torch_mlir_table import is_translated

# A model of many equal layers has the same operator in each of them.
_MOST_PLACES = 4


@dataclass(frozen=True, slots=True)
class UnsupportedOp:
    """One node that cannot be lowered, in words for the user."""

    op: str
    operands: str
    where: str
    reason: str
    node: torch.fx.Node

    def __str__(self) -> str:
        return f"{self.op}({self.operands}) at {self.where}: {self.reason}"


def find_unsupported(graph: torch.fx.GraphModule) -> list[UnsupportedOp]:
    """Every node of the graph that cannot be lowered, in graph order."""
    found = []
    for node in graph.graph.nodes:
        reason = _reason(node)
        if reason is not None:
            found.append(
                UnsupportedOp(_name(node), _operands(node), locations.describe(node), reason, node)
            )
    return found


def _name(node: torch.fx.Node) -> str:
    """The operator; of one that AOTAutograd wrapped because of its effect, that inside."""
    return str(node.args[1] if node.target is with_effects else node.target)


def refuse_unsupported(graph: torch.fx.GraphModule) -> None:
    """Raise one UnsupportedOpError that lists every unsupported node, if there is any."""
    found = find_unsupported(graph)
    if found:
        raise UnsupportedOpError(
            _headline(found),
            where=found[0].where,
            why=found[0].reason,
            remedy=LEAVE_TO_PYTORCH,
            ops=[str(op) for op in found],
        )


def _headline(found: Sequence[UnsupportedOp]) -> str:
    """Each operator once, and below it the operands and lines of its uses."""
    uses: dict[tuple[str, str], Counter[str]] = {}
    for use in found:
        place = f"{use.operands or 'no tensors'} at {use.where}"
        uses.setdefault((use.op, use.reason), Counter())[place] += 1
    lines = [f"{len(uses)} operator{'s' * (len(uses) > 1)} cannot be lowered:"]
    for (op, reason), places in uses.items():
        lines.append(f"    {op}: {reason}")
        for place, count in list(places.items())[:_MOST_PLACES]:
            lines.append(f"        {place}" + (f" ({count} times)" if count > 1 else ""))
        if len(places) > _MOST_PLACES:
            lines.append(f"        and at {len(places) - _MOST_PLACES} more places")
    return "\n".join(lines)


def _reason(node: torch.fx.Node) -> str | None:
    if node.op in ("placeholder", "get_attr"):
        return _dtype_reason(_tensors(node.meta.get("val")))
    if node.op != "call_function" or node.target is operator.getitem:
        return None
    if node.target is with_effects:
        return "an effect besides its results, such as a check, cannot be lowered"
    if not isinstance(node.target, OpOverload):
        return "only aten operators can be lowered"
    dtype_reason = _dtype_reason(_tensors(node.meta.get("val")))
    if dtype_reason is not None:
        return dtype_reason
    rule = rule_for_node(node)
    if rule is not None:
        return rule.supports(node) if rule.supports is not None else None
    if is_complex(node):
        return "no emitter for complex tensors"
    if is_translated(node.target):
        return None
    return "no emitter, and Torch-MLIR does not translate it"


def _dtype_reason(tensors: Iterable[torch.Tensor]) -> str | None:
    for tensor in tensors:
        if tensor.dtype not in SUPPORTED_DTYPES:
            return f"dtype {tensor.dtype} is not supported"
    return None


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for item in value if isinstance(item, torch.Tensor)]
    return []


def _operands(node: torch.fx.Node) -> str:
    texts = []
    for arg in node.all_input_nodes:
        for tensor in _tensors(arg.meta.get("val")):
            dtype = str(tensor.dtype).removeprefix("torch.")
            texts.append(f"{dtype}{list(tensor.shape)}")
    return ", ".join(texts)
