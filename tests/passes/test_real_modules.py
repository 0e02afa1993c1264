"""Modules from the lowering stage: the meaning is kept, in as few groups as it should take."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.passes.checks import calls, compile_groups, functions, kinds
from tests.passes.lowered import modules_of

ROWS, SIZE, HEADS = 8, 16, 2


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, *, causal: bool = True) -> None:
        super().__init__()
        self.causal = causal
        self.norm1, self.norm2 = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)
        self.up, self.down = nn.Linear(SIZE, 4 * SIZE), nn.Linear(4 * SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, c = x.shape
        qkv = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


@pytest.mark.parametrize("causal", [True, False])
def test_a_transformer_block_is_seven_groups(causal: bool) -> None:
    block = Block(causal=causal).requires_grad_(False)
    (module,) = modules_of(block, torch.randn(2, ROWS, SIZE))
    assert kinds(compile_groups(module, rtol=1e-4)) == [
        "loop",
        "contract",
        "attention",
        "contract",
        "loop",
        "contract",
        "contract",
    ]


def test_equal_blocks_share_their_functions() -> None:
    net = nn.Sequential(Block(), Block(), Block()).requires_grad_(False)
    (module,) = modules_of(net, torch.randn(2, ROWS, SIZE))
    outlined = compile_groups(module, rtol=1e-3)
    assert len(calls(outlined)) == 21
    assert len(functions(outlined)) <= 7


def test_a_training_step_of_a_block() -> None:
    """Forward: attention also stores the log-sum-exp. Backward: two kernels for each LayerNorm."""
    block = Block()
    x = torch.randn(2, ROWS, SIZE, requires_grad=True)
    forward, backward = modules_of(block, x)
    assert Counter(kinds(compile_groups(forward, rtol=1e-3)))["attention"] == 1
    counted = Counter(kinds(compile_groups(backward, rtol=1e-3)))
    assert counted["contract"] == 4 * 2 + 5  # two for each linear, five for attention
    assert counted["loop"] <= 12


FUNCTIONS = {
    "softmax": (lambda x: torch.softmax(x, -1), 1, 1),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), 1, 1),
    "rms_norm": (lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6), 1, 1),
    "layer_norm": (lambda x: F.layer_norm(x, (SIZE,)), 1, 1),
    "gelu": (F.gelu, 1, 1),
    "gelu_tanh": (lambda x: F.gelu(x, approximate="tanh"), 1, 1),
    "silu": (F.silu, 1, 1),
    "std": (lambda x: x.std(-1), 1, 1),
    "glu": (F.glu, 1, 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_kernel_forward_and_backward(name: str) -> None:
    function, forward_groups, backward_groups = FUNCTIONS[name]
    x = torch.randn(ROWS, SIZE, requires_grad=True)
    forward, backward = modules_of(function, x)
    assert len(calls(compile_groups(forward, rtol=1e-4))) == forward_groups
    assert len(calls(compile_groups(backward, rtol=1e-4))) == backward_groups


def test_convolution_norm_and_residual_are_one_kernel_in_inference() -> None:
    conv = nn.Conv2d(4, 4, 3, padding=1, bias=False).requires_grad_(False)
    norm = nn.BatchNorm2d(4).requires_grad_(False).eval()
    (module,) = modules_of(lambda x: F.relu(norm(conv(x)) + x), torch.randn(2, 4, 6, 6))
    assert kinds(compile_groups(module, rtol=1e-4)) == ["contract"]


def test_batch_norm_in_training_is_one_kernel() -> None:
    norm = nn.BatchNorm2d(4, track_running_stats=False).requires_grad_(False)
    (module,) = modules_of(lambda x: F.relu(norm(x)), torch.randn(2, 4, 6, 6))
    assert kinds(compile_groups(module, rtol=1e-4)) == ["loop"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_keeps_its_roundings(dtype: torch.dtype) -> None:
    """No value is kept wider or rounded earlier than the module says: equal bits."""
    norm = nn.LayerNorm(SIZE, dtype=dtype).requires_grad_(False)
    (module,) = modules_of(
        lambda x: torch.softmax(norm(x) * 2, -1), torch.randn(ROWS, SIZE, dtype=dtype)
    )
    assert kinds(compile_groups(module)) == ["loop"]
