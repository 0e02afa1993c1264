"""Softmax, its gradients and the likelihood losses against eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.lowering.single_op import check, run

aten = torch.ops.aten
DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(dim: int, dtype: torch.dtype) -> None:
    x = (torch.randn(3, 4, 5) * 5).to(dtype)
    check(lambda x: [x.softmax(dim), x.log_softmax(dim)], x)
    check(lambda x: [x.softmax(dim, dtype=torch.float64), x.log_softmax(dim, torch.float32)], x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gradients(dtype: torch.dtype) -> None:
    y, grad = torch.randn(3, 5).softmax(1).to(dtype), torch.randn(3, 5).to(dtype)
    check(lambda g, y: aten._softmax_backward_data(g, y, 1, dtype), grad, y)
    check(lambda g, y: aten._log_softmax_backward_data(g, y, 1, dtype), grad, y.log())


def test_masked_rows() -> None:
    x = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf]])
    check(lambda x: x.softmax(1), x)
    check(lambda x: aten._safe_softmax(x, 1), x)  # T119
    check(lambda x: [x.softmax(0), x.log_softmax(0)], torch.tensor(3.0))
    check(lambda x: x.softmax(1), torch.empty(2, 0))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
def test_nll_loss(reduction: str, weighted: bool) -> None:
    scores = torch.randn(6, 4).log_softmax(1)
    target = torch.tensor([0, 3, -100, 2, 1, 1])
    weight = torch.rand(4) if weighted else None
    check(lambda x, t: F.nll_loss(x, t, weight, reduction=reduction), scores, target)
    check(
        lambda x, t: F.nll_loss(x, t, weight, reduction=reduction, ignore_index=1),
        scores,
        target.clamp_min(0),
    )
    image, labels = torch.randn(2, 4, 3, 3), torch.randint(0, 4, (2, 3, 3))
    check(lambda x, t: F.nll_loss(x, t, weight, reduction=reduction), image, labels)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_nll_loss_gradient(reduction: int) -> None:
    scores, target = torch.randn(6, 4), torch.tensor([0, 3, -100, 2, 1, 1])
    grad = torch.randn(6) if reduction == 0 else torch.tensor(0.7)
    total = torch.tensor(4.5)
    for weight in (None, torch.rand(4)):
        check(lambda g, x, t, n, w=weight: aten.nll_loss_backward(g, x, t, w, reduction, -100, n),
              grad, scores, target, total)  # fmt: skip


def test_nothing_but_ignored_targets() -> None:
    target = torch.full((2,), -100)
    check(lambda x, t: F.cross_entropy(x, t), torch.randn(2, 3), target)


def test_target_out_of_range_adds_nothing() -> None:
    (loss,) = run(
        lambda x, t: F.nll_loss(x, t, reduction="none"), torch.randn(2, 3), torch.tensor([7, 3])
    )
    assert loss.tolist() == [0.0, 0.0]
