"""The tables of the math library: the error of every polynomial and the digits of every constant.

Each case states what a table approximates and the bound that its comment claims; mpmath checks it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mpmath as mp
import pytest

from neuron_compile.neff.codegen import (
    math_atrig,
    math_erf,
    math_exp,
    math_gamma,
    math_log,
    math_long,
    math_pow,
    math_reduce,
    math_trig,
)
from tests.neff.codegen.math_reference import CASES
from tests.neff.codegen.minimax import Function, fit, greatest_error, grid


@pytest.fixture(autouse=True)
def _precision() -> Iterator[None]:
    with mp.workdps(50):
        yield


@dataclass(frozen=True, slots=True)
class Fit:
    """`coefficients` of a polynomial near f on [low, high]: weight * |difference| <= 2**bits."""

    coefficients: Sequence[float]
    f: Function
    low: float
    high: float
    weight: Function
    bits: float


def _odd(f: Function) -> Function:
    """(f(x) / x - 1) / x**2 as a function of z = x**2."""

    def of_square(z: mp.mpf) -> mp.mpf:
        x = mp.sqrt(z)
        return (f(x) / x - 1) / z

    return of_square


def _exp_tail(r: mp.mpf) -> mp.mpf:
    return (mp.expm1(r) - r) / r**2


def _log_tail(f: mp.mpf) -> mp.mpf:
    return (mp.log1p(f) - f) / f**2


def _log_weight(f: mp.mpf) -> mp.mpf:
    return abs(f**2 / mp.log1p(f))


def _cos_tail(z: mp.mpf) -> mp.mpf:
    return (mp.cos(mp.sqrt(z)) - 1 + z / 2) / z**2


def _atanh_tail(z: mp.mpf) -> mp.mpf:
    return 2 * _odd(mp.atanh)(z)


def _atanh_rest(z: mp.mpf) -> mp.mpf:
    return ((_atanh_tail(z) - mp.mpf(2) / 3) / z - mp.mpf(2) / 5) / z


def _g(a: mp.mpf) -> mp.mpf:
    return -mp.log(mp.erfc(a)) / a - 1


def _g_weight(a: mp.mpf) -> mp.mpf:
    """What an error of g does to erf a, relative to it."""
    g = -mp.log(mp.erfc(a))
    return a * mp.exp(-g) / -mp.expm1(-g)


def _erfcx(centre: float) -> Function:
    def of_t(t: mp.mpf) -> mp.mpf:
        x = centre * (1 + t) / (1 - t)
        return (x + centre) * mp.exp(x * x) * mp.erfc(x)

    return of_t


def _inverse_erf(s: mp.mpf) -> mp.mpf:
    """erf_inv(x) / x with s = sqrt(-log(1 - x**2))."""
    x = mp.sqrt(-mp.expm1(-s * s))
    return CASES["erf_inv"].exact(x) / x


def _near(f: Function, centre: float) -> Function:
    return lambda u: f(u + centre)


def _lgamma_near(x: mp.mpf) -> mp.mpf:
    return mp.loggamma(x) / ((x - 1) * (x - 2))


def _stirling(z: mp.mpf) -> mp.mpf:
    x = 1 / mp.sqrt(z)
    leading = (x - 0.5) * mp.log(x) - x + mp.log(2 * mp.pi) / 2
    return x * (mp.loggamma(x) - leading)


def _digamma_near(x: mp.mpf) -> mp.mpf:
    return mp.digamma(x) / (x - mp.findroot(mp.digamma, 1.4616))


def _digamma_far(z: mp.mpf) -> mp.mpf:
    x = 1 / mp.sqrt(z)
    return (mp.log(x) - 1 / (2 * x) - mp.digamma(x)) / z


def _relative(f: Function) -> Function:
    return lambda x: 1 / abs(f(x))


def _itself(x: mp.mpf) -> mp.mpf:
    return x


def _square(x: mp.mpf) -> mp.mpf:
    return x**2


def _one(x: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


def _exp2_tail(r: mp.mpf) -> mp.mpf:
    return mp.expm1(r * mp.log(2)) / r


def _inverse_cube_root(m: mp.mpf) -> mp.mpf:
    return 1 / mp.cbrt(m)


TINY = 1e-6
HALF_LN2 = 0.3483


def _pieces(elem: str, index: int, low: float, high: float, bits: float) -> Fit:
    _, centre, coefficients = math_erf._INVERSE_PIECES[elem][index]
    first = index == 0
    f = _near((lambda w: _inverse_erf(mp.sqrt(w))) if first else _inverse_erf, centre)
    return Fit(coefficients, f, low - centre, high - centre, _relative(f), bits)


FITS = {
    "exp f32": Fit(math_exp.EXP_TAIL["f32"], _exp_tail, -HALF_LN2, HALF_LN2, _square, -28.1),
    "exp f64": Fit(math_exp.EXP_TAIL["f64"], _exp_tail, -HALF_LN2, HALF_LN2, _square, -57.9),
    "exp short": Fit(math_exp._EXP_TAIL_SHORT, _exp_tail, -HALF_LN2, HALF_LN2, _square, -39.5),
    "exp2 f32": Fit(math_exp.EXP2_TAIL["f32"], _exp2_tail, -0.5, 0.5, _itself, -28.2),
    "exp2 f64": Fit(math_exp.EXP2_TAIL["f64"], _exp2_tail, -0.5, 0.5, _itself, -57.8),
    "sinh f32": Fit(math_exp.SINH_TAIL["f32"], _odd(mp.sinh), TINY, 1, _itself, -31.5),
    "sinh f64": Fit(math_exp.SINH_TAIL["f64"], _odd(mp.sinh), TINY, 1, _itself, -61.7),
    "log f32": Fit(math_log._LOG1P_TAIL_F32, _log_tail, -0.25, 0.5, _log_weight, -27.5),
    "log short": Fit(math_pow._SHORT_LOG_TAIL, _log_tail, -0.25, 0.5, _log_weight, -38.4),
    "log f64": Fit(math_log.ATANH_TAIL, _atanh_tail, TINY, 0.0401, lambda z: z / 2, -62.6),
    "log long": Fit(math_long._ATANH_REST, _atanh_rest, TINY, 0.0401, lambda z: z**3 / 2, -75),
    "cbrt": Fit(math_pow._INVERSE_CUBE_ROOT, _inverse_cube_root, 0.75, 6, mp.cbrt, -8.3),
    "sin f32": Fit(math_trig._SIN_TAIL["f32"], _odd(mp.sin), TINY, 0.803**2, _itself, -27.7),
    "sin f64": Fit(math_trig._SIN_TAIL["f64"], _odd(mp.sin), TINY, 0.7855**2, _itself, -58.0),
    "cos f32": Fit(math_trig._COS_TAIL["f32"], _cos_tail, TINY, 0.803**2, _square, -32.8),
    "cos f64": Fit(math_trig._COS_TAIL["f64"], _cos_tail, TINY, 0.7855**2, _square, -64.1),
    "atan f32": Fit(math_atrig._ATAN_TAIL["f32"], _odd(mp.atan), TINY, 1, _itself, -28.6),
    "atan f64": Fit(math_atrig._ATAN_TAIL["f64"], _odd(mp.atan), TINY, 1, _itself, -59.8),
    "asin f32": Fit(math_atrig._ASIN_TAIL["f32"], _odd(mp.asin), TINY, 0.25, _itself, -27.5),
    "asin f64": Fit(math_atrig._ASIN_TAIL["f64"], _odd(mp.asin), TINY, 0.25, _itself, -59.8),
    "erf f32": Fit(math_erf._G_TAIL["f32"], _g, TINY, 4, _g_weight, -27.8),
    "erf f64": Fit(math_erf._G_TAIL["f64"], _g, TINY, 6, _g_weight, -56.3),
    "erf small": Fit(
        math_erf._ERF_SMALL, lambda z: mp.erf(mp.sqrt(z)) / mp.sqrt(z) - 1, TINY, 0.25, _one, -55.8
    ),
    "erfc f32": Fit(
        math_erf._ERFC_FIT["f32"], _erfcx(2), -1, 8.1 / 12.1, _relative(_erfcx(2)), -31.6
    ),
    "erfc f64": Fit(
        math_erf._ERFC_FIT["f64"], _erfcx(4), -1, 23.3 / 31.3, _relative(_erfcx(4)), -54.0
    ),
    "erf_inv f32 near": _pieces("f32", 0, TINY, 5, -24.5),
    "erf_inv f32 far": _pieces("f32", 1, 2.236, 4.03, -26.8),
    "erf_inv f64 near": _pieces("f64", 0, TINY, 6.25, -55.9),
    "erf_inv f64 middle": _pieces("f64", 1, 2.5, 4, -54.9),
    "erf_inv f64 far": _pieces("f64", 2, 4, 6.02, -54.3),
    "lgamma near": Fit(
        math_gamma._LGAMMA_NEAR,
        _near(_lgamma_near, 1.75),
        1.0001 - 1.75,
        0.75,
        _relative(_near(_lgamma_near, 1.75)),
        -54.8,
    ),
    "lgamma far": Fit(math_gamma._STIRLING, _stirling, TINY, 0.16, mp.sqrt, -58.9),
    "digamma near": Fit(
        math_gamma._DIGAMMA_NEAR,
        _near(_digamma_near, 1.5),
        -0.5,
        0.5,
        _relative(_near(_digamma_near, 1.5)),
        -53.6,
    ),
    "digamma far": Fit(math_gamma._DIGAMMA_FAR, _digamma_far, TINY, 0.25, _itself, -57.6),
}


@pytest.mark.parametrize("name", FITS)
def test_polynomial_keeps_its_error_bound(name: str) -> None:
    case = FITS[name]
    # An even number of points leaves out the middle, where some of the functions are 0 / 0.
    points = grid(case.low, case.high, 80)
    error = greatest_error(case.coefficients, case.f, points, case.weight)
    assert mp.log(error, 2) <= case.bits


@pytest.mark.parametrize("name", ["cbrt", "erfc f32", "exp2 f32"])
def test_best_polynomial_is_hardly_better(name: str) -> None:
    """The procedure that found the coefficients finds them again."""
    case = FITS[name]
    low = 0.0001 if name == "exp2 f32" else case.low  # the weight vanishes at 0
    _, least = fit(case.f, low, case.high, len(case.coefficients), case.weight)
    points = grid(low, case.high, 300)
    ours = greatest_error(case.coefficients, case.f, points, case.weight)
    assert least * 0.98 <= ours
    if name != "exp2 f32":  # fitted on both sides of 0
        assert ours <= 1.1 * least


def test_parts_of_constants_add_up() -> None:
    for parts, exact, bits in (
        (math_exp.LN2_PARTS["f32"], mp.log(2), 47),
        (math_exp.LN2_PARTS["f64"], mp.log(2), 105),
        (math_exp.LN2_SHORT["f32"], mp.log(2), 25),
        (math_long._LN2_LONG, mp.log(2), 95),
        (math_log._LOG2_E_PARTS["f32"], 1 / mp.log(2), 47),
        (math_log._LOG2_E_PARTS["f64"], 1 / mp.log(2), 105),
        (math_long._TWO_THIRDS, mp.mpf(2) / 3, 105),
        (math_long._TWO_FIFTHS, mp.mpf(2) / 5, 105),
        (math_reduce.PI_OVER_2_PARTS["f32"], mp.pi / 2, 70),
        (math_reduce.PI_OVER_2_PARTS["f64"], mp.pi / 2, 155),
        (math_atrig._HALF_PI["f32"], mp.pi / 2, 47),
        (math_atrig._HALF_PI["f64"], mp.pi / 2, 105),
        (math_gamma._DIGAMMA_ZERO, mp.findroot(mp.digamma, 1.4616), 105),
        ((math_gamma._HALF_LOG_TWO_PI,), mp.log(2 * mp.pi) / 2, 53),
    ):
        assert abs(sum(map(mp.mpf, parts)) - exact) <= mp.ldexp(1, -bits), parts


def test_parts_that_must_not_round_are_short_enough() -> None:
    assert mp.ldexp(math_long._LN2_LONG[0], 42) % 1 == 0
    assert all(p > 0 for parts in math_reduce.PI_OVER_2_PARTS.values() for p in parts)
    assert all(p > 0 for parts in math_exp.LN2_PARTS.values() for p in parts)


def test_bits_of_two_over_pi() -> None:
    words = math_reduce._WORDS
    with mp.workprec(64 * words + 60):
        assert int(mp.floor(mp.ldexp(2 / mp.pi, 64 * words))) == math_reduce._TWO_OVER_PI_BITS
