"""Views and moves against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.lowering.single_op import check

aten = torch.ops.aten

CASES = {
    "view": lambda x: x.view(4, 6),
    "flatten": lambda x: x.flatten(1),
    "unsqueeze": lambda x: x.unsqueeze(-2),
    "permute": lambda x: x.permute(2, 0, -2),
    "transpose": lambda x: x.transpose(-1, 0),
    "expand": lambda x: x[:, :1].expand(5, 2, 3, -1),
    "slice": lambda x: x[:, 1:-1, ::2],
    "slice out of range": lambda x: x[:, -50:99],
    "empty slice": lambda x: x[:, 2:1],
    "select": lambda x: x.select(-1, -2),
    "unbind": lambda x: x.unbind(1),
    "split": lambda x: x.split(2, -1),
    "split sizes": lambda x: x.split([1, 3], 2),
    "chunk": lambda x: x.chunk(3, 2),
    "tensor_split": lambda x: x.tensor_split(3, 2),
    "cat": lambda x: torch.cat([x, x[:, :1], torch.empty(0)], 1),
    "stack": lambda x: torch.stack([x, x + 1], -1),
    "pad": lambda x: F.pad(x, (1, 2, -1, 3), value=7.0),
    "flip": lambda x: x.flip(0, -1),
    "roll": lambda x: [x.roll(1), x.roll((2, -1), (0, 2))],
    "repeat": lambda x: x.repeat(2, 1, 3, 2),
    "diagonal": lambda x: [x.diagonal(0, 1, 2), x.diagonal(-1, 2, 1), x.diagonal(2, 0, -1)],
    "movedim": lambda x: x.movedim(0, -1),
    "narrow": lambda x: [x.narrow(1, 1, 2), torch.narrow_copy(x, -1, -2, 2)],
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0] * 2, 1, -1),
    "slice_scatter": lambda x: torch.slice_scatter(x, x[:, :2] * 2, 1, 1),
    "slice_scatter with steps": lambda x: torch.slice_scatter(x, x[:, :, :2] + 1, 2, 1, 4, 2),
    "slice_backward": lambda x: aten.slice_backward(x, [2, 3, 11], 2, 2, 9, 2),
    "select_backward": lambda x: aten.select_backward(x, [2, 5, 3, 4], 1, -2),
}  # fmt: skip


@pytest.mark.parametrize("name", list(CASES))
def test_view(name: str) -> None:
    check(CASES[name], torch.arange(24.0).view(2, 3, 4))


def test_squeeze() -> None:
    x = torch.randn(1, 3, 1, 2)
    check(lambda x: [x.squeeze(), x.squeeze(0), x.squeeze(1), torch.squeeze(x, (0, 2))], x)


def test_zero_d() -> None:
    x = torch.tensor(3.0)
    check(lambda x: [x.expand(2, 3), x.flip(()), x.unsqueeze(0), x.squeeze(), x.t()], x)
    check(lambda x: torch.stack([x, x]), x)


def test_cat_promotes() -> None:
    check(lambda x, y: torch.cat([x, y]), torch.tensor([1, 2]), torch.tensor([0.5]))


def test_empty_tensors() -> None:
    x = torch.empty(0, 3)
    check(lambda x: [x.view(3, 0), x.t(), torch.cat([x, torch.ones(2, 3)]), x.roll(1, 0)], x)
