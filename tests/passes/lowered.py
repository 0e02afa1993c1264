"""Modules as the lowering stage makes them: the forward and backward graph of a PyTorch function.

In: a function and its inputs. Out: StableHLO modules. Invariant: outputs are unique computed
tensors, which is what the front door hands to the lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func
from torch_mlir import ir

from neuron_compile.lowering import decomposition_table, lower
from tests import oracle


def modules_of(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[ir.Module]:
    """The forward module, and the backward one if the result requires a gradient."""
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def backend(graph: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        return aot_module_simplified(
            graph, examples, keep, bw_compiler=keep, decompositions=decomposition_table()
        )

    result = torch.compile(function, backend=backend, dynamic=False)(*inputs)
    if result.requires_grad:
        result.sum().backward()
    return [_lowered(graph) for graph in graphs]


def _lowered(graph: torch.fx.GraphModule) -> ir.Module:
    output = next(node for node in graph.graph.nodes if node.op == "output")
    unique = {
        value: None
        for value in output.args[0]
        if isinstance(value, torch.fx.Node)
        and value.op != "placeholder"
        and isinstance(value.meta.get("val"), torch.Tensor)
    }
    output.args = (tuple(unique),)
    graph.recompile()
    module = lower(graph).module
    return oracle.parse(module.operation.get_asm(enable_debug_info=True))
