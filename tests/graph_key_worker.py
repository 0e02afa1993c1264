"""Prints the keys of a model's forward and backward graphs, made in this process from scratch.

In: the environment, a number. Out: one JSON list of [graph hash, shape signature, parts].
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd

from neuron_compile.cache.key import Key
from neuron_compile.graph_key import make_graph_key


def keys_of(function: Callable[..., Any], *inputs: torch.Tensor) -> list[Key]:
    """The keys of all graphs that compiling `function`, and its gradients, leads to."""
    keys: list[Key] = []

    def compiler(kind: str) -> Callable[[torch.fx.GraphModule, list[torch.Tensor]], Any]:
        def compile_graph(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Any:
            keys.append(
                make_graph_key(
                    graph,
                    options_in_key={"names": {"b", "a", "c"}, "nested": {"y": 1, "x": [2.0, None]}},
                    target="x86-64-v3",
                    aot={"kind": kind, "mutated": frozenset({"one", "two", "three"})},
                )
            )
            return make_boxed_func(graph.forward)

        return compile_graph

    backend = aot_autograd(fw_compiler=compiler("forward"), bw_compiler=compiler("backward"))
    torch._dynamo.reset()
    result = torch.compile(function, backend=backend)(*inputs)
    if result.requires_grad:
        result.sum().backward()
    return keys


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.second = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.norm(self.first(x)))
        shifted = hidden + torch.tensor([0.5, -0.0, float("inf"), 1.0]).repeat(4)
        return self.second(shifted).softmax(-1)


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):  # graphs compiled before: names and counters differ
        keys_of(lambda x: x * 2 + 1, torch.ones(3))
    keys = keys_of(Model(), torch.ones(4, 8))
    print(json.dumps([[key.graph_hash, key.shape_signature, key.parts] for key in keys]))
