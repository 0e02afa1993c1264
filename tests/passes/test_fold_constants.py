"""Constants are computed by the interpreter; none grows."""

from __future__ import annotations

from torch_mlir import ir

from neuron_compile.passes import run_pipeline
from neuron_compile.passes.fold_constants import fold_constants
from neuron_compile.passes.unit import Unit
from tests import oracle
from tests.passes.checks import apply, check_contract, ops


def test_uniform_values_are_splats() -> None:
    text = """
func.func @main(%x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %a = stablehlo.constant dense<2.0> : tensor<f64>
  %b = stablehlo.constant dense<8.0> : tensor<64x64xf32>
  %0 = stablehlo.convert %a : (tensor<f64>) -> tensor<f32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<64x64xf32>
  %2 = stablehlo.divide %1, %b : tensor<64x64xf32>
  %3 = chlo.erf %2 : tensor<64x64xf32> -> tensor<64x64xf32>
  %4 = stablehlo.add %x, %3 : tensor<64x64xf32>
  return %4 : tensor<64x64xf32>
}"""
    unit = apply(text, fold_constants)
    assert ops(unit) == ["add"]
    assert "dense<0.2763" in str(unit.module)


def test_small_constants_are_computed() -> None:
    text = """
func.func @main(%x: tensor<3xi32>) -> tensor<3xi32> {
  %a = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %b = stablehlo.constant dense<5> : tensor<3xi32>
  %0 = stablehlo.add %a, %b : tensor<3xi32>
  %1 = stablehlo.multiply %x, %0 : tensor<3xi32>
  return %1 : tensor<3xi32>
}"""
    unit = apply(text, fold_constants)
    assert ops(unit) == ["multiply"]
    assert "dense<[6, 7, 8]>" in str(unit.module)


def test_large_results_stay() -> None:
    text = """
func.func @main(%x: tensor<4x3xi32>) -> tensor<4x12xi32> {
  %a = stablehlo.constant dense<[1, 2, 3]> : tensor<3xi32>
  %0 = stablehlo.broadcast_in_dim %a, dims = [1] : (tensor<3xi32>) -> tensor<100x3xi32>
  %1 = stablehlo.slice %0 [0:4, 0:3] : (tensor<100x3xi32>) -> tensor<4x3xi32>
  %2 = stablehlo.add %1, %x : tensor<4x3xi32>
  %3 = stablehlo.iota dim = 1 : tensor<4x12xi32>
  %4 = stablehlo.add %3, %3 : tensor<4x12xi32>
  %5 = stablehlo.pad %2, %z, low = [0, 0], high = [0, 9], interior = [0, 0]
      : (tensor<4x3xi32>, tensor<i32>) -> tensor<4x12xi32>
  %6 = stablehlo.add %4, %5 : tensor<4x12xi32>
  return %6 : tensor<4x12xi32>
}""".replace("  %0 =", "  %z = stablehlo.constant dense<0> : tensor<i32>\n  %0 =", 1)
    names = ops(apply(text, fold_constants))
    assert names == ["broadcast_in_dim", "slice", "add", "iota", "add", "pad", "add"]


def test_a_constant_output_is_folded() -> None:
    text = """
func.func @main() -> tensor<4xf32> {
  %a = stablehlo.constant dense<4.0> : tensor<4xf32>
  %0 = stablehlo.sqrt %a : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    assert ops(apply(text, fold_constants)) == []


def test_nan_and_infinity_fold_to_themselves() -> None:
    text = """
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = stablehlo.constant dense<-1.0> : tensor<4xf32>
  %z = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0 = stablehlo.sqrt %a : tensor<4xf32>
  %1 = stablehlo.divide %a, %z : tensor<4xf32>
  %2 = stablehlo.add %x, %0 : tensor<4xf32>
  %3 = stablehlo.add %x, %1 : tensor<4xf32>
  return %2, %3 : tensor<4xf32>, tensor<4xf32>
}"""
    assert ops(apply(text, fold_constants)) == ["add", "add"]


def test_empty_and_complex_constants_are_left_alone() -> None:
    """The interpreter would end the process."""
    module = oracle.parse("""
func.func @main() -> (tensor<2xf32>, tensor<complex<f32>>) {
  %e = stablehlo.constant dense<> : tensor<0xf32>
  %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %c = stablehlo.constant dense<(1.0, 2.0)> : tensor<complex<f32>>
  %0 = stablehlo.concatenate %e, %a, dim = 0 : (tensor<0xf32>, tensor<2xf32>) -> tensor<2xf32>
  %1 = stablehlo.add %c, %c : tensor<complex<f32>>
  return %0, %1 : tensor<2xf32>, tensor<complex<f32>>
}""")
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        fold_constants(unit)
    assert ops(unit) == ["concatenate", "add"]
    run_pipeline(module)
    check_contract(module)
