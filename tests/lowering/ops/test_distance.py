"""Distances against eager."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.single_op import check

aten = torch.ops.aten
ORDERS = [0.0, 1.0, 2.0, 3.5, math.inf]


@pytest.mark.parametrize("p", ORDERS)
def test_dist(p: float) -> None:
    check(lambda x, y: torch.dist(x, y, p), torch.randn(3, 4), torch.randn(4), tolerance=2e-6)


@pytest.mark.parametrize("p", ORDERS)
def test_cdist(p: float) -> None:
    x, y = torch.randn(2, 3, 5), torch.randn(4, 5)
    check(lambda x, y: torch.cdist(x, y, p), x, y.expand(2, 4, 5), tolerance=2e-5)
    if p:
        check(lambda x: torch.pdist(x, p), y, tolerance=2e-6)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5, math.inf])
def test_cdist_gradient(p: float) -> None:
    x, y = torch.randn(3, 5), torch.randn(4, 5)
    y[0] = x[0]  # a distance of 0 has no slope
    check(lambda g, x, y, d: aten._cdist_backward(g, x, y, p, d),
          torch.randn(3, 4), x, y, torch.cdist(x, y, p), tolerance=2e-5)  # fmt: skip


def test_close_vectors_do_not_cancel() -> None:
    x = torch.full((1, 4), 1000.0)
    check(lambda x, y: aten._cdist_forward(x, y, 2.0, 2), x, x + 1e-3)


def test_trilinear() -> None:
    x, y, z = torch.randn(3, 4), torch.randn(5, 4, 6), torch.randn(3, 6)
    check(lambda x, y, z: aten._trilinear(x, y, z, [1, 3], [0], [1, 2], [2, 3]), x, y, z,
          tolerance=2e-6)  # fmt: skip
    bilinear = torch.nn.functional.bilinear
    check(bilinear, x, z, torch.randn(2, 4, 6), torch.randn(2), tolerance=2e-6)
