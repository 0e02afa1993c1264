"""Lowering stage: an AOTAutograd FX graph with static shapes becomes one StableHLO module.

In: `torch.fx.GraphModule` of aten ops. Out: `Lowered(module, uses_random)`. Invariant: no torch
dialect is left, every op carries the user's file:line. Importing this package is light: torch and
torch_mlir are loaded when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from neuron_compile.lowering.decompositions import decomposition_table
    from neuron_compile.lowering.driver import Lowered, lower
    from neuron_compile.lowering.unsupported import UnsupportedOp, find_unsupported

# No exported name may also be the name of a submodule: importing that submodule would replace it.
_EXPORTS = {
    "Lowered": "driver",
    "lower": "driver",
    "decomposition_table": "decompositions",
    "UnsupportedOp": "unsupported",
    "find_unsupported": "unsupported",
}

__all__ = ["Lowered", "UnsupportedOp", "decomposition_table", "find_unsupported", "lower"]


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)
