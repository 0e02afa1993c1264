"""The gradient of max pooling by select_and_scatter, against the StableHLO interpreter."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import pytest

from tests.neff.codegen.native import check


def pool_gradient(
    shape: tuple[int, ...],
    source: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: list[list[int]],
    elem: str = "f32",
    select: str = "GE",
) -> str:
    t = f"tensor<{'x'.join([*map(str, shape), elem])}>"
    u = f"tensor<{'x'.join([*map(str, source), elem])}>"
    s = f"tensor<{elem}>"
    return f"""(%x: {t}, %u: {u}) -> ({t}) {{
  %z = stablehlo.constant dense<0{".0" if elem.startswith(("f", "b")) else ""}> : {s}
  %r = "stablehlo.select_and_scatter"(%x, %u, %z) <{{padding = dense<{padding}> : tensor<{len(shape)}x2xi64>, window_dimensions = array<i64: {", ".join(map(str, window))}>, window_strides = array<i64: {", ".join(map(str, strides))}>}}> ({{
  ^bb0(%a: {s}, %b: {s}):
    %p = stablehlo.compare {select}, %a, %b : ({s}, {s}) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}, {{
  ^bb0(%a: {s}, %b: {s}):
    %m = stablehlo.add %a, %b : {s}
    stablehlo.return %m : {s}
  }}) : ({t}, {u}, {s}) -> {t}
  return %r : {t}
}}
"""


CASES = {
    "2x2": ((2, 3, 8, 10), (2, 3, 4, 5), (1, 1, 2, 2), (1, 1, 2, 2), [[0, 0]] * 4),
    "3x3, overlapping, padded": (
        (2, 3, 9, 7), (2, 3, 5, 4), (1, 1, 3, 3), (1, 1, 2, 2), [[0, 0], [0, 0], [1, 1], [1, 1]],
    ),
    "one dimension": ((17,), (15,), (3,), (1,), [[0, 0]]),
    "channels last": ((2, 6, 6, 5), (2, 3, 3, 5), (1, 2, 2, 1), (1, 2, 2, 1), [[0, 0]] * 4),
    "gaps between windows": ((11, 4), (4, 4), (2, 1), (3, 1), [[0, 0], [0, 0]]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("elem", ["f32", "i32", "f64"])
def test_windows(name: str, elem: str) -> None:
    check(pool_gradient(*CASES[name], elem=elem), "scatter")


@pytest.mark.parametrize("select", ["GT", "LE", "LT"])
def test_which_of_equal_elements_is_chosen(select: str) -> None:
    check(pool_gradient(*CASES["3x3, overlapping, padded"], elem="i32", select=select), "scatter")


def test_half_precision() -> None:
    check(pool_gradient(*CASES["3x3, overlapping, padded"], elem="bf16"), "scatter", tolerance=5e-2)
