"""Reading by index, index_put and embedding gradients against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from neuron_compile.lowering import find_unsupported
from tests.lowering.samples import EVERY, FLOATS, NUMBERS, examples, integers, tensor
from tests.lowering.single_op import check, graph_of, run

aten = torch.ops.aten


# ---- embedding -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", EVERY)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_embedding_of_large_ids(dtype, shape) -> None:
    """T053: ids above 256 must not pass through a narrow float."""
    table = tensor([2000, 3], dtype)
    check(aten.embedding.default, table, integers(shape, 1800, 2000))
    check(aten.embedding.default, table, integers(shape, 0, 2000).int())


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("padding_idx", [-1, 2])
@pytest.mark.parametrize("by_frequency", [False, True])
def test_embedding_gradient(dtype, padding_idx, by_frequency) -> None:
    grad, ids = tensor([3, 7, 4], dtype), integers([3, 7], 0, 5)
    # Eager adds up half precision in half precision.
    tolerance = {torch.bfloat16: 3e-2, torch.float16: 4e-3}.get(dtype)
    args = (grad, ids, 6, padding_idx, by_frequency)
    check(aten.embedding_dense_backward.default, *args, tolerance=tolerance)


def test_an_id_out_of_range_reads_a_row_inside() -> None:
    """T074: eager raises; compiled code clamps and never reads outside the table."""
    table = tensor([4, 2])
    low, high = run(aten.embedding.default, table, torch.tensor([-3, 9]))[0]
    assert torch.equal(low, table[0])
    assert torch.equal(high, table[3])


# ---- gather, index_select, take --------------------------------------------------------------


@examples(25)
@given(data=st.data(), dtype=st.sampled_from(EVERY))
def test_gather(data, dtype) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    size = [data.draw(st.integers(0, n)) for n in shape]
    size[dim] = data.draw(st.integers(0, 5))
    index = integers(size, 0, shape[dim])
    check(aten.gather.default, tensor(shape, dtype), dim, index)


@examples(30)
@given(data=st.data(), dtype=st.sampled_from(EVERY))
def test_index_select(data, dtype) -> None:
    shape = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    index = integers(data.draw(st.sampled_from([(), (1,), (5,), (0,)])), 0, shape[dim])
    index = index.to(data.draw(st.sampled_from([torch.int64, torch.int32])))
    check(aten.index_select.default, tensor(shape, dtype), dim, index)


def test_scalars() -> None:
    one, zero = torch.tensor(3.0), torch.tensor(0)
    check(aten.gather.default, one, 0, zero)
    check(aten.gather.default, one, 0, torch.tensor([0, 0]))
    check(aten.index_select.default, one, 0, torch.tensor([0]))


def test_take_wraps() -> None:
    check(aten.take.default, tensor([3, 4]), torch.tensor([[0, -1], [11, -12]]))


# ---- advanced indexing -----------------------------------------------------------------------


@st.composite
def index_cases(draw: st.DrawFn):
    """A shape, and for some of its dimensions index tensors that broadcast together."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    points = draw(st.lists(st.integers(1, 3), min_size=0, max_size=2))
    indices: list[torch.Tensor | None] = []
    for d, n in enumerate(shape):
        if draw(st.booleans()):
            keep = draw(st.integers(0, len(points)))
            size = [m if draw(st.booleans()) else 1 for m in points[keep:]]
            kind = draw(st.sampled_from([torch.int64, torch.int32]))
            indices.append(integers(size, -n, n, seed=d).to(kind))
        else:
            indices.append(None)
    if all(index is None for index in indices):
        indices[0] = integers(points, -shape[0], shape[0])
    return shape, indices


@examples(25)
@given(case=index_cases(), dtype=st.sampled_from(EVERY))
def test_index(case, dtype) -> None:
    """T083: negative ids wrap once; None keeps a dimension; separated indices move to the front."""
    shape, indices = case
    check(aten.index.Tensor, tensor(shape, dtype), indices)


@examples(25)
@given(case=index_cases(), dtype=st.sampled_from(NUMBERS), narrow=st.booleans())
def test_index_put_accumulates_duplicates(case, dtype, narrow) -> None:
    """T078."""
    shape, indices = case
    x = tensor(shape, dtype)
    size = aten.index.Tensor(x, indices).shape
    values = tensor(size[-1:] if narrow else size, dtype, 1)
    tolerance = {torch.bfloat16: 5e-2, torch.float16: 6e-3}.get(dtype)
    check(aten.index_put.default, x, indices, values, True, tolerance=tolerance)


@pytest.mark.parametrize("dtype", EVERY)
def test_index_put_replaces(dtype) -> None:
    x = tensor([5, 4, 3], dtype)
    rows = torch.tensor([0, -1, 2])
    check(aten.index_put.default, x, [rows], tensor([3, 4, 3], dtype, 1))
    check(aten.index_put.default, x, [None, rows[None]], tensor([1, 1, 3], dtype, 1))
    check(aten.index_put.default, x, [rows, None, rows[:, None] % 3], tensor([], dtype, 1))


@pytest.mark.parametrize("accumulate", [False, True])
def test_masks_that_write_one_value(accumulate) -> None:
    x = tensor([5, 4, 3])
    rows, columns = torch.tensor([1, 0, 1, 1, 0]).bool(), torch.tensor([1, 0, 1, 1]).bool()
    check(aten.index_put.default, x, [x > 0], torch.tensor(2.0), accumulate)
    check(aten.index_put.default, x, [None, columns], torch.tensor([2.0]), accumulate)
    check(aten.index_put.default, x, [rows], tensor([4, 3]), accumulate)
    check(aten.index_put.default, x, [torch.zeros(5, 4).bool()], tensor([1, 3]), accumulate)


def test_a_mask_that_needs_one_value_each_is_refused() -> None:
    x, mask = tensor([4]), torch.tensor([True, False, True, False])
    graph, _ = graph_of(aten.index_put.default, (x, [mask], tensor([2])))
    (found,) = find_unsupported(graph)
    assert "mask" in found.reason


@pytest.mark.parametrize("size", [(0, 3), (2, 0)])
def test_empty(size) -> None:
    none = torch.zeros(0, dtype=torch.int64)
    check(aten.index.Tensor, tensor(size), [None, none])
    check(aten.index_put.default, tensor(size), [None, none], tensor([size[0], 0]))
    check(aten.embedding.default, tensor([4, 3]), none)
