"""Functions of one tensor against eager, on ordinary and on special values."""

from __future__ import annotations

import math

import pytest
import torch

from tests.lowering.single_op import check

aten = torch.ops.aten

REAL = [
    torch.exp, torch.expm1, torch.exp2, torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.atan,
    torch.sinh, torch.cosh, torch.asinh, torch.erf, torch.erfc, torch.reciprocal, torch.neg,
    torch.abs, torch.sinc, torch.deg2rad, torch.rad2deg,
]  # fmt: skip
POSITIVE = [torch.log, torch.log2, torch.log10, torch.log1p, torch.sqrt, torch.rsqrt, torch.lgamma]
UNIT = [torch.asin, torch.acos, torch.atanh, torch.erfinv]


def name(function: object) -> str:
    return getattr(function, "__name__", str(function))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("function", REAL, ids=name)
def test_real_line(function, dtype: torch.dtype) -> None:
    check(function, torch.linspace(-4, 4, 23).to(dtype))


@pytest.mark.parametrize("function", POSITIVE, ids=name)
def test_positive(function) -> None:
    check(function, torch.linspace(0.05, 30, 23), tolerance=3e-6)


@pytest.mark.parametrize("function", UNIT, ids=name)
def test_unit_interval(function) -> None:
    check(function, torch.linspace(-0.99, 0.99, 23), tolerance=3e-6)


@pytest.mark.parametrize("function", [*REAL[:8], *POSITIVE[:6]], ids=name)
def test_special_values(function) -> None:
    check(function, torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, -1.0]))


@pytest.mark.parametrize("function", [torch.exp, torch.sqrt, torch.sigmoid, torch.reciprocal])
def test_integers_become_floats(function) -> None:
    check(function, torch.tensor([1, 2, 3]))
    check(function, torch.tensor([True, True]))


def test_integers_stay() -> None:
    x = torch.tensor([-3, 0, 5])
    check(lambda x: [-x, x.abs(), x.floor(), x.ceil(), x.trunc(), x.round()], x)
    check(lambda x: x.abs(), torch.tensor([200, 3], dtype=torch.uint8))
    check(lambda x: x.abs(), torch.tensor([-128, 3], dtype=torch.int8))


def test_nan_to_num() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 1.0])
    check(lambda x: [x.nan_to_num(), x.nan_to_num(1.0, 2.0, 3.0)], x)
    check(lambda x: x.nan_to_num(), x.half())


def test_logit() -> None:
    x = torch.tensor([0.0, 0.1, 0.5, 1.0, 1.5])
    check(lambda x: [torch.logit(x), torch.logit(x, 1e-3)], x)
