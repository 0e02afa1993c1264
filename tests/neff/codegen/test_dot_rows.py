"""Products of a few rows: every count of rows, odd sizes, dtypes, either operand as the rows."""

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.dot_rows import FAR_BYTES, pays
from neuron_compile.neff.target import Target, detect, make
from tests.neff.codegen.native import check, outlined, product_taken, run
from tests.neff.codegen.test_contract import LINEAR, dot

TARGETS = [detect(), make("x86-64-v3")]
PAIRS = make("x86-64-v4", ["avx512_bf16"])


def taken(text: str, target: Target) -> bool:
    return product_taken(pays, text, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("size", [(1, 64, 16), (1, 70, 33), (2, 129, 20), (3, 80, 50), (4, 67, 17)])
def test_few_rows(size: tuple[int, int, int], target: Target) -> None:
    text = dot(*size, "f32", "nt")
    assert taken(text, target)
    check(text, "contract", target=target, tolerance=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_few_columns_are_rows_of_the_other_role(target: Target) -> None:
    text = dot(40, 90, 2, "f32", "nt")
    assert taken(text, target)
    check(text, "contract", target=target, tolerance=1e-4)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
@pytest.mark.parametrize("elem", ["f64", "bf16", "f16", "i32", "i64", "i8", "ui8"])
def test_every_dtype(elem: str, target: Target) -> None:
    tolerance = 0.3 if elem in ("bf16", "f16") else 1e-5
    check(dot(3, 70, 40, elem, "nt"), "contract", target=target, tolerance=tolerance)


@pytest.mark.skipif(not PAIRS.supports_on_host(), reason="this CPU has no product of pairs")
def test_weights_in_bfloat16_are_widened_where_pairs_exist() -> None:
    text = dot(3, 70, 40, "bf16", "nt")
    assert taken(text, PAIRS)
    check(text, "contract", target=PAIRS, tolerance=0.3)


def test_rows_that_are_not_contiguous_are_copied() -> None:
    check(dot(3, 70, 40, "f32", "tt"), "contract", tolerance=1e-4)


def test_weights_across_k_are_left_to_other_kernels() -> None:
    assert not taken(dot(3, 70, 40, "f32", "nn"), detect())


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_epilogues(target: Target) -> None:
    text = LINEAR.replace("2x9x", "1x3x").replace("18x", "3x").replace("x40x", "x72x")
    assert taken(text, target)
    check(text, "contract", target=target, tolerance=1e-4)


A, B, R = (f"tensor<5x{x}xf32>" for x in ("2x70", "30x70", "2x30"))
BATCHED = f"""(%a: {A}, %b: {B}) -> ({R}) {{
  %r = "stablehlo.dot_general"(%a, %b) {{dot_dimension_numbers = #stablehlo.dot<
    lhs_batching_dimensions = [0], rhs_batching_dimensions = [0],
    lhs_contracting_dimensions = [2], rhs_contracting_dimensions = [2]>}} : ({A}, {B}) -> {R}
  return %r : {R}
}}
"""


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.isa)
def test_batches(target: Target) -> None:
    assert taken(BATCHED, target)
    check(BATCHED, "contract", target=target, tolerance=1e-4)


@pytest.mark.parametrize("rows", [1, 3])
def test_far_weights_are_fetched_ahead(rows: int) -> None:
    """Large enough for prefetches, which run past the last column."""
    k, n = 520, 1003
    assert k * n * 4 > FAR_BYTES
    random = np.random.default_rng(0)
    a = random.integers(-3, 4, (rows, k)).astype(np.float32)  # sums are exact
    b = random.integers(-3, 4, (n, k)).astype(np.float32)
    (result,) = run(outlined(dot(rows, k, n, "f32", "nt"), "contract"), [a, b])
    np.testing.assert_array_equal(result, a @ b.T)
