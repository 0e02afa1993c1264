"""Elementwise operations bit for bit against the StableHLO interpreter, on the values where they
differ."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.target import detect
from tests import oracle
from tests.neff.codegen.native import outlined, plain, run

EDGES = [
    0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 1e-45, -1e-45,
    8388609.0, 3.4e38, 1e-38, 0.1, -0.1, 65504.0, 6e-8,
]  # fmt: skip


def edges(elem: str) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of edge values."""
    values = np.array(EDGES, np.float32)
    x, y = np.repeat(values, values.size), np.tile(values, values.size)
    if elem == "bf16":
        return oracle.to_bf16(x), oracle.to_bf16(y)
    with np.errstate(over="ignore"):
        return x.astype(oracle._NUMPY[elem]), y.astype(oracle._NUMPY[elem])


def check(
    op: str, elem: str, result: str, arrays: list[np.ndarray], target: str = "native"
) -> None:
    n = arrays[0].size
    t, r = f"tensor<{n}x{elem}>", f"tensor<{n}x{result}>"
    names = [f"%a{i}" for i in range(len(arrays))]
    types = f"({', '.join([t] * len(names))}) -> {r}"
    arguments = ", ".join(f"{a}: {t}" for a in names)
    body = f'({arguments}) -> ({r}) {{\n  %r = "{op}"({", ".join(names)}) : {types}\n  return %r : {r}\n}}\n'
    (want,) = oracle.evaluate(oracle.parse(plain(body)), arrays)
    (got,) = run(outlined(body), arrays, detect(target))
    if result == "bf16":
        got, want = oracle.from_bf16(got), oracle.from_bf16(want)
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        numbers = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize("elem", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize(
    "op",
    [
        "chlo.square", "stablehlo.real", "stablehlo.imag", "stablehlo.abs", "stablehlo.sign",
        "stablehlo.negate", "stablehlo.floor", "stablehlo.ceil", "stablehlo.round_nearest_even",
        "stablehlo.round_nearest_afz",
    ],
)  # fmt: skip
def test_unary(op: str, elem: str) -> None:
    check(op, elem, elem, list(edges(elem)[:1]))


@pytest.mark.parametrize("elem", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize(
    "op",
    [
        "chlo.next_after",
        "stablehlo.maximum",
        "stablehlo.minimum",
        "stablehlo.add",
        "stablehlo.divide",
    ],
)
def test_binary(op: str, elem: str) -> None:
    check(op, elem, elem, list(edges(elem)))


@pytest.mark.parametrize("elem", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize(
    "op", ["chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf", "stablehlo.is_finite"]
)
def test_predicates(op: str, elem: str) -> None:
    check(op, elem, "i1", list(edges(elem)[:1]))


@pytest.mark.parametrize("elem", ["i64", "i32", "i16", "i8", "ui8", "ui32", "ui64"])
@pytest.mark.parametrize(
    "op", ["shift_left", "shift_right_logical", "shift_right_arithmetic", "power"]
)
def test_integers(op: str, elem: str) -> None:
    dtype = oracle._NUMPY[elem]
    info = np.iinfo(dtype)
    x = np.array([0, 1, 2, 3, 7, info.max, info.min, info.max - 1, 77], dtype)
    y = np.array([0, 1, 2, 3, 7, 5, 4, 6], dtype)
    check(f"stablehlo.{op}", elem, elem, [np.repeat(x, y.size), np.tile(y, x.size)])


BOTH_SIGNS = ("divide", "remainder", "negate", "popcnt", "count_leading_zeros", "not")
SIGNED = (*BOTH_SIGNS, "abs", "sign")


@pytest.mark.parametrize(
    ("op", "elem"),
    [(op, e) for e in ("i64", "i32", "i16", "i8") for op in SIGNED]
    + [(op, "ui8") for op in BOTH_SIGNS],
)
def test_more_integers(op: str, elem: str) -> None:
    dtype = oracle._NUMPY[elem]
    info = np.iinfo(dtype)
    x = np.array([0, 1, 2, 3, 7, info.max, info.max - 1, 77, info.max // 2], dtype)
    y = np.array([1, 2, 3, 7, info.max], dtype)
    pair = [np.repeat(x, y.size), np.tile(y, x.size)]
    check(f"stablehlo.{op}", elem, elem, pair if op in ("divide", "remainder") else pair[:1])


@pytest.mark.parametrize("source", ["f32", "f64", "bf16", "f16"])
@pytest.mark.parametrize("result", ["f32", "f64", "bf16", "f16", "i1"])
def test_conversions_between_floats(source: str, result: str) -> None:
    check("stablehlo.convert", source, result, list(edges(source)[:1]))


@pytest.mark.parametrize("columns", [3, 40])
def test_a_sum_of_negative_zeros_is_zero(columns: int) -> None:
    """The initial +0 takes part: eager says so too."""
    t = f"tensor<5x{columns}xf32>"
    body = f"""(%x: {t}) -> (tensor<5xf32>, tensor<5xf32>) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<-0.0> : tensor<f32>
  %r = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [1] : ({t}, tensor<f32>) -> tensor<5xf32>
  %s = stablehlo.reduce(%x init: %n) applies stablehlo.add across dimensions = [1] : ({t}, tensor<f32>) -> tensor<5xf32>
  return %r, %s : tensor<5xf32>, tensor<5xf32>
}}
"""
    x = np.full((5, columns), -0.0, np.float32)
    plus, minus = run(outlined(body), [x])
    assert not np.signbit(plus).any()
    assert np.signbit(minus).all()
