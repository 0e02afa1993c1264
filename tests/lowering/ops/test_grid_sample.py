"""Sampling at grid positions and its gradients against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.lowering.samples import examples, tensor
from tests.lowering.single_op import check

aten = torch.ops.aten


@examples(40)
@given(
    size=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    interpolation=st.integers(0, 2),
    padding=st.integers(0, 2),
    align_corners=st.booleans(),
)
def test_images(size, interpolation, padding, align_corners) -> None:
    """The grid reaches beyond the image on all sides."""
    image, grid = tensor([2, 3, *size]), tensor([2, 4, 5, 2], seed=1) * 1.2
    mode = (interpolation, padding, align_corners)
    check(aten.grid_sampler_2d.default, image, grid, *mode, tolerance=2e-5)
    grad = tensor([2, 3, 4, 5], seed=2)
    backward = aten.grid_sampler_2d_backward.default
    check(backward, grad, image, grid, *mode, [True, True], tolerance=1e-4)


@pytest.mark.parametrize("interpolation", [0, 1])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align_corners", [False, True])
def test_volumes(interpolation, padding, align_corners) -> None:
    image, grid = tensor([2, 3, 3, 4, 5]), tensor([2, 2, 3, 2, 3], seed=1)
    mode = (interpolation, padding, align_corners)
    check(aten.grid_sampler_3d.default, image, grid, *mode, tolerance=2e-5)
    grad = tensor([2, 3, 2, 3, 2], seed=2)
    backward = aten.grid_sampler_3d_backward.default
    check(backward, grad, image, grid, *mode, [True, True], tolerance=1e-4)


def test_positions_on_pixels_and_borders() -> None:
    ticks = torch.linspace(-1, 1, 5, dtype=torch.float64)
    grid = torch.stack(torch.meshgrid(ticks, ticks, indexing="xy"), -1)[None]
    image = tensor([1, 2, 5, 5], torch.float64)
    for padding in range(3):
        check(aten.grid_sampler_2d.default, image, grid, 0, padding, True)
