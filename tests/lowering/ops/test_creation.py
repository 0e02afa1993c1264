"""Tensors from nothing against eager."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.single_op import check, run

CASES = {
    "full": lambda x: [torch.full((2, 3), v) for v in (1, 2.5, True, -math.inf)],
    "full wraps": lambda x: torch.full((2,), -1, dtype=torch.int8),
    "full_like": lambda x: [torch.full_like(x, 2.7), torch.full_like(x, 2, dtype=torch.int32)],
    "new_full": lambda x: x.new_full((2,), 3.0),
    "zeros": lambda x: [torch.zeros(2, 3), torch.zeros_like(x), x.new_zeros(2, dtype=torch.bool)],
    "ones": lambda x: [torch.ones(2, dtype=torch.uint8), torch.ones_like(x), x.new_ones(3)],
    "fill": lambda x: [torch.fill(x, 3.0), torch.fill(x, torch.tensor(2))],
    "scalar_tensor": lambda x: torch.scalar_tensor(3, dtype=torch.bfloat16),
    "arange": lambda x: [torch.arange(5), torch.arange(2, 9), torch.arange(0, 10, 3)],
    "arange back": lambda x: [torch.arange(10, 0, -3), torch.arange(0, -7, -2, dtype=torch.uint8)],
    "arange float": lambda x: [torch.arange(0.1, 2, 0.3), torch.arange(3, dtype=torch.bfloat16)],
    "linspace": lambda x: [torch.linspace(0, 1, 7), torch.linspace(5, -3, 4, dtype=torch.int64)],
    "linspace short": lambda x: [torch.linspace(2, 9, 1), torch.linspace(2, 9, 0)],
    "eye": lambda x: [torch.eye(3), torch.eye(2, 4, dtype=torch.int64), torch.eye(2).bool()],
    "indices": lambda x: [torch.tril_indices(4, 3, -1), torch.triu_indices(3, 5, 1)],
    "tril": lambda x: [x.tril(), x.tril(-1), x.tril(2)],
    "triu": lambda x: [x.triu(), x.triu(-1), x.triu(2)],
}


@pytest.mark.parametrize("name", list(CASES))
def test_creation(name: str) -> None:
    check(CASES[name], torch.randn(3, 4))


def test_empty_is_zero_so_that_runs_agree() -> None:
    (made,) = run(lambda x: torch.empty_like(x), torch.randn(3))
    assert not made.any()
