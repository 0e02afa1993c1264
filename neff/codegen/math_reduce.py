"""Argument reduction of the trigonometric functions: a = (4 j + quarter) * pi/2 + r, |r| <= pi/4.

In: an f32 or f64 a >= 0 (or NaN). Out: an integer whose two low bits are the quarter, and r, on
demand with a low part. Method: below a limit n * pi/2 is taken off in three parts, the first
without rounding (Cody and Waite); above it a * 2/pi is multiplied out modulo 4 in integers (M. H.
Payne and R. N. Hanek, "Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983).
"""

from __future__ import annotations

from neuron_compile.neff.codegen.math_expr import (
    F64,
    INFINITY,
    NAN,
    Expr,
    fma,
    where,
    where_rare,
)
from neuron_compile.neff.codegen.math_pair import (
    Pair,
    add_float,
    constant_pair,
    exact_product,
    exact_sum,
    multiply,
    ordered_sum,
)

TWO_OVER_PI = 0.6366197723675814

# pi/2 in three parts. All are cut off, not rounded, hence positive: n = 0 keeps r as it is.
PI_OVER_2_PARTS = {
    "f32": (1.570796251296997, 7.549789415861596e-08, 5.390302953474238e-15),
    "f64": (1.5707963267948966, 6.123233995736765e-17, 1.082856673921914e-32),
}
# Up to here a - n * (first part) is exact and below 1, and the third part's error is harmless.
_LIMIT = {"f32": 2.0**20, "f64": 2.0**30}

# The first 1216 bits of 2/pi after the point. The largest double is a 53-bit integer times 2**971;
# the 192 bits from the first that counts modulo 4 on leave an error of 2**-137, and the worst
# double is 2**-62 away from a multiple of pi/2.
_TWO_OVER_PI_BITS = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561B7246E3A424DD2E006492EEA09D1921CFE1DEB1CB129A73EE88235F52EBB4484E99C7026B45F7E413991D639835339F49C845F8BBDF9283B1FF897FFDE05980FEF2F118B5A0A6D1F6D367ECF27CB09B74F463F669E5FEA2D7527BAC7EBE5F17B3D0739F78A5292EA6BFB5FB11F8D5D0856033046FC7B6BAB  # noqa: E501
_WORDS = 19
_DIGIT = 0xFFFFFFFF


def reduce_quarters(a: Expr) -> tuple[Expr, Expr]:
    """The quarter (an integer, low bits) and r, each to about an ulp."""
    fmt = a.format
    t = fma(a, TWO_OVER_PI, fmt.magic)
    n = t - fmt.magic
    r = a
    for part in PI_OVER_2_PARTS[fmt.elem]:
        r = fma(n, -part, r)

    def huge(x: Expr) -> tuple[Expr, Expr]:
        quarter, rest = _reduce_huge(x)
        return quarter, rest.high

    quarter, rest = where_rare(a >= _LIMIT[fmt.elem], a, huge, (t.bits(), r))
    return quarter, rest


def reduce_quarters_exactly(a: Expr) -> tuple[Expr, Pair]:
    """As `reduce_quarters`, with r as a pair."""
    fmt = a.format
    t = fma(a, TWO_OVER_PI, fmt.magic)
    n = t - fmt.magic
    first, second, third = PI_OVER_2_PARTS[fmt.elem]
    product = exact_product(n, -second)
    total = exact_sum(fma(n, -first, a), product.high)
    usual = ordered_sum(total.high, total.low + fma(n, -third, product.low))

    def huge(x: Expr) -> tuple[Expr, Expr, Expr]:
        quarter, rest = _reduce_huge(x)
        return quarter, rest.high, rest.low

    quarter, high, low = where_rare(
        a >= _LIMIT[fmt.elem], a, huge, (t.bits(), usual.high, usual.low)
    )
    return quarter, Pair(high, low)


def _reduce_huge(a: Expr) -> tuple[Expr, Pair]:
    """The same for a >= 2**20 of any size, in integers; inf gives NaN."""
    if a.format is F64:
        return _payne_hanek(a, _WORDS)
    # An f32 is below 2**128: its bits of 2/pi end sooner.
    quarter, wide = _payne_hanek(a.cast("arith.extf", "f64"), 6)
    high = wide.high.cast("arith.truncf", "f32")
    low = (wide.high - high.cast("arith.extf", "f64")).cast("arith.truncf", "f32")
    return quarter.cast("arith.trunci", "i32"), Pair(high, low)


def _payne_hanek(a: Expr, words: int) -> tuple[Expr, Pair]:
    """For a = m * 2**e, with those bits of 2/pi whose product with a is no multiple of 4."""
    bits = a.bits()
    e = (bits >> F64.mantissa) - (F64.bias + F64.mantissa)
    m = (bits & ((1 << F64.mantissa) - 1)) | (1 << F64.mantissa)
    digits = _product(m, _bits_of_two_over_pi(e, words))
    # The product counts 2**-190 quarters; its two top bits and the rounding are the quarter.
    top = digits[5]
    quarter = (top + (1 << 29)).logical_shift(30)
    signed = top - (quarter << 30)
    rest = ordered_sum(_to_float(signed) * 2.0**-30, _to_float(digits[4]) * 2.0**-62)
    rest = add_float(rest, _to_float(digits[3]) * 2.0**-94)
    rest = add_float(rest, _to_float(digits[2]) * 2.0**-126)
    r = multiply(rest, constant_pair(a, *PI_OVER_2_PARTS["f64"][:2]))
    finite = a < INFINITY
    return quarter, Pair(where(finite, r.high, NAN), where(finite, r.low, 0.0))


def _to_float(x: Expr) -> Expr:
    """An integer below 2**32 in size as f64, exactly."""
    return (x + x.constant(F64.magic_bits)).as_float("f64") - F64.magic


def _bits_of_two_over_pi(e: Expr, words: int) -> list[Expr]:
    """Six 32-bit digits, lowest first: the 192 bits of 2/pi from the one of weight 2**(1 - e)."""
    table = [0] + [_TWO_OVER_PI_BITS >> (64 * (_WORDS - 1 - i)) & (2**64 - 1) for i in range(words)]
    # One word of zeros stands in front, since e may be as low as -32.
    position = e + 62
    word = position >> 6
    shift = position & 63
    chosen = [e.constant(w) for w in table]
    step = 16
    while step:
        # A barrel shifter over words: later stages can only ask for the first `step + 3`.
        if step < len(table):
            taken = (word & step).differs(0)
            chosen = [
                where(taken, chosen[j + step], chosen[j]) if j + step < len(chosen) else chosen[j]
                for j in range(min(step + 3, len(chosen)))
            ]
        step >>= 1
    # In two steps, because a shift by 64 has no meaning.
    aligned = [
        (chosen[i] << shift) | chosen[i + 1].logical_shift(1).logical_shift(63 - shift)
        for i in range(3)
    ]
    return [part for w in reversed(aligned) for part in (w & _DIGIT, w.logical_shift(32))]


def _product(m: Expr, digits: list[Expr]) -> list[Expr]:
    """The product m * digits modulo 2**192, m below 2**53, in 32-bit digits."""
    columns: list[list[Expr]] = [[] for _ in range(len(digits) + 1)]
    for offset, factor in enumerate((m & _DIGIT, m.logical_shift(32))):
        for i, digit in enumerate(digits[: len(digits) - offset]):
            product = digit * factor
            columns[i + offset].append(product & _DIGIT)
            columns[i + offset + 1].append(product.logical_shift(32))
    result: list[Expr] = []
    carry: Expr | None = None
    for column in columns[: len(digits)]:
        total = column[0] if carry is None else column[0] + carry
        for term in column[1:]:
            total = total + term
        result.append(total & _DIGIT)
        carry = total.logical_shift(32)
    return result
