"""Operations without code are refused with their names and the user's lines."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from neuron_compile.errors import CodegenError
from tests.neff.codegen.native import outlined, run

WHILE = """(%x: tensor<4xf32>) -> (tensor<4xf32>) {
  %r = stablehlo.while(%a = %x) : tensor<4xf32>
    cond {
    %t = stablehlo.constant dense<false> : tensor<i1>
    stablehlo.return %t : tensor<i1>
  } do {
    stablehlo.return %a : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}
"""
FFT = """(%x: tensor<4xf32>) -> (tensor<3xf32>) {
  %f = stablehlo.fft %x, type = RFFT, length = [4] : (tensor<4xf32>) -> tensor<3xcomplex<f32>> loc("model.py":7:1)
  %r = stablehlo.real %f : (tensor<3xcomplex<f32>>) -> tensor<3xf32> loc("model.py":8:1)
  return %r : tensor<3xf32>
}
"""
CAPTURE = """(%x: tensor<4x4xf32>, %s: tensor<f32>) -> (tensor<4xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %z) across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
   reducer(%a: tensor<f32>, %b: tensor<f32>) {
    %c = stablehlo.multiply %b, %s : tensor<f32>
    %d = stablehlo.add %a, %c : tensor<f32>
    stablehlo.return %d : tensor<f32>
  }
  return %r : tensor<4xf32>
}
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WHILE, ["stablehlo.while", "control flow"]),
        (FFT, ["stablehlo.fft", "model.py:7", "Fourier", "complex<f32>"]),
        (CAPTURE, ["stablehlo.reduce", "from outside"]),
    ],
)
def test_the_error_says_what_and_where(text: str, words: list[str]) -> None:
    with pytest.raises(CodegenError) as caught:
        run(outlined(text, "single"), [])
    for word in words:
        assert word in str(caught.value)
