"""An MLIR context in which lowering can work.

In: nothing. Out: a fresh `ir.Context` with the dialects torch, torch_c, func, stablehlo and chlo
loaded. Invariant: one context per lowering, so that its constants are freed with the module.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.passmanager import PassManager

# torch_c and chlo have no registration call of their own in the wheel: they are loaded as dependent
# dialects of the passes that need them, and that happens even when the module is empty.
_LOADS_TORCH_C_AND_CHLO = (
    "builtin.module(torch-func-backend-type-conversion,func.func(convert-torch-to-stablehlo))"
)


def new_context() -> ir.Context:
    """A fresh context with every dialect lowering uses (about 15 ms)."""
    context = ir.Context()
    context.emit_error_diagnostics = True
    torch_dialect.register_dialect(context)
    _stablehlo.register_dialect(context, load=True)
    with context, ir.Location.unknown():
        empty = ir.Module.create()
        PassManager.parse(_LOADS_TORCH_C_AND_CHLO).run(empty.operation)
    return context
