"""The gradient of weight normalisation against eager."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.samples import tensor
from tests.lowering.single_op import check

aten = torch.ops.aten


# Eager takes the first or the last dimension only.
@pytest.mark.parametrize(("shape", "dim"), [([3, 4, 5], 0), ([3, 4, 5], 2), ([1, 4], 0)])
def test_gradients(shape, dim) -> None:
    v = tensor(shape)
    line = [n if d == dim else 1 for d, n in enumerate(shape)]
    g = tensor(line, seed=1)
    _, norms = aten._weight_norm_interface.default(v, g, dim)
    args = (tensor(shape, seed=2), v, g, norms, dim)
    check(aten._weight_norm_interface_backward.default, *args, tolerance=1e-5)
