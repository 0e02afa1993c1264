"""The FX-level decompositions handed to AOTAutograd.

In: nothing. Out: overload -> decomposition. Invariant: an operator with an emitter of ours is
never decomposed: the emitter is faster to trace and knows eager's dtypes and edge cases.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch._decomp import core_aten_decompositions
from torch._ops import OperatorBase

from neuron_compile.lowering.registry import all_rules


@functools.cache
def _table() -> dict[OperatorBase, Callable[..., Any]]:
    ours = all_rules()
    return {op: fn for op, fn in core_aten_decompositions().items() if op not in ours}


def decomposition_table() -> dict[OperatorBase, Callable[..., Any]]:
    """The table for `aot_autograd(decompositions=...)`; a copy the caller may change."""
    return dict(_table())
