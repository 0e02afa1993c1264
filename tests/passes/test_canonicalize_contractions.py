"""Views around dots become dimension numbers."""

from __future__ import annotations

import numpy as np
import pytest
from torch_mlir import ir

from neuron_compile.passes.canonicalize_contractions import canonicalize_contractions
from neuron_compile.passes.dot_dims import DotDims
from neuron_compile.passes.graph import Node
from neuron_compile.passes.unit import Unit
from tests import oracle
from tests.passes.checks import apply, ops


def the_dot(unit: Unit) -> Node:
    (node,) = [node for node in unit.graph.nodes if node.name == "dot_general"]
    return node


def test_a_transposed_weight_is_read_in_place() -> None:
    unit = apply(
        """
func.func @main(%x: tensor<4x8xf32>, %w: tensor<3x8xf32>) -> tensor<4x3xf32> {
  %0 = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x8xf32>) -> tensor<8x3xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x3xf32>) -> tensor<4x3xf32>
  return %1 : tensor<4x3xf32>
}""",
        canonicalize_contractions,
    )
    assert ops(unit) == ["dot_general"]
    assert DotDims.of(the_dot(unit)).rhs_contract == (1,)


def test_merged_batch_dims_come_apart_and_absorb_transposes() -> None:
    """What a batched matmul of heads looks like when a frontend flattens batch and heads."""
    unit = apply(
        """
func.func @main(%q: tensor<2x5x3x4xf32>, %k: tensor<2x6x3x4xf32>) -> tensor<2x3x5x6xf32> {
  %0 = stablehlo.transpose %q, dims = [0, 2, 1, 3] : (tensor<2x5x3x4xf32>) -> tensor<2x3x5x4xf32>
  %1 = stablehlo.transpose %k, dims = [0, 2, 3, 1] : (tensor<2x6x3x4xf32>) -> tensor<2x3x4x6xf32>
  %2 = stablehlo.reshape %0 : (tensor<2x3x5x4xf32>) -> tensor<6x5x4xf32>
  %3 = stablehlo.reshape %1 : (tensor<2x3x4x6xf32>) -> tensor<6x4x6xf32>
  %4 = stablehlo.dot_general %2, %3, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<6x5x4xf32>, tensor<6x4x6xf32>) -> tensor<6x5x6xf32>
  %5 = stablehlo.reshape %4 : (tensor<6x5x6xf32>) -> tensor<2x3x5x6xf32>
  return %5 : tensor<2x3x5x6xf32>
}""",
        canonicalize_contractions,
        rtol=1e-6,
    )
    assert ops(unit) == ["dot_general"]
    dims = DotDims.of(the_dot(unit))
    assert (dims.lhs_batch, dims.rhs_batch) == ((0, 2), (0, 2))
    assert (dims.lhs_contract, dims.rhs_contract) == ((3,), (3,))


def test_a_weight_repeated_along_the_batch_is_read_once() -> None:
    unit = apply(
        """
func.func @main(%x: tensor<2x4x8xf32>, %w: tensor<8x3xf32>) -> tensor<2x4x3xf32> {
  %0 = stablehlo.broadcast_in_dim %w, dims = [1, 2] : (tensor<8x3xf32>) -> tensor<2x8x3xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<2x4x8xf32>, tensor<2x8x3xf32>) -> tensor<2x4x3xf32>
  return %1 : tensor<2x4x3xf32>
}""",
        canonicalize_contractions,
    )
    assert ops(unit) == ["reshape", "dot_general", "reshape"]
    assert the_dot(unit).operands[0].shape == (8, 8)
    assert DotDims.of(the_dot(unit)).lhs_batch == ()


def test_contracted_dims_in_one_run_are_merged() -> None:
    unit = apply(
        """
func.func @main(%x: tensor<4x2x3xf32>, %w: tensor<2x3x5xf32>) -> tensor<4x5xf32> {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1, 2] x [0, 1]
      : (tensor<4x2x3xf32>, tensor<2x3x5xf32>) -> tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}""",
        canonicalize_contractions,
    )
    assert the_dot(unit).operands[0].shape == (4, 6)


@pytest.mark.parametrize(
    ("order", "shape"), [("[2, 0, 1]", "5x2x3"), ("[0, 2, 1]", "2x5x3"), ("[1, 0, 2]", "3x2x5")]
)
def test_free_dims_that_change_their_order_stay(order: str, shape: str) -> None:
    """[2, 0, 1] and [0, 2, 1] keep 2 before 3 and fold; [1, 0, 2] would turn the result."""
    sizes = shape.split("x")
    contract = sizes.index("5")
    result = f"tensor<{'x'.join(size for size in sizes if size != '5')}x4xf32>"
    source = f"tensor<{shape}xf32>"
    unit = apply(
        f"""
func.func @main(%x: tensor<2x3x5xf32>, %w: tensor<5x4xf32>) -> {result} {{
  %0 = stablehlo.transpose %x, dims = {order} : (tensor<2x3x5xf32>) -> {source}
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [{contract}] x [0]
      : ({source}, tensor<5x4xf32>) -> {result}
  return %1 : {result}
}}""",
        canonicalize_contractions,
    )
    assert ("transpose" in ops(unit)) == (order == "[1, 0, 2]")


def test_the_old_dot_is_a_dot_general() -> None:
    """The interpreter has no `dot`, so the result is held against NumPy."""
    module = oracle.parse("""
func.func @main(%x: tensor<4x8xf32>, %y: tensor<8xf32>) -> tensor<4xf32> {
  %0 = stablehlo.dot %x, %y : (tensor<4x8xf32>, tensor<8xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}""")
    with module.context, ir.Location.unknown():
        unit = Unit(module)
        canonicalize_contractions(unit)
        assert ops(unit) == ["dot_general"]
    x, y = oracle.random_inputs(module)
    np.testing.assert_allclose(oracle.evaluate(module, [x, y])[0], x @ y, rtol=1e-5)


def test_batch_dims_merged_from_different_factors_stay() -> None:
    unit = apply(
        """
func.func @main(%x: tensor<2x3x4x5xf32>, %y: tensor<3x2x5x4xf32>) -> tensor<6x4x4xf32> {
  %0 = stablehlo.reshape %x : (tensor<2x3x4x5xf32>) -> tensor<6x4x5xf32>
  %1 = stablehlo.reshape %y : (tensor<3x2x5x4xf32>) -> tensor<6x5x4xf32>
  %2 = stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<6x4x5xf32>, tensor<6x5x4xf32>) -> tensor<6x4x4xf32>
  return %2 : tensor<6x4x4xf32>
}""",
        canonicalize_contractions,
    )
    assert ops(unit) == ["reshape", "reshape", "dot_general"]
