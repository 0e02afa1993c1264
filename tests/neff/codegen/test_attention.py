"""Attention kernels against the interpreter.

Causal and not, grouped shapes, odd sizes, row results.
"""

from __future__ import annotations

import pytest

from neuron_compile.neff.target import Target, detect, make
from tests.neff.codegen.native import check

TARGETS = [detect(), make("x86-64-v3")]
SUM = "applies stablehlo.add across dimensions = [2]"
MAX = "applies stablehlo.maximum across dimensions = [2]"


def attention(
    b: int, q: int, k: int, d: int, *, causal: bool = False, statistics: bool = False
) -> str:
    """Batched [b, q, d] x [b, k, d] x [b, k, d], scaled, with a softmax over the keys."""
    query, key, out = (
        f"tensor<{b}x{q}x{d}xf32>",
        f"tensor<{b}x{k}x{d}xf32>",
        f"tensor<{b}x{q}x{d}xf32>",
    )
    s, r, m = f"tensor<{b}x{q}x{k}xf32>", f"tensor<{b}x{q}xf32>", f"tensor<{b}x{q}x{k}xi1>"
    i = f"tensor<{b}x{q}x{k}xi64>"
    mask = f"""  %i = stablehlo.iota dim = 1 : {i}
  %j = stablehlo.iota dim = 2 : {i}
  %keep = stablehlo.compare LE, %j, %i : ({i}, {i}) -> {m}
  %inf = stablehlo.constant dense<0xFF800000> : {s}
  %masked = stablehlo.select %keep, %scaled, %inf : {m}, {s}
""" if causal else ""  # fmt: skip
    scores = "%masked" if causal else "%scaled"
    results = f"({out}, {r})" if statistics else f"({out})"
    returned = f"%out, %lse : {out}, {r}" if statistics else f"%out : {out}"
    extra = f"""  %log = stablehlo.log %sum : {r}
  %lse = stablehlo.add %log, %max : {r}
""" if statistics else ""  # fmt: skip
    return f"""(%q: {query}, %k: {key}, %v: {key}) -> {results} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %ni = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %c = stablehlo.constant dense<0.25> : {s}
  %dot = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2] : ({query}, {key}) -> {s}
  %scaled = stablehlo.multiply %dot, %c : {s}
{mask}  %max = stablehlo.reduce({scores} init: %ni) {MAX} : ({s}, tensor<f32>) -> {r}
  %maxb = stablehlo.broadcast_in_dim %max, dims = [0, 1] : ({r}) -> {s}
  %shift = stablehlo.subtract {scores}, %maxb : {s}
  %exp = stablehlo.exponential %shift : {s}
  %sum = stablehlo.reduce(%exp init: %z) {SUM} : ({s}, tensor<f32>) -> {r}
  %sumb = stablehlo.broadcast_in_dim %sum, dims = [0, 1] : ({r}) -> {s}
  %p = stablehlo.divide %exp, %sumb : {s}
  %out = stablehlo.dot_general %p, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : ({s}, {key}) -> {out}
{extra}  return {returned}
}}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [(2, 8, 8, 16), (1, 70, 70, 32), (3, 17, 33, 20), (1, 5, 100, 64)])
def test_softmax_attention(size: tuple[int, int, int, int], causal: bool, target: Target) -> None:
    check(attention(*size, causal=causal), "attention", target=target, tolerance=1e-4)


@pytest.mark.parametrize("size", [(2, 8, 8, 16), (3, 37, 37, 20)])
def test_row_results_for_the_backward(size: tuple[int, int, int, int]) -> None:
    check(attention(*size, causal=True, statistics=True), "attention", tolerance=1e-4)


@pytest.mark.parametrize("size", [(2, 1, 33, 16), (1, 2, 3, 4)])
def test_few_rows_are_not_fused(size: tuple[int, int, int, int]) -> None:
    check(attention(*size), "attention", tolerance=1e-4)
