"""The order of the groups: valid, deterministic, and light on memory."""

from __future__ import annotations

from torch_mlir import ir

from neuron_compile.passes.schedule import ordered
from neuron_compile.passes.unit import GroupPlan, Unit
from tests import oracle

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


def plans(unit: Unit) -> list[GroupPlan]:
    """One plan for each op, constants apart."""
    return [GroupPlan("loop", [node]) for node in unit.graph.nodes if node.name != "constant"]


def peak(unit: Unit, order: list[GroupPlan]) -> int:
    """The most bytes of group results alive at once."""
    last = {
        operand: step
        for step, plan in enumerate(order)
        for node in plan.nodes
        for operand in node.operands
    }
    alive = highest = 0
    for step, plan in enumerate(order):
        alive += sum(value.nbytes for node in plan.nodes for value in node.results)
        highest = max(highest, alive)
        operands = {operand for node in plan.nodes for operand in node.operands}
        alive -= sum(
            operand.nbytes
            for operand in operands
            if operand.node is not None
            and operand.node.name != "constant"
            and last[operand] == step
        )
    return highest


def test_branches_finish_before_the_next_begins() -> None:
    module = oracle.parse(BRANCHES)
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        given = plans(unit)
        order = ordered(unit.graph, given)
        assert len(order) == len(given)
        assert peak(unit, order) < peak(unit, given)
        assert peak(unit, order) <= 256 + 4 * 4


def test_producers_come_first_whatever_the_order_given() -> None:
    module = oracle.parse(BRANCHES)
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        order = ordered(unit.graph, plans(unit)[::-1])
        seen: set[object] = set()
        for plan in order:
            for node in plan.nodes:
                assert all(
                    operand.node is None or operand.node.name == "constant" or operand in seen
                    for operand in node.operands
                )
                seen.update(node.results)
        assert len(order) == 8
