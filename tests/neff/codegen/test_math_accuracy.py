"""Every unary function against higher precision, over its whole range, and in all its forms.

f32 on a dense grid against PyTorch in f64, f64 on fewer points against mpmath. The bounds stand in
`math_reference.CASES`.
"""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from neuron_compile.neff.codegen import math_table
from tests.neff.codegen.math_kernels import BINARY, DTYPES, Kernel, forms
from tests.neff.codegen.math_reference import CASES, Case, exactly, ulps, ulps_exact

SPECIALS = (
    0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1e-3, -1e-3,
    1e-20, -1e-20, 1e6, -1e6, 1e20, -1e20,
)  # fmt: skip


def specials(dtype: np.dtype) -> np.ndarray:
    """Values at which a function may go wrong, with the ends of the range of `dtype`."""
    info = np.finfo(dtype)
    ends = [info.max, info.tiny, info.smallest_subnormal, np.nextafter(info.tiny, dtype.type(0))]
    return np.array([*SPECIALS, *ends, *(-v for v in ends)], dtype)


def random_bits(dtype: np.dtype, count: int) -> np.ndarray:
    """Floats of every size, NaNs of every kind among them."""
    integer = np.uint32 if dtype == np.float32 else np.uint64
    top = np.iinfo(integer).max
    return np.random.default_rng(7).integers(0, top, count, integer, endpoint=True).view(dtype)


def close_up(case: Case, dtype: np.dtype, count: int) -> np.ndarray:
    """Points where the function has its structure, evenly and by powers of ten."""
    rng = np.random.default_rng(8)
    even = rng.uniform(case.low, case.high, count)
    size = np.exp(rng.uniform(-25, np.log(max(case.high, 1.0)), count))
    return np.concatenate(
        [even, size if case.low >= 0 else size * rng.choice([-1, 1], count)]
    ).astype(dtype)


def eager(case: Case, x: np.ndarray) -> np.ndarray:
    """PyTorch's f64 values."""
    with np.errstate(all="ignore"):  # a cast of a signalling NaN
        return case.eager(x.astype(np.float64))


def on_domain(name: str, x: np.ndarray) -> np.ndarray:
    """Without the places next to a zero that the reflection formula reaches by cancellation."""
    return x[~(x < 0)] if name in ("lgamma", "digamma") else x


def test_every_function_is_tested() -> None:
    tables = {**math_table.UNARY, **math_table.BINARY}
    names = {name for name in vars(math_table) if vars(math_table)[name] in tables.values()}
    assert names <= {*CASES, *BINARY}


@pytest.mark.parametrize("name", CASES)
def test_f32_error_is_bounded(name: str) -> None:
    case = CASES[name]
    x = np.concatenate(
        [close_up(case, DTYPES["f32"], 100_000), random_bits(DTYPES["f32"], 100_000)]
    )
    x = on_domain(name, x)
    got = Kernel(name, forms("f32")[0])(x)
    error = ulps(got, eager(case, x))
    worst = int(np.argmax(error))
    assert error[worst] <= case.ulp_f32, f"{name}({x[worst]!r}) = {got[worst]!r}"


@pytest.mark.parametrize("name", CASES)
def test_f64_error_is_bounded(name: str) -> None:
    case = CASES[name]
    count = 100 if name in ("digamma", "lgamma", "erf_inv") else 400
    x = on_domain(name, close_up(case, DTYPES["f64"], count))
    got = Kernel(name, forms("f64")[0])(x)
    with mp.workdps(40):
        error = ulps_exact(got, exactly(case.exact, x))
    worst = int(np.argmax(error))
    assert error[worst] <= case.ulp_f64, f"{name}({x[worst]!r}) = {got[worst]!r}"


@pytest.mark.parametrize("elem", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_special_values_are_those_of_eager(name: str, elem: str) -> None:
    case = CASES[name]
    x = specials(DTYPES[elem])
    got = Kernel(name, forms(elem)[0])(x)
    with np.errstate(over="ignore"):
        want = eager(case, x).astype(DTYPES[elem])
    # mpmath judges values above; eager may flush a denormal (log1p) or cancel (digamma).
    info = np.finfo(got.dtype)
    np.testing.assert_allclose(got, want, rtol=64 * info.eps, atol=info.smallest_subnormal)
    zero = (want == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("elem", DTYPES)
@pytest.mark.parametrize("name", [*CASES, *BINARY])
def test_scalars_and_vectors_of_all_targets_agree_bit_by_bit(name: str, elem: str) -> None:
    dtype = DTYPES[elem]
    case = CASES.get(name, Case(torch.exp, mp.exp, -5, 5, 1, 1))
    x = np.concatenate([random_bits(dtype, 3000), close_up(case, dtype, 1000), specials(dtype)])
    arguments = (x, np.roll(x, 1000)) if name in BINARY else (x,)
    first, *others = (Kernel(name, form)(*arguments) for form in forms(elem))
    number = ~np.isnan(first)
    integer = np.dtype(f"u{dtype.itemsize}")
    for other in others:
        np.testing.assert_array_equal(np.isnan(other), ~number)
        np.testing.assert_array_equal(other.view(integer)[number], first.view(integer)[number])


@pytest.mark.parametrize("name", sorted(CASES.keys() - {"digamma", "lgamma", "erf_inv"}))
@settings(max_examples=30, deadline=None)
@given(x=st.floats(width=32))
def test_any_f32_is_within_the_bound(name: str, x: float) -> None:
    case = CASES[name]
    array = np.array([x], np.float32)
    got = Kernel(name, forms("f32")[-1])(array)
    if np.isfinite(x) and x != 0:
        with mp.workdps(60):
            assert ulps_exact(got, exactly(case.exact, array))[0] <= case.ulp_f32
