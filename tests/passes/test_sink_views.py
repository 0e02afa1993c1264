"""Views move behind elementwise ops, towards the contractions that absorb them."""

from __future__ import annotations

from neuron_compile.passes.sink_views import sink_views
from tests.passes.checks import apply, ops


def test_transpose_sinks_through_a_chain() -> None:
    text = """
func.func @main(%x: tensor<2x3xbf16>) -> tensor<3x2xf32> {
  %c = stablehlo.constant dense<2.0> : tensor<3x2xbf16>
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xbf16>) -> tensor<3x2xbf16>
  %1 = stablehlo.multiply %c, %0 : tensor<3x2xbf16>
  %2 = stablehlo.convert %1 : (tensor<3x2xbf16>) -> tensor<3x2xf32>
  return %2 : tensor<3x2xf32>
}"""
    assert ops(apply(text, sink_views)) == ["multiply", "convert", "transpose"]


def test_the_same_view_on_both_sides_sinks() -> None:
    text = """
func.func @main(%x: tensor<6xf32>, %y: tensor<6xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.reshape %x : (tensor<6xf32>) -> tensor<2x3xf32>
  %1 = stablehlo.reshape %y : (tensor<6xf32>) -> tensor<2x3xf32>
  %2 = stablehlo.add %0, %1 : tensor<2x3xf32>
  return %2 : tensor<2x3xf32>
}"""
    assert ops(apply(text, sink_views)) == ["add", "reshape"]


def test_different_views_stay() -> None:
    text = """
func.func @main(%x: tensor<3x3xf32>, %y: tensor<3x3xf32>) -> tensor<3x3xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<3x3xf32>) -> tensor<3x3xf32>
  %1 = stablehlo.add %0, %y : tensor<3x3xf32>
  return %1 : tensor<3x3xf32>
}"""
    assert ops(apply(text, sink_views)) == ["transpose", "add"]


def test_a_view_with_other_readers_stays() -> None:
    text = """
func.func @main(%x: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<3x2xf32>) {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = stablehlo.negate %0 : tensor<3x2xf32>
  return %0, %1 : tensor<3x2xf32>, tensor<3x2xf32>
}"""
    assert ops(apply(text, sink_views)) == ["transpose", "negate"]


def test_a_select_with_a_scalar_predicate_stays() -> None:
    text = """
func.func @main(%p: tensor<i1>, %x: tensor<2x3xf32>) -> tensor<3x2xf32> {
  %c = stablehlo.constant dense<2.0> : tensor<3x2xf32>
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %1 = stablehlo.select %p, %0, %c : tensor<i1>, tensor<3x2xf32>
  return %1 : tensor<3x2xf32>
}"""
    assert ops(apply(text, sink_views)) == ["transpose", "select"]
