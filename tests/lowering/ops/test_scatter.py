"""Writing by index against eager."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.lowering import lower
from tests.lowering.samples import EVERY, FLOATS, NUMBERS, examples, integers, tensor
from tests.lowering.single_op import check, graph_of, run

aten = torch.ops.aten

# Eager adds and multiplies half precision in half precision, we in float32.
TOLERANCE = {torch.bfloat16: 6e-2, torch.float16: 8e-3}


@st.composite
def places(draw: st.DrawFn, repeated: bool):
    """A shape, a dim, an index smaller than the shape elsewhere, and a source no smaller."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    size = [draw(st.integers(1, n)) for n in shape]
    if repeated:
        size[dim] = draw(st.integers(1, 6))
        index = integers(size, 0, shape[dim])
    else:
        index = torch.rand(shape, generator=torch.Generator().manual_seed(1)).argsort(dim)
        index = index[tuple(slice(n) for n in size)]
    source = [n + draw(st.integers(0, 1)) for n in size]
    return shape, dim, index, source


@examples(25)
@given(case=places(repeated=False), dtype=st.sampled_from(EVERY))
def test_scatter(case, dtype) -> None:
    shape, dim, index, source = case
    x = tensor(shape, dtype)
    check(aten.scatter.src, x, dim, index, tensor(source, dtype, 1))
    check(aten.scatter.value, x, dim, index, 1)


@examples(25)
@given(case=places(repeated=True), dtype=st.sampled_from(EVERY))
def test_scatter_add(case, dtype) -> None:
    shape, dim, index, source = case
    args = (tensor(shape, dtype), dim, index, tensor(source, dtype, 1))
    check(aten.scatter_add.default, *args, tolerance=TOLERANCE.get(dtype))


@examples(30)
@given(
    case=places(repeated=True),
    dtype=st.sampled_from(NUMBERS),
    reduce=st.sampled_from(["sum", "prod", "mean", "amax", "amin"]),
    include_self=st.booleans(),
)
def test_scatter_reduce(case, dtype, reduce, include_self) -> None:
    shape, dim, index, source = case
    args = (tensor(shape, dtype), dim, index, tensor(source, dtype, 1), reduce)
    tolerance = TOLERANCE.get(dtype)
    check(aten.scatter_reduce.two, *args, include_self=include_self, tolerance=tolerance)


@pytest.mark.parametrize("reduce", ["add", "multiply"])
@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
def test_scatter_with_the_old_reduce_argument(reduce) -> None:
    x, index = tensor([5, 4]), integers([6, 3], 0, 5)
    check(aten.scatter.reduce, x, 0, index, tensor([6, 4], seed=1), reduce=reduce, tolerance=1e-5)
    check(aten.scatter.value_reduce, x, 0, index, 1.5, reduce=reduce, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_index_reduce(dtype, reduce, include_self) -> None:
    args = (tensor([3, 5], dtype), 1, torch.tensor([0, 3, 3, 0]), tensor([3, 4], dtype, 1), reduce)
    tolerance = TOLERANCE.get(dtype)
    check(aten.index_reduce.default, *args, include_self=include_self, tolerance=tolerance)


def test_nan_in_reductions() -> None:
    x, index = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([0, 0, 2])
    source = torch.tensor([math.nan, 2.0, -math.inf])
    for reduce in ("amax", "amin", "mean"):
        for include_self in (False, True):
            check(aten.scatter_reduce.two, x, 0, index, source, reduce, include_self=include_self)


@examples(25)
@given(data=st.data(), dtype=st.sampled_from(EVERY))
def test_whole_slices(data, dtype) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    x, n = tensor(shape, dtype), shape[dim]
    index = integers([data.draw(st.integers(0, 5))], 0, n)
    size = list(shape)
    size[dim] = len(index)
    source = tensor(size, dtype, 1)
    check(aten.index_add.default, x, dim, index, source, tolerance=TOLERANCE.get(dtype))
    check(aten.index_fill.int_Scalar, x, dim, index - n, 1)
    check(aten.index_fill.int_Tensor, x, dim, index, torch.tensor(1).to(dtype))
    once = torch.randperm(n, generator=torch.Generator().manual_seed(2))
    check(aten.index_copy.default, x, dim, once, tensor(shape, dtype, 1))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_index_add_scales(dtype) -> None:
    args = (tensor([3, 4], dtype), -1, torch.tensor([1, 1, 3]), tensor([3, 3], dtype, 1))
    check(aten.index_add.default, *args, alpha=2, tolerance=TOLERANCE.get(dtype))


def test_scalars() -> None:
    zero, one = torch.tensor(0), torch.tensor(3.0)
    check(aten.scatter.value, one, 0, zero, 1)
    check(aten.scatter.src, one, 0, zero, torch.tensor(2.0))
    check(aten.index_fill.int_Scalar, one, 0, zero, 2)
    check(aten.index_add.default, one, 0, zero, torch.tensor(2.0))
    check(aten.index_add.default, tensor([3, 4]), 1, zero, tensor([3, 1]))


def test_put() -> None:
    x, index = tensor([3, 4]), torch.tensor([[0, -1], [7, 3]])
    check(aten.put.default, x, index, tensor([2, 2], seed=1))
    check(aten.put.default, x, index % 2, tensor([2, 2], seed=1), True)


@pytest.mark.parametrize("mask", [(3, 4), (4,), (3, 1), ()])
def test_masked_scatter(mask) -> None:
    flags = tensor(mask, torch.bool)
    check(aten.masked_scatter.default, tensor([3, 4]), flags, tensor([4, 5], seed=1))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("limits", [(-1, 1), (0, 0)])
def test_histc(dtype, limits) -> None:
    check(aten.histc.default, tensor([40], dtype), 7, *limits)
    check(aten.histc.default, torch.ones(5, dtype=dtype), 7, *limits)


def test_histc_counts_no_nan_and_closes_the_last_bin() -> None:
    check(aten.histc.default, torch.tensor([1, 2, math.nan, 0, 8.0, 3.0]), 4, 0, 3)


def test_what_is_out_of_range_is_not_written() -> None:
    """T075: eager raises; compiled code leaves the memory beside a tensor alone."""
    x, ones = torch.zeros(3, 2), torch.ones(5, 2)
    index = torch.tensor([-1, 3, 1, 100, 1])
    out = run(lambda *a: aten.index_add.default(a[0], 0, a[1], a[2]), x, index, ones)
    assert torch.equal(out[0], torch.tensor([[0.0, 0.0], [2.0, 2.0], [0.0, 0.0]]))
    out = run(aten.scatter.value, x, 0, index[:, None], 1.0)
    assert torch.equal(out[0], torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]]))


def test_one_write_per_row_needs_no_scatter() -> None:
    """The gradient of cross entropy must stay fusible."""
    graph, _ = graph_of(aten.scatter.value, (tensor([4, 9]), 1, integers([4, 1], 0, 9), -1.0))
    assert "scatter" not in str(lower(graph).module)


def test_uniqueness_is_never_claimed() -> None:
    """T079."""
    args = (tensor([4, 9]), 1, integers([4, 7], 0, 9), tensor([4, 7]))
    graph, _ = graph_of(aten.scatter_add.default, args)
    text = str(lower(graph).module)
    assert "stablehlo.scatter" in text
    assert "unique_indices = true" not in text


def test_masked_scatter_gradient() -> None:
    grad, mask = tensor([5, 4]), tensor([5, 4], torch.bool)
    check(lambda g, m: aten.masked_scatter_backward(g, m, [5, 4]), grad, mask)
    check(lambda g, m: aten.masked_scatter_backward(g, m, [3, 9]), grad, mask)
