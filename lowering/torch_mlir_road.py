"""Torch-MLIR's own conversion, for the operators we have no emitter for.

In: a module that mixes torch-dialect ops, torch_c casts and StableHLO. Out: the same module with
StableHLO only. Invariant: a failure names the operators that were on this road.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch.fx
from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from neuron_compile.errors import LEAVE_TO_PYTORCH, LoweringError
from neuron_compile.lowering import locations

# The first pipeline decomposes and normalises the torch dialect, the second converts it and removes
# the casts our emitters stand between.
_PIPELINES = (
    "builtin.module(torchdynamo-export-to-torch-backend-pipeline)",
    "builtin.module(torch-backend-to-stablehlo-backend-pipeline)",
)


def finish_torch_ops(module: ir.Module, torch_ops: Sequence[torch.fx.Node]) -> None:
    """Convert in place what is left of the torch dialect; LoweringError if that fails."""
    for pipeline in _PIPELINES:
        try:
            PassManager.parse(pipeline).run(module.operation)
        except ir.MLIRError as error:
            details = "; ".join(str(d.message) for d in error.error_diagnostics) or str(error)
            names = sorted({str(node.target) for node in torch_ops})
            raise LoweringError(
                f"Torch-MLIR could not translate one of: {', '.join(names)}",
                where=locations.describe(torch_ops[0]),
                why=details,
                remedy=LEAVE_TO_PYTORCH,
            ) from error
