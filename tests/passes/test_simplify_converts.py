"""Two converts become one only where the first loses nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from neuron_compile.passes.simplify_converts import lossless, simplify_converts
from tests import oracle
from tests.passes.checks import apply, ops


def chain(*dtypes: str) -> str:
    lines = [
        f" %v{n + 1} = stablehlo.convert %v{n} : (tensor<8x{a}>) -> tensor<8x{b}>"
        for n, (a, b) in enumerate(pairwise(dtypes))
    ]
    last = len(dtypes) - 1
    return (
        f"func.func @main(%v0: tensor<8x{dtypes[0]}>) -> tensor<8x{dtypes[-1]}> {{\n"
        + "\n".join(lines)
        + f"\n return %v{last} : tensor<8x{dtypes[-1]}>\n}}"
    )


FLOATS = np.array([1.0, -0.0, 0.1, 1e30, -1e-30, np.inf, -np.inf, 3.0], np.float64)


def inputs(dtype: str) -> list[np.ndarray]:
    if dtype == "bf16":
        return [oracle.to_bf16(FLOATS.astype(np.float32))]
    if dtype in ("f32", "f64"):
        return [FLOATS.astype({"f32": np.float32, "f64": np.float64}[dtype])]
    if dtype == "i1":
        return [np.arange(8) % 2 == 0]
    return [np.array([0, 1, 2, 127, 100, 5, 9, 77]).astype({"i8": "i1", "i32": "i4"}[dtype])]


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (("bf16", "f32", "bf16"), 0),
        (("f32", "f64", "f32"), 0),
        (("bf16", "f32", "f64"), 1),
        (("i8", "i32", "f32"), 1),
        (("i8", "i32", "i8"), 0),
        (("i1", "i32", "f32"), 1),
        (("i8", "f32", "f64", "f32"), 1),
        (("f32", "bf16", "f32"), 2),
        (("f64", "f32", "f64"), 2),
        (("i32", "i8", "i32"), 2),
        (("i32", "f32", "f64"), 2),
        (("i8", "i1", "i8"), 2),
    ],
)
def test_chain(dtypes: tuple[str, ...], expected: int) -> None:
    unit = apply(chain(*dtypes), simplify_converts, inputs=inputs(dtypes[0]))
    assert ops(unit) == ["convert"] * expected


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("ui8", "i8"),
        ("i8", "ui8"),
        ("f16", "bf16"),
        ("bf16", "f16"),
        ("i64", "f64"),
        ("f32", "i64"),
    ],
)
def test_lossy(source: str, result: str) -> None:
    assert not lossless(source, result)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("ui8", "i16"),
        ("ui8", "bf16"),
        ("i32", "f64"),
        ("i1", "f16"),
        ("i16", "f32"),
        ("f16", "f64"),
    ],
)
def test_lossless(source: str, result: str) -> None:
    assert lossless(source, result)
