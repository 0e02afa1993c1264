"""Bounds of integer values: what is promised holds, and what matters is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_compile.value_ranges import Range, ValueRanges, dtype_range
from tests.graphs import aten_graph


def found(function: Callable[..., torch.Tensor], *args: torch.Tensor) -> Range | None:
    graph = aten_graph(lambda *a: (function(*a),), *args).graph
    return ValueRanges(graph).of(graph.output_node().args[0][0])


X = torch.zeros(4, 6)
I = torch.zeros(4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: torch.arange(2, 9), (2, 8)),
        (lambda x: torch.arange(9, 2, -3), (3, 9)),
        (lambda x: torch.arange(5)[None] - torch.arange(5)[:, None], (-4, 4)),
        (lambda x: (torch.arange(5) * -2 + 1).abs(), (0, 7)),
        (lambda x: torch.full((3,), 7).clamp(max=5), (5, 5)),
        (lambda x: torch.cat([torch.arange(3), torch.full((2,), -1)]), (-1, 2)),
        (lambda x: torch.where(x[0] > 0, 3, 5), (3, 5)),
        (lambda x: x.argmax(1), (0, 5)),
        (lambda x: x.argmin(), (0, 23)),
        (lambda x: x.topk(2).indices, (0, 5)),
        (lambda x: x.topk(2, dim=0)[1], (0, 3)),
        (lambda x: x.sort(0).indices.flatten(), (0, 3)),
        (lambda x: x.sort(stable=True, dim=0).indices, (0, 3)),
        (lambda x: x.max(0).indices, (0, 3)),
        (lambda x: x > 0, (0, 1)),
        (lambda x: torch.multinomial(x + 1, 2), (0, 5)),
        (lambda x: torch.searchsorted(x[0], x), (0, 6)),
        (lambda x: torch.bucketize(x, x[0]), (0, 6)),
        (lambda x: torch.randint(3, 8, (4,)), (3, 7)),
        (lambda x: torch.randint(8, (4,)), (0, 7)),
        (lambda x: torch.arange(4, dtype=torch.int32).long().expand(3, 4), (0, 3)),
        (lambda x: x.long() % 10, (0, 9)),
        (lambda x: torch.tensor([3, -7, 5]), (-7, 5)),
        (lambda x: torch.nn.functional.pad(torch.arange(3) + 1, (1, 0)), (0, 3)),
    ],
)
def test_what_is_known(function, wanted: Range) -> None:
    assert found(function, X) == wanted


def test_inputs_have_their_dtype_s_values() -> None:
    assert found(lambda i: i.clone(), I) == dtype_range(torch.int64)
    assert found(lambda i: i.clone(), I.to(torch.uint8)) == (0, 255)
    assert found(lambda i: i.clamp(0, 9), I) == (0, 9)
    assert found(lambda x: x.clone(), X) is None


def test_an_operand_of_a_wider_dtype_wraps_around_first() -> None:
    """A tensor without dimensions does not widen the result: 2**32 - 1 is -1 there."""
    narrow = torch.zeros(3, dtype=torch.int32)
    found_range = found(lambda i: torch.minimum(i % 3 + 5, torch.tensor(2**32 - 1)), narrow)
    assert found_range == dtype_range(torch.int32)


def test_numbers_that_the_dtype_does_not_hold() -> None:
    assert found(lambda i: i % 128, I.to(torch.int8)) == dtype_range(torch.int8)
    assert found(lambda i: i % 127, I.to(torch.int8)) == (0, 126)
    assert found(lambda i: (i % 4).clamp(min=-1), I.to(torch.uint8)) == dtype_range(torch.uint8)


def test_what_may_wrap_around_is_not_known() -> None:
    assert found(lambda i: i + 1, I) == dtype_range(torch.int64)
    assert found(lambda i: (i.clamp(0, 300)).to(torch.int8), I) == dtype_range(torch.int8)
    assert found(lambda i: i.abs(), I) == dtype_range(torch.int64)


def test_a_long_chain_is_no_deep_recursion() -> None:
    def f(i):
        i = i % 2
        for _ in range(1500):
            i = -i
        return i

    assert found(f, I) == (0, 1)


OPERATIONS = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "scaled": lambda a, b: torch.add(a, b, alpha=-3),
    "clamped": lambda a, b: torch.clamp(a, -2, 3) + b,
    "crossed": lambda a, b: torch.clamp(a, 3, -2),
    "negated": lambda a, b: -a,
    "absolute": lambda a, b: a.abs() - b,
    "remainder": lambda a, b: a % 4,
    "chosen": lambda a, b: torch.where(a > b, a, b),
    "joined": lambda a, b: torch.stack([a, b])[1],
    "narrow": lambda a, b: (a * 20).to(torch.int8).to(torch.int64),
}


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=6),
    low=st.integers(-9, 9),
    width=st.integers(0, 9),
    data=st.data(),
)
def test_no_value_is_outside(steps: list[str], low: int, width: int, data: st.DataObject) -> None:
    values = st.lists(st.integers(-20, 20), min_size=8, max_size=8)
    a, b = (torch.tensor(data.draw(values)) for _ in range(2))

    def f(a, b):
        a, b = a.clamp(low, low + width), b.clamp(-3, 4)
        for step in steps:
            a, b = OPERATIONS[step](a, b), a
        return a

    bounds = found(f, a, b)
    result = f(a, b)
    assert bounds is not None
    assert bounds[0] <= int(result.min())
    assert int(result.max()) <= bounds[1]
