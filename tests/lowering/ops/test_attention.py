"""Scaled dot-product attention, forward and backward, against eager's fused kernel."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from neuron_compile.lowering import find_unsupported, lower
from tests.lowering.single_op import check, graph_of, run

aten = torch.ops.aten
forward = aten._scaled_dot_product_flash_attention_for_cpu
backward = aten._scaled_dot_product_flash_attention_for_cpu_backward
DTYPES = [torch.float32, torch.bfloat16]


def tensors(dtype: torch.dtype, length: int = 5, keys: int = 6) -> list[torch.Tensor]:
    return [torch.randn(2, 3, n, 8).to(dtype) for n in (length, keys, keys)]


def mask(dtype: torch.dtype) -> torch.Tensor:
    made = torch.zeros(2, 1, 5, 6, dtype=dtype)
    made[0, :, :, 4:] = -math.inf
    return made


def arguments_of(case: str, dtype: torch.dtype) -> dict[str, Any]:
    cases = {
        "plain": {},
        "causal": {"is_causal": True},
        "masked": {"attn_mask": mask(dtype)},
        "scaled": {"scale": 0.3},
    }
    return cases[case]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ["plain", "causal", "masked", "scaled"])
def test_forward(case: str, dtype: torch.dtype) -> None:
    arguments = arguments_of(case, dtype)
    check(lambda q, k, v: forward(q, k, v, **arguments), *tensors(dtype),
          tolerance=2e-2 if dtype is torch.bfloat16 else 2e-6)  # fmt: skip


@pytest.mark.parametrize("case", ["plain", "causal", "masked", "scaled"])
def test_backward(case: str) -> None:
    arguments = arguments_of(case, torch.float32)
    causal = arguments.pop("is_causal", False)
    q, k, v = tensors(torch.float32)
    out, lse = forward(q, k, v, 0.0, causal, **arguments)
    check(lambda g, q, k, v, out, lse: backward(g, q, k, v, out, lse, 0.0, causal, **arguments),
          torch.randn_like(out), q, k, v, out, lse, tolerance=2e-6)  # fmt: skip


def test_a_row_that_sees_nothing_gives_zeros_and_no_gradient() -> None:
    q, k, v = tensors(torch.float32)
    hidden = torch.full((5, 6), -math.inf)
    hidden[1:] = 0.0

    def train(q, k, v, hidden):
        out, lse = forward(q, k, v, attn_mask=hidden)
        grads = backward(torch.ones_like(out), q, k, v, out, lse, 0.0, False, attn_mask=hidden)
        return [out, *grads]

    made = run(train, q, k, v, hidden)  # T119
    assert all(bool(m.isfinite().all()) for m in made)
    assert not made[0][:, :, 0].any()
    assert not made[1][:, :, 0].any()


def test_shape_of_the_emission_is_dot_softmax_dot() -> None:
    graph, _ = graph_of(
        lambda q, k, v: forward(q, k, v, is_causal=True)[0], tensors(torch.bfloat16)
    )
    names = re.findall(
        r"stablehlo\.(dot_general|exponential|reduce|log)\b", str(lower(graph).module)
    )
    assert [n for n in names if n != "reduce"] == ["dot_general", "exponential", "dot_general"]
    assert names.count("reduce") == 2


def test_dropout_is_reported() -> None:
    graph, _ = graph_of(lambda q, k, v: forward(q, k, v)[0], tensors(torch.float32))
    node = next(n for n in graph.graph.nodes if "flash" in str(n.target))
    node.args = (*node.args[:3], 0.1)
    assert find_unsupported(graph)[0].reason == "dropout inside fused CPU attention"


def test_public_attention() -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    q, k, v = tensors(torch.float32)
    seen = torch.rand(5, 6) > 0.4
    check(lambda q, k, v, m: attend(q, k, v, m), q, k, v, seen, tolerance=2e-6)
