"""The order of the groups: valid, deterministic, and light on memory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch_mlir import ir

from neuron_compile.passes.schedule import (
    Flow,
    backward_order,
    forward_order,
    peak_bytes,
    schedule,
)
from neuron_compile.passes.unit import GroupPlan, Unit
from tests import oracle

# Three vectors, each reduced to a number; the vectors come first in the program.
BRANCHES = """
func.func @main(%x: tensor<64xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.sine %x : tensor<64xf32>
  %1 = stablehlo.cosine %x : tensor<64xf32>
  %2 = stablehlo.tanh %x : tensor<64xf32>
  %3 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  %4 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  %5 = stablehlo.reduce(%2 init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
  %6 = stablehlo.add %3, %4 : tensor<f32>
  %7 = stablehlo.add %6, %5 : tensor<f32>
  return %7 : tensor<f32>
}"""


def unit_of_single_ops() -> Unit:
    """One plan for each op, constants apart."""
    module = oracle.parse(BRANCHES)
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        unit.groups = [
            GroupPlan("loop", [node]) for node in unit.graph.nodes if node.name != "constant"
        ]
    return unit


def is_valid(unit: Unit, order: list[int]) -> bool:
    seen: set[object] = set()
    for number in order:
        for node in unit.groups[number].nodes:
            for operand in node.operands:
                producer = operand.node
                if producer is not None and producer.name != "constant" and operand not in seen:
                    return False
            seen.update(node.results)
    return sorted(order) == list(range(len(unit.groups)))


@pytest.mark.parametrize("make", [forward_order, backward_order])
def test_branches_finish_before_the_next_begins(make: Callable[[Flow], list[int]]) -> None:
    unit = unit_of_single_ops()
    flow = Flow.of(unit.graph, unit.groups)
    order = make(flow)
    assert is_valid(unit, order)
    assert peak_bytes(flow, list(range(8))) == 3 * 256 + 4
    assert peak_bytes(flow, order) <= 256 + 4 * 4
    assert make(flow) == order


def test_the_lightest_order_is_taken() -> None:
    unit = unit_of_single_ops()
    nodes = [plan.nodes[0] for plan in unit.groups]
    schedule(unit)
    assert [plan.nodes[0] for plan in unit.groups] != nodes
    assert {plan.nodes[0] for plan in unit.groups} == set(nodes)
    assert peak_bytes(Flow.of(unit.graph, unit.groups), list(range(8))) <= 256 + 4 * 4


def test_an_order_that_is_as_light_stays() -> None:
    unit = unit_of_single_ops()
    schedule(unit)
    nodes = [plan.nodes[0] for plan in unit.groups]
    schedule(unit)
    assert [plan.nodes[0] for plan in unit.groups] == nodes
