"""Sine, cosine and tangent of large arguments and next to the multiples of pi/2."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

from tests.neff.codegen.math_kernels import DTYPES, Kernel, forms
from tests.neff.codegen.math_reference import CASES, exactly, ulps_exact

NAMES = ("sin", "cos", "tan")
# The double nearest to a multiple of pi/2 (J.-M. Muller, "Elementary Functions", table 11.1).
WORST_F64 = 6381956970095103.0 * 2.0**797


def near_quarter_turns(dtype: np.dtype, limit: float, count: int) -> np.ndarray:
    """Floats closest to n pi/2."""
    n = np.random.default_rng(5).uniform(1, limit, count).astype(np.int64)
    with mp.workdps(60):
        return np.array([float(int(i) * mp.pi / 2) for i in n]).astype(dtype)


def of_all_sizes(dtype: np.dtype, count: int) -> np.ndarray:
    rng = np.random.default_rng(6)
    top = np.log(float(np.finfo(dtype).max))
    return (np.exp(rng.uniform(10, top, count)) * rng.choice([-1, 1], count)).astype(dtype)


@pytest.mark.parametrize("elem", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_error_is_bounded_everywhere(name: str, elem: str) -> None:
    dtype = DTYPES[elem]
    limits = {"f32": (1e3, 3e6), "f64": (1e3, 3e6, 1e10)}[elem]
    x = np.concatenate([
        *(near_quarter_turns(dtype, limit, 150) for limit in limits),
        of_all_sizes(dtype, 200),
        np.array([2.0**20, 2.0**30, np.finfo(dtype).max]),
        np.array([WORST_F64] if elem == "f64" else [16367173.0 * 2.0**72]),
    ]).astype(dtype)  # fmt: skip
    got = Kernel(name, forms(elem)[0])(x)
    with mp.workdps(370):
        error = ulps_exact(got, exactly(CASES[name].exact, x))
    worst = int(np.argmax(error))
    bound = CASES[name].ulp_f32 if elem == "f32" else CASES[name].ulp_f64
    assert error[worst] <= bound, f"{name}({x[worst]!r}) = {got[worst]!r}"


@pytest.mark.parametrize("elem", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_small_lanes_keep_their_bits_beside_a_huge_one(name: str, elem: str) -> None:
    """The slow path is taken for a whole vector and must change only the lanes that need it."""
    dtype = DTYPES[elem]
    x = np.linspace(-50, 50, 512).astype(dtype)
    mixed = x.copy()
    mixed[::7] = 1e30
    kernel = Kernel(name, forms(elem)[0])
    plain, beside = kernel(x), kernel(mixed)
    kept = np.arange(512) % 7 != 0
    np.testing.assert_array_equal(beside[kept], plain[kept])
    np.testing.assert_array_equal(beside[::7], kernel(mixed[::7]))
