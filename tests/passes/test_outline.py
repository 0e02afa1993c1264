"""Functions, their sharing, strides and captured values."""

from __future__ import annotations

from torch_mlir import ir

from neuron_compile.passes.graph import main_function
from tests.passes import programs
from tests.passes.checks import calls, compile_groups, functions

LAYERS = """
func.func @main(%x: tensor<4x8xf32> LOC, %w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>)
    -> tensor<4x8xf32> {
  %0 = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %1 = stablehlo.tanh %0 : tensor<4x8xf32>
  %2 = stablehlo.dot_general %1, %w2, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %3 = stablehlo.tanh %2 : tensor<4x8xf32>
  return %3 : tensor<4x8xf32>
}"""


def test_equal_groups_are_one_function() -> None:
    module = compile_groups(LAYERS.replace(" LOC", ""))
    assert calls(module) == ["contract_0", "contract_0"]
    assert len(functions(module)) == 1


def test_strides_tell_groups_apart_and_reach_the_functions() -> None:
    text = LAYERS.replace("LOC", "{neuron.strides = array<i64: 1, 4>}")
    module = compile_groups(text)
    assert calls(module) == ["contract_0", "contract_1"]
    first = functions(module)["contract_0"]
    assert "neuron.strides = array<i64: 1, 4>" in str(first.attributes["arg_attrs"])
    assert "arg_attrs" not in functions(module)["contract_1"].attributes


def test_strides_of_a_result_reach_its_function() -> None:
    text = LAYERS.replace(" LOC", "").replace(
        "-> tensor<4x8xf32> {", "-> (tensor<4x8xf32> {neuron.strides = array<i64: 1, 4>}) {", 1
    )
    module = compile_groups(text)
    assert calls(module) == ["contract_0", "contract_1"]
    assert "array<i64: 1, 4>" in str(functions(module)["contract_1"].attributes["res_attrs"])


def test_another_attribute_tells_groups_apart() -> None:
    module = compile_groups("""
func.func @main(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [1]
      : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}""")
    assert len(functions(module)) == 2


def test_another_reduce_body_tells_groups_apart() -> None:
    module = compile_groups("""
func.func @main(%x: tensor<4x4xf32>, %y: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1]
      : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.reduce(%y init: %z) applies stablehlo.maximum across dimensions = [1]
      : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}""")
    assert len(functions(module)) == 2


def test_operand_order_tells_groups_apart() -> None:
    module = compile_groups("""
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %v: tensor<4xf32>, %w: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.exponential %x : tensor<4xf32>
  %1 = stablehlo.subtract %0, %y : tensor<4xf32>
  %2 = stablehlo.exponential %v : tensor<4xf32>
  %3 = stablehlo.subtract %w, %2 : tensor<4xf32>
  return %1, %3 : tensor<4xf32>, tensor<4xf32>
}""")
    assert len(functions(module)) == 2


def test_large_constants_stay_in_main_and_are_passed() -> None:
    numbers = ", ".join(str(float(n)) for n in range(20))
    module = compile_groups(f"""
func.func @main(%x: tensor<20xf32>) -> tensor<20xf32> {{
  %c = stablehlo.constant dense<[{numbers}]> : tensor<20xf32>
  %d = stablehlo.constant dense<3.0> : tensor<20xf32>
  %0 = stablehlo.add %x, %c : tensor<20xf32>
  %1 = stablehlo.multiply %0, %d : tensor<20xf32>
  return %1 : tensor<20xf32>
}}""")
    names = [op.operation.name for op in main_function(module).regions[0].blocks[0].operations]
    assert names == ["stablehlo.constant", "func.call", "func.return"]
    (function,) = functions(module).values()
    assert len(function.regions[0].blocks[0].arguments) == 2


def test_locations_stay_with_the_ops() -> None:
    text = programs.mlp().replace(
        "%11 = stablehlo.add %10, %x : tensor<4x8xf32>",
        '%11 = stablehlo.add %10, %x : tensor<4x8xf32> loc("model.py":12:3)',
    )
    module = compile_groups(text)
    locations = [
        str(op.operation.location)
        for function in functions(module).values()
        for op in function.regions[0].blocks[0].operations
        if op.operation.name == "stablehlo.add"
    ]
    assert any("model.py" in location for location in locations)


def test_a_region_that_captures_a_value_gets_it_as_an_argument() -> None:
    module = compile_groups("""
func.func @main(%p: tensor<i1>, %x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.if"(%p) ({
    %1 = stablehlo.add %x, %y : tensor<4xf32>
    stablehlo.return %1 : tensor<4xf32>
  }, {
    stablehlo.return %y : tensor<4xf32>
  }) : (tensor<i1>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}""")
    (function,) = functions(module).values()
    assert ir.StringAttr(function.attributes["neuron.kind"]).value == "single"
    assert len(function.regions[0].blocks[0].arguments) == 3


def test_complex_constants_tell_groups_apart() -> None:
    text = """
func.func @main(%x: tensor<32xcomplex<f32>>, %y: tensor<32xcomplex<f32>>)
    -> (tensor<32xcomplex<f32>>, tensor<32xcomplex<f32>>) {
  %a = stablehlo.constant dense<(1.0, 2.0)> : tensor<32xcomplex<f32>>
  %b = stablehlo.constant dense<(OTHER, 2.0)> : tensor<32xcomplex<f32>>
  %0 = stablehlo.multiply %x, %a : tensor<32xcomplex<f32>>
  %1 = stablehlo.multiply %y, %b : tensor<32xcomplex<f32>>
  return %0, %1 : tensor<32xcomplex<f32>>, tensor<32xcomplex<f32>>
}"""
    assert len(functions(compile_groups(text.replace("OTHER", "3.0")))) == 2
    assert len(functions(compile_groups(text.replace("OTHER", "1.0")))) == 1
