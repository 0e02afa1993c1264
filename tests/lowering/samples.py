"""Tensors for the operator tests: random ones, and hypothesis settings fit for a fast suite.

In: shapes and dtypes. Out: tensors, the same for the same seed. Invariant: small values, so that
integer arithmetic of narrow dtypes wraps seldom and sums in half precision stay meaningful.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import HealthCheck, settings

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8)
NUMBERS = (*FLOATS, *INTEGERS)
EVERY = (*NUMBERS, torch.bool)


def examples(count: int) -> Callable[[Any], Any]:
    """Hypothesis settings: `count` examples, the same ones on every run."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


def tensor(shape: Sequence[int], dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Normal floats, integers from -4 (0 if unsigned) to 9, coin flips."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
    low = 0 if dtype in (torch.uint8, torch.bool) else -4
    high = 2 if dtype is torch.bool else 10
    return torch.randint(low, high, shape, generator=generator).to(dtype)


def distinct(shape: Sequence[int], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Different whole numbers in random order: where eager leaves the order of ties open."""
    count = torch.Size(shape).numel()
    generator = torch.Generator().manual_seed(seed)
    return torch.randperm(count, generator=generator).reshape(tuple(shape)).to(dtype)


def integers(shape: Sequence[int], low: int, high: int, seed: int = 0) -> torch.Tensor:
    """int64 in [low, high)."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, tuple(shape), generator=generator)
