"""Random DAGs through the whole pipeline, and through each pass, against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from torch_mlir import ir

from neuron_compile.passes.pipeline import PIPELINE
from neuron_compile.passes.unit import Unit
from tests import oracle
from tests.passes.checks import assert_same, check_contract, compile_groups
from tests.passes.random_graphs import modules

PLENTY = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@PLENTY
@given(modules())
def test_pipeline_keeps_the_meaning(text: str) -> None:
    compile_groups(text)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(PLENTY, max_examples=25)
@given(modules())
def test_every_pass_keeps_the_meaning(text: str) -> None:
    module = oracle.parse(text)
    inputs = oracle.random_inputs(module)
    expected = oracle.evaluate(module, inputs)
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        for step in PIPELINE:
            step.run(unit)
            assert module.operation.verify(), step.name
            assert_same(expected, oracle.evaluate(module, inputs))
    check_contract(module)


def test_special_values_survive() -> None:
    """NaN, infinities and signed zeros through arithmetic that a careless simplifier would drop."""
    module = oracle.parse("""
func.func @main(%x: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<6xf32>
  %n = stablehlo.constant dense<-0.0> : tensor<6xf32>
  %two = stablehlo.constant dense<2.0> : tensor<6xf32>
  %0 = stablehlo.add %x, %z : tensor<6xf32>
  %1 = stablehlo.subtract %x, %n : tensor<6xf32>
  %2 = stablehlo.multiply %x, %z : tensor<6xf32>
  %3 = stablehlo.power %x, %two : tensor<6xf32>
  return %0, %1, %2, %3 : tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
}""")
    special = np.array([1.5, -0.0, 0.0, np.inf, -np.inf, np.nan], np.float32)
    compile_groups(module, [special])
