"""Cheap results are computed where they are read, when what they need is stored anyway."""

from __future__ import annotations

from tests.passes.checks import calls, compile_groups, functions

FULL, CHANNEL, ROW = "tensor<2x4x6x6xf32>", "tensor<4xf32>", "tensor<2x4xf32>"


def norm_then_pool(last: str = "") -> str:
    """x - mean over the channel's elements, then the mean per image: rows of two kinds."""
    return f"""
func.func @main(%x: {FULL}, %w: {FULL}) -> {ROW} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<0.0138888889> : {CHANNEL}
  %h = stablehlo.tanh %x : {FULL}
  %0 = stablehlo.add %h, %w : {FULL}
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0, 2, 3]
      : ({FULL}, tensor<f32>) -> {CHANNEL}
  %2 = stablehlo.multiply %1, %n : {CHANNEL}
  %3 = stablehlo.broadcast_in_dim %2, dims = [1] : ({CHANNEL}) -> {FULL}
  %4 = stablehlo.subtract %0, %3 : {FULL}
  {last}
  %5 = stablehlo.multiply %4, %4 : {FULL}
  %6 = stablehlo.reduce(%5 init: %z) applies stablehlo.add across dimensions = [2, 3]
      : ({FULL}, tensor<f32>) -> {ROW}
  return %6 : {ROW}
}}"""


def test_a_subtraction_moves_to_its_reader() -> None:
    """Neither 4 nor 5 is stored: both kernels read what the first had to store or read anyway."""
    module = compile_groups(norm_then_pool(), rtol=1e-5)
    assert len(calls(module)) == 2
    first, second = (str(functions(module)[name]) for name in calls(module))
    assert "stablehlo.subtract" in second
    assert first.count("tensor<4xf32>") >= 1


def test_an_expensive_result_is_stored() -> None:
    text = norm_then_pool().replace("stablehlo.subtract %0, %3", "stablehlo.atan2 %0, %3")
    module = compile_groups(text, rtol=1e-5)
    assert str(module).count("stablehlo.atan2") == 1
