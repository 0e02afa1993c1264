"""Transformers: one block, GPT-2 small forward and training step, a batch for MiniLM.

Sizes are those of the published models; weights are random, which does not change the time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.case import Case, Compile, Prepared, Work, forward

WIDTH, HEADS = 768, 12


class Block(nn.Module):
    """A pre-norm block of GPT-2's size: causal attention and a GELU MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """float32[B, T, 768] -> the same."""
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def _block(batch: int, length: int) -> Prepared:
    return forward(Block().eval(), torch.randn(batch, length, WIDTH))


def _gpt2() -> nn.Module:
    import transformers

    config = transformers.GPT2Config(
        use_cache=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return transformers.GPT2LMHeadModel(config)


class Logits(nn.Module):
    """A language model that returns nothing but its logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        """int64[B, T] -> float32[B, T, vocabulary]."""
        return self.model(input_ids=ids).logits


class NextTokenLoss(Logits):
    """Mean cross-entropy of predicting each next token."""

    def forward(self, ids: Tensor) -> Tensor:
        """int64[B, T] -> float32[]."""
        logits = super().forward(ids)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


class MeanEmbedding(nn.Module):
    """An encoder and the mean over its tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """int64[B, T], int64[B, T] -> float32[B, 384]."""
        hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1)


def _gpt2_forward() -> Prepared:
    return forward(Logits(_gpt2()).eval(), torch.randint(50257, (1, 128)))


def _gpt2_training() -> Prepared:
    """Forward, backward, AdamW; the competitors share weights, optimizer and its (eager) step."""
    model = NextTokenLoss(_gpt2()).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    ids = torch.randint(50257, (2, 128))

    def build(compiler: Compile) -> Work:
        compiled = compiler(model)

        def gradients() -> Tensor:
            optimizer.zero_grad()
            loss = compiled(ids)
            loss.backward()
            return loss.detach()

        def run() -> Tensor:
            loss = gradients()
            optimizer.step()
            return loss

        def check() -> tuple[Tensor, ...]:
            loss = gradients()
            return (loss, *(p.grad.clone() for p in model.parameters() if p.grad is not None))

        return Work(run, check)

    return build


def _minilm() -> Prepared:
    import transformers

    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    mask = (torch.arange(64) < torch.randint(12, 65, (32, 1))).long()
    return forward(MeanEmbedding(model), torch.randint(30522, (32, 64)), mask)


CASES = (
    Case("block-b1-t128", lambda: _block(1, 128)),
    Case("block-b8-t256", lambda: _block(8, 256)),
    Case("gpt2-forward", _gpt2_forward),
    Case("gpt2-training", _gpt2_training, training=True),
    Case("minilm-b32-t64", _minilm),
)
