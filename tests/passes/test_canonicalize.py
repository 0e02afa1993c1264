"""MLIR's clean-up, and constants that it hoists out of regions."""

from __future__ import annotations

from neuron_compile.passes.canonicalize import canonicalize
from neuron_compile.passes.graph import captures
from tests.passes.checks import apply, ops

ARGMAX = """
func.func @main(%x: tensor<3x4xf32>) -> tensor<3xi64> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %i = stablehlo.iota dim = 1 : tensor<3x4xi64>
  %0:2 = "stablehlo.reduce"(%x, %i, %lowest, %zero) <{dimensions = array<i64: 1>}> ({
  ^bb0(%a: tensor<f32>, %ai: tensor<i64>, %b: tensor<f32>, %bi: tensor<i64>):
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %d = stablehlo.add %a, %c : tensor<f32>
    %p = stablehlo.compare GE, %d, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %v = stablehlo.select %p, %a, %b : tensor<i1>, tensor<f32>
    %j = stablehlo.select %p, %ai, %bi : tensor<i1>, tensor<i64>
    stablehlo.return %v, %j : tensor<f32>, tensor<i64>
  }) : (tensor<3x4xf32>, tensor<3x4xi64>, tensor<f32>, tensor<i64>)
    -> (tensor<3xf32>, tensor<3xi64>)
  return %0#1 : tensor<3xi64>
}"""


def test_regions_hold_their_own_constants() -> None:
    unit = apply(ARGMAX, canonicalize)
    reduce = next(node for node in unit.graph.nodes if node.name == "reduce")
    assert reduce.captures == 0
    assert captures(reduce.op, unit.graph._values) == []


def test_dead_code_and_repeats_go() -> None:
    text = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.exponential %x : tensor<4xf32>
  %1 = stablehlo.exponential %x : tensor<4xf32>
  %2 = stablehlo.tanh %x : tensor<4xf32>
  %3 = stablehlo.add %0, %1 : tensor<4xf32>
  return %3 : tensor<4xf32>
}"""
    assert ops(apply(text, canonicalize)) == ["exponential", "add"]


def test_signed_zero_survives() -> None:
    text = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<4xf32>
  %0 = stablehlo.add %x, %z : tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
    assert ops(apply(text, canonicalize)) == ["add"]


def test_barriers_go() -> None:
    text = """
func.func @main(%x: tensor<4xf32>, %y: tensor<2xf32>) -> (tensor<4xf32>, tensor<2xf32>) {
  %0:2 = stablehlo.optimization_barrier %x, %y : tensor<4xf32>, tensor<2xf32>
  %1 = stablehlo.negate %0#0 : tensor<4xf32>
  return %1, %0#1 : tensor<4xf32>, tensor<2xf32>
}"""
    assert ops(apply(text, canonicalize)) == ["negate"]
