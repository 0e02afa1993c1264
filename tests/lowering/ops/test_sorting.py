"""Sorting, selection, running extremes and searches against eager."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.lowering import lower
from tests.lowering.samples import EVERY, FLOATS, NUMBERS, distinct, examples, tensor
from tests.lowering.single_op import check, graph_of

aten = torch.ops.aten


@st.composite
def rows(draw: st.DrawFn, least: int = 1) -> tuple[list[int], int]:
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    shape[dim] = draw(st.integers(least, 8))
    return shape, dim


def with_specials(shape, dtype, seed: int = 0) -> torch.Tensor:
    """Few different values, among them NaN, infinities and both zeros where the dtype has them."""
    if not dtype.is_floating_point:
        return tensor(shape, dtype, seed)
    pool = torch.tensor([0.0, -0.0, 1.0, -2.0, math.nan, math.inf, -math.inf], dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    return pool[torch.randint(0, len(pool), tuple(shape), generator=generator)]


@examples(20)
@given(case=rows(), dtype=st.sampled_from(EVERY), descending=st.booleans())
def test_sort_is_stable_and_puts_nan_highest(case, dtype, descending) -> None:
    shape, dim = case
    x = with_specials(shape, dtype)
    kwargs = {"stable": True, "dim": dim, "descending": descending}
    check(aten.sort.stable, x, **kwargs)
    check(aten.argsort.stable, x, **kwargs)


@examples(20)
@given(data=st.data(), dtype=st.sampled_from(NUMBERS), largest=st.booleans())
def test_topk(data, dtype, largest) -> None:
    """Values also among ties and NaNs; places where the values are distinct."""
    shape, dim = data.draw(rows())
    k = data.draw(st.integers(0, shape[dim]))
    check(lambda x: aten.topk(x, k, dim, largest)[0], with_specials(shape, dtype))
    check(aten.topk.default, distinct(shape, dtype), k, dim, largest)


def test_topk_prefers_the_first_of_equals() -> None:
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0, 3.0]])
    graph, _ = graph_of(aten.topk.default, (x, 2))
    assert "stablehlo.sort" not in str(lower(graph).module)  # a router's choice must fuse
    check(lambda x: aten.topk(x, 2)[0], x)


@examples(15)
@given(data=st.data(), dtype=st.sampled_from(NUMBERS), keepdim=st.booleans())
def test_kthvalue_and_medians(data, dtype, keepdim) -> None:
    shape, dim = data.draw(rows())
    k = data.draw(st.integers(1, shape[dim]))
    x = distinct(shape, dtype)
    check(aten.kthvalue.default, x, k, dim, keepdim)
    check(aten.median.dim, x, dim, keepdim)
    x = with_specials(shape, dtype)
    check(lambda x: aten.kthvalue(x, k, dim, keepdim)[0], x)
    check(lambda x: aten.median(x, dim, keepdim)[0], x)
    check(lambda x: aten.nanmedian(x, dim, keepdim)[0], x)
    check(aten.median.default, x)
    check(aten.nanmedian.default, x)


def test_the_median_of_a_row_with_nan_is_its_first_nan() -> None:
    x = torch.tensor([1.0, math.nan, 3.0, math.nan, 2.0])
    check(aten.median.dim, x, 0)
    check(lambda x: aten.nanmedian(x, 0), x)


@examples(20)
@given(case=rows(), dtype=st.sampled_from(EVERY), keepdim=st.booleans())
def test_mode(case, dtype, keepdim) -> None:
    shape, dim = case
    x = tensor(shape, dtype)
    check(aten.mode.default, x.round() if dtype.is_floating_point else x, dim, keepdim)


@examples(20)
@given(case=rows(), dtype=st.sampled_from(EVERY))
def test_running_extremes(case, dtype) -> None:
    shape, dim = case
    check(aten.cummax.default, with_specials(shape, dtype), dim)
    check(aten.cummin.default, with_specials(shape, dtype), dim)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_scalars(dtype) -> None:
    x = tensor((), dtype)
    for call in (aten.sort.default, aten.mode.default):
        check(call, x)
    for call in (aten.cummax.default, aten.median.dim, aten.nanmedian.dim):
        check(call, x, 0)
    check(aten.topk.default, x, 1)
    check(aten.kthvalue.default, x, 1)


# ---- searches --------------------------------------------------------------------------------


@examples(20)
@given(
    data=st.data(),
    dtype=st.sampled_from((torch.float32, torch.bfloat16, torch.int64, torch.int32)),
    right=st.booleans(),
    out_int32=st.booleans(),
)
def test_searchsorted(data, dtype, right, out_int32) -> None:
    lead = data.draw(st.sampled_from([[], [2], [2, 3]]))
    sequence = tensor([*lead, data.draw(st.integers(0, 9))], dtype).round().sort(-1).values
    values = tensor([*lead, data.draw(st.integers(1, 5))], dtype, 1).round()
    kwargs = {"right": right, "out_int32": out_int32}
    check(aten.searchsorted.Tensor, sequence, values, **kwargs)
    if not lead:
        check(aten.bucketize.Tensor, tensor([2, 3], dtype, 2), sequence, **kwargs)
        check(aten.searchsorted.Scalar, sequence, 2, **kwargs)
        check(aten.bucketize.Scalar, 2, sequence, **kwargs)


def test_searchsorted_with_a_sorter_and_side() -> None:
    x, values = tensor([3, 7]), tensor([3, 4], seed=1)
    check(aten.searchsorted.Tensor, x, values, sorter=x.argsort(-1), side="right")
    check(aten.searchsorted.Tensor, x.sort(-1).values, values.double())


def test_searchsorted_and_nan() -> None:
    nan = math.nan
    sequence, values = torch.tensor([1.0, 2.0, nan, nan]), torch.tensor([0.0, 1.0, 2.0, 3.0, nan])
    for right in (False, True):
        check(aten.searchsorted.Tensor, sequence, values, right=right)


def test_repeat_interleave_of_known_size() -> None:
    repeats = torch.tensor([2, 0, 4, 1])
    check(lambda r: torch.repeat_interleave(r, output_size=7), repeats)
    check(lambda x, r: torch.repeat_interleave(x, r, 0, output_size=7), tensor([4, 2]), repeats)
    check(lambda x: torch.repeat_interleave(x, 3, 1), tensor([4, 2]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_negative_zero_keeps_its_place(dtype) -> None:
    x = torch.tensor([0.0, -0.0, 0.0, -0.0], dtype=dtype)
    check(aten.sort.stable, x, stable=True, dim=0, descending=True)
