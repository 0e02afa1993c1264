"""The registry takes exact overloads, once each."""

from __future__ import annotations

import pytest
import torch

from neuron_compile.lowering.registry import all_rules, emits, rule_for

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
