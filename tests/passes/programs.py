"""StableHLO texts that several tests of the passes read.

In: sizes. Out: module texts. Invariant: each computes what its name says, as a naive frontend
would write it.
"""

from __future__ import annotations


def rms_norm(rows: int = 4, size: int = 8) -> str:
    """x (bf16) and w (f32) -> x * rsqrt(mean(x*x) + eps) * w, in f32."""
    full, row = f"tensor<{rows}x{size}xf32>", f"tensor<{rows}xf32>"
    column = f"tensor<{rows}x1xf32>"
    return f"""
func.func @main(%x: tensor<{rows}x{size}xbf16>, %w: tensor<{size}xf32>) -> {full} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.constant dense<1.0e-5> : {column}
  %n = stablehlo.constant dense<{float(size)}> : {row}
  %0 = stablehlo.convert %x : (tensor<{rows}x{size}xbf16>) -> {full}
  %1 = stablehlo.multiply %0, %0 : {full}
  %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %3 = stablehlo.divide %2, %n : {row}
  %4 = stablehlo.reshape %3 : ({row}) -> {column}
  %5 = stablehlo.add %4, %e : {column}
  %6 = stablehlo.rsqrt %5 : {column}
  %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : ({column}) -> {full}
  %8 = stablehlo.multiply %0, %7 : {full}
  %9 = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<{size}xf32>) -> {full}
  %10 = stablehlo.multiply %8, %9 : {full}
  return %10 : {full}
}}"""
