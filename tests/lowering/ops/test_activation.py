"""Activations and their gradients against eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.lowering.single_op import check

aten = torch.ops.aten

ACTIVATIONS = {
    "relu": F.relu, "relu6": F.relu6, "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish,
    "softplus": lambda x: F.softplus(x, 2.0, 3.0), "logsigmoid": F.logsigmoid,
    "hardsigmoid": F.hardsigmoid, "hardswish": F.hardswish, "hardtanh": F.hardtanh, "elu": F.elu,
    "selu": F.selu, "celu": F.celu, "leaky": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 1, 7),
}  # fmt: skip

GRADIENTS = {
    "gelu": lambda g, x: aten.gelu_backward(g, x),
    "gelu tanh": lambda g, x: aten.gelu_backward(g, x, approximate="tanh"),
    "silu": aten.silu_backward,
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0),
    "softplus": lambda g, x: aten.softplus_backward(g, x, 2.0, 3.0),
    "leaky": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "logsigmoid": lambda g, x: aten.log_sigmoid_backward(g, x, torch.exp(-x.abs())),
}

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", list(ACTIVATIONS))
def test_activation(name: str, dtype: torch.dtype) -> None:
    # Infinity is left out: eager's vectorised gelu makes it NaN.
    x = torch.cat([torch.linspace(-6, 6, 30), torch.tensor([math.nan, 1e4])]).to(dtype)
    check(ACTIVATIONS[name], x)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradient(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-5, 5, 30).to(dtype)
    check(GRADIENTS[name], torch.randn(30).to(dtype), x)


@pytest.mark.parametrize(
    "function",
    [
        F.relu,
        F.relu6,
        lambda x: F.hardtanh(x, 0, 2),
        lambda x: x.clamp(0, 1),
        lambda x: x.clamp(max=0),
        lambda x: torch.clamp_min(x, 0),
    ],
)
def test_limits_of_zero_keep_negative_zero(function) -> None:
    x = torch.tensor([-0.0, 0.0, -1.0, 3.0, float("nan"), -float("inf")] * 7)
    expected, got = function(x), torch.compile(function, backend="neuron")(x)
    assert torch.equal(expected.signbit() & ~x.isnan(), got.signbit() & ~x.isnan())
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
