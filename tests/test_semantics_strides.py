"""Strides and layout of outputs are eager's: T029-T036 of the list of public reports."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.semantics import assert_same_effect


def test_interpolate_keeps_channels_last_3d() -> None:  # T029
    def f(x):
        return F.interpolate(x.permute(0, 4, 1, 2, 3), size=(5, 6, 7), mode="nearest")

    result = assert_same_effect(f, lambda: [torch.randn(2, 5, 2, 3, 2)])
    assert result.stride() == (420, 1, 84, 14, 2)


@pytest.mark.parametrize(
    "op",
    [
        torch.copysign,
        torch.floor_divide,
        lambda a, b: torch.div(a, b, rounding_mode="floor"),
        lambda a, b: torch.addr(a, b[:, 0], b[0], beta=0),
        lambda a, b: a.put(torch.tensor([3, 1]), b[0, :2]),
        torch.add,
        lambda a, b: torch.where(a > b, a, b),
        lambda a, b: F.softmax(a, -1),
        lambda a, b: F.layer_norm(a, (6,)),
        lambda a, b: F.gelu(a),
        lambda a, b: a.cumsum(0),
        lambda a, b: a.sum(0, keepdim=True),
    ],
    ids=[
        "copysign",
        "floor_divide",
        "div-floor",
        "addr",
        "put",
        "add",
        "where",
        "softmax",
        "layer_norm",
        "gelu",
        "cumsum",
        "sum",
    ],
)
def test_operators_on_transposed_inputs(op) -> None:  # T031
    assert_same_effect(
        lambda a, b: op(a, b), lambda: [torch.rand(6, 5).t() + 1, torch.rand(6, 5).t() + 1]
    )


def test_empty_strided_keeps_its_gaps() -> None:  # T033
    f = torch.compile(lambda: torch.empty_strided((2, 3), (16, 1)).fill_(3), backend="neuron")
    assert f().stride() == (16, 1)
    assert torch.equal(f(), torch.full((2, 3), 3.0))


def test_transformer_with_transposed_source() -> None:  # T036
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).train()
    compiled = torch.compile(layer, backend="neuron")
    x = torch.randn(5, 3, 8)
    expected, result = layer(x.transpose(0, 1)), compiled(x.transpose(0, 1))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert result.stride() == expected.stride()


@pytest.mark.parametrize(
    "op",
    [
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda x, w: F.relu(F.conv2d(x, w)),
        lambda x, w: F.max_pool2d(x, 2),
        lambda x, w: F.avg_pool2d(x, 2),
        lambda x, w: F.interpolate(x, scale_factor=2.0, mode="nearest"),
    ],
    ids=["conv", "conv-relu", "max_pool", "avg_pool", "interpolate"],
)
def test_channels_last_images(op) -> None:
    def make():
        x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
        return [x, torch.randn(4, 3, 3, 3)]

    assert_same_effect(lambda x, w: op(x, w), make, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.arange(24.0).reshape(4, 6)[:, ::2],
        lambda: torch.arange(24.0).reshape(4, 6).t(),
        lambda: torch.arange(6.0).expand(4, 6),
        lambda: torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        lambda: torch.arange(30.0)[5:29].reshape(4, 6),
        lambda: torch.arange(24.0).reshape(4, 6).as_strided((3, 3), (1, 2)),
        lambda: torch.empty(0, 4),
        lambda: torch.tensor(3.0),
    ],
    ids=["strided", "transposed", "expanded", "permuted", "offset", "overlapping", "empty", "0-d"],
)
def test_inputs_may_lie_in_memory_as_they_like(make) -> None:
    assert_same_effect(lambda x: (x * 2 + 1, x.sum(), x.clone()), lambda: [make()])


def test_size_one_dimensions_keep_their_odd_strides() -> None:
    def make():
        return [torch.arange(8.0).as_strided((1, 4, 1), (100, 1, 7))]

    assert_same_effect(lambda x: (x.relu(), x.exp()), make)


def test_gradient_strides_of_transposed_weights() -> None:
    def run(call):
        torch.manual_seed(0)
        w = torch.randn(3, 4).t().requires_grad_()
        x = torch.randn(2, 4, requires_grad=True)
        call(x, w).sum().backward()
        return w.grad, x.grad

    def f(x, w):
        return (x @ w).tanh()

    for ours, theirs in zip(run(torch.compile(f, backend="neuron")), run(f), strict=True):
        assert ours.stride() == theirs.stride()
        torch.testing.assert_close(ours, theirs)
