"""The whole pipeline: structure of the outlined module, and equality with the interpreter."""

from __future__ import annotations

import subprocess
import sys

from torch_mlir import ir

from neuron_compile.passes import PIPELINE, run_pipeline
from tests import oracle
from tests.passes.checks import calls, check_contract, compile_groups, kinds
from tests.passes.programs import attention, rms_norm
from tests.source_tree import ROOT


def test_naive_rms_norm_is_one_loop() -> None:
    assert kinds(compile_groups(rms_norm())) == ["loop"]


def test_outputs_that_are_inputs_or_repeats_are_copied() -> None:
    module = compile_groups("""
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0, %x, %0 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}""")
    assert len(calls(module)) == 1


def test_empty_tensors() -> None:
    """Structure only: the interpreter ends the process on an empty tensor."""
    module = oracle.parse("""
func.func @main(%x: tensor<0x4xf32>, %y: tensor<3x0xf32>)
    -> (tensor<0x4xf32>, tensor<4xf32>, tensor<3xf32>, tensor<3x4xf32>) {
  %z = stablehlo.constant dense<1.5> : tensor<f32>
  %i = stablehlo.iota dim = 0 : tensor<0x4xf32>
  %0 = stablehlo.add %x, %i : tensor<0x4xf32>
  %1 = stablehlo.reduce(%0 init: %z) applies stablehlo.add across dimensions = [0]
      : (tensor<0x4xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.reduce(%y init: %z) applies stablehlo.maximum across dimensions = [1]
      : (tensor<3x0xf32>, tensor<f32>) -> tensor<3xf32>
  %3 = stablehlo.dot_general %y, %x, contracting_dims = [1] x [0]
      : (tensor<3x0xf32>, tensor<0x4xf32>) -> tensor<3x4xf32>
  return %0, %1, %2, %3 : tensor<0x4xf32>, tensor<4xf32>, tensor<3xf32>, tensor<3x4xf32>
}""")
    run_pipeline(module)
    assert module.operation.verify()
    check_contract(module)
    assert "contract" in kinds(module)


def test_scalars() -> None:
    module = compile_groups("""
func.func @main(%x: tensor<f32>, %y: tensor<f32>) -> (tensor<f32>, tensor<i1>) {
  %0 = stablehlo.divide %x, %y : tensor<f32>
  %1 = stablehlo.is_finite %0 : (tensor<f32>) -> tensor<i1>
  return %0, %1 : tensor<f32>, tensor<i1>
}""")
    assert len(calls(module)) == 1


def test_nothing_to_compute() -> None:
    module = compile_groups("""
func.func @main(%x: tensor<3xf32>) -> (tensor<3xf32>, tensor<2xi64>) {
  %c = stablehlo.constant dense<[4, 5]> : tensor<2xi64>
  return %x, %c : tensor<3xf32>, tensor<2xi64>
}""")
    assert set(kinds(module)) == {"loop"}


def test_every_pass_is_observed_and_leaves_a_valid_module() -> None:
    module = oracle.parse(rms_norm())
    seen: list[str] = []

    def observer(name: str, current: ir.Module) -> None:
        assert current.operation.verify()
        seen.append(name)

    run_pipeline(module, observer=observer)
    assert seen == [step.name for step in PIPELINE]


def test_a_loop_stays_a_group_of_its_own() -> None:
    """while: its regions read a value of @main, which becomes an argument."""
    module = compile_groups("""
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %three = stablehlo.constant dense<3> : tensor<i64>
  %one = stablehlo.constant dense<1> : tensor<i64>
  %h = stablehlo.tanh %x : tensor<4xf32>
  %0:2 = stablehlo.while(%i = %zero, %v = %x) : tensor<i64>, tensor<4xf32>
   cond {
    %p = stablehlo.compare LT, %i, %three : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i64>
    %w = stablehlo.add %v, %h : tensor<4xf32>
    stablehlo.return %j, %w : tensor<i64>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}""")
    assert kinds(module) == ["loop", "single"]


def test_the_result_depends_on_the_module_only() -> None:
    """Not on addresses: equal modules must give equal NEFFs."""
    texts = []
    for _ in range(3):
        module = oracle.parse(attention(causal=True, mask="add", safe=True, lse=True))
        run_pipeline(module)
        texts.append(str(module))
    assert len(set(texts)) == 1


def test_the_bindings_are_prepared_without_the_oracle() -> None:
    """A process that imports the pipeline only must find the dialects' Python mirrors."""
    script = (
        "import neuron_compile.passes.pipeline\n"
        "import sys\n"
        "from torch_mlir._mlir_libs._mlir import globals as g\n"
        "assert 'neuron_compile.passes.dialects' in g.dialect_search_modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
