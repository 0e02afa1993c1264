"""Adaptive pooling and its gradients against eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tests.lowering.samples import FLOATS, examples, tensor
from tests.lowering.single_op import check

aten = torch.ops.aten

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3}

SIZES = st.tuples(st.integers(1, 7), st.integers(1, 7))
LEADS = st.sampled_from([[2, 3], [1, 1], [3]])


@examples(30)
@given(lead=LEADS, size=SIZES, out=SIZES, dtype=st.sampled_from(FLOATS))
def test_mean(lead, size, out, dtype) -> None:
    x, grad = tensor([*lead, *size], dtype), tensor([*lead, *out], dtype, 1)
    tolerance = TOLERANCE.get(dtype)
    check(aten._adaptive_avg_pool2d.default, x, list(out), tolerance=tolerance)
    check(aten._adaptive_avg_pool2d_backward.default, grad, x, tolerance=tolerance)


@examples(30)
@given(lead=LEADS, size=SIZES, out=SIZES, dtype=st.sampled_from(FLOATS))
def test_max(lead, size, out, dtype) -> None:
    x, grad = tensor([*lead, *size], dtype).round(), tensor([*lead, *out], dtype, 1)
    check(aten.adaptive_max_pool2d.default, x, list(out))
    indices = aten.adaptive_max_pool2d.default(x, list(out))[1]
    args = (grad, x, indices)
    check(aten.adaptive_max_pool2d_backward.default, *args, tolerance=TOLERANCE.get(dtype))


@pytest.mark.parametrize("out", [[2, 3, 3], [3, 2, 5], [1, 1, 1]])
def test_three_dimensions(out) -> None:
    x, grad = tensor([1, 2, 3, 4, 5]), tensor([1, 2, *out], seed=1)
    check(aten._adaptive_avg_pool3d.default, x, out)
    check(aten._adaptive_avg_pool3d_backward.default, grad, x)
    check(aten.adaptive_max_pool3d.default, x, out)
    indices = aten.adaptive_max_pool3d.default(x, out)[1]
    check(aten.adaptive_max_pool3d_backward.default, grad, x, indices)


def test_one_dimension() -> None:
    check(lambda x: F.adaptive_avg_pool1d(x, 2), tensor([2, 3, 5]))
    check(lambda x: F.adaptive_max_pool1d(x, 2), tensor([2, 3, 5]))


def test_nan_stays_in_its_windows() -> None:
    x = tensor([1, 1, 4, 6])
    x[0, 0, 1, 1], x[0, 0, 3, 5] = math.nan, math.inf
    check(aten._adaptive_avg_pool2d.default, x, [3, 5])
    check(aten.adaptive_max_pool2d.default, x, [3, 5])
    check(aten._adaptive_avg_pool2d_backward.default, x, torch.zeros(1, 1, 7, 9))


@pytest.mark.parametrize("out", [[3, 4], [1, 4], [6, 7]])
def test_windows_at_random_places(out) -> None:
    x, samples = tensor([2, 3, 7, 9]), torch.rand(2, 3, 2, generator=torch.manual_seed(1))
    args = ([2, 3], out, samples)
    check(aten.fractional_max_pool2d.default, x, *args)
    check(aten.fractional_max_pool2d.default, x[0], *args[:2], samples[:1])
    values, indices = aten.fractional_max_pool2d.default(x, *args)
    grad = tensor(values.shape, seed=1)
    check(aten.fractional_max_pool2d_backward.default, grad, x, *args[:2], indices)


def test_windows_at_random_places_of_a_volume() -> None:
    x, samples = tensor([2, 3, 5, 7, 9]), torch.rand(2, 3, 3, generator=torch.manual_seed(1))
    check(aten.fractional_max_pool3d.default, x, [2, 2, 3], [3, 4, 3], samples)
