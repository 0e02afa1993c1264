"""Normalisations, forward and backward, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.lowering.single_op import check

aten = torch.ops.aten
DTYPES = [torch.float32, torch.bfloat16]
MASKS = [[True, True, True], [False, True, False], [True, False, False]]


def tolerance(dtype: torch.dtype) -> float:
    return 2e-2 if dtype is torch.bfloat16 else 3e-6


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("affine", [False, True])
def test_layer_norm(affine: bool, dtype: torch.dtype) -> None:
    x = (torch.randn(2, 3, 8) * 2 + 1).to(dtype)
    w, c = (torch.randn(3, 8).to(dtype), torch.randn(3, 8).to(dtype)) if affine else (None, None)
    check(lambda x: aten.native_layer_norm(x, [3, 8], w, c, 1e-5), x, tolerance=tolerance(dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", [[True, True, True], [True, False, True]])
def test_layer_norm_gradient(mask: list[bool], dtype: torch.dtype) -> None:
    x, grad = torch.randn(4, 8).to(dtype), torch.randn(4, 8).to(dtype)
    w, c = torch.randn(8).to(dtype), torch.randn(8).to(dtype)
    _, mean, rstd = aten.native_layer_norm(x, [8], w, c, 1e-5)

    def gradient(grad, x, mean, rstd, w, c):
        made = aten.native_layer_norm_backward(grad, x, [8], mean, rstd, w, c, mask)
        return [g for g, wanted in zip(made, mask, strict=True) if wanted]

    check(gradient, grad, x, mean, rstd, w, c, tolerance=tolerance(dtype))


def test_rms_norm() -> None:
    x, w = torch.randn(3, 8), torch.randn(8)
    check(lambda x, w: F.rms_norm(x, [8], w, 1e-5), x, w, tolerance=3e-6)
    check(lambda x: F.rms_norm(x, [8]), x, tolerance=3e-6)


@pytest.mark.parametrize("mask", MASKS)
def test_group_norm(mask: list[bool]) -> None:
    x, w, c = torch.randn(2, 6, 3, 4), torch.randn(6), torch.randn(6)
    check(lambda x, w, c: aten.native_group_norm(x, w, c, 2, 6, 12, 3, 1e-5), x, w, c,
          tolerance=3e-6)  # fmt: skip
    _, mean, rstd = aten.native_group_norm(x, w, c, 2, 6, 12, 3, 1e-5)

    def gradient(grad, x, mean, rstd, w):
        made = aten.native_group_norm_backward(grad, x, mean, rstd, w, 2, 6, 12, 3, mask)
        return [g for g, wanted in zip(made, mask, strict=True) if wanted]

    check(gradient, torch.randn_like(x), x, mean, rstd, w, tolerance=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm(training: bool, dtype: torch.dtype) -> None:
    x, w, c = torch.randn(3, 4, 5).to(dtype), torch.randn(4), torch.randn(4)
    mean, var = torch.randn(4), torch.rand(4) + 0.5

    def functional(x, w, c, mean, var):
        made = aten._native_batch_norm_legit_functional(x, w, c, mean, var, training, 0.1, 1e-5)
        # The saved statistics are AOTAutograd's own: their dtype is the FakeTensor's, not eager's.
        return made if training and dtype is torch.float32 else [made[0], made[3], made[4]]

    check(functional, x, w, c, mean, var, tolerance=tolerance(dtype))
    check(lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5), x,
          tolerance=tolerance(dtype))  # fmt: skip


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("training", [False, True])
def test_batch_norm_gradient(training: bool, mask: list[bool]) -> None:
    x, grad, w = torch.randn(3, 4, 5), torch.randn(3, 4, 5), torch.randn(4)
    running_mean, running_var = torch.randn(4), torch.rand(4) + 0.5
    _, mean, rstd = aten._native_batch_norm_legit.no_stats(x, w, None, True, 0.1, 1e-5)

    def gradient(grad, x, w, running_mean, running_var, mean, rstd):
        made = aten.native_batch_norm_backward(
            grad, x, w, running_mean, running_var, mean, rstd, training, 1e-5, mask
        )
        return [g for g, wanted in zip(made, mask, strict=True) if wanted]

    check(gradient, grad, x, w, running_mean, running_var, mean, rstd, tolerance=1e-5)
