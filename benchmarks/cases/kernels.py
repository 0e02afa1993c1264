"""Single layers: RMSNorm as users write it, softmax, an MLP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from benchmarks.case import Case, Prepared, forward

ROWS, COLUMNS = 4096, 1024


def naive_rmsnorm(x: Tensor, weight: Tensor) -> Tensor:
    """Six operators in eager mode, as in the first line of many models."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def softmax(x: Tensor) -> Tensor:
    """Over the last dimension."""
    return torch.softmax(x, -1)


def _rmsnorm() -> Prepared:
    return forward(naive_rmsnorm, torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS))


def _softmax() -> Prepared:
    return forward(softmax, torch.randn(ROWS, COLUMNS))


def _mlp() -> Prepared:
    model = nn.Sequential(nn.Linear(768, 3072), nn.GELU(), nn.Linear(3072, 768)).eval()
    return forward(model, torch.randn(256, 768))


CASES = (
    Case("rmsnorm-4096x1024", _rmsnorm),
    Case("softmax-4096x1024", _softmax),
    Case("mlp-256x768", _mlp),
)
