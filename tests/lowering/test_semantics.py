"""Each trap between eager and StableHLO, on the values that spring it."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lowering.single_op import check

aten = torch.ops.aten

NAN, INF = math.nan, math.inf
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

ODD_FLOATS = [NAN, INF, -INF, 0.0, -0.0, -1.0, -1.9, 0.5, 2.5, -2.5, 255.5, 256.0, -129.0, 40000.0,
              3e9, -3e9, 5e9, 2.0**31, -(2.0**31), 1e19, -1e19]  # fmt: skip


def id_of(value: object) -> str:
    return str(value).removeprefix("torch.")


@pytest.mark.parametrize("target", [*INTEGERS, torch.bool], ids=id_of)
@pytest.mark.parametrize("source", FLOATS, ids=id_of)
def test_float_to_integer(source: torch.dtype, target: torch.dtype) -> None:
    check(lambda x: x.to(target), torch.tensor(ODD_FLOATS).to(source))


@pytest.mark.parametrize("target", [*INTEGERS, torch.bool, *FLOATS], ids=id_of)
@pytest.mark.parametrize("source", INTEGERS, ids=id_of)
def test_from_integer(source: torch.dtype, target: torch.dtype) -> None:
    check(
        lambda x: x.to(target), torch.tensor([0, 1, -1, 127, 128, 300, -(2**31), 2**40]).to(source)
    )


def test_unsigned_arithmetic_wraps() -> None:
    x = torch.tensor([128, 200, 6], dtype=torch.uint8)
    check(lambda x: (x + x).to(torch.int16), x)  # T038
    check(lambda x: (-x) < 4, x)  # T039
    check(lambda x: torch.cat([-x.abs(), -x.abs()]).sum(), x)  # T040
    check(lambda x: x - 7 * x, x)


def test_int64_does_not_narrow() -> None:
    check(lambda: torch.arange(9) * 1_500_000_000)  # T043
    check(lambda x: x.sum(), torch.tensor([2**40, 2**41, -5]))


def test_dtypes_meet() -> None:
    a, b = torch.tensor([0, 2, 3]), torch.tensor([2, 0, 2], dtype=torch.uint8)
    check(lambda a, b: (a > 1) & (b > 1), a, b)  # T044
    check(lambda a: torch.clamp(a, -0.5, 0.5), a)  # T046
    half = torch.tensor([1.5, 2.0], dtype=torch.float16)
    check(lambda x, s: x * s, half, torch.tensor(2))  # T091
    check(lambda x, s: x * s, half, torch.tensor(0.1))
    check(lambda x, s: x + s, torch.tensor([1, 2]), torch.tensor(0.5))
    check(lambda x: x == 1.5, torch.tensor([1, 2]))
    check(lambda x: x < True, torch.tensor([1, 0]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=id_of)
def test_scalars_meet_half_precision_unrounded(dtype: torch.dtype) -> None:
    x = torch.linspace(-3, 3, 50).to(dtype)
    for call in (lambda x: x * 0.1, lambda x: x + 1 / 3, lambda x: 1 / 3 - x, lambda x: x / 0.7):
        check(call, x, tolerance=0.0)


# Eager's vectorised fmod makes NaN where the quotient overflows: no divisor is that small.
FINITE = st.floats(-1e4, 1e4, width=32).filter(lambda v: v == 0 or abs(v) > 1e-30)


@settings(max_examples=25, deadline=None)
@given(x=st.lists(FINITE, min_size=6, max_size=6), y=st.lists(FINITE, min_size=6, max_size=6))
def test_float_division_by_floor_and_remainder(x: list[float], y: list[float]) -> None:
    a = torch.tensor([*x, 1.0, 0.5, 6.0, -0.0, 0.0, 5.0, -5.0, INF, 3.0, NAN])
    b = torch.tensor([*y, 0.1, 0.1, 0.2, 2.0, -2.0, 0.0, 0.0, 2.0, INF, 1.0])  # T058

    def divide(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        signs = torch.signbit(torch.nan_to_num(a // b, nan=1.0))  # the sign of NaN is nobody's
        return [a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc"), signs]

    check(divide, a, b, tolerance=0.0)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), dtype=st.sampled_from(INTEGERS))
def test_integer_division_by_floor_and_remainder(data: st.DataObject, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    numbers = st.integers(limits.min, limits.max)
    x = data.draw(st.lists(numbers, min_size=8, max_size=8))
    # The most negative number by -1 traps in eager.
    y = data.draw(st.lists(numbers.filter(lambda v: v not in (0, -1)), min_size=8, max_size=8))

    def divide(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        return [a // b, a % b, torch.fmod(a, b), torch.div(a, b, rounding_mode="trunc")]

    check(divide, torch.tensor(x, dtype=dtype), torch.tensor(y, dtype=dtype))


def test_integer_division_by_python_numbers() -> None:
    x = torch.tensor([-7, 7, -8, 8, 0])
    for divisor in (2, -2, 3, -1):
        check(lambda x, d=divisor: [x // d, x % d, torch.fmod(x, d), x / d], x)  # T059


def test_integer_division_by_zero_is_defined_and_traps_not() -> None:
    from tests.lowering.single_op import run

    x = torch.tensor([5, 0, -(2**63)])
    quotient, rest = run(lambda x, y: [x // y, x % y], x, torch.tensor([0, 0, -1]))
    assert quotient.tolist() == [0, 0, -(2**63)]
    assert rest.tolist() == [5, 0, 0]


@pytest.mark.parametrize("dtype", FLOATS, ids=id_of)
def test_nan_wins(dtype: torch.dtype) -> None:
    a = torch.tensor([NAN, 1.0, NAN, -INF, 2.0], dtype=dtype)
    b = torch.tensor([1.0, NAN, NAN, 3.0, -2.0], dtype=dtype)
    check(lambda a, b: [torch.maximum(a, b), torch.minimum(a, b)], a, b)  # T066
    check(lambda a, b: [torch.fmax(a, b), torch.fmin(a, b)], a, b)
    check(lambda a: [a.clamp_min(0.0), a.clamp_max(0.0), a.clamp(-1, 1), a.amax(), a.amin()], a)


@pytest.mark.parametrize("values", [[NAN, 4.6], [4.6, NAN, NAN], [1.0, 3.0, 3.0], [-INF, -INF]])
def test_index_of_extreme(values: list[float]) -> None:
    x = torch.tensor(values)  # T065
    check(lambda x: [x.argmax(), x.argmin(), *x.max(0), *x.min(0)], x)


def test_index_of_extreme_of_integers_and_bools() -> None:
    mask = torch.zeros(3, 8, dtype=torch.bool)
    mask[:, 4:] = True
    check(lambda x: [*x.max(1), *x.min(1)], mask)  # T049
    check(lambda x: [*x.min(1, keepdim=True)], torch.randn(2, 8, 2).half())  # T051
    check(lambda x: [x.argmax(0), x.argmin()], torch.tensor([[3, 255], [3, 0]], dtype=torch.uint8))


def test_rounding() -> None:
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 1.005, 2.675, -0.0, NAN, INF, 1234.5])
    check(lambda x: [x.round(), torch.round(x, decimals=2), torch.round(x, decimals=-2)], x)
    check(lambda x: [x.trunc(), x.floor(), x.ceil(), x.frac()], x)


@pytest.mark.parametrize("dtype", FLOATS, ids=id_of)
def test_signed_zero(dtype: torch.dtype) -> None:
    zero = torch.tensor([0.0, -0.0], dtype=dtype)  # T068

    def signs(x: torch.Tensor) -> list[torch.Tensor]:
        made = [x.frac(), x.trunc(), x.ceil(), x.floor(), x.round(), x * 2, -x, x.sqrt()]
        return [torch.signbit(m) for m in made]

    check(signs, zero)
    check(lambda x: torch.signbit(x), torch.tensor([NAN, -INF, -1.0, 2.0], dtype=dtype))
    check(lambda x: torch.copysign(torch.ones_like(x), x), zero)
    check(lambda x: torch.atan2(x.abs(), x), zero)


def test_sign() -> None:
    check(lambda x: [x.sign(), x.sgn()], torch.tensor([NAN, -0.0, 0.0, -3.0, INF]))
    check(lambda x: x.sign(), torch.tensor([3, 0], dtype=torch.uint8))
    check(lambda x: x.sign(), torch.tensor([3, 0, -7]))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 0.5, -0.5, -1, -2, 2.5, -1.5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=id_of)
def test_powers(exponent: float, dtype: torch.dtype) -> None:
    check(lambda x: x**exponent, torch.tensor([0.0, 1.0, 2.5, NAN, INF, -2.0]).to(dtype))


def test_integer_powers() -> None:
    x, y = (
        torch.tensor([2, -2, 3, -1, 1, 0, 7, -1, -1]),
        torch.tensor([5, 3, 0, 7, 9, 0, 2, -3, -4]),
    )
    check(torch.pow, x, y)
    check(lambda x: [x**2, x**3, x**0, x**0.5, 2 ** x.abs()], x)
    check(
        torch.pow, torch.tensor([3, 2], dtype=torch.uint8), torch.tensor([7, 9], dtype=torch.uint8)
    )
