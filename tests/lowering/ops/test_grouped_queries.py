"""Attention whose keys and values have fewer heads than its queries."""

from __future__ import annotations

import pytest
import torch

from tests.lowering.samples import tensor
from tests.lowering.single_op import check

aten = torch.ops.aten


@pytest.mark.parametrize("heads", [4, 2, 1])
def test_gradients_of_shared_heads_add_up(heads) -> None:
    q = tensor([2, 4, 5, 8])
    k, v = tensor([2, heads, 6, 8], seed=1), tensor([2, heads, 6, 8], seed=2)
    forward = aten._scaled_dot_product_flash_attention_for_cpu.default
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    check(forward, q, k, v, 0.0, False, tolerance=1e-5)
    out, logsumexp = forward(q, k, v, 0.0, False)
    grad = tensor(out.shape, seed=3)
    check(backward, grad, q, k, v, out, logsumexp, 0.0, False, tolerance=1e-5)
