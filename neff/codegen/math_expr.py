"""Formulas as Python expressions: `Expr` is a value of the emitter with arithmetic operators.

In: emitter values of f32 or f64 (and i32, i64, i1 for their bits and masks), scalar or vector. Out:
the same. Invariant: no operation carries a fast-math flag and every fused multiply-add is written
out, so a formula gives the same bits in a scalar, in a vector and on every target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Union

from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.value import Val, type_text


@dataclass(frozen=True, slots=True)
class FloatFormat:
    """An IEEE 754 format: `mantissa` stored bits, exponent `bias`, the integer type of its size."""

    elem: str
    integer: str
    bits: int
    mantissa: int
    bias: int

    @property
    def tiny(self) -> float:
        """Smallest normal number."""
        return 2.0 ** (1 - self.bias)

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        return ((self.mantissa + self.bias) << self.mantissa) | (1 << (self.mantissa - 1))

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def one(self) -> int:
        """The bits of 1.0."""
        return self.bias << self.mantissa


F32 = FloatFormat("f32", "i32", 32, 23, 127)
F64 = FloatFormat("f64", "i64", 64, 52, 1023)
FORMATS = {"f32": F32, "f64": F64}

# Any of these among an emitter's features means AVX-512 F, DQ and VL: the level or what needs it.
_AVX512 = frozenset({"x86-64-v4", "avx512_bf16", "avx512_fp16", "avx512_vnni"})

INFINITY = float("inf")
NAN = float("nan")

Operand = Union["Expr", float, int]


@dataclass(frozen=True, slots=True)
class Expr:
    """A value with operators. Python numbers among the operands become constants of its type."""

    e: Emitter
    value: Val

    @property
    def format(self) -> FloatFormat:
        return FORMATS[self.value.elem]

    @property
    def lanes(self) -> int:
        return self.value.lanes

    def constant(self, value: float) -> Expr:
        """A constant of the same type."""
        return Expr(self.e, self.e.const(self.value.elem, value, self.lanes))

    def _lift(self, other: Operand) -> Expr:
        return other if isinstance(other, Expr) else self.constant(other)

    def _binary(self, op: str, other: Operand) -> Expr:
        return Expr(self.e, self.e.binary(op, self.value, self._lift(other).value))

    def _arithmetic(self, name: str, other: Operand) -> Expr:
        return self._binary(f"arith.{name}{'f' if self.value.is_float else 'i'}", other)

    def __add__(self, other: Operand) -> Expr:
        return self._arithmetic("add", other)

    def __radd__(self, other: float) -> Expr:
        return self.constant(other) + self

    def __sub__(self, other: Operand) -> Expr:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: float) -> Expr:
        return self.constant(other) - self

    def __mul__(self, other: Operand) -> Expr:
        return self._arithmetic("mul", other)

    def __rmul__(self, other: float) -> Expr:
        return self.constant(other) * self

    def __truediv__(self, other: Operand) -> Expr:
        return self._binary("arith.divf", other)

    def __rtruediv__(self, other: float) -> Expr:
        return self.constant(other) / self

    def __neg__(self) -> Expr:
        if self.value.is_float:
            return Expr(self.e, self.e.unary("arith.negf", self.value))
        return self.constant(0) - self

    def __abs__(self) -> Expr:
        return Expr(self.e, self.e.abs(self.value))

    def __and__(self, other: Operand) -> Expr:
        return self._binary("arith.andi", other)

    def __or__(self, other: Operand) -> Expr:
        return self._binary("arith.ori", other)

    def __xor__(self, other: Operand) -> Expr:
        return self._binary("arith.xori", other)

    def __invert__(self) -> Expr:
        return self ^ (1 if self.value.elem == "i1" else -1)

    def __lshift__(self, other: Operand) -> Expr:
        return self._binary("arith.shli", other)

    def __rshift__(self, other: Operand) -> Expr:
        """Arithmetic shift: keeps the sign."""
        return self._binary("arith.shrsi", other)

    def logical_shift(self, other: Operand) -> Expr:
        """Shift right, zeros come in."""
        return self._binary("arith.shrui", other)

    def _compare(self, predicate: str, other: Operand) -> Expr:
        kind = "o" if self.value.is_float else "" if predicate in ("eq", "ne") else "s"
        kind = "u" if self.value.is_float and predicate == "ne" else kind
        return Expr(self.e, self.e.compare(kind + predicate, self.value, self._lift(other).value))

    def __lt__(self, other: Operand) -> Expr:
        return self._compare("lt", other)

    def __le__(self, other: Operand) -> Expr:
        return self._compare("le", other)

    def __gt__(self, other: Operand) -> Expr:
        return self._compare("gt", other)

    def __ge__(self, other: Operand) -> Expr:
        return self._compare("ge", other)

    def equals(self, other: Operand) -> Expr:
        return self._compare("eq", other)

    def differs(self, other: Operand) -> Expr:
        """True where the values differ or one is NaN."""
        return self._compare("ne", other)

    def is_nan(self) -> Expr:
        return self.differs(self)

    def square_root(self) -> Expr:
        return Expr(self.e, self.e.unary("math.sqrt", self.value))

    def floor(self) -> Expr:
        return Expr(self.e, self.e.unary("math.floor", self.value))

    def truncate(self) -> Expr:
        return Expr(self.e, self.e.unary("math.trunc", self.value))

    def with_sign_of(self, other: Expr) -> Expr:
        return Expr(self.e, self.e.binary("math.copysign", self.value, other.value))

    def bits(self) -> Expr:
        """The same bits as an integer."""
        return Expr(self.e, self.e.bitcast(self.value, self.format.integer))

    def as_float(self, elem: str) -> Expr:
        """The bits of an integer as a float of type `elem`."""
        return Expr(self.e, self.e.bitcast(self.value, elem))

    def cast(self, op: str, elem: str) -> Expr:
        """A conversion such as `arith.extf`."""
        return Expr(self.e, self.e.cast(op, self.value, elem))

    def polynomial(self, coefficients: Sequence[float]) -> Expr:
        """Horner's rule on fused operations; coefficients from the lowest power up."""
        result = self.constant(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = fma(result, self, self.constant(c))
        return result


def fma(a: Expr, b: Operand, c: Operand) -> Expr:
    """A * b + c, rounded once."""
    return Expr(a.e, a.e.fma(a.value, a._lift(b).value, a._lift(c).value))


def where(condition: Expr, yes: Operand, no: Operand) -> Expr:
    """Lane-wise choice; one of the alternatives must be an `Expr`."""
    like = yes if isinstance(yes, Expr) else no
    if not isinstance(like, Expr):
        raise TypeError("where() of two Python numbers has no type")
    chosen = like.e.select(condition.value, like._lift(yes).value, like._lift(no).value)
    return Expr(like.e, chosen)


def at_least(x: Expr, low: Operand) -> Expr:
    """max(x, low) that keeps NaN: one instruction on x86."""
    return where(x < low, low, x)


def at_most(x: Expr, high: Operand) -> Expr:
    """min(x, high) that keeps NaN."""
    return where(x > high, high, x)


def any_lane(mask: Expr) -> Val:
    """The scalar condition that some lane of `mask` is set."""
    if not mask.lanes:
        return mask.value
    text = f"vector.reduction <or>, {mask.value.name} : {mask.value.type} into i1"
    return mask.e.pure(text, (mask.value,), "i1", 0)


def where_rare(
    condition: Expr, x: Expr, rare: Callable[[Expr], tuple[Expr, ...]], usual: tuple[Expr, ...]
) -> tuple[Expr, ...]:
    """`rare(x)` in the lanes where `condition` holds, else `usual`; skipped if no lane needs it.

    `condition` and `usual` are functions of x: the branch stands where x does, as they do.
    """
    e = x.e

    def corrected() -> tuple[Val, ...]:
        # A pure operation on x would be hoisted out of the branch; this one is pinned inside it.
        integer = x.format.integer
        text = f"arith.bitcast {x.value.name} : {x.value.type} to {type_text(integer, x.lanes)}"
        inside = Expr(e, e.effect(text, integer, x.lanes)).as_float(x.value.elem)
        return tuple(where(condition, r, u).value for r, u in zip(rare(inside), usual, strict=True))

    with e.outside(x.value.depth):
        results = e.choose(any_lane(condition), corrected, lambda: tuple(u.value for u in usual))
    return tuple(Expr(e, r) for r in results)


def power_of_two(exponent: Expr, fmt: FloatFormat) -> Expr:
    """2**exponent of an integer within the normal range of `fmt`."""
    return ((exponent + fmt.bias) << fmt.mantissa).as_float(fmt.elem)


def has_avx512(x: Expr) -> bool:
    """Whether the target has AVX-512 instructions for vectors like x, taken in whole registers."""
    bits = x.lanes * x.format.bits
    whole = bits in (128, 256) or (bits > 0 and bits % 512 == 0)
    return whole and not _AVX512.isdisjoint(x.e.features)


def scale_by_power_of_two(p: Expr, n: Expr, t: Expr) -> Expr:
    """Value p * 2**n rounded once, for p near 1 and an n that two normal powers of two make up.

    `n` is integral; `t` is `n` + `FloatFormat.magic`, whose low bits hold the integer.
    AVX-512 has an instruction; else two exact powers whose exponents add up to n.
    """
    if has_avx512(p):
        return by_register(_scalef, p, n)
    fmt = p.format
    whole = t.bits() << fmt.mantissa  # n * 2**mantissa: the rest of t's bits is shifted out
    # floor(n / 2) << mantissa: the mask drops the bit that fell below the exponent field.
    half = (t.bits() << (fmt.mantissa - 1)) & -(1 << fmt.mantissa)
    first = (half + fmt.one).as_float(fmt.elem)
    second = (whole - half + fmt.one).as_float(fmt.elem)
    return p * first * second


def by_register(call: Callable[..., Expr], *xs: Expr) -> Expr:
    """`call(*xs)` register by register: LLVM splits vectors of operations, not of intrinsics."""
    first = xs[0]
    if first.lanes * first.format.bits <= 512:
        return call(*xs)
    middle = first.lanes // 2
    low = by_register(call, *(_lanes(x, range(middle)) for x in xs))
    high = by_register(call, *(_lanes(x, range(middle, first.lanes)) for x in xs))
    return Expr(first.e, first.e.shuffle(low.value, high.value, range(first.lanes)))


def _lanes(x: Expr, lanes: range) -> Expr:
    return Expr(x.e, x.e.shuffle(x.value, x.value, lanes))


def _scalef(p: Expr, n: Expr) -> Expr:
    e, lanes, bits = p.e, p.lanes, p.lanes * p.format.bits
    kind = "ps" if p.value.elem == "f32" else "pd"
    mask = e.const("i16" if lanes == 16 else "i8", -1)
    operands = [p.value, n.value, p.constant(0.0).value, mask]
    if bits == 512:
        operands.append(e.const("i32", 4))  # the rounding mode in force
    name = f"llvm.x86.avx512.mask.scalef.{kind}.{bits}"
    return Expr(e, e.intrinsic(name, operands, p.value.elem, lanes))
