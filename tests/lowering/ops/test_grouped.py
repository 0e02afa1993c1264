"""Grouped matrix products against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.lowering.samples import examples, tensor
from tests.lowering.single_op import check

aten = torch.ops.aten

BF16 = torch.bfloat16  # the only dtype whose shapes PyTorch infers
WIDTH = 8  # rows must be multiples of 16 bytes

GROUPS = st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(sum)


@examples(30)
@given(sizes=GROUPS)
def test_rows_by_group(sizes) -> None:
    ends = torch.tensor(sizes).cumsum(0).int()
    x, weight = tensor([sum(sizes), WIDTH], BF16), tensor([len(sizes), WIDTH, 16], BF16, 1)
    check(lambda *a: torch._grouped_mm(a[0], a[1], offs=a[2]), x, weight, ends, tolerance=2e-2)


@examples(20)
@given(sizes=GROUPS)
def test_the_gradient_of_the_matrices(sizes) -> None:
    ends = torch.tensor(sizes).cumsum(0).int()
    x, grad = tensor([sum(sizes), WIDTH], BF16), tensor([sum(sizes), 16], BF16, 1)
    check(lambda *a: torch._grouped_mm(a[0].t(), a[1], offs=a[2]), x, grad, ends, tolerance=2e-2)


@examples(20)
@given(sizes=GROUPS, beyond=st.integers(0, 3))
def test_the_operator_of_transformers(sizes, beyond) -> None:
    """Rows beyond the last group are zero, as is the gradient of a matrix without rows."""
    pytest.importorskip("transformers.integrations.moe")
    ends, rows = torch.tensor(sizes).cumsum(0), sum(sizes) + beyond
    x, weight = tensor([rows, 3]), tensor([len(sizes), 3, 5], seed=1)
    ops = torch.ops.transformers
    check(ops.grouped_mm_fallback.default, x, weight, ends, tolerance=1e-5)
    grad = tensor([rows, 5], seed=2)
    args = (x, weight, ends, grad)
    check(ops.grouped_mm_fallback_backward.default, *args, tolerance=1e-5)


def test_batches_without_groups() -> None:
    x, y = tensor([3, 4, WIDTH], BF16), tensor([3, WIDTH, 16], BF16, 1)
    check(lambda x, y: torch._grouped_mm(x, y), x, y, tolerance=2e-2)
