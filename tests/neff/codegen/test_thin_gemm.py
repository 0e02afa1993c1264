"""Products of a few rows with weights across k: panels, odd k, dtypes, both roles."""

from __future__ import annotations

import pytest

from neuron_compile.neff.codegen.thin_gemm import pays
from neuron_compile.neff.target import Target, detect, make
from tests.neff.codegen.native import check, product_taken
from tests.neff.codegen.test_contract import LINEAR, dot

TARGETS = [detect(), make("x86-64-v3")]
PAIRS = make("x86-64-v4", ["avx512_bf16"])


def taken(text: str, target: Target) -> bool:
    return product_taken(pays, text, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize(
    "size", [(1, 64, 16), (1, 70, 48), (2, 129, 80), (5, 33, 1120), (8, 67, 2064)]
)
def test_few_rows(size: tuple[int, int, int], target: Target) -> None:
    text = dot(*size, "f32", "nn")
    assert taken(text, target)
    check(text, "contract", target=target, tolerance=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_few_columns_are_rows_of_the_other_role(target: Target) -> None:
    text = dot(48, 90, 2, "f32", "tt")
    assert taken(text, target)
    check(text, "contract", target=target, tolerance=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("elem", ["f64", "bf16", "f16", "i32", "i64", "i8", "ui8"])
def test_every_dtype(elem: str, target: Target) -> None:
    tolerance = 0.3 if elem in ("bf16", "f16") else 1e-5
    check(dot(3, 70, 64, elem, "nn"), "contract", target=target, tolerance=tolerance)


@pytest.mark.skipif(not PAIRS.supports_on_host(), reason="this CPU has no product of pairs")
def test_weights_in_bfloat16_are_widened_where_pairs_exist() -> None:
    text = dot(3, 70, 64, "bf16", "nn")
    assert taken(text, PAIRS)
    check(text, "contract", target=PAIRS, tolerance=0.3)


def test_rows_that_are_not_contiguous_are_copied() -> None:
    check(dot(3, 70, 48, "f32", "tn"), "contract", tolerance=1e-4)


def test_columns_that_do_not_fill_vectors_are_left_to_other_kernels() -> None:
    assert not taken(dot(3, 70, 41, "f32", "nn"), detect())


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_epilogues(target: Target) -> None:
    text = LINEAR.replace("2x9x", "1x3x").replace("18x", "3x").replace("x70x", "x80x")
    text = (
        text.replace("70x40x", "40x80x").replace("<70x", "<80x").replace("[1] x [1]", "[1] x [0]")
    )
    assert taken(text, target)
    check(text, "contract", target=target, tolerance=1e-4)


A, B, R = (f"tensor<5x{x}xf32>" for x in ("2x70", "70x32", "2x32"))
BATCHED = f"""(%a: {A}, %b: {B}) -> ({R}) {{
  %r = "stablehlo.dot_general"(%a, %b) {{dot_dimension_numbers = #stablehlo.dot<
    lhs_batching_dimensions = [0], rhs_batching_dimensions = [0],
    lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [1]>}} : ({A}, {B}) -> {R}
  return %r : {R}
}}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_batches(target: Target) -> None:
    assert taken(BATCHED, target)
    check(BATCHED, "contract", target=target, tolerance=1e-4)
