"""The judge itself: it accepts what is as good as eager and rejects what is worse."""

from __future__ import annotations

import pytest
import torch

from tests.closeness import assert_no_farther, assert_same_kind


def test_accepts_another_rounding() -> None:
    exact = torch.randn(50, 40, dtype=torch.float64)
    assert_no_farther(exact.to(torch.bfloat16), exact.to(torch.bfloat16), exact)
    eager = (exact + 1e-6 * torch.randn_like(exact)).float()
    ours = (exact + 1e-6 * torch.randn_like(exact)).float()
    assert_no_farther(ours, eager, exact)


@pytest.mark.parametrize("damage", [1e-5, 1e-2])
def test_rejects_what_is_less_exact(damage: float) -> None:
    exact = torch.randn(50, 40, dtype=torch.float64)
    with pytest.raises(AssertionError, match="mean square"):
        assert_no_farther((exact * (1 + damage)).float(), exact.float(), exact)


def test_rejects_one_wrong_element() -> None:
    exact = torch.randn(1000, 100, dtype=torch.float64)
    ours = exact.float()
    ours[7, 7] += 1e-5
    with pytest.raises(AssertionError, match="largest"):
        assert_no_farther(ours, exact.float(), exact)


def test_rejects_another_nan_or_infinity() -> None:
    exact = torch.tensor([1.0, float("nan"), float("inf")], dtype=torch.float64)
    assert_no_farther(exact.float(), exact.float(), exact)
    for wrong in (
        [1.0, 0.0, float("inf")],
        [1.0, float("nan"), -float("inf")],
        [float("nan"), float("nan"), float("inf")],
    ):
        with pytest.raises(AssertionError):
            assert_no_farther(torch.tensor(wrong), exact.float(), exact)


def test_integers_must_be_equal() -> None:
    value = torch.arange(6)
    assert_no_farther(value.clone(), value, value)
    with pytest.raises(
        AssertionError, match="1 of 6 elements differ, first at \\(5,\\): 6, eager 5"
    ):
        assert_no_farther(torch.tensor([0, 1, 2, 3, 4, 6]), value, value)


def test_kind() -> None:
    value = torch.zeros(3, 4)
    assert_same_kind(value.clone(), value)
    for other in (value.double(), value[:2], torch.zeros(4, 3).t()):
        with pytest.raises(AssertionError):
            assert_same_kind(other, value)
    assert_same_kind(torch.zeros(4, 1).t(), torch.zeros(1, 4))
