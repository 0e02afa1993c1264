"""The records that say what a benchmark case is.

In: a way to compile a function or module. Out: something to time and something to check it with.
Invariant: every competitor gets the same inputs and weights and returns its results the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Compile = Callable[[Any], Any]
"""Identity for eager, else torch.compile with a backend."""


@dataclass(frozen=True, slots=True)
class Work:
    """One competitor, ready to run.

    `run` is what is timed; its result is dropped before the next call, so outputs may be reused by
    whatever allocator the competitor has. `check` gives tensors that must agree with eager's.
    """

    run: Callable[[], Any]
    check: Callable[[], tuple[torch.Tensor, ...]]


Prepared = Callable[[Compile], Work]
"""Inputs and weights are made; one call per competitor follows."""


@dataclass(frozen=True, slots=True)
class Case:
    """A named workload. `prepare` makes inputs and weights once and returns what builds `Work`."""

    name: str
    prepare: Callable[[], Prepared]
    training: bool = False
    tolerance: float = 2e-3
    """Largest allowed difference from eager, relative to the largest value."""


def forward(function: Any, *inputs: Any, **named: Any) -> Prepared:
    """The usual case: call one function or module, whose result is a tensor."""

    def build(compiler: Compile) -> Work:
        compiled = compiler(function)

        def run() -> torch.Tensor:
            return compiled(*inputs, **named)

        return Work(run, lambda: (run(),))

    return build
