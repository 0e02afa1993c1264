"""Large results are stored past the caches, and the next row of large operands is fetched."""

from __future__ import annotations

import pytest

from neuron_compile.neff.codegen.loops import STREAMED_BYTES, loop_kernels
from neuron_compile.neff.codegen.module import read_program
from neuron_compile.neff.target import detect
from neuron_compile.runtime.executable import ALIGNMENT
from tests import oracle
from tests.neff.codegen.large_results import every_result_large
from tests.neff.codegen.native import check, outlined
from tests.neff.codegen.test_loops import elementwise, layer_norm, softmax

ELEMS = ["f32", "f64", "bf16", "f16", "i64", "i32", "i8", "ui8", "i1"]
TARGETS = ["native", "x86-64-v3"]


def text_of(body: str, target: str = "x86-64-v3") -> str:
    (group,) = read_program(oracle.parse(outlined(body))).groups.values()
    (kernel,) = loop_kernels(group, "kernel", detect(target))
    return kernel.text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("elem", ELEMS)
@pytest.mark.parametrize("shape", ["1x", "64x", "1000x", "3x5x64x", "3x7x", "0x3x"])
def test_elementwise(shape: str, elem: str, target: str) -> None:
    with every_result_large():
        check(elementwise(shape, elem, "add"), target=detect(target), alignment=ALIGNMENT)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(1, 64), (7, 64), (9, 100), (5, 1024), (3, 2112)])
def test_rows(shape: tuple[int, int], target: str) -> None:
    with every_result_large():
        check(layer_norm(*shape), target=detect(target), tolerance=3e-5, alignment=ALIGNMENT)
        check(softmax(*shape, 1), target=detect(target), alignment=ALIGNMENT)
        check(softmax(*shape, 0), target=detect(target), alignment=ALIGNMENT)


def test_from_a_size_on_stores_pass_the_caches_and_are_drained() -> None:
    elements = STREAMED_BYTES // 4
    large = text_of(elementwise(f"{elements}x", "f32", "add"))
    assert "nontemporal" in large
    assert large.rindex("sfence") > large.rindex("nontemporal")
    small = text_of(elementwise(f"{elements - 1}x", "f32", "add"))
    assert "nontemporal" not in small
    assert "sfence" not in small


def test_rows_that_begin_within_a_cache_line_are_stored_as_usual() -> None:
    with every_result_large():
        assert "nontemporal" in text_of(softmax(8, 64, 1))
        assert "nontemporal" not in text_of(softmax(8, 65, 1))


def test_the_next_row_is_fetched_where_rows_are_large() -> None:
    assert "prefetch" in text_of(layer_norm(1024, 1024))
    assert "prefetch" not in text_of(layer_norm(1023, 1024))


def test_rows_picked_by_an_index_are_not_fetched_beforehand() -> None:
    """Only the run tells where the next one lies."""
    with every_result_large():
        check(picked_and_normalised(9, 64), tolerance=3e-5, alignment=ALIGNMENT)
    assert "prefetch" not in text_of(picked_and_normalised(40000, 64))


def picked_and_normalised(rows: int, columns: int) -> str:
    """layer_norm(table[i]), as models begin."""
    norm = layer_norm(rows, columns)
    t, i = f"tensor<{rows}x{columns}xf32>", f"tensor<{rows}xi32>"
    gather = f"""
  %last = stablehlo.constant dense<{rows - 1}> : {i}
  %w0 = stablehlo.and %i, %last : {i}
  %x = "stablehlo.gather"(%table, %w0) <{{dimension_numbers = #stablehlo.gather<
      offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1, {columns}>}}> : ({t}, {i}) -> {t}
"""
    return norm.replace("(%x: ", f"(%i: {i}, %table: ", 1).replace("{\n", "{" + gather, 1)
