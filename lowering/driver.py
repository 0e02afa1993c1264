"""The lowering stage on one screen: find what is unsupported, import, finish, hand over.

In: an FX graph of aten ops, every node with a static FakeTensor in meta["val"], placeholders all
tensors, outputs a flat tuple of computed tensors. Out: `Lowered`. Invariant: `@main` holds only
`stablehlo.*` and `chlo.*` ops over static ranked tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.context import new_context
from neuron_compile.lowering.importer import import_graph
from neuron_compile.lowering.torch_mlir_road import finish_torch_ops
from neuron_compile.lowering.unsupported import refuse_unsupported


@dataclass(frozen=True, slots=True)
class Lowered:
    """One lowered graph.

    `module` has one public `func.func @main`, arguments and results in graph order; attribute
    `neuron.strides` (elements) on those that are not row-major contiguous. If `uses_random`, one
    last argument `tensor<2xui64>` (key, counter) is expected anew on every call.
    """

    module: ir.Module
    uses_random: bool


def lower(graph: torch.fx.GraphModule) -> Lowered:
    """Lower a graph to StableHLO; the graph itself is not changed.

    Raises UnsupportedOpError naming every operator that cannot be translated, or LoweringError when
    a translation fails although the operator is known.
    """
    refuse_unsupported(graph)
    with new_context():
        imported = import_graph(graph)
        if imported.torch_ops:
            finish_torch_ops(imported.module, imported.torch_ops)
        return Lowered(imported.module, imported.uses_random)
