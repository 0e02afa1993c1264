"""The shape signature: whatever a kernel can tell apart, and nothing it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx

from neuron_compile.graph_text import Unhashable
from neuron_compile.shape_text import signature_text, tensor_text


def signature(function: Callable[..., Any], *inputs: torch.Tensor) -> str:
    return signature_text(make_fx(function, tracing_mode="fake")(*inputs))


def test_a_line_for_each_input_then_outputs_and_values() -> None:
    lines = signature(lambda x, y: x + y, torch.ones(2, 3), torch.ones(3, dtype=torch.int64))
    names = [line.partition(": ") for line in lines.splitlines()]
    assert [name for name, _, _ in names] == ["input 0", "input 1", "outputs", "values"]
    assert names[0][2] == "float32[2, 3]"
    assert names[1][2] == "int64[3]"


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.ones(2, 3), "float32[2, 3]"),
        (torch.ones(3, 2).t(), "float32[2, 3]{1, 2}"),
        (torch.ones(()), "float32[]"),
        (torch.ones(0, 3), "float32[0, 3]"),
        (torch.ones(1, 3).expand(4, 3), "float32[4, 3]{0, 1}"),
        (torch.ones(4, 4)[:, 1:3], "float32[4, 2]{4, 1}"),
        (torch.ones(5, 1, 4)[:, :, ::2], "float32[5, 1, 2]{4, _, 2}"),
        (torch.ones(2, dtype=torch.bool), "bool[2]"),
        (torch.ones(2, dtype=torch.bfloat16), "bfloat16[2]"),
    ],
)
def test_how_a_tensor_is_written(tensor: torch.Tensor, text: str) -> None:
    assert tensor_text(tensor) == text


SIZES = st.lists(st.integers(0, 3), max_size=4).map(tuple)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    shape = draw(SIZES)
    return shape, tuple(draw(st.integers(0, 6)) for _ in shape)


def addresses(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Where each element lies, in row-major order of the indices."""
    found = [0]
    for size, stride in zip(shape, strides, strict=True):
        found = [base + index * stride for base in found for index in range(size)]
    return found


@given(layouts(), layouts())
def test_equal_exactly_when_shape_and_addresses_are(a: Any, b: Any) -> None:
    """Strides that address nothing do not count; all others, overlapping ones too, do."""
    texts = [tensor_text(torch.zeros(100).as_strided(*layout)) for layout in (a, b)]
    alike = a[0] == b[0] and addresses(*a) == addresses(*b)
    assert (texts[0] == texts[1]) == alike


@given(SIZES, st.data())
def test_one_element_anywhere_keeps_the_text(shape: tuple[int, ...], data: st.DataObject) -> None:
    strides = torch.empty(shape).stride()
    moved = tuple(
        data.draw(st.integers(0, 9)) if size == 1 else stride
        for size, stride in zip(shape, strides, strict=True)
    )
    tensor = torch.zeros(100).as_strided(shape, moved)
    assert tensor_text(tensor) == tensor_text(torch.empty(shape))


def test_t143_shape_dtype_and_stride_of_any_input_count() -> None:
    base = [torch.ones(2, 3), torch.ones(2, 3)]
    others = [torch.ones(3, 2).t(), torch.ones(2, 3, dtype=torch.float64), torch.ones(1, 3)]
    texts = {signature(lambda x, y: x * y, *base)}
    for other in others:
        texts.add(signature(lambda x, y: x * y, other, base[1]))
        texts.add(signature(lambda x, y: x * y, base[0], other))
    assert len(texts) == 1 + 2 * len(others)


def test_the_default_dtype_shows_in_the_values_between() -> None:
    """`int / int` takes the default dtype, which no argument of the graph mentions."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x / 3 > 1).to(torch.int64)

    before = torch.get_default_dtype()
    numbers = torch.arange(4)
    single = signature(function, numbers)
    try:
        torch.set_default_dtype(torch.float64)
        double = signature(function, numbers)
    finally:
        torch.set_default_dtype(before)
    assert single != double
    assert single.splitlines()[:2] == double.splitlines()[:2]


def test_the_callers_view_of_an_output_counts_with_sizes_of_one() -> None:
    """The strides of a size of one are visible to the caller, though they address nothing."""
    plain, moved = torch.ones(1, 4), torch.ones(4, 4).as_strided((1, 4), (16, 1))
    assert tensor_text(plain) == tensor_text(moved)
    signatures = [signature(lambda x: x[:, :2], tensor) for tensor in (plain, moved)]
    assert signatures[0] != signatures[1]
    assert signatures[0].splitlines()[0] == signatures[1].splitlines()[0]


def test_lazy_conjugation_and_the_device_count() -> None:
    number = torch.ones(2, dtype=torch.complex64)
    texts = {signature(lambda x: x * 2, value) for value in (number, number.conj())}
    assert len(texts) == 2
    negated = number.conj().imag
    assert negated.is_neg()
    assert "negated" in signature(lambda x: x * 2, negated)
    assert "meta" in signature(lambda x: x * 2, torch.ones(2, device="meta"))


def test_symbolic_sizes_are_refused() -> None:
    graph = make_fx(lambda x: x * 2, tracing_mode="symbolic")(torch.ones(5, 7))
    with pytest.raises(Unhashable, match="symbolic"):
        signature_text(graph)


def test_an_input_without_a_shape_is_refused() -> None:
    graph = torch.fx.Graph()
    graph.output((graph.placeholder("x"),))
    with pytest.raises(Unhashable, match="without a known shape"):
        signature_text(torch.fx.GraphModule(torch.nn.Module(), graph))


def test_sparse_inputs_are_refused() -> None:
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    indices, values = torch.tensor([[0]]), torch.tensor([1.0])
    node.meta["val"] = torch.sparse_coo_tensor(indices, values, (2,), check_invariants=True)
    graph.output((node,))
    with pytest.raises(Unhashable, match="sparse"):
        signature_text(torch.fx.GraphModule(torch.nn.Module(), graph))
