"""as_strided and unfold against eager."""

from __future__ import annotations

import pytest
import torch

from neuron_compile.lowering import find_unsupported
from neuron_compile.lowering.ops.strided import by_address
from tests.lowering.single_op import check, graph_of

aten = torch.ops.aten


@pytest.mark.parametrize(("size", "stride", "offset"), [
    ((4, 6), (6, 1), 0), ((6, 4), (1, 6), 0), ((2, 3, 4), (1, 2, 6), 0), ((3, 3), (2, 1), 5),
    ((2, 5), (0, 3), 1), ((), (), 7), ((0, 3), (1, 1), 2), ((24,), (1,), None),
])  # fmt: skip
@pytest.mark.parametrize("transposed", [False, True])
def test_as_strided(size, stride, offset, transposed: bool) -> None:
    x = torch.arange(24.0).view(4, 6)
    check(lambda x: aten.as_strided(x, size, stride, offset), x.t() if transposed else x)


def test_memory_that_is_not_in_the_graph_is_refused() -> None:
    graph, _ = graph_of(lambda x: x.as_strided((2,), (1,), 0), [torch.arange(10.0)[2:6]])
    assert "outside" in find_unsupported(graph)[0].reason
    graph, _ = graph_of(lambda x: x.as_strided((2,), (1,)), [torch.arange(10.0)[::2]])
    assert "gaps" in find_unsupported(graph)[0].reason


@pytest.mark.parametrize(("dim", "size", "step"), [(0, 2, 1), (-1, 3, 2), (1, 5, 3)])
def test_unfold(dim: int, size: int, step: int) -> None:
    x = torch.arange(60.0).view(4, 5, 3)
    check(lambda x: aten.unfold(x, dim, size, step), x)
    grad = torch.randn(x.unfold(dim, size, step).shape)
    check(lambda g: aten.unfold_backward(g, [4, 5, 3], dim, size, step), grad)


def test_by_address_orders_from_the_outside_in() -> None:
    assert by_address((1, 12, 4), (4, 2, 3)) == [1, 2, 0]
    assert by_address((1, 1), (1, 5)) == [1, 0]
