"""Which nodes are views, and what their layouts say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_compile.views import (
    Layout,
    base_of,
    is_dense,
    layout_on,
    overlaps_itself,
    path_from,
    same_memory_order,
)
from tests.graphs import aten_graph


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y.t()[1:, 2],
        lambda y: y.view(2, 2, 6).permute(2, 0, 1),
        lambda y: y.unsqueeze(1).expand(4, 3, 6),
        lambda y: y.unbind(0)[2],
        lambda y: y.split(2)[1],
        lambda y: y.split([1, 3])[1].detach(),
        lambda y: y.as_strided((2, 2), (1, 6), 3),
        lambda y: y.diagonal(),
        lambda y: y.unfold(1, 2, 2),
        lambda y: y.squeeze(),
    ],
)
def test_layout_of_a_chain_of_views(view) -> None:
    x = torch.arange(24.0).reshape(4, 6)
    graph = aten_graph(lambda x: view(x + 1), x)
    [node] = graph.graph.output_node().args[0]
    base = base_of(node)
    assert base.target is torch.ops.aten.add.Tensor
    layout = layout_on(node, base)
    rebuilt = (x + 1).as_strided(layout.size, layout.stride, layout.offset)
    assert torch.equal(rebuilt, view(x + 1))
    path = path_from(base, node)
    values = {base: x + 1}
    for step in path:
        values[step] = step.target(*torch.fx.map_arg(step.args, values.__getitem__), **step.kwargs)
    assert torch.equal(values[node], view(x + 1))


def test_no_path_leads_from_another_base() -> None:
    x = torch.arange(24.0).reshape(4, 6)
    graph = aten_graph(lambda x: ((x + 1).t(), x * 2), x)
    view, other = graph.graph.output_node().args[0]
    assert path_from(other, view) is None
    assert path_from(view, view) == []


@pytest.mark.parametrize(
    ("op", "target"),
    [
        (torch.clone, torch.ops.aten.clone.default),
        (torch.neg, torch.ops.aten.neg.default),
        (lambda y: y.view(torch.int32), torch.ops.aten.view.dtype),  # other elements
    ],
)
def test_other_operators_are_no_views(op, target) -> None:
    graph = aten_graph(lambda x: op(x + 1), torch.ones(4))
    [node] = graph.graph.output_node().args[0]
    assert base_of(node).target is target


layouts = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=4).map(
    lambda dims: Layout(tuple(n for n, _ in dims), tuple(s for _, s in dims))
)


def addresses(layout: Layout) -> list[int]:
    span = 1 + sum(max(n - 1, 0) * s for n, s in zip(layout.size, layout.stride, strict=True))
    return torch.arange(span).as_strided(layout.size, layout.stride).flatten().tolist()


@settings(max_examples=300, deadline=None)
@given(layouts)
def test_overlap_is_found_exactly(layout: Layout) -> None:
    found = addresses(layout)
    assert overlaps_itself(layout) == (len(set(found)) < len(found))


@settings(max_examples=300, deadline=None)
@given(layouts)
def test_dense_means_without_gap_or_overlap(layout: Layout) -> None:
    found = addresses(layout)
    assert is_dense(layout) == (sorted(found) == list(range(len(found))))


@settings(max_examples=300, deadline=None)
@given(layouts, layouts)
def test_same_order_means_same_addresses(a: Layout, b: Layout) -> None:
    if same_memory_order(a, b):
        assert a.size == b.size
        assert addresses(a) == addresses(b)


def test_large_interleaved_layouts_count_as_overlapping() -> None:
    assert overlaps_itself(Layout((3, 2, 1 << 17), (2, 3, 100)))
    assert not overlaps_itself(Layout((3, 2, 1 << 10), (2, 3, 100)))


def test_strides_of_single_elements_do_not_matter() -> None:
    assert same_memory_order(Layout((1, 4), (9, 1)), Layout((1, 4), (4, 1)))
    assert not same_memory_order(Layout((2, 4), (9, 1)), Layout((2, 4), (4, 1)))
