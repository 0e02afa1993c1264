"""Convolutions and their gradients against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from neuron_compile.lowering import lower
from tests.lowering.samples import FLOATS, examples, tensor
from tests.lowering.single_op import check, graph_of, run

aten = torch.ops.aten

# Long sums of half precision products: eager rounds some of them on the way.
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 2e-2, torch.float16: 3e-3}


@st.composite
def geometries(draw: st.DrawFn) -> dict[str, object]:
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 2)

    def each(values: st.SearchStrategy[int]) -> list[int]:
        return [draw(values) for _ in range(rank)]

    groups = draw(st.sampled_from([1, 1, 2, 3]))
    transposed = draw(st.booleans())
    case = {
        "batch": draw(small),
        "inputs": groups * draw(small),
        "outputs": groups * draw(small),
        "kernel": each(st.integers(1, 3)),
        "size": each(st.integers(1, 6)),
        "stride": each(st.integers(1, 3)),
        "padding": each(st.integers(0, 2)),
        "dilation": each(small),
        "groups": groups,
        "transposed": transposed,
        "output_padding": [0] * rank,
    }
    if transposed:
        case["output_padding"] = [
            draw(st.integers(0, max(s, d) - 1))
            for s, d in zip(case["stride"], case["dilation"], strict=True)
        ]
    return case


def _operands(case, dtype):
    x = tensor([case["batch"], case["inputs"], *case["size"]], dtype, 1)
    lead = [case["inputs"], case["outputs"] // case["groups"]]
    if not case["transposed"]:
        lead = [case["outputs"], case["inputs"] // case["groups"]]
    weight = tensor([*lead, *case["kernel"]], dtype, 2)
    rest = [
        case[name]
        for name in ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
    ]
    return x, weight, rest


def _eager_or_skip(x, weight, rest):
    try:
        out = aten.convolution.default(x, weight, None, *rest)
    except RuntimeError:
        assume(False)
    assume(out.numel() > 0)
    return out


@examples(30)
@given(case=geometries(), dtype=st.sampled_from(FLOATS), bias=st.booleans())
def test_convolution(case, dtype, bias) -> None:
    x, weight, rest = _operands(case, dtype)
    _eager_or_skip(x, weight, rest)
    offset = tensor([case["outputs"]], dtype, 3) if bias else None
    check(aten.convolution.default, x, weight, offset, *rest, tolerance=TOLERANCE[dtype])


@examples(30)
@given(case=geometries(), dtype=st.sampled_from(FLOATS))
def test_gradients(case, dtype) -> None:
    x, weight, rest = _operands(case, dtype)
    grad = tensor(_eager_or_skip(x, weight, rest).shape, dtype, 4)
    check(
        aten.convolution_backward.default,
        grad,
        x,
        weight,
        [case["outputs"]],
        *rest,
        [True, True, True],
        tolerance=TOLERANCE[dtype],
    )


@pytest.mark.parametrize("mask", [[True, False, False], [False, True, False], [False, True, True]])
def test_only_the_gradients_asked_for(mask) -> None:
    x, weight, grad = tensor([2, 4, 5, 6]), tensor([6, 2, 3, 2]), tensor([2, 6, 3, 5])
    args = ([6], [1, 1], [0, 0], [1, 1], False, [0, 0], 2, mask)
    check(aten.convolution_backward.default, grad, x, weight, *args, tolerance=1e-5)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integers_are_exact(dtype) -> None:
    x, weight, bias = tensor([1, 2, 7], dtype), tensor([3, 2, 2], dtype), tensor([3], dtype)
    check(aten.convolution.default, x, weight, bias, [2], [1], [1], False, [0], 1)


@pytest.mark.parametrize(("batch", "inputs"), [(0, 2), (2, 0), (0, 0)])
def test_no_batch_or_no_channels(batch, inputs) -> None:
    x, weight, bias = tensor([batch, inputs, 5]), tensor([3, inputs, 2]), tensor([3])
    rest = ([1], [0], [1], False, [0], 1)
    (out,) = run(aten.convolution.default, x, weight, bias, *rest)
    assert torch.equal(out, aten.convolution.default(x, weight, bias, *rest))
    grads = run(aten.convolution_backward.default, out, x, weight, [3], *rest, [True] * 3)
    assert torch.equal(grads[0], torch.zeros_like(x))
    assert torch.equal(grads[1], torch.zeros_like(weight))
    assert torch.equal(grads[2], torch.zeros(3))


def test_each_gradient_is_one_convolution() -> None:
    """Nothing is padded, dilated or gathered in memory: geometry stays in the attributes."""
    x, weight, grad = tensor([2, 4, 9, 9]), tensor([6, 4, 3, 3]), tensor([2, 6, 5, 5])
    args = (grad, x, weight, [6], [2, 2], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
    graph, _ = graph_of(aten.convolution_backward.default, args)
    module = lower(graph).module
    main = module.body.operations[0]
    names = sorted(op.operation.name for op in main.regions[0].blocks[0].operations)
    assert names == [
        "func.return",
        "stablehlo.convolution",
        "stablehlo.convolution",
        "stablehlo.reverse",
        "stablehlo.transpose",
    ]
