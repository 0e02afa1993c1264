"""Matrix-product kernels against the interpreter.

Layouts, dtypes, odd sizes, epilogues, convolutions.
"""

from __future__ import annotations

import pytest

from neuron_compile.neff.target import Target, detect, make
from tests.neff.codegen.native import check

TARGETS = [detect(), make("x86-64-v3")]
PAIRS = make("x86-64-v4", ["avx512_bf16"])


def dot(m: int, k: int, n: int, elem: str, form: str) -> str:
    """`form`: which operand has its contracted dimension first: nn, nt, tn, tt as in BLAS."""
    a = f"tensor<{m}x{k}x{elem}>" if form[0] == "n" else f"tensor<{k}x{m}x{elem}>"
    b = f"tensor<{k}x{n}x{elem}>" if form[1] == "n" else f"tensor<{n}x{k}x{elem}>"
    r = f"tensor<{m}x{n}x{elem}>"
    dims = f"[{1 if form[0] == 'n' else 0}] x [{0 if form[1] == 'n' else 1}]"
    return f"""(%a: {a}, %b: {b}) -> ({r}) {{
  %r = stablehlo.dot_general %a, %b, contracting_dims = {dims} : ({a}, {b}) -> {r}
  return %r : {r}
}}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", [(4, 4, 4), (17, 33, 50), (20, 70, 57)])
def test_every_layout(size: tuple[int, int, int], form: str, target: Target) -> None:
    check(dot(*size, "f32", form), "contract", target=target, tolerance=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("elem", ["f64", "bf16", "f16", "i32", "i64", "i8", "ui8"])
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
def test_every_dtype(elem: str, form: str, target: Target) -> None:
    tolerance = 0.2 if elem in ("bf16", "f16") else 1e-5
    check(dot(19, 34, 40, elem, form), "contract", target=target, tolerance=tolerance)
    check(dot(8, 33, 20, elem, form), "contract", target=target, tolerance=tolerance)


@pytest.mark.skipif(not PAIRS.supports_on_host(), reason="this CPU has no product of pairs")
@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
@pytest.mark.parametrize("size", [(19, 34, 40), (8, 33, 20)])
def test_products_of_bfloat16_pairs(size: tuple[int, int, int], form: str) -> None:
    check(dot(*size, "bf16", form), "contract", target=PAIRS, tolerance=0.2)


def test_small_products_are_pulled() -> None:
    for size in ((1, 5, 7), (3, 1, 2), (1, 64, 1)):
        check(dot(*size, "f32", "nn"), "contract", tolerance=1e-4)


LINEAR = """(%x: tensor<2x9x40xf32>, %w: tensor<70x40xf32>, %b: tensor<70xf32>,
    %res: tensor<2x9x70xf32>)
    -> (tensor<2x9x70xf32>, tensor<2x9x70xf32>) {
  %0 = stablehlo.reshape %x : (tensor<2x9x40xf32>) -> tensor<18x40xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [1]
      : (tensor<18x40xf32>, tensor<70x40xf32>) -> tensor<18x70xf32>
  %2 = stablehlo.reshape %1 : (tensor<18x70xf32>) -> tensor<2x9x70xf32>
  %3 = stablehlo.broadcast_in_dim %b, dims = [2] : (tensor<70xf32>) -> tensor<2x9x70xf32>
  %4 = stablehlo.add %2, %3 : tensor<2x9x70xf32>
  %5 = stablehlo.exponential %4 : tensor<2x9x70xf32>
  %6 = stablehlo.add %5, %res : tensor<2x9x70xf32>
  return %6, %4 : tensor<2x9x70xf32>, tensor<2x9x70xf32>
}
"""

HEADS = """(%x: tensor<18x40xf32>, %w: tensor<40x64xf32>) -> (tensor<2x4x9x16xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<18x40xf32>, tensor<40x64xf32>) -> tensor<18x64xf32>
  %2 = stablehlo.reshape %1 : (tensor<18x64xf32>) -> tensor<2x9x4x16xf32>
  %3 = stablehlo.transpose %2, dims = [0, 2, 1, 3] : (tensor<2x9x4x16xf32>) -> tensor<2x4x9x16xf32>
  return %3 : tensor<2x4x9x16xf32>
}
"""

PROLOGUE = """(%x: tensor<18x40xf32>, %s: tensor<18xf32>, %w: tensor<40x64xf32>)
    -> (tensor<18x64xf32>) {
  %0 = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<18xf32>) -> tensor<18x40xf32>
  %1 = stablehlo.multiply %x, %0 : tensor<18x40xf32>
  %2 = stablehlo.negate %w : tensor<40x64xf32>
  %3 = stablehlo.dot_general %1, %2, contracting_dims = [1] x [0]
      : (tensor<18x40xf32>, tensor<40x64xf32>) -> tensor<18x64xf32>
  return %3 : tensor<18x64xf32>
}
"""

PART_OF_RESULT = """(%x: tensor<18x40xf32>, %w: tensor<40x64xf32>) -> (tensor<18x10xf32>) {
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<18x40xf32>, tensor<40x64xf32>) -> tensor<18x64xf32>
  %2 = stablehlo.slice %1 [0:18:1, 4:14:1] : (tensor<18x64xf32>) -> tensor<18x10xf32>
  return %2 : tensor<18x10xf32>
}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("body", [LINEAR, HEADS, PROLOGUE, PART_OF_RESULT])
def test_prologues_and_epilogues(body: str, target: Target) -> None:
    check(body, "contract", target=target, tolerance=1e-4)


def convolution(
    data: str, weights: str, result: str, attributes: str, counts: tuple[int, int] = (1, 1)
) -> str:
    x, w, r = (f"tensor<{s}xf32>" for s in (data, weights, result))
    return f"""(%x: {x}, %w: {w}) -> ({r}) {{
  %r = stablehlo.convolution(%x, %w) {attributes}
      {{batch_group_count = {counts[0]} : i64, feature_group_count = {counts[1]} : i64}}
      : ({x}, {w}) -> {r}
  return %r : {r}
}}
"""


NCHW = "dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], "
PADDED = "pad = [[1, 1], [1, 1]]"
CONVOLUTIONS = [
    convolution("2x5x9x11", "7x5x3x3", "2x7x9x11", NCHW + f"window = {{{PADDED}}}"),
    convolution(
        "2x6x17x16", "8x6x3x3", "2x8x9x8", NCHW + f"window = {{stride = [2, 2], {PADDED}}}"
    ),
    convolution("2x8x9x8", "8x4x3x3", "2x8x9x8", NCHW + f"window = {{{PADDED}}}", (1, 2)),
    convolution("1x8x9x8", "8x1x3x3", "1x8x9x8", NCHW + f"window = {{{PADDED}}}", (1, 8)),
    convolution("3x5x7x7", "6x5x1x1", "3x6x7x7", NCHW + "window = {}"),
    # the gradients of a strided convolution: data (dilated), and weights
    convolution("2x8x9x8", "8x6x3x3", "2x6x18x16",
                "dim_numbers = [b, f, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1], "
                "window = {pad = [[1, 2], [1, 2]], lhs_dilate = [2, 2], reverse = [true, true]}"),
    convolution("2x6x17x16", "2x8x9x8", "6x8x3x4",
                "dim_numbers = [f, b, 0, 1]x[i, o, 0, 1]->[b, f, 0, 1], "
                "window = {pad = [[1, 1], [1, 1]], rhs_dilate = [2, 2]}"),
]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("body", CONVOLUTIONS)
def test_convolutions_and_their_gradients(body: str, target: Target) -> None:
    check(body, "contract", target=target, tolerance=1e-4)


def test_products_without_a_batch_entry_are_no_kernels() -> None:
    text = """(%a: tensor<0x16x16xf32>, %b: tensor<0x16x16xf32>) -> (tensor<0x16x16xf32>) {
  %r = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<0x16x16xf32>, tensor<0x16x16xf32>) -> tensor<0x16x16xf32>
  return %r : tensor<0x16x16xf32>
}
"""
    check(text, "contract")
