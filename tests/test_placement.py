"""`placement.py`: tensors of other devices and layouts are refused, with advice that works."""

from __future__ import annotations

import pytest
import torch

from neuron_compile.errors import LoweringError
from neuron_compile.placement import require_cpu


def graph_of(value: torch.Tensor) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    graph.output(graph.placeholder("x"))
    module = torch.fx.GraphModule(torch.nn.Module(), graph)
    next(iter(module.graph.nodes)).meta["val"] = value
    return module


def test_dense_cpu_tensors_pass() -> None:
    require_cpu(graph_of(torch.ones(2)))


def test_meta_tensors_are_not_to_be_moved_but_filled() -> None:
    with pytest.raises(LoweringError, match=r"input x .* is on device meta") as error:
        require_cpu(graph_of(torch.ones(2, device="meta")))
    assert 'to_empty(device="cpu")' in error.value.remedy
    assert "load_state_dict" in error.value.remedy
    assert ".to(" not in error.value.remedy


def test_the_advice_for_meta_tensors_works() -> None:
    weights = torch.nn.Linear(2, 2).state_dict()
    model = torch.nn.Linear(2, 2, device="meta").to_empty(device="cpu")
    model.load_state_dict(weights)
    require_cpu(graph_of(model.weight))
    assert torch.equal(model.weight, weights["weight"])


def test_sparse_tensors_are_to_be_made_dense() -> None:
    with pytest.raises(LoweringError, match=r"with torch\.sparse_coo") as error:
        require_cpu(graph_of(torch.eye(2).to_sparse()))
    assert ".to_dense()" in error.value.remedy
