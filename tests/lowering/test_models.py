"""Blocks of models, forward and backward as AOTAutograd cuts them, graph by graph against eager."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.fx
from functorch.compile import aot_function, min_cut_rematerialization_partition
from torch import nn

from neuron_compile.lowering import decomposition_table, find_unsupported
from tests.lowering.single_op import compare, run_graph

Graph = tuple[torch.fx.GraphModule, list[torch.Tensor]]


class Transformer(nn.Module):
    """Embedding, causal attention, a gated feed-forward layer, two norms, cross-entropy."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.RMSNorm(8, eps=1e-5)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.up, self.down = nn.Linear(8, 32), nn.Linear(16, 8)
        self.head = nn.Linear(8, 11)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        q, k, v = self.qkv(self.norm1(x)).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind()
        heads = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(2, 5, 8))
        gate, value = self.up(self.norm2(x)).chunk(2, -1)
        x = x + self.down(nn.functional.silu(gate) * nn.functional.gelu(value))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


class Convolutional(nn.Module):
    """Convolution, batch norm in training, pooling, a linear head."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, stride=2, padding=1, bias=False)
        self.norm, self.pool = nn.BatchNorm2d(4), nn.MaxPool2d(2)
        self.head = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.norm(self.conv(x)))).mean((2, 3))
        return self.head(x).log_softmax(-1)[:, 0].sum()


def graphs_of(model: nn.Module, x: torch.Tensor) -> list[Graph]:
    """Forward and backward graph of one training step, and what they were called with."""
    found: list[Graph] = []

    def keep(graph: torch.fx.GraphModule, _: object) -> Callable[..., object]:
        def run(args: list[torch.Tensor]) -> object:
            found.append((graph, [a.detach().clone() for a in args]))
            return graph(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    names, values = zip(*[*model.named_parameters(), *model.named_buffers()], strict=True)

    def step(x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, given, strict=True)), x)

    compiled = aot_function(
        step,
        fw_compiler=keep,
        bw_compiler=keep,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decomposition_table(),
    )
    compiled(x, *values).backward()
    return found


def without_empty_results(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph as the front door hands it over: results that are None are gone."""
    copied = torch.fx.Graph()
    results = copied.graph_copy(graph.graph, {})
    listed = results if isinstance(results, (list, tuple)) else [results]
    copied.output(tuple(r for r in listed if isinstance(r, torch.fx.Node)))
    return torch.fx.GraphModule(graph, copied)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["transformer", "convolutional"])
def test_training_step(name: str, dtype: torch.dtype) -> None:
    if name == "transformer":
        model, x = Transformer().to(dtype), torch.randint(0, 11, (2, 5))
    else:
        model, x = Convolutional().to(dtype), torch.randn(3, 2, 12, 12, dtype=dtype)
    graphs = graphs_of(model, x)
    assert len(graphs) == 2
    for graph, inputs in graphs:
        graph = without_empty_results(graph)
        assert find_unsupported(graph) == []
        with torch.no_grad():
            expected = graph(*inputs)
        made = run_graph(graph, inputs)
        compare(made, expected, tolerance=5e-2 if dtype is torch.bfloat16 else 1e-5)
