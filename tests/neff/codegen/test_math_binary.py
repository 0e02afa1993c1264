"""pow, atan2 and fmod: special values as in C, errors, and exactness where it is promised."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_compile.neff.codegen import math_table
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.value import Val
from tests.neff.codegen.math_kernels import DTYPES, Kernel, forms
from tests.neff.codegen.math_reference import exactly, ulps, ulps_exact

VALUES = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -1.5, 7.0,
    -7.0, 1e-30, -1e-30, 1e30, -1e30, 2.0**24, 2.0**23 + 1, 2.0**52 + 1, 2.0**53, -(2.0**53),
)  # fmt: skip


def pairs(dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of values that C17 F.10 has a rule for, and the ends of the range."""
    info = np.finfo(dtype)
    values = (*VALUES, info.smallest_subnormal, info.max, -info.max)
    grid = np.array(list(itertools.product(values, values)), dtype)
    return grid[:, 0].copy(), grid[:, 1].copy()


def random_pairs(dtype: np.dtype, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Random bits, and pairs whose power is of moderate size."""
    rng = np.random.default_rng(11)
    integer = np.uint32 if dtype == np.float32 else np.uint64
    bits = rng.integers(0, np.iinfo(integer).max, (2, count), integer).view(dtype)
    bits = np.where(np.isnan(bits), dtype.type(1), bits)
    base = np.exp(rng.uniform(-40, 40, count))
    near_one = 1 + rng.uniform(-1e-3, 1e-3, count)
    x = np.concatenate([bits[0], base, near_one, -np.round(base)])
    exponent = np.concatenate([
        rng.uniform(-2, 2, count), rng.uniform(-8e4, 8e4, count), rng.integers(-9, 9, count)
    ])  # fmt: skip
    return x.astype(dtype), np.concatenate([bits[1], exponent]).astype(dtype)


def same(got: np.ndarray, want: np.ndarray) -> None:
    """Equal values, NaN in the same places, zeros of the same sign."""
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])


@pytest.mark.parametrize("elem", DTYPES)
def test_pow_has_the_special_values_of_c(elem: str) -> None:
    dtype = DTYPES[elem]
    x, y = pairs(dtype)
    got = Kernel("pow", forms(elem)[0])(x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(dtype)
    special = (want == 0) | (want == 1) | ~np.isfinite(want)
    same(got[special], want[special])
    np.testing.assert_allclose(got, want, rtol=np.finfo(dtype).eps)


def test_pow_f32_is_almost_correctly_rounded() -> None:
    x, y = random_pairs(DTYPES["f32"], 50_000)
    got = Kernel("pow", forms("f32")[0])(x, y)
    with np.errstate(all="ignore"):
        error = ulps(got, np.power(x.astype(np.float64), y.astype(np.float64)))
    assert error.max() <= 0.505


def test_pow_f64_error_is_bounded() -> None:
    x, y = random_pairs(DTYPES["f64"], 400)
    got = Kernel("pow", forms("f64")[0])(x, y)
    with mp.workdps(40):
        with np.errstate(all="ignore"):
            real = (x > 0) & (np.abs(y * np.log(x)) < 800)
        error = ulps_exact(got[real], exactly(mp.power, x[real], y[real]))
    assert real.sum() > 600
    assert error.max() <= 0.65


@pytest.mark.parametrize("elem", DTYPES)
def test_pow_of_small_integers_is_exact(elem: str) -> None:
    dtype = DTYPES[elem]
    grid = [(b, n) for b in range(-12, 13) for n in range(12) if abs(b) ** n < 2**24]
    x, y = np.array(grid, dtype).T.copy()
    got = Kernel("pow", forms(elem)[0])(x, y)
    np.testing.assert_array_equal(got, [float(b**n) for b, n in grid])


@settings(max_examples=100, deadline=None)
@given(x=st.floats(), y=st.floats())
def test_pow_f64_never_differs_in_kind(x: float, y: float) -> None:
    """NaN, inf and zero come exactly where the C library has them."""
    a, b = np.array([x]), np.array([y])
    got = Kernel("pow", forms("f64")[-1])(a, b)
    with np.errstate(all="ignore"):
        want = np.power(a, b)
    np.testing.assert_allclose(got, want, rtol=4e-16, atol=5e-324)


@pytest.mark.parametrize("exponent", [-2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 3.0])
def test_short_constant_powers_need_no_logarithm(exponent: float) -> None:
    e = Emitter(16)
    result = math_table.pow_constant(e, Val("%begin", "f32", 0, 0, 0), exponent)
    text = e.function("f", "")
    assert "fma" not in text
    assert (result.name == "%begin") == (exponent == 1.0)


def test_other_constant_powers_go_the_long_way() -> None:
    e = Emitter(16)
    math_table.pow_constant(e, Val("%begin", "f32", 0, 0, 0), 2.5)
    assert "math.fma" in e.function("f", "")


@pytest.mark.parametrize("elem", DTYPES)
def test_atan2_has_the_special_values_of_c(elem: str) -> None:
    dtype = DTYPES[elem]
    y, x = pairs(dtype)
    got = Kernel("atan2", forms(elem)[0])(y, x)
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(dtype)
    edge = (want == 0) | np.isnan(want) | (np.isinf(x) ^ np.isinf(y)) | (x == 0) | (y == 0)
    same(got[edge], want[edge])
    np.testing.assert_allclose(got, want, rtol=2 * np.finfo(dtype).eps, atol=np.finfo(dtype).tiny)


def test_atan2_f32_error_is_bounded() -> None:
    y, x = random_pairs(DTYPES["f32"], 50_000)
    got = Kernel("atan2", forms("f32")[0])(y, x)
    assert ulps(got, np.arctan2(y.astype(np.float64), x.astype(np.float64))).max() <= 1.55


def test_atan2_f64_error_is_bounded() -> None:
    y, x = (a[np.isfinite(a)][:1000] for a in random_pairs(DTYPES["f64"], 400))
    got = Kernel("atan2", forms("f64")[0])(y, x)
    with mp.workdps(40):
        assert ulps_exact(got, exactly(mp.atan2, y, x)).max() <= 1.55


@pytest.mark.parametrize("elem", DTYPES)
def test_fmod_is_exact(elem: str) -> None:
    dtype = DTYPES[elem]
    for x, y in (pairs(dtype), random_pairs(dtype, 20_000)):
        got = Kernel("fmod", forms(elem)[0])(x, y)
        with np.errstate(all="ignore"):
            same(got, np.fmod(x, y))


@settings(max_examples=100, deadline=None)
@given(x=st.floats(allow_nan=False, allow_infinity=False), y=st.floats(allow_nan=False))
def test_fmod_f64_is_that_of_c(x: float, y: float) -> None:
    if y != 0:
        got = Kernel("fmod", forms("f64")[-1])(np.array([x]), np.array([y]))
        same(got, np.array([math.fmod(x, y)]))
