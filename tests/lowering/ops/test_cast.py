"""Copies and reinterpretation; conversion itself is in test_semantics."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.single_op import check

aten = torch.ops.aten


def test_copies_are_the_value() -> None:
    x = torch.randn(2, 3)
    check(
        lambda x: [x.clone(), x.detach(), x.contiguous(), x.positive(), aten.lift_fresh_copy(x)], x
    )


def test_copy_broadcasts_and_converts() -> None:
    check(
        lambda x, y: aten.copy(x, y),
        torch.zeros(2, 3, dtype=torch.int32),
        torch.tensor([1.7, -2.0, 3.0]),
    )


@pytest.mark.parametrize(
    "target", [torch.int8, torch.int16, torch.int32, torch.int64, torch.float64]
)
def test_same_bytes_in_another_dtype(target: torch.dtype) -> None:
    x = torch.randint(-(2**31), 2**31 - 1, (3, 4), dtype=torch.int32)
    check(lambda x: x.view(target), x)
    check(lambda x: x.view(target), torch.randn(2, 8, dtype=torch.float64))


def test_view_before_store() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:  # T001
        x = x.clone()
        y = x.view(torch.int32) * 2
        y.sub_(-4)
        x[:, 2:5] = 2
        return y.view(torch.int64)

    check(function, torch.arange(-12, 12).reshape(4, 6))
