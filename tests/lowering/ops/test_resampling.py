"""Resizing and its gradients against eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from tests.lowering.samples import examples, tensor
from tests.lowering.single_op import check

aten = torch.ops.aten

TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-12, torch.bfloat16: 2e-2}

BACKWARD = {
    "nearest": aten.upsample_nearest2d_backward.default,
    "nearest-exact": aten._upsample_nearest_exact2d_backward.default,
    "bilinear": aten.upsample_bilinear2d_backward.default,
    "bicubic": aten.upsample_bicubic2d_backward.default,
}
ANTIALIASED = {
    "bilinear": aten._upsample_bilinear2d_aa_backward.default,
    "bicubic": aten._upsample_bicubic2d_aa_backward.default,
}


@st.composite
def resizings(draw: st.DrawFn):
    """Arguments of `interpolate`, and of the backward operator after its gradient."""
    mode = draw(st.sampled_from(sorted(BACKWARD)))
    shape = [draw(st.integers(1, 2)), 2, draw(st.integers(1, 7)), draw(st.integers(1, 7))]
    kwargs = {"mode": mode}
    scales: list[float | None] = [None, None]
    if draw(st.booleans()):
        kwargs["size"] = (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    else:
        scales = [draw(st.sampled_from([0.5, 1.0, 1.7, 2.0, 3.0])) for _ in range(2)]
        shape[2:] = [max(2, n) for n in shape[2:]]
        kwargs |= {"scale_factor": tuple(scales), "recompute_scale_factor": False}
    extra, backward = [], BACKWARD[mode]
    if mode in ANTIALIASED:
        kwargs["align_corners"] = draw(st.booleans())
        extra = [kwargs["align_corners"]]
        if draw(st.booleans()):
            kwargs["antialias"] = True
            kwargs["align_corners"] = extra[0] = False
            backward = ANTIALIASED[mode]
    return shape, kwargs, backward, extra, scales


@examples(60)
@given(case=resizings(), dtype=st.sampled_from((torch.float32, torch.float64)))
def test_two_dimensions(case, dtype) -> None:
    shape, kwargs, backward, extra, scales = case
    x, tolerance = tensor(shape, dtype), TOLERANCE[dtype]
    check(lambda x: F.interpolate(x, **kwargs), x, tolerance=tolerance)
    out = F.interpolate(x, **kwargs)
    grad = tensor(out.shape, dtype, 1)
    check(backward, grad, list(out.shape[2:]), shape, *extra, *scales, tolerance=tolerance)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_half_precision(mode) -> None:
    x = tensor([1, 2, 5, 4], torch.bfloat16)
    check(lambda x: F.interpolate(x, size=(8, 3), mode=mode), x, tolerance=2e-2)


def test_one_and_three_dimensions() -> None:
    line, block = tensor([2, 3, 5]), tensor([1, 2, 3, 4, 5])
    check(lambda x: F.interpolate(x, size=8, mode="linear"), line, tolerance=5e-6)
    check(lambda x: F.interpolate(x, size=8), line)
    check(lambda x: F.interpolate(x, size=(5, 7, 6), mode="trilinear"), block, tolerance=5e-6)
    check(lambda x: F.interpolate(x, size=(5, 7, 6), mode="nearest-exact"), block)
    grad = tensor([1, 2, 5, 7, 6])
    args = ([5, 7, 6], [1, 2, 3, 4, 5])
    check(aten.upsample_trilinear3d_backward.default, grad, *args, False, tolerance=5e-6)
    check(aten.upsample_nearest3d_backward.default, grad, *args, tolerance=5e-6)
    check(
        aten.upsample_linear1d_backward.default,
        tensor([2, 3, 8]),
        [8],
        [2, 3, 5],
        True,
        tolerance=5e-6,
    )


def test_integers_may_be_repeated() -> None:
    check(lambda x: F.interpolate(x, size=(8, 9)), tensor([2, 3, 5, 7], torch.uint8))


def test_nan_stays_where_it_is() -> None:
    x = tensor([1, 1, 4, 6])
    x[0, 0, 1, 1], x[0, 0, 3, 5] = math.nan, math.inf
    check(lambda x: F.interpolate(x, size=(8, 9), mode="bilinear"), x, tolerance=5e-6)


def test_a_transposed_input() -> None:
    """T029."""
    x = tensor([2, 5, 2, 2, 3]).permute(0, 1, 3, 4, 2)
    check(lambda x: F.interpolate(x, size=(5, 6, 7), mode="nearest"), x)
