"""Reductions against eager: dtypes, dimensions, empty tensors, NaN."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.single_op import check, run

aten = torch.ops.aten

ORDERS = (0, 1, 2, 3.5, math.inf, -math.inf)
SUMS = {
    "sum": lambda x: [x.sum(), x.sum(0), x.sum((0, -1), keepdim=True), x.sum(())],
    "mean": lambda x: [x.mean(), x.mean(1), x.mean((0, 2), True)],
    "prod": lambda x: [x.prod(), x.prod(1), x.prod(-1, keepdim=True)],
    "extremes": lambda x: [x.amax(), x.amin((0, 1)), x.max(), x.min(), *x.aminmax()],
    "indices": lambda x: [*x.max(1), *x.min(-1, keepdim=True), x.argmax(), x.argmin(0, True)],
    "truth": lambda x: [x.any(), x.all(), x.any(1), x.all((0, 2), keepdim=True)],
    "spread": lambda x: [x.var(), x.std(1), x.var((0, 2), correction=0, keepdim=True),
                         *torch.var_mean(x, 1), *torch.std_mean(x, (0, 1), correction=2.5)],
    "norms": lambda x: [torch.linalg.vector_norm(x, p, d) for p in ORDERS for d in (None, 1)],
    "logsumexp": lambda x: [x.logsumexp(1), x.logsumexp((0, 2), True)],
    "running": lambda x: [x.cumsum(0), x.cumsum(-1), x.cumprod(1)],
    "count": lambda x: [x.count_nonzero(), x.count_nonzero(1)],
}  # fmt: skip
FLOAT_ONLY = {"mean", "spread", "norms", "logsumexp"}


@pytest.mark.parametrize("name", list(SUMS))
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint8], ids=str
)
def test_reduction(name: str, dtype: torch.dtype) -> None:
    if name in FLOAT_ONLY and not dtype.is_floating_point:
        dtype = torch.float64
    x = (torch.randn(3, 4, 5) * 3).to(dtype)
    check(SUMS[name], x, tolerance=2e-2 if dtype is torch.bfloat16 else 2e-6)


def test_half_precision_is_summed_in_float32() -> None:
    x = torch.full((4096,), 0.01, dtype=torch.bfloat16)
    check(lambda x: [x.sum(), x.mean(), x.sum(dtype=torch.float32)], x)
    check(lambda x: x.cumsum(0), x[:300])


def test_dtype_argument() -> None:
    x = torch.tensor([3, 200, 2**20], dtype=torch.int32)
    check(lambda x: [x.sum(dtype=torch.int16), x.sum(dtype=torch.float64), x.prod()], x)
    check(lambda x: [x.cumsum(0), x.cumsum(0, dtype=torch.int8)], x)  # T052
    check(lambda x: x.cumsum(1, dtype=torch.bfloat16), torch.ones(2, 3, dtype=torch.bool))
    check(lambda x: x.log().sum(dtype=torch.int32), torch.zeros(3))  # T064
    check(lambda x: [x.sum(), x.mean(dtype=torch.float32)], torch.tensor([True, True, False]))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom.*:UserWarning")
def test_nothing_to_reduce() -> None:
    empty = torch.empty(0, 3)
    check(lambda x: [x.sum(), x.sum(0), x.prod(0), x.mean(0), x.any(), x.all(0)], empty)
    check(lambda x: [*torch.var_mean(x, 0), x.logsumexp(0), x.sum(1), x.cumsum(0)], empty)  # T086
    check(lambda x: [x.std(), x.var(correction=0)], torch.tensor([3.0]))


def test_zero_d() -> None:
    x = torch.tensor(2.0)
    check(
        lambda x: [x.mean(0), x.sum(-1), x.amax(0), x.argmax(0), *x.max(0), x.cumsum(0)], x
    )  # T073


def test_nan_and_infinity() -> None:
    x = torch.tensor(
        [[math.nan, 1.0, 2.0], [-math.inf, -math.inf, -math.inf], [math.inf, 1.0, 0.0]]
    )
    check(lambda x: [x.amax(1), x.amin(1), x.logsumexp(1), x.any(1), x.all(1), x.sum(1)], x)


def test_running_log_of_sums() -> None:
    x = torch.tensor(
        [[1.0, -math.inf, 3.0], [-math.inf, -math.inf, 80.0], [math.inf, 2.0, math.nan]]
    )
    check(lambda x: [x.logcumsumexp(1), x.logcumsumexp(0)], x)


def test_truth_of_uint8_is_uint8() -> None:
    check(lambda x: [x.any(), x.all(0)], torch.tensor([[0, 2], [1, 1]], dtype=torch.uint8))


def test_integer_reductions_wrap() -> None:
    (total,) = run(lambda x: x.sum(), torch.tensor([2**62, 2**62]))
    assert total.item() == -(2**63)
