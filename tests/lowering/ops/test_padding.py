"""Reflection and replication padding and their gradients against eager."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.lowering.samples import FLOATS, examples, tensor
from tests.lowering.single_op import check

aten = torch.ops.aten

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 2e-3}


@examples(40)
@given(
    kind=st.sampled_from(["reflection", "replication"]),
    size=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    data=st.data(),
    dtype=st.sampled_from(FLOATS),
)
def test_padding_and_gradient(kind, size, data, dtype) -> None:
    rank = len(size)
    padding = [data.draw(st.integers(-1, 4)) for _ in range(2 * rank)]
    pad = getattr(aten, f"{kind}_pad{rank}d").default
    backward = getattr(aten, f"{kind}_pad{rank}d_backward").default
    x = tensor([2, 2, *size], dtype)
    try:
        out = pad(x, padding)
        backward(out, x, padding)
    except RuntimeError:
        assume(False)
    assume(out.numel() > 0)  # else eager's gradient is uninitialised memory
    check(pad, x, padding)
    grad = tensor(out.shape, dtype, 1)
    check(backward, grad, x, padding, tolerance=TOLERANCE.get(dtype))


@pytest.mark.parametrize("kind", ["reflection", "replication"])
def test_without_a_batch(kind) -> None:
    check(getattr(aten, f"{kind}_pad2d").default, tensor([3, 4, 5]), [2, 1, 3, 0])
