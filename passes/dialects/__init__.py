"""Empty Python mirrors of the dialects stablehlo and chlo, and the context the passes work in.

In: nothing. Out: `new_context()`, a context that parses stablehlo, chlo and func.
Invariant: MLIR finds a Python module for every dialect we touch. Without one, its bindings search
the import path again for each op they hand out, which costs 20 us per op instead of 1 us.
"""

from __future__ import annotations

from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo
from torch_mlir._mlir_libs._mlir import globals as _mlir_globals
from torch_mlir.dialects import torch as torch_dialect
from torch_mlir.passmanager import PassManager

_mlir_globals.append_dialect_search_prefix(__name__)
_stablehlo.register_stablehlo_passes()

# chlo has no registration call in the wheel: it is loaded as dependent dialect of this pass, and
# that happens even when the module is empty.
_LOADS_CHLO = "builtin.module(func.func(convert-torch-to-stablehlo))"


def new_context() -> ir.Context:
    """A fresh context that knows stablehlo, chlo and func (about 15 ms)."""
    context = ir.Context()
    _stablehlo.register_dialect(context, load=True)
    torch_dialect.register_dialect(context)
    with context, ir.Location.unknown():
        PassManager.parse(_LOADS_CHLO).run(ir.Module.create().operation)
    return context
