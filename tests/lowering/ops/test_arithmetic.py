"""Arithmetic of tensors and scalars against eager; division is in test_semantics."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.single_op import check

aten = torch.ops.aten
DTYPES = [torch.float32, torch.bfloat16, torch.int32, torch.uint8]


def pair(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.randn(3, 1, 4) * 9).to(dtype), (torch.randn(2, 4) * 9).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", [torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum])
def test_two_tensors_broadcast(call, dtype: torch.dtype) -> None:
    check(call, *pair(dtype))


def test_alpha() -> None:
    x, y = pair(torch.bfloat16)
    check(lambda x, y: [torch.add(x, y, alpha=0.3), torch.sub(x, y, alpha=3)], x, y)
    check(lambda x, y: torch.rsub(x, y, alpha=2), x.int(), y.int())


def test_bools_add_and_multiply_as_logic() -> None:
    a, b = torch.tensor([True, True, False]), torch.tensor([True, False, False])
    check(lambda a, b: [a + b, a * b, a + 1, a * 2.5], a, b)


@pytest.mark.parametrize(("low", "high"), [(-1, 2), (None, 2), (0.5, None), (3, -3), (math.nan, 1)])
def test_clamp(low: float | None, high: float | None) -> None:
    x = torch.tensor([-5.0, -0.0, 1.5, 7.0, math.nan, math.inf])
    check(lambda x: torch.clamp(x, low, high), x)
    if low == low and (low is None or isinstance(low, int)):
        check(lambda x: torch.clamp(x, low, high), torch.tensor([-5, 0, 3, 9]))


def test_clamp_with_tensors() -> None:
    x = torch.randn(3, 4)
    check(torch.clamp, x, torch.randn(4), torch.randn(3, 1))
    check(lambda x, low: torch.clamp(x, min=low), x, torch.tensor(0.25))


def test_fused_forms() -> None:
    x, y, z = torch.randn(3, 1), torch.randn(4), torch.randn(3, 4)
    check(lambda x, y, z: torch.addcmul(x, y, z, value=0.3), x, y, z)
    check(lambda x, y, z: torch.addcdiv(x, y, z, value=-2), x, y, z)
    check(lambda x, y: torch.lerp(x, y, 0.7), x, y)
    check(torch.lerp, x, y, torch.tensor([0.1, 0.9, 0.5, -3.0]))


def test_where_and_masked_fill() -> None:
    mask = torch.tensor([[[True], [False]], [[False], [True]]])
    x = torch.randn(2, 2, 8)
    check(lambda x, m: x.masked_fill(m, -math.inf), x, mask)  # T081
    check(lambda x, m: x.masked_fill(m, 3.7), x.int(), mask)
    check(lambda x, m, v: x.masked_fill(m, v), x.half(), mask, torch.tensor(0.1))
    check(lambda m, x, y: torch.where(m, x, y), mask, x, torch.tensor(2.0, dtype=torch.float64))
    check(lambda m, x: torch.where(m, x, 0), mask, x.int())


def test_two_argument_functions() -> None:
    x, y = torch.randn(5), torch.randn(5)
    check(lambda x, y: [torch.atan2(x, y), torch.hypot(x, y), torch.copysign(x, y)], x, y)
    huge = torch.tensor([3e38, math.inf, 0.0, math.nan, 1e-40])
    check(torch.hypot, huge, torch.tensor([1e38, math.nan, 0.0, 1.0, 0.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("exponent", [0.5, -0.5, -1, -2, 0, 1, 2, 3, 2.5])
def test_scalar_powers_of_special_numbers(dtype: torch.dtype, exponent: float) -> None:
    special = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 2.0, -2.0, 0.25]
    # Once more the inverse: it tells the zeros apart.
    check(lambda x: [x**exponent, 1 / x**exponent], torch.tensor(special * 4).to(dtype))
