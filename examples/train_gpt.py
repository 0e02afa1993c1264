"""Train a small GPT on real text (this repository's own), eager and with backend="neuron".

In: bytes of documents, licence and docstrings. Out: the loss of both, step by step, the time per
step, and a sample of generated text. Fails if the losses part. Both start from the same weights.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from corpus import documents
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import neuron_compile

LAYERS, HEADS, WIDTH, CONTEXT, BYTES = 4, 4, 128, 128, 256
BATCH, LEARNING_RATE = 16, 1e-3
# Rounding differs, and training amplifies it: the losses of two runs in float32 drift apart slowly.
TOLERANCE = 0.05
SAY_EVERY = 10  # steps


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """float32[B, T, WIDTH] -> the same."""
        batch, length, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A byte-level language model."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.position = nn.Embedding(BYTES, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, BYTES, bias=False)

    def logits(self, ids: Tensor) -> Tensor:
        """int64[B, T] -> float32[B, T, BYTES]."""
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy, in nats per byte, of int64[B, T] targets."""
        return F.cross_entropy(self.logits(ids).flatten(0, 1), targets.flatten())


@dataclass(slots=True)
class Run:
    """One model in training: its loss function (perhaps compiled), optimizer, and what it did."""

    model: GPT
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def step(self, ids: Tensor, targets: Tensor) -> None:
        """Forward, backward and AdamW on one batch."""
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self.loss(ids, targets)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())
        self.seconds.append(time.perf_counter() - start)


def corpus() -> Tensor:
    """The whole text as int64 byte values."""
    return torch.tensor(list("\n".join(documents()).encode()), dtype=torch.int64)


def batch(data: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random windows, and the same moved by one byte."""
    starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=generator)
    windows = torch.stack([data[s : s + CONTEXT + 1] for s in starts.tolist()])
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def sample(model: GPT, prompt: str, count: int) -> str:
    """Greedy continuation, eager."""
    ids = torch.tensor([list(prompt.encode())])
    with torch.no_grad():
        for _ in range(count):
            ids = torch.cat([ids, model.logits(ids[:, -CONTEXT:])[:, -1:].argmax(-1)], 1)
    return bytes(ids[0].tolist()).decode(errors="replace")


def table(eager: Run, compiled: Run) -> Table:
    """Loss of both at some steps."""
    shown = Table(title="Loss in nats per byte", title_justify="left")
    for name in ("step", "eager", "neuron", "difference"):
        shown.add_column(name, justify="right")
    steps = len(eager.losses)
    for i in sorted({0, *range(0, steps, max(1, steps // 10)), steps - 1}):
        a, b = eager.losses[i], compiled.losses[i]
        shown.add_row(str(i + 1), f"{a:.4f}", f"{b:.4f}", f"{b - a:+.1e}")
    return shown


def main() -> int:
    """Train both; the exit code says whether their losses agree and fell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    model = GPT()
    twin = copy.deepcopy(model)
    eager = Run(model, model, torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE))
    compiled = Run(
        twin,
        torch.compile(twin, backend="neuron", fullgraph=True),
        torch.optim.AdamW(twin.parameters(), lr=LEARNING_RATE),
    )
    data, generator = corpus(), torch.Generator().manual_seed(1)
    console = Console(soft_wrap=True)
    console.print(
        f"{len(data)} bytes of text, {sum(p.numel() for p in model.parameters())} weights, "
        f"{steps} steps of two models; the first one compiles"
    )
    for step in range(1, steps + 1):
        ids, targets = batch(data, generator)
        eager.step(ids, targets)
        compiled.step(ids, targets)
        if step % SAY_EVERY == 1:
            console.print(
                f"step {step}: loss {compiled.losses[-1]:.3f}, eager {eager.losses[-1]:.3f}"
            )
    console.print(table(eager, compiled))
    slow, fast = (statistics.median(run.seconds[1:]) for run in (eager, compiled))
    stats = neuron_compile.stats()
    console.print(
        f"per step: eager {slow * 1e3:.1f} ms, neuron {fast * 1e3:.1f} ms ({slow / fast:.2f}x); "
        f"{stats['graphs']} graphs, {stats['kernels']} kernels, first step "
        f"{compiled.seconds[0]:.2f} s"
    )
    console.print("neuron's model continues:", repr(sample(twin, "The cache ", 60)))
    worst = max(abs(a - b) for a, b in zip(eager.losses, compiled.losses, strict=True))
    if worst > TOLERANCE or compiled.losses[-1] >= compiled.losses[0]:
        console.print(f"[red]Losses part by {worst:.3g}, or do not fall.[/red]")
        return 1
    console.print(f"Losses agree within {worst:.1e}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
