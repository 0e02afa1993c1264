"""Writing through a view against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from neuron_compile.lowering import find_unsupported
from tests.lowering.samples import EVERY, examples, tensor
from tests.lowering.single_op import check, graph_of

aten = torch.ops.aten


@examples(30)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    data=st.data(),
    offset=st.integers(-3, 3),
    dtype=st.sampled_from(EVERY),
)
def test_diagonal(shape, data, offset, dtype) -> None:
    rank = len(shape)
    dim1 = data.draw(st.integers(-rank, rank - 1))
    dim2 = data.draw(st.integers(-rank, rank - 1))
    assume(dim1 % rank != dim2 % rank)
    x = tensor(shape, dtype)
    view = torch.diagonal(x, offset, dim1, dim2)
    assume(view.numel() > 0)
    src = tensor(view.shape, dtype, 1)
    check(aten.diagonal_scatter.default, x, src, offset, dim1, dim2)
    check(aten.diagonal_backward.default, src, shape, offset, dim1, dim2)


@pytest.mark.parametrize("transposed", [False, True])
def test_strides(transposed) -> None:
    x = tensor([4, 5]).t() if transposed else tensor([4, 5])
    check(aten.as_strided_scatter.default, x, tensor([2, 3], seed=1), [2, 3], [6, 2], 1)


def test_memory_with_gaps_is_refused() -> None:
    x = tensor([4, 6])[:, ::2]
    graph, _ = graph_of(aten.as_strided_scatter.default, (x, tensor([2]), [2], [2], 0))
    (found,) = find_unsupported(graph)
    assert "gaps" in found.reason
