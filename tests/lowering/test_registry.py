"""The registry takes exact overloads, once each."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.fx

from neuron_compile.lowering.registry import (
    all_rules,
    complex_rules,
    emits,
    partwise,
    rule_for,
    rule_for_node,
)

aten = torch.ops.aten


def test_every_rule_is_found_by_its_overload() -> None:
    rules = all_rules()
    assert len(rules) > 200
    for overload, rule in rules.items():
        assert rule.overload is overload
        assert rule_for(overload) is rule


def test_an_overload_without_emitter_has_no_rule() -> None:
    assert rule_for(aten.item.default) is None
    assert rule_for(len) is None


def test_packets_are_refused() -> None:
    with pytest.raises(TypeError, match="exact overloads"):
        emits(aten.add)


def test_no_overload_is_refused() -> None:
    with pytest.raises(TypeError, match="at least one"):
        emits()


def test_a_second_emitter_is_refused_and_names_the_first() -> None:
    first = rule_for(aten.add.Tensor)
    with pytest.raises(ValueError, match="has an emitter already") as caught:
        emits(aten.add.Tensor)(lambda b, x: x)
    assert "arithmetic.add" in str(caught.value)
    assert rule_for(aten.add.Tensor) is first


def test_complex_nodes_have_rules_of_their_own() -> None:
    graph = torch.fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    x.meta["val"], y.meta["val"] = torch.ones(2), torch.ones(2, dtype=torch.complex64)
    real, mixed = (
        graph.call_function(aten.mul.Tensor, (x, x)),
        graph.call_function(aten.mul.Tensor, (x, y)),
    )
    real.meta["val"], mixed.meta["val"] = torch.ones(2), torch.ones(2, dtype=torch.complex64)
    assert rule_for_node(real) is rule_for(aten.mul.Tensor)
    assert rule_for_node(mixed) is complex_rules()[aten.mul.Tensor]


def test_what_treats_parts_alike_has_an_emitter_for_real_tensors() -> None:
    alike = [o for o, rule in complex_rules().items() if isinstance(rule.emit, functools.partial)]
    assert len(alike) > 40
    assert all(rule_for(overload) is not None for overload in alike)


def test_a_second_emitter_for_complex_tensors_is_refused() -> None:
    with pytest.raises(ValueError, match="for complex tensors already"):
        partwise(aten.view.default)
