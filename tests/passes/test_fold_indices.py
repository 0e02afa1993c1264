"""Index arithmetic without inputs collapses to iota, splats and slices."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from neuron_compile.passes.fold_indices import fold_indices
from tests.passes.checks import apply, ops
from tests.passes.random_graphs import index_modules


def module(body: str, result: str = "tensor<2x6xi64>") -> str:
    return f"func.func @main() -> {result} {{\n{body}\n return %r : {result}\n}}"


def test_packed_sequence_detection_is_a_splat() -> None:
    """cumsum(diff(arange) != 1), which transformers computes to find packed sequences."""
    text = module("""
 %z = stablehlo.constant dense<0> : tensor<i64>
 %one = stablehlo.constant dense<1> : tensor<2x6xi64>
 %i = stablehlo.iota dim = 0 : tensor<6xi64>
 %b = stablehlo.broadcast_in_dim %i, dims = [1] : (tensor<6xi64>) -> tensor<2x6xi64>
 %first = stablehlo.slice %b [0:2, 0:1] : (tensor<2x6xi64>) -> tensor<2x1xi64>
 %c1 = stablehlo.constant dense<1> : tensor<2x1xi64>
 %before = stablehlo.subtract %first, %c1 : tensor<2x1xi64>
 %c = stablehlo.concatenate %before, %b, dim = 1
    : (tensor<2x1xi64>, tensor<2x6xi64>) -> tensor<2x7xi64>
 %lo = stablehlo.slice %c [0:2, 0:6] : (tensor<2x7xi64>) -> tensor<2x6xi64>
 %hi = stablehlo.slice %c [0:2, 1:7] : (tensor<2x7xi64>) -> tensor<2x6xi64>
 %d = stablehlo.subtract %hi, %lo : tensor<2x6xi64>
 %n = stablehlo.compare NE, %d, %one : (tensor<2x6xi64>, tensor<2x6xi64>) -> tensor<2x6xi1>
 %x = stablehlo.convert %n : (tensor<2x6xi1>) -> tensor<2x6xi64>
 %r = "stablehlo.reduce_window"(%x, %z) <{padding = dense<[[0, 0], [5, 0]]> : tensor<2x2xi64>,
     window_dimensions = array<i64: 1, 6>, window_strides = array<i64: 1, 1>}> ({
 ^bb0(%a: tensor<i64>, %e: tensor<i64>):
   %s = stablehlo.add %a, %e : tensor<i64>
   stablehlo.return %s : tensor<i64>
 }) : (tensor<2x6xi64>, tensor<i64>) -> tensor<2x6xi64>""")
    assert ops(apply(text, fold_indices)) == []


def test_wrapped_gather_of_an_arange_is_an_iota() -> None:
    text = module(
        """
 %z = stablehlo.constant dense<0> : tensor<6xi64>
 %n = stablehlo.constant dense<6> : tensor<6xi64>
 %i = stablehlo.iota dim = 0 : tensor<6xi64>
 %neg = stablehlo.compare LT, %i, %z : (tensor<6xi64>, tensor<6xi64>) -> tensor<6xi1>
 %up = stablehlo.add %i, %n : tensor<6xi64>
 %w = stablehlo.select %neg, %up, %i : tensor<6xi1>, tensor<6xi64>
 %s = stablehlo.reshape %w : (tensor<6xi64>) -> tensor<6x1xi64>
 %r = "stablehlo.gather"(%i, %s) <{dimension_numbers = #stablehlo.gather<
     collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
     slice_sizes = array<i64: 1>}> : (tensor<6xi64>, tensor<6x1xi64>) -> tensor<6xi64>""",
        "tensor<6xi64>",
    )
    assert ops(apply(text, fold_indices)) == ["iota"]


@pytest.mark.parametrize(("first", "batch"), [(0, 1), (2, 3)])
def test_a_position_table_is_sliced(first: int, batch: int) -> None:
    ids = f"tensor<{batch}x4xi64>"
    text = f"""
func.func @main(%w: tensor<10x3xf32>) -> tensor<{batch}x4x3xf32> {{
  %c = stablehlo.constant dense<{first}> : {ids}
  %i = stablehlo.iota dim = 1 : {ids}
  %p = stablehlo.add %i, %c : {ids}
  %r = "stablehlo.gather"(%w, %p) <{{dimension_numbers = #stablehlo.gather<offset_dims = [2],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>,
      slice_sizes = array<i64: 1, 3>}}>
      : (tensor<10x3xf32>, {ids}) -> tensor<{batch}x4x3xf32>
  return %r : tensor<{batch}x4x3xf32>
}}"""
    assert ops(apply(text, fold_indices)) == ["slice", "broadcast_in_dim"]


def test_a_clamped_or_scattered_gather_stays() -> None:
    text = """
func.func @main(%w: tensor<5x3xf32>) -> tensor<4x3xf32> {
  %c = stablehlo.constant dense<3> : tensor<4xi64>
  %i = stablehlo.iota dim = 0 : tensor<4xi64>
  %p = stablehlo.add %i, %c : tensor<4xi64>
  %r = "stablehlo.gather"(%w, %p) <{dimension_numbers = #stablehlo.gather<offset_dims = [1],
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, 3>}> : (tensor<5x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>
  return %r : tensor<4x3xf32>
}"""
    assert "gather" in ops(apply(text, fold_indices))


def test_x_at_batch_and_position_is_x() -> None:
    text = """
func.func @main(%m: tensor<2x6xi1>) -> tensor<2x1x6xi1> {
  %b = stablehlo.iota dim = 0 : tensor<2x1x6x1xi64>
  %p = stablehlo.iota dim = 2 : tensor<2x1x6x1xi64>
  %i = stablehlo.concatenate %b, %p, dim = 3
      : (tensor<2x1x6x1xi64>, tensor<2x1x6x1xi64>) -> tensor<2x1x6x2xi64>
  %r = "stablehlo.gather"(%m, %i) <{dimension_numbers = #stablehlo.gather<
      collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 3>,
      slice_sizes = array<i64: 1, 1>}> : (tensor<2x6xi1>, tensor<2x1x6x2xi64>) -> tensor<2x1x6xi1>
  return %r : tensor<2x1x6xi1>
}"""
    assert set(ops(apply(text, fold_indices))) <= {"reshape", "broadcast_in_dim"}


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (
            """ %c = stablehlo.constant dense<3> : tensor<i64>
 %r = stablehlo.pad %c, %c, low = [], high = [], interior = []
    : (tensor<i64>, tensor<i64>) -> tensor<i64>""",
            "tensor<i64>",
        ),
        (
            """ %c = stablehlo.constant dense<3> : tensor<2x0xi64>
 %l = stablehlo.constant dense<-9> : tensor<i64>
 %r = stablehlo.reduce(%c init: %l) applies stablehlo.maximum across dimensions = [1]
    : (tensor<2x0xi64>, tensor<i64>) -> tensor<2xi64>""",
            "tensor<2xi64>",
        ),
    ],
)
def test_scalars_and_nothing(body: str, result: str) -> None:
    assert ops(apply(module(body, result), fold_indices)) in ([], ["constant"])


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(index_modules())
def test_numpy_agrees_with_the_interpreter(text: str) -> None:
    """Every op that is folded gives what the interpreter gives, wrap-around included."""
    apply(text, fold_indices, idempotent=False)
