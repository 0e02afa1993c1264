"""A step of AdamW over the weights of one block of GPT-2's size: seven million of them."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.case import Case, Compile, Prepared, Work
from benchmarks.cases.language import Block

RATE, DECAY, BETAS, EPSILON = 1e-4, 0.01, (0.9, 0.999), 1e-8


def step(
    weights: list[Tensor], gradients: list[Tensor], means: list[Tensor], squares: list[Tensor]
) -> None:
    """AdamW (Loshchilov and Hutter 2019, algorithm 2) after many steps, when the corrections of the
    moments' bias have become 1; with the operators of PyTorch's own `foreach` implementation.
    """
    torch._foreach_mul_(weights, 1 - RATE * DECAY)
    torch._foreach_lerp_(means, gradients, 1 - BETAS[0])
    torch._foreach_mul_(squares, BETAS[1])
    torch._foreach_addcmul_(squares, gradients, gradients, 1 - BETAS[1])
    roots = torch._foreach_sqrt(squares)
    torch._foreach_add_(roots, EPSILON)
    torch._foreach_addcdiv_(weights, means, roots, -RATE)


def _adamw() -> Prepared:
    """Each competitor changes weights and moments of its own, in their place."""
    start = [p.detach() for p in Block().parameters()]
    gradients = [torch.randn_like(p) for p in start]

    def build(compiler: Compile) -> Work:
        weights = [p.clone() for p in start]
        means, squares = ([torch.zeros_like(p) for p in start] for _ in range(2))
        compiled = compiler(step)

        def run() -> None:
            compiled(weights, gradients, means, squares)

        def check() -> tuple[Tensor, ...]:
            run()
            return tuple(weight.clone() for weight in weights)

        return Work(run, check)

    return build


CASES = (Case("adamw-7m", _adamw),)
