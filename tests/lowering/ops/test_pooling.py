"""Max and average pooling and their gradients against eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st

from neuron_compile.lowering import lower
from tests.lowering.samples import FLOATS, NUMBERS, examples, tensor
from tests.lowering.single_op import check, graph_of

aten = torch.ops.aten


@st.composite
def windows(draw: st.DrawFn, rank: int, dilated: bool):
    def each(low: int, high: int) -> list[int]:
        return [draw(st.integers(low, high)) for _ in range(rank)]

    kernel = each(1, 3)
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    args = [kernel, each(1, 3), padding]
    if dilated:
        args.append(each(1, 2))
    args.append(draw(st.booleans()))
    lead = draw(st.sampled_from([[2, 3], [1, 1], [2]]))
    return [*lead, *each(1, 6)], args


def _possible(call, *args) -> None:
    try:
        call(*args)
    except RuntimeError:
        assume(False)


@examples(30)
@given(case=windows(2, dilated=True), dtype=st.sampled_from(NUMBERS))
def test_max_pool2d(case, dtype) -> None:
    """Small integers and rounded floats have many ties: the first must win."""
    shape, args = case
    x = tensor(shape, dtype).round() if dtype.is_floating_point else tensor(shape, dtype)
    _possible(aten.max_pool2d_with_indices.default, x, *args)
    check(aten.max_pool2d_with_indices.default, x, *args)


@examples(30)
@given(case=windows(2, dilated=True), dtype=st.sampled_from(FLOATS))
def test_max_pool2d_gradient(case, dtype) -> None:
    shape, args = case
    x = tensor(shape, dtype)
    _possible(aten.max_pool2d_with_indices.default, x, *args)
    values, indices = aten.max_pool2d_with_indices.default(x, *args)
    grad = tensor(values.shape, dtype, 1)
    check(aten.max_pool2d_with_indices_backward.default, grad, x, *args, indices)


@examples(20)
@given(case=windows(3, dilated=True))
def test_max_pool3d_and_gradient(case) -> None:
    shape, args = case
    x = tensor(shape)
    _possible(aten.max_pool3d_with_indices.default, x, *args)
    check(aten.max_pool3d_with_indices.default, x, *args)
    values, indices = aten.max_pool3d_with_indices.default(x, *args)
    grad = tensor(values.shape, seed=1)
    check(aten.max_pool3d_with_indices_backward.default, grad, x, *args, indices)


@examples(30)
@given(
    case=windows(2, dilated=False),
    dtype=st.sampled_from((*FLOATS, torch.int64)),
    include=st.booleans(),
    divisor=st.sampled_from([None, None, 3]),
)
def test_avg_pool2d(case, dtype, include, divisor) -> None:
    shape, args = case
    x = tensor(shape, dtype)
    _possible(aten.avg_pool2d.default, x, *args)
    check(aten.avg_pool2d.default, x, *args, include, divisor)
    if dtype.is_floating_point:
        grad = tensor(aten.avg_pool2d.default(x, *args).shape, dtype, 1)
        check(aten.avg_pool2d_backward.default, grad, x, *args, include, divisor)


@examples(20)
@given(case=windows(3, dilated=False), include=st.booleans())
def test_avg_pool3d_and_gradient(case, include) -> None:
    shape, args = case
    x = tensor(shape)
    _possible(aten.avg_pool3d.default, x, *args)
    check(aten.avg_pool3d.default, x, *args, include, None)
    grad = tensor(aten.avg_pool3d.default(x, *args).shape, seed=1)
    check(aten.avg_pool3d_backward.default, grad, x, *args, include, None)


@pytest.mark.parametrize("pool", [F.avg_pool1d, F.max_pool1d])
def test_one_dimension(pool) -> None:
    check(lambda x: pool(x, 3, 2, 1), tensor([2, 3, 9]))


def test_nan_and_infinity() -> None:
    """NaN wins, the last one gives the index; a window of -inf chooses its first element."""
    nan = math.nan
    x = torch.tensor([[[[nan, 1, 2, nan], [3, 3, 1, nan]]]])
    check(aten.max_pool2d_with_indices.default, x, [2, 2], [1, 1], [1, 1])
    lowest = torch.full((1, 1, 3, 3), -math.inf)
    check(aten.max_pool2d_with_indices.default, lowest, [2, 2], [1, 1], [1, 1])


def test_ceil_mode_of_a_kernel_of_one() -> None:
    """T096."""
    check(aten.max_pool2d_with_indices.default, tensor([1, 1, 6, 7]), [1, 1], [2, 2], 0, 1, True)


def test_indices_cost_nothing_when_unused() -> None:
    graph, _ = graph_of(lambda x: F.max_pool2d(x, 2), [tensor([1, 1, 4, 4])])
    assert "iota" not in str(lower(graph).module)
