"""What a call costs beyond its kernels: a graph of ten small inputs.

In: nothing. Out: microseconds per call of each backend and of Dynamo alone, and what our shim adds.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import competitors, runner
from benchmarks.competitors import EAGER, INDUCTOR, NEURON

INPUTS, SIZE = 10, 16
DYNAMO = "dynamo"


@dataclass(frozen=True, slots=True)
class Overhead:
    """Seconds per call by competitor; `dynamo` is guards alone: its backend does nothing."""

    timing: dict[str, runner.Timing]

    @property
    def added(self) -> float:
        """Seconds that our side adds to Dynamo's: AOTAutograd's wrapper, the shim, one launch."""
        return self.timing[NEURON].median - self.timing[DYNAMO].median


def _sum(a, b, c, d, e, f, g, h, i, j):  # type: ignore[no-untyped-def]
    return a + b + c + d + e + f + g + h + i + j


def _nothing(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
    result = (torch.empty(SIZE),)
    return lambda *_: result


def measure(seconds: float) -> Overhead:
    """Each competitor gets its own copy of the function: none waits for another's guards."""
    competitors.reset()
    inputs = [torch.randn(SIZE) for _ in range(INPUTS)]
    backends: dict[str, Any] = {EAGER: None, DYNAMO: _nothing, NEURON: "neuron"}
    if not competitors.missing_inductor():
        backends[INDUCTOR] = "inductor"
    runs = {}
    with torch.no_grad():
        for name, backend in backends.items():
            function = types.FunctionType(_sum.__code__.replace(co_name=f"sum_{name}"), globals())
            compiled = torch.compile(function, backend=backend) if backend else function
            runs[name] = _call(compiled, inputs)
        return Overhead(runner.interleaved(runs, seconds))


def _call(function: Callable[..., Any], inputs: list[Tensor]) -> Callable[[], Any]:
    return lambda: function(*inputs)
