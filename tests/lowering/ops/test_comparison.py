"""Comparison, logic and bits against eager."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.single_op import check

COMPARISONS = [torch.eq, torch.ne, torch.lt, torch.le, torch.gt, torch.ge]


@pytest.mark.parametrize("call", COMPARISONS, ids=lambda f: f.__name__)
def test_comparison(call) -> None:
    x = torch.tensor([1.0, 2.0, math.nan, -0.0, math.inf])
    check(call, x, torch.tensor([2.0, 2.0, math.nan, 0.0, math.inf]))
    check(lambda x: [call(x, 1), call(x, 2.0)], x)
    check(
        call,
        torch.tensor([[200], [3]], dtype=torch.uint8),
        torch.tensor([3, 100], dtype=torch.uint8),
    )
    check(call, torch.tensor([-1, 2]), torch.tensor([1.5, 2.0]))
    check(call, torch.tensor([True, False]), torch.tensor([False, False]))


def test_logic() -> None:
    x, y = torch.tensor([0.0, 2.0, math.nan]), torch.tensor([1, 0, 0])
    check(lambda x, y: [torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y),
                        torch.logical_not(x)], x, y)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool], ids=str)
def test_bits(dtype: torch.dtype) -> None:
    x, y = torch.tensor([0, 1, 77, 200]).to(dtype), torch.tensor([1, 1, 13, 255]).to(dtype)
    check(lambda x, y: [x & y, x | y, x ^ y, ~x, x & 1], x, y)


def test_shifts() -> None:
    x = torch.tensor([1, -7, 1000, -(2**31)], dtype=torch.int32)
    check(lambda x: [x << 3, x >> 2, x << 31, x >> 31], x)
    check(lambda x, y: [x << y, x >> y], x, torch.tensor([0, 31, 4, 5], dtype=torch.int32))
    check(lambda x: [x << 1, x >> 1], torch.tensor([200, 3], dtype=torch.uint8))


def test_kinds_of_float() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 1.0, -0.0])
    check(
        lambda x: [x.isnan(), x.isinf(), x.isfinite(), x.isposinf(), x.isneginf(), x.signbit()], x
    )
    check(lambda x: [x.isnan(), x.isinf(), x.isfinite(), x.signbit()], torch.tensor([1, -3]))
