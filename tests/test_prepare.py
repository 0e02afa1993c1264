"""Dynamo's graph put right before AOTAutograd; the behaviour itself is tested by test_semantics."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from neuron_compile.errors import LoweringError
from neuron_compile.prepare import prepare


def captured(function, *args) -> torch.fx.GraphModule:
    found = []

    def keep(graph, _inputs):
        found.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(function, backend=keep)(*args)
    return found[0]


def test_an_ordinary_graph_is_returned_as_it_is() -> None:
    graph = captured(lambda x: F.dropout(x, 0.5).mul_(2), torch.ones(3))
    assert prepare(graph) is graph


@pytest.mark.parametrize(
    "dropout",
    [
        lambda x: F.dropout(x, 0.5, False),
        lambda x: F.dropout(x, p=0.5, training=False),
        lambda x: F.dropout(x, 0.0),
        lambda x: F.alpha_dropout(x),
        lambda x: F.dropout3d(x, training=False),
        lambda x: torch.dropout(x, 0.5, False),
        lambda x: torch.feature_dropout(x, 0.5, False),
    ],
)
def test_inactive_dropout_disappears(dropout) -> None:
    graph = captured(lambda x: dropout(x) + 1, torch.ones(2, 3, 4, 5))
    before = graph.code
    prepared = prepare(graph)
    assert graph.code == before
    assert "dropout" not in prepared.code
    assert torch.equal(prepared(torch.ones(2, 3, 4, 5))[0], torch.full((2, 3, 4, 5), 2.0))


def test_what_aotautograd_reads_is_kept() -> None:
    graph = captured(lambda x: F.dropout(x, 0.5, False) + 1, torch.ones(3))
    prepared = prepare(graph)
    [old], [new] = (g.graph.find_nodes(op="placeholder") for g in (graph, prepared))
    assert new._dynamo_source is old._dynamo_source
    assert new.meta["example_value"] is old.meta["example_value"]
    assert prepared._param_name_to_source is graph._param_name_to_source


def test_fill_of_an_expanded_tensor_writes_each_element_once() -> None:
    graph = captured(lambda x: x.expand(3, 4).fill_(5) + 1, torch.ones(4))
    prepared = prepare(graph)
    assert "narrow" in prepared.code
    x = torch.ones(4)
    assert torch.equal(prepared(x)[0], torch.full((3, 4), 6.0))
    assert torch.equal(x, torch.full((4,), 5.0))


def test_other_writes_to_overlapping_memory_are_refused() -> None:
    def f(x):
        x.expand(3, 4).mul_(2)
        return x

    found = []

    def keep(graph, _inputs):
        found.append(graph)
        return lambda *args: args

    torch.compile(f, backend=keep)(torch.ones(4))
    with pytest.raises(LoweringError, match="single memory location") as raised:
        prepare(found[0])
    assert "test_prepare.py" in raised.value.where
