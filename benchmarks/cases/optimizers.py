"""A step of AdamW over the weights of one block of GPT-2's size: seven million of them."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.case import Case, Compile, Prepared, Work
from benchmarks.cases.language import Block


def _adamw() -> Prepared:
    """Each competitor changes weights and moments of its own, in their place."""
    start = [p.detach() for p in Block().parameters()]
    gradients = [torch.randn_like(p) for p in start]

    def build(compiler: Compile) -> Work:
        weights = [torch.nn.Parameter(p.clone()) for p in start]
        for weight, gradient in zip(weights, gradients, strict=True):
            weight.grad = gradient
        step = compiler(torch.optim.AdamW(weights, lr=1e-4, foreach=True).step)

        def check() -> tuple[Tensor, ...]:
            step()
            return tuple(weight.detach().clone() for weight in weights)

        return Work(step, check)

    return build


CASES = (Case("adamw-7m", _adamw, training=True),)
