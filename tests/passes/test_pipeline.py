"""The whole pipeline: structure of the outlined module, and equality with the interpreter."""

from __future__ import annotations

from tests.passes.checks import calls, compile_groups, kinds
from tests.passes.programs import rms_norm


def test_naive_rms_norm_is_one_loop() -> None:
    assert kinds(compile_groups(rms_norm())) == ["loop"]


def test_outputs_that_are_inputs_or_repeats_are_copied() -> None:
    module = compile_groups("""
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0, %x, %0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}""")
    assert len(calls(module)) == 1
