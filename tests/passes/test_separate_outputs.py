"""Every output has a value of its own; views of computed values are the stored form."""

from __future__ import annotations

from torch_mlir import ir

from neuron_compile.passes.separate_outputs import separate_outputs
from neuron_compile.passes.unit import Unit
from tests import oracle
from tests.passes.checks import assert_same, calls, compile_groups, ops

FULL = "tensor<4x6xf32>"


def run(text: str) -> Unit:
    module = oracle.parse(text)
    inputs = oracle.random_inputs(module)
    before = oracle.evaluate(module, inputs)
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        separate_outputs(unit)
    assert module.operation.verify()
    assert_same(before, oracle.evaluate(module, inputs))
    return unit


def test_arguments_constants_and_repeats_are_copied() -> None:
    unit = run(f"""
func.func @main(%x: {FULL}) -> ({FULL}, {FULL}, {FULL}, {FULL}) {{
  %c = stablehlo.constant dense<1.0> : {FULL}
  %0 = stablehlo.tanh %x : {FULL}
  return %0, %0, %x, %c : {FULL}, {FULL}, {FULL}, {FULL}
}}""")
    assert ops(unit) == ["tanh", "reshape", "reshape", "reshape"]
    assert len(set(unit.graph.outputs)) == 4


def test_readers_of_a_value_read_its_returned_view() -> None:
    text = f"""
func.func @main(%x: {FULL}) -> (tensor<6x4xf32>, {FULL}) {{
  %0 = stablehlo.tanh %x : {FULL}
  %1 = stablehlo.exponential %0 : {FULL}
  %2 = stablehlo.transpose %0, dims = [1, 0] : ({FULL}) -> tensor<6x4xf32>
  return %2, %1 : tensor<6x4xf32>, {FULL}
}}"""
    assert ops(run(text)) == ["tanh", "transpose", "transpose", "exponential"]
    assert len(calls(compile_groups(text))) == 2


def test_a_view_of_an_argument_is_a_copy() -> None:
    unit = run(f"""
func.func @main(%x: {FULL}) -> tensor<24xf32> {{
  %0 = stablehlo.reshape %x : ({FULL}) -> tensor<24xf32>
  %1 = stablehlo.reshape %x : ({FULL}) -> tensor<6x4xf32>
  return %0 : tensor<24xf32>
}}""")
    assert ops(unit) == ["reshape"]
