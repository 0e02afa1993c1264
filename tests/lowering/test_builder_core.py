"""Constants, regions and the node at hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder_core import is_integer, wrap_signed
from tests.lowering.building import function


def text(value: ir.Value) -> str:
    return str(value.owner)


@pytest.mark.parametrize(("value", "dtype", "expected"), [
    (1.5, torch.float32, "dense<1.500000e+00> : tensor<2xf32>"),
    (2.7, torch.int32, "dense<2> : tensor<2xi32>"),
    (-1, torch.uint8, "dense<255> : tensor<2xui8>"),
    (300, torch.int8, "dense<44> : tensor<2xi8>"),
    (2, torch.bool, "dense<true> : tensor<2xi1>"),
    (2**64 - 1, torch.uint64, "dense<18446744073709551615> : tensor<2xui64>"),
    (-math.inf, torch.bfloat16, "dense<0xFF80> : tensor<2xbf16>"),
])  # fmt: skip
def test_constants_as_eager_fills(value, dtype: torch.dtype, expected: str) -> None:
    with function() as (b, _):
        assert expected in text(b.full((2,), value, dtype))


def test_a_constant_is_made_once() -> None:
    with function() as (b, _):
        first = b.full((2,), 1.0, torch.float32)
        assert b.full([2], 1.0, torch.float32) == first
        assert b.full((2,), -1.0, torch.float32) != first
        assert b.scalar(0.0, torch.float32) != b.scalar(-0.0, torch.float32)
        assert b.scalar(math.nan, torch.float32) == b.scalar(math.nan, torch.float32)


def test_regions_hold_constants_of_their_own() -> None:
    with function(((4,), torch.float32)) as (b, (x,)):
        outside = b.scalar(2.0, torch.float32)
        seen = []

        def body(p: ir.Value, q: ir.Value) -> ir.Value:
            seen.append(b.scalar(2.0, torch.float32))
            return b.add(p, b.multiply(q, seen[0]))

        b.reduce(x, b.scalar(0.0, torch.float32), [0], body)
        assert seen[0] != outside
        assert b.scalar(2.0, torch.float32) == outside


@pytest.mark.parametrize("tensor", [
    torch.tensor([[1.5, -2.0], [3.0, 0.25]]), torch.tensor([True, False, True]),
    torch.tensor([1.5, 2.5], dtype=torch.bfloat16), torch.tensor([1, 255], dtype=torch.uint8),
    torch.arange(6).view(2, 3).t(), torch.empty(0, 3), torch.tensor(7),
], ids=lambda t: f"{t.dtype}{list(t.shape)}")  # fmt: skip
def test_arrays(tensor: torch.Tensor) -> None:
    with function() as (b, _):
        value = b.array(tensor)
        assert (b.shape(value), b.dtype(value)) == (tuple(tensor.shape), tensor.dtype)
        if tensor.numel() > 1 and tensor.dtype is torch.int64:
            assert "[[0, 3], [1, 4], [2, 5]]" in text(value)


def test_the_node_at_hand() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = (torch.empty(2, 3), torch.empty(4, dtype=torch.complex64))
    graph.call_function(__import__("operator").getitem, (x, 1))
    with function() as (b, _):
        with pytest.raises(AssertionError, match="no node"):
            _ = b.node
        b.enter(x, b.location)
        assert (b.result_shape(0), b.result_dtype(0)) == ((2, 3), torch.float32)
        assert str(b.result_type(1)) == "tensor<4xf32>"  # the type of a part
        assert (b.is_used(0), b.is_used(1)) == (False, True)


def test_numbers() -> None:
    assert [wrap_signed(v, 8) for v in (0, 127, 128, 255, 256, -129)] == [0, 127, -128, -1, 0, 127]
    assert [is_integer(d) for d in (torch.bool, torch.uint8, torch.float32)] == [False, True, False]
