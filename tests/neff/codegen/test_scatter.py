"""Scatter kernels against the StableHLO interpreter: all forms of indices, bodies, and layouts."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.target import detect
from tests import oracle
from tests.neff.codegen.native import agree, outlined, plain, run


def scatter(
    operand: str,
    indices: str,
    updates: str,
    numbers: str,
    body: str = "add",
) -> str:
    """A function that scatters; `body` is a binary op, or `replace`."""
    elem = operand.split("x")[-1]
    t, i, u = f"tensor<{operand}>", f"tensor<{indices}>", f"tensor<{updates}>"
    combine = (
        "stablehlo.return %b"
        if body == "replace"
        else f"%m = stablehlo.{body} %a, %b : tensor<{elem}>\n    stablehlo.return %m"
    )
    return f"""(%x: {t}, %i: {i}, %u: {u}) -> ({t}) {{
  %r = "stablehlo.scatter"(%x, %i, %u) <{{scatter_dimension_numbers = #stablehlo.scatter<{numbers}>}}> ({{
  ^bb0(%a: tensor<{elem}>, %b: tensor<{elem}>):
    {combine} : tensor<{elem}>
  }}) : ({t}, {i}, {u}) -> {t}
  return %r : {t}
}}
"""


def check(body: str, low: int, high: int, target: str = "native", tolerance: float = 1e-5) -> None:
    """As `native.check`, with indices drawn from [low, high)."""
    reference = oracle.parse(plain(body))
    arrays = oracle.random_inputs(reference)
    random = np.random.default_rng(1)
    arrays[1] = random.integers(low, high, arrays[1].shape).astype(arrays[1].dtype)
    want = oracle.evaluate(reference, arrays)
    got = run(outlined(body, "scatter"), arrays, detect(target))
    elem = body.split("->")[1].split(">")[0].split("x")[-1]
    agree(got[0], want[0], elem, tolerance)


ROWS = (
    "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
    " index_vector_dim = 1"
)
FORMS = {
    "rows": ("9x40xf32", "30xi64", "30x40xf32", ROWS),
    "rows, odd width": ("9x37xf32", "30xi32", "30x37xf32", ROWS),
    "rows, narrow": ("9x3xf32", "30xi32", "30x3xf32", ROWS),
    "rows of rows": (
        "7x5x6xf32",
        "2x4xi64",
        "2x4x5x6xf32",
        (
            "update_window_dims = [2, 3], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
            " index_vector_dim = 2"
        ),
    ),
    "columns": (
        "40x9xf32",
        "30xi64",
        "40x30xf32",
        (
            "update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1],"
            " index_vector_dim = 1"
        ),
    ),
    "points": (
        "6x7xf32",
        "50x2xi64",
        "50xf32",
        "inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1",
    ),
    "points, dimensions swapped": (
        "6x7xf32",
        "2x50xi64",
        "50xf32",
        "inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [1, 0]",
    ),
    "along the last dimension": (
        "3x4x20xf32",
        "3x4x9xi64",
        "3x4x9xf32",
        (
            "inserted_window_dims = [2], input_batching_dims = [0, 1], scatter_indices_batching_dims = [0, 1],"
            " scatter_dims_to_operand_dims = [2], index_vector_dim = 3"
        ),
    ),
    "along the first dimension": (
        "6x35xf32",
        "9x35xi64",
        "9x35xf32",
        (
            "inserted_window_dims = [0], input_batching_dims = [1], scatter_indices_batching_dims = [1],"
            " scatter_dims_to_operand_dims = [0], index_vector_dim = 2"
        ),
    ),
    "windows that overlap": (
        "8x9xf32",
        "5x2xi64",
        "5x3x4xf32",
        "update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1",
    ),
    "windows shorter than the operand": (
        "8x40xf32",
        "5x1xi64",
        "5x33xf32",
        (
            "update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],"
            " index_vector_dim = 1"
        ),
    ),
    "one window": (
        "8x9xf32",
        "1xi64",
        "9xf32",
        "update_window_dims = [0], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]",
    ),
    "nothing": ("9x40xf32", "0xi64", "0x40xf32", ROWS),
}


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, target: str) -> None:
    check(scatter(*FORMS[name]), -2, 10, target)


@pytest.mark.parametrize("form", ["rows", "points", "along the first dimension"])
@pytest.mark.parametrize("body", ["replace", "multiply", "maximum", "minimum"])
def test_bodies(form: str, body: str) -> None:
    check(scatter(*FORMS[form], body=body), 0, 6)


@pytest.mark.parametrize("elem", ["f64", "bf16", "f16", "i64", "i32", "i8", "ui8", "i1"])
def test_dtypes(elem: str) -> None:
    body = "or" if elem == "i1" else "add"
    form = [part.replace("f32", elem) for part in FORMS["rows"]]
    check(scatter(*form, body=body), 0, 9, tolerance=5e-2 if elem in ("bf16", "f16") else 1e-5)
