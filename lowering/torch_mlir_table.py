"""The operators we leave to Torch-MLIR: those it translates to StableHLO as eager means them.

In: an operator overload. Out: whether Torch-MLIR's road is open to it. Invariant: an operator is
here only if tests have compared its translation with eager PyTorch.
"""

from __future__ import annotations

import torch
from torch._ops import OpOverload

aten = torch.ops.aten

_TRANSLATED: frozenset[OpOverload] = frozenset(
    {
        aten.pixel_shuffle.default,
    }
)


def is_translated(overload: OpOverload) -> bool:
    """Whether Torch-MLIR translates this overload."""
    return overload in _TRANSLATED


def translated() -> frozenset[OpOverload]:
    """Every overload that goes Torch-MLIR's road."""
    return _TRANSLATED
