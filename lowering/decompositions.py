"""The FX-level decompositions handed to AOTAutograd.

In: nothing. Out: overload -> decomposition. Invariants: an operator with an emitter of ours is
never decomposed (the emitter is faster to trace and knows eager's dtypes and edge cases); asking
for the table does not import torch_mlir, since a warm start asks for it too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._decomp import core_aten_decompositions
from torch._ops import OperatorBase

from neuron_compile.lowering.foreach import foreach_decompositions
from neuron_compile.lowering.kept_whole import KEPT_WHOLE


@functools.cache
def _table() -> dict[OperatorBase, Callable[..., Any]]:
    core = core_aten_decompositions().items()
    return {op: fn for op, fn in core if str(op) not in KEPT_WHOLE} | foreach_decompositions()


def decomposition_table() -> dict[OperatorBase, Callable[..., Any]]:
    """The table for `aot_autograd(decompositions=...)`; a copy the caller may change."""
    return dict(_table())
