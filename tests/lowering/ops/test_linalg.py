"""Products against eager."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.single_op import check

DTYPES = [torch.float32, torch.bfloat16, torch.float64, torch.int64]


def random(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return (torch.randn(*shape) * 3).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_products(dtype: torch.dtype) -> None:
    a, b, v = (random(*s, dtype=dtype) for s in [(3, 4), (4, 5), (4,)])
    check(lambda a, b, v: [a @ b, a @ v, v @ b, torch.dot(v, v), torch.outer(v, v)], a, b, v)
    check(torch.bmm, random(2, 3, 4, dtype=dtype), random(2, 4, 5, dtype=dtype))
    check(torch.matmul, random(2, 1, 3, 4, dtype=dtype), random(5, 4, 2, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 2), (2, 1), (3, -1)])
def test_with_addend(beta: int, alpha: int, dtype: torch.dtype) -> None:
    a, b, v = (random(*s, dtype=dtype) for s in [(3, 4), (4, 5), (5,)])
    scale = {"beta": beta, "alpha": alpha}
    check(lambda v, a, b: torch.addmm(v, a, b, **scale), v, a, b)
    check(lambda v, a, b: torch.addmv(v, b.t(), a[0], **scale), v, a, b)
    check(lambda v, a: torch.addr(a[:, :3], a[:, 0], a[0, :3], **scale), v, a)
    x, y = random(2, 3, 4, dtype=dtype), random(2, 4, 5, dtype=dtype)
    check(lambda v, x, y: torch.baddbmm(v, x, y, **scale), v, x, y)
    check(lambda v, x, y: torch.addbmm(v, x, y, **scale), v, x, y)


def test_a_zero_beta_ignores_nan() -> None:
    a = torch.randn(2, 2)
    check(lambda c, a: torch.addmm(c, a, a, beta=0), torch.full((2, 2), math.nan), a)


def test_half_precision_sums_in_float32() -> None:
    a = torch.full((1, 4096), 0.0101, dtype=torch.bfloat16)
    check(lambda a: a @ a.t(), a)


def test_einsum_and_linear() -> None:
    x, w, c = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
    check(lambda x, w: torch.einsum("bij,kj->bki", x, w), x, w)
    check(torch.nn.functional.linear, x, w, c)
