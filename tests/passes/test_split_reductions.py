"""Reductions to few elements are split in two."""

from __future__ import annotations

import pytest

from neuron_compile.passes.split_reductions import split_reductions
from tests.passes.checks import apply, ops


@pytest.fixture(autouse=True)
def _small_tensors_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes seconds for tensors that are large to a CPU."""
    monkeypatch.setattr("neuron_compile.passes.split_reductions.SMALL_NUMEL", 64)
    monkeypatch.setattr("neuron_compile.passes.split_reductions.COLUMN_BLOCK", 2)


def reduction(
    shape: str, dims: str, result: str, op: str = "add", init: str = "0.0", dtype: str = "f32"
) -> str:
    return f"""
func.func @main(%x: tensor<{shape}x{dtype}>) -> tensor<{result}{dtype}> {{
  %z = stablehlo.constant dense<{init}> : tensor<{dtype}>
  %0 = stablehlo.reduce(%x init: %z) applies stablehlo.{op} across dimensions = {dims}
      : (tensor<{shape}x{dtype}>, tensor<{dtype}>) -> tensor<{result}{dtype}>
  return %0 : tensor<{result}{dtype}>
}}"""


@pytest.mark.parametrize(
    ("text", "first"),
    [
        (reduction("512", "[0]", ""), (8,)),
        (reduction("2x256", "[1]", "2x"), (2, 4)),
        (reduction("64x2", "[0]", "2x"), (8, 2)),
        (reduction("16x32", "[0, 1]", ""), (8,)),
        (reduction("512", "[0]", "", "maximum", "0xFF800000"), (8,)),
    ],
)
def test_splits(text: str, first: tuple[int, ...]) -> None:
    unit = apply(text, split_reductions, rtol=1e-3)
    assert ops(unit) == ["reshape", "reduce", "reduce"]
    assert unit.graph.nodes[2].result.shape == first


@pytest.mark.parametrize(
    "text",
    [
        reduction("16x32", "[1]", "16x"),  # enough rows
        reduction("16x32", "[0]", "32x"),  # enough columns
        reduction("100", "[0]", ""),  # small
        reduction("509", "[0]", ""),  # a prime number of elements
        reduction("512", "[0]", "", "add", "1.0"),  # the init value would count twice
    ],
)
def test_stays(text: str) -> None:
    assert "reshape" not in ops(apply(text, split_reductions, rtol=1e-3))


def test_a_body_of_several_ops_stays() -> None:
    text = """
func.func @main(%x: tensor<512xf32>) -> tensor<f32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce"(%x, %z) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.multiply %b, %b : tensor<f32>
    %2 = stablehlo.add %a, %1 : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<512xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}"""
    assert ops(apply(text, split_reductions, rtol=1e-3)) == ["reduce"]


def test_as_many_pieces_as_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("neuron_compile.passes.split_reductions.PIECES", 64)
    unit = apply(reduction("512", "[0]", ""), split_reductions, rtol=1e-3)
    assert unit.graph.nodes[2].result.shape == (64,)
