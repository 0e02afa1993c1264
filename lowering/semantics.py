"""Where eager PyTorch and StableHLO differ: one helper per trap.

In: values of the Builder. Out: values that mean what eager CPU PyTorch computes. Invariant:
emitters use these instead of raw divide, remainder and float-to-integer convert. T-numbers name
the public reports each one answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar, is_integer

Value = ir.Value
Operand = ir.Value | bool | int | float | complex

REDUCED_FLOATS = (torch.bfloat16, torch.float16)
FLOATS = (*REDUCED_FLOATS, torch.float32, torch.float64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)


# ---- dtypes ---------------------------------------------------------------------------------


def math_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype eager's CPU kernels compute in: float32 for the 16-bit floats, else itself."""
    return torch.float32 if dtype in REDUCED_FLOATS else dtype


def promoted_dtype(b: Builder, operands: Sequence[Operand]) -> torch.dtype:
    """torch.result_type: a 0-d tensor or Python scalar only counts by its category (T091)."""
    tensors: dict[bool, torch.dtype] = {}
    numbers: torch.dtype | None = None
    for operand in operands:
        if isinstance(operand, ir.Value):
            zero_d, dtype = b.rank(operand) == 0, b.dtype(operand)
            tensors[zero_d] = torch.promote_types(tensors.get(zero_d, dtype), dtype)
        else:
            dtype = scalar_dtype(operand)
            numbers = dtype if numbers is None else torch.promote_types(numbers, dtype)
    result = tensors.get(False)
    for weaker in (tensors.get(True), numbers):
        if result is None:
            result = weaker
        elif weaker is not None and _category(weaker) > _category(result):
            result = _with_category(result, weaker)
    assert result is not None
    return result


def scalar_dtype(value: Scalar) -> torch.dtype:
    """The dtype a Python scalar has where no tensor decides."""
    if isinstance(value, bool):
        return torch.bool
    if isinstance(value, int):
        return torch.int64
    return torch.get_default_dtype() if isinstance(value, float) else torch.complex64


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return 3
    if dtype.is_floating_point:
        return 2
    return 0 if dtype is torch.bool else 1


def _with_category(stronger: torch.dtype, weaker: torch.dtype) -> torch.dtype:
    if weaker.is_complex and stronger.is_floating_point:
        return torch.promote_types(stronger, torch.complex32)
    return weaker


# ---- conversion -----------------------------------------------------------------------------


def convert_like_eager(b: Builder, x: Value, dtype: torch.dtype) -> Value:
    """`x.to(dtype)` as x86-64 eager does it (T062, T064).

    Float to integer truncates and wraps: via int64 for int64 and uint8, via int32 for the rest; NaN
    and what does not fit in that give its most negative value. To bool: x != 0.
    """
    source = b.dtype(x)
    if source is dtype:
        return x
    if dtype is torch.bool:
        return b.compare(x, b.full_like(x, 0), "NE")
    if source in FLOATS and is_integer(dtype):
        return _float_to_integer(b, x, dtype)
    return b.convert(x, dtype)


def _float_to_integer(b: Builder, x: Value, dtype: torch.dtype) -> Value:
    through = torch.int64 if dtype in (torch.int64, *UNSIGNED) else torch.int32
    x = b.convert(x, math_dtype(b.dtype(x)))
    # -limit itself fails the test and is replaced by itself.
    limit = 2.0 ** (63 if through is torch.int64 else 31)
    fits = b.compare(b.abs(x), b.full_like(x, limit), "LT")
    return b.convert(b.convert(b.select(fits, x, b.full_like(x, -limit)), through), dtype)


def operand(b: Builder, value: Operand, shape: Sequence[int], dtype: torch.dtype) -> Value:
    """A tensor or Python scalar as a value of this dtype, broadcast to this shape."""
    if isinstance(value, ir.Value):
        return b.broadcast_to(convert_like_eager(b, value, dtype), shape)
    return b.full(shape, value, dtype)


def compute_dtype(b: Builder, operands: Sequence[Operand], result: torch.dtype) -> torch.dtype:
    """In which dtype to do products and quotients whose result is `result`.

    Eager's kernels for 16-bit floats take a scalar factor (Python or 0-d) at full precision, so
    where rounding it first would show, compute in float32.
    """
    if result not in REDUCED_FLOATS:
        return result
    for value in operands:
        if isinstance(value, ir.Value):
            if b.dtype(value) is not result:
                return torch.float32
        elif float(torch.tensor(value, dtype=result)) != value:
            return torch.float32
    return result


def elementwise(
    b: Builder,
    function: Callable[..., Value],
    *operands: Operand,
    compute: torch.dtype | None = None,
) -> Value:
    """function(*operands) after promotion and broadcasting to the node's shape and dtype."""
    dtype = compute or compute_dtype(b, operands, b.result_dtype())
    shape = b.result_shape()
    made = function(*(operand(b, value, shape, dtype) for value in operands))
    return convert_like_eager(b, made, b.result_dtype())


# ---- division -------------------------------------------------------------------------------


def _different_sign(b: Builder, x: Value, y: Value) -> Value:
    zero = b.full_like(x, 0)
    return b.xor(b.compare(x, zero, "LT"), b.compare(y, zero, "LT"))


def _safe_integer_divide(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Truncated quotient and its remainder, defined everywhere: x / 0 is 0 with remainder x.

    Eager raises ZeroDivisionError on the host (T048); compiled code has nobody to raise to and must
    not trap. The most negative number divided by -1 wraps to itself.
    """
    signed = b.dtype(y) not in UNSIGNED
    zero = b.full_like(y, 0)
    by_zero = b.compare(y, zero, "EQ")
    unsafe = by_zero
    if signed:
        by_minus_one = b.compare(y, b.full_like(y, -1), "EQ")
        unsafe = b.or_(by_zero, by_minus_one)
    quotient = b.divide(x, b.select(unsafe, b.full_like(y, 1), y))
    if signed:
        quotient = b.select(by_minus_one, b.negate(x), quotient)
    quotient = b.select(by_zero, zero, quotient)
    return quotient, b.subtract(x, b.multiply(quotient, y))


def _integer_divide(b: Builder, x: Value, y: Value, divisor: Operand) -> tuple[Value, Value]:
    if not isinstance(divisor, ir.Value) and divisor not in (0, -1):
        quotient = b.divide(x, y)
        return quotient, b.subtract(x, b.multiply(quotient, y))
    return _safe_integer_divide(b, x, y)


def truncate_divide(b: Builder, x: Value, y: Value, divisor: Operand) -> Value:
    """Quotient rounded towards zero, in the operands' dtype; `divisor` is y before broadcasting."""
    if is_integer(b.dtype(x)):
        return _integer_divide(b, x, y, divisor)[0]
    return truncate(b, b.divide(x, y))


def floor_divide(b: Builder, x: Value, y: Value, divisor: Operand) -> Value:
    """Python's // (T058, T059): floats by way of fmod, as CPython does it."""
    if is_integer(b.dtype(x)):
        quotient, rest = _integer_divide(b, x, y, divisor)
        if b.dtype(x) in UNSIGNED:
            return quotient
        down = b.and_(b.compare(rest, b.full_like(x, 0), "NE"), _different_sign(b, rest, y))
        # A zero divisor leaves rest == x, which must not be rounded down.
        down = b.and_(down, b.compare(y, b.full_like(y, 0), "NE"))
        return b.select(down, b.subtract(quotient, b.full_like(x, 1)), quotient)
    zero, one = b.full_like(x, 0.0), b.full_like(x, 1.0)
    plain = b.divide(x, y)
    rest = b.remainder(x, y)
    quotient = b.divide(b.subtract(x, rest), y)
    down = b.and_(b.compare(rest, zero, "NE"), _different_sign(b, rest, y))
    quotient = b.select(down, b.subtract(quotient, one), quotient)
    floored = b.floor(quotient)
    up = b.compare(b.subtract(quotient, floored), b.full_like(x, 0.5), "GT")
    floored = b.select(up, b.add(floored, one), floored)
    result = b.select(b.compare(quotient, zero, "NE"), floored, copysign(b, zero, plain))
    return b.select(b.compare(y, zero, "EQ"), plain, result)


def python_remainder(b: Builder, x: Value, y: Value, divisor: Operand) -> Value:
    """Python's %: the sign of the divisor. Integers: x % 0 is x (eager raises)."""
    if is_integer(b.dtype(x)):
        rest = _integer_divide(b, x, y, divisor)[1]
        if b.dtype(x) in UNSIGNED:
            return rest
        wrong = b.compare(y, b.full_like(y, 0), "NE")
    else:
        rest = b.remainder(x, y)
        wrong = None
    adjust = b.and_(b.compare(rest, b.full_like(x, 0), "NE"), _different_sign(b, rest, y))
    if wrong is not None:
        adjust = b.and_(adjust, wrong)
    return b.select(adjust, b.add(rest, y), rest)


def c_remainder(b: Builder, x: Value, y: Value, divisor: Operand) -> Value:
    """torch.fmod: the sign of the dividend. Integers: fmod(x, 0) is x (eager raises)."""
    if is_integer(b.dtype(x)):
        return _integer_divide(b, x, y, divisor)[1]
    return b.remainder(x, y)


# ---- rounding and signs ---------------------------------------------------------------------


def truncate(b: Builder, x: Value) -> Value:
    """Towards zero, keeping the sign of zero; integers are themselves."""
    if b.dtype(x) not in FLOATS:
        return x
    return b.select(b.compare(x, b.full_like(x, 0.0), "LT"), b.ceil(x), b.floor(x))


_SAME_WIDTH = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


def sign_bit(b: Builder, x: Value) -> Value:
    """A bool tensor: the sign bit of a float (also of zero and NaN), or x < 0 (T068)."""
    bits_dtype = _SAME_WIDTH.get(b.dtype(x))
    if bits_dtype is not None:
        x = b.bitcast_convert(x, bits_dtype)
    return b.compare(x, b.full_like(x, 0), "LT")


def copysign(b: Builder, magnitude: Value, sign: Value) -> Value:
    """|magnitude| with the sign bit of `sign`; both floats of one dtype."""
    size = b.abs(magnitude)
    return b.select(sign_bit(b, sign), b.negate(size), size)


def at_least(b: Builder, x: Value, low: Scalar) -> Value:
    """max(x, low) for a number `low`: NaN stays, and so does the -0.0 of x where low is 0."""
    bound = b.full_like(x, low)
    return b.select(b.compare(x, bound, "LT"), bound, x)


def at_most(b: Builder, x: Value, high: Scalar) -> Value:
    """min(x, high) for a number `high`: NaN stays, and so does the -0.0 of x where high is 0."""
    bound = b.full_like(x, high)
    return b.select(b.compare(x, bound, "GT"), bound, x)


def is_nan(b: Builder, x: Value) -> Value:
    """A bool tensor: x is NaN."""
    return b.compare(x, x, "NE")


# ---- extremes -------------------------------------------------------------------------------


def lowest(dtype: torch.dtype) -> Scalar:
    """The identity of maximum: -inf, False or the smallest integer."""
    if dtype in FLOATS:
        return float("-inf")
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Scalar:
    """The identity of minimum: inf, True or the largest integer."""
    if dtype in FLOATS:
        return float("inf")
    return True if dtype is torch.bool else torch.iinfo(dtype).max
