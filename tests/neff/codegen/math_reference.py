"""What the math library is held against: values by mpmath and PyTorch, and errors in ulp.

An ulp is the distance of the floats around the true value, the smaller one at a power of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import torch

# Mantissa digits and exponent of the smallest denormal.
_FORMATS = {np.dtype(np.float32): (24, -149), np.dtype(np.float64): (53, -1074)}

Exact = Callable[..., mp.mpf]


def _torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: function(torch.from_numpy(x)).numpy()


@dataclass(frozen=True, slots=True)
class Case:
    """A function: PyTorch's, mpmath's, where to look closely, the errors allowed in ulp."""

    eager: Callable[[np.ndarray], np.ndarray]
    exact: Exact
    low: float
    high: float
    ulp_f32: float
    ulp_f64: float


def _exact_log(x: mp.mpf) -> mp.mpf:
    return mp.log(x) if x > 0 else (-mp.inf if x == 0 else mp.nan)


def _exact_erf_inv(x: mp.mpf) -> mp.mpf:
    """By Newton's method on erfc, since mpmath's own fails close to 1."""
    if abs(x) >= 1:
        return mp.sign(x) * mp.inf if abs(x) == 1 else mp.nan
    rest = 1 - abs(x)
    if rest > 0.3:
        return mp.erfinv(x)
    y = mp.sqrt(-mp.log(1 - x * x))
    for _ in range(60):
        step = (mp.erfc(y) - rest) * mp.sqrt(mp.pi) / 2 * mp.exp(y * y)
        y += step
        if abs(step) < mp.mpf(10) ** -30:
            break
    return mp.sign(x) * y


def _is_pole(x: mp.mpf) -> bool:
    return x <= 0 and x == mp.floor(x)


def _exact_lgamma(x: mp.mpf) -> mp.mpf:
    return mp.inf if _is_pole(x) else mp.re(mp.loggamma(x))


def _exact_digamma(x: mp.mpf) -> mp.mpf:
    return mp.nan if _is_pole(x) else mp.digamma(x)


def _exact_cbrt(x: mp.mpf) -> mp.mpf:
    return mp.sign(x) * mp.cbrt(abs(x))


def _exact_rsqrt(x: mp.mpf) -> mp.mpf:
    return 1 / mp.sqrt(x) if x > 0 else mp.nan


# Bounds: what was measured on millions of arguments, rounded up.
CASES = {
    "exp": Case(_torch(torch.exp), mp.exp, -100, 88, 0.95, 0.85),
    "exp2": Case(_torch(torch.exp2), lambda x: mp.mpf(2) ** x, -140, 127, 0.9, 0.8),
    "expm1": Case(_torch(torch.expm1), mp.expm1, -2, 3, 1.6, 1.9),
    "logistic": Case(_torch(torch.sigmoid), lambda x: 1 / (1 + mp.exp(-x)), -20, 20, 2.4, 2.2),
    "tanh": Case(_torch(torch.tanh), mp.tanh, -10, 10, 2.5, 2.3),
    "sinh": Case(_torch(torch.sinh), mp.sinh, -5, 5, 1.7, 1.5),
    "cosh": Case(_torch(torch.cosh), mp.cosh, -5, 5, 1.5, 1.3),
    "log": Case(_torch(torch.log), _exact_log, 0, 3, 1.0, 0.9),
    "log2": Case(_torch(torch.log2), lambda x: _exact_log(x) / mp.log(2), 0, 3, 1.35, 1.1),
    "log1p": Case(_torch(torch.log1p), lambda x: _exact_log(1 + x), -1, 3, 1.0, 0.95),
    "asinh": Case(_torch(torch.asinh), mp.asinh, -5, 5, 1.05, 0.95),
    "acosh": Case(_torch(torch.acosh), mp.acosh, 1, 5, 1.05, 0.95),
    "atanh": Case(_torch(torch.atanh), mp.atanh, -1, 1, 1.1, 0.95),
    "sin": Case(_torch(torch.sin), mp.sin, -100, 100, 1.6, 0.65),
    "cos": Case(_torch(torch.cos), mp.cos, -100, 100, 1.6, 0.65),
    "tan": Case(_torch(torch.tan), mp.tan, -100, 100, 0.95, 0.8),
    "asin": Case(_torch(torch.asin), mp.asin, -1, 1, 2.1, 2.1),
    "acos": Case(_torch(torch.acos), mp.acos, -1, 1, 1.3, 1.3),
    "atan": Case(_torch(torch.atan), mp.atan, -5, 5, 1.4, 1.5),
    "erf": Case(_torch(torch.erf), mp.erf, -4, 4, 1.9, 1.65),
    "erfc": Case(_torch(torch.erfc), mp.erfc, -4, 10, 0.55, 3.7),
    "erf_inv": Case(_torch(torch.erfinv), _exact_erf_inv, -1, 1, 2.6, 2.0),
    "lgamma": Case(_torch(torch.lgamma), _exact_lgamma, 0, 30, 0.55, 1.7),
    "digamma": Case(_torch(torch.digamma), _exact_digamma, 0, 30, 0.55, 2.1),
    "cbrt": Case(np.cbrt, _exact_cbrt, -10, 10, 0.55, 0.55),
    "rsqrt": Case(_torch(torch.rsqrt), _exact_rsqrt, 0, 4, 1.5, 1.5),
}  # fmt: skip


def exactly(function: Exact, *arrays: np.ndarray) -> list[mp.mpf]:
    """The function's values at the floats of the arrays, to the working precision of mpmath."""
    values = [function(*map(mp.mpf, map(float, items))) for items in zip(*arrays, strict=True)]
    return [mp.nan if isinstance(v, mp.mpc) else v for v in values]


def ulps_exact(got: np.ndarray, want: Iterable[mp.mpf]) -> np.ndarray:
    """Errors against mpmath; infinite where NaN or inf is wanted and something else came."""
    digits, lowest = _FORMATS[got.dtype]
    return np.array([_ulp(float(g), w, digits, lowest) for g, w in zip(got, want, strict=True)])


def _ulp(got: float, want: mp.mpf, digits: int, lowest: int) -> float:
    if mp.isnan(want) or np.isnan(got):
        return 0.0 if mp.isnan(want) and np.isnan(got) else np.inf
    largest = mp.ldexp(1 - mp.ldexp(1, -digits - 1), 1 - (lowest + digits - 2))
    if abs(want) >= largest or np.isinf(got):  # rounds to infinity
        fits = np.isinf(got) and abs(want) >= largest and (got > 0) == (want > 0)
        return 0.0 if fits else np.inf
    unit = mp.ldexp(1, lowest if want == 0 else max(mp.frexp(want)[1] - digits, lowest))
    return float(abs(mp.mpf(got) - want) / unit)


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Errors of f32 values against f64 ones; infinite where only one is NaN or inf."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = want.astype(got.dtype)
        unit = np.spacing(np.abs(rounded)).astype(np.float64)
        error = np.abs(got.astype(np.float64) - want) / unit
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    error[~np.isfinite(error)] = np.inf
    error[same & ~np.isfinite(rounded)] = 0.0
    return error
