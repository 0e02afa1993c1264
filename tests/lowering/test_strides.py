"""Only layouts that are not row-major are worth an attribute."""

from __future__ import annotations

import pytest
import torch
from torch_mlir import ir

from neuron_compile.lowering.strides import is_row_major, strides_attribute


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [
        ((2, 3), (3, 1), True),
        ((2, 3), (1, 2), False),
        ((2, 1, 3), (3, 77, 1), True),
        ((1, 3), (1, 1), True),
        ((2, 3), (4, 1), False),
        ((2, 3), (0, 1), False),
        ((0, 3), (1, 9), True),
        ((), (), True),
        ((4,), (2,), False),
    ],
)
def test_is_row_major(size, stride, expected: bool) -> None:
    assert is_row_major(torch.empty(100).as_strided(size, stride)) is expected


def test_attribute_holds_element_strides() -> None:
    with ir.Context():
        named = strides_attribute(torch.empty(4, 5).t())
        assert str(named["neuron.strides"]) == "array<i64: 1, 5>"
        assert strides_attribute(torch.empty(4, 5)) == {}
