"""Sums of two floats: twice the precision where one rounding would be too many.

In: `Expr` values of f32 or f64. Out: a `Pair`, whose value is high + low with |low| <= ulp(high).
Algorithms: T. J. Dekker, "A floating-point technique for extending the available precision" (1971);
D. E. Knuth, TAOCP vol. 2, 4.2.2; products by fused multiply-add. Invariant: finite operands, no
overflow and no underflow, else low is not the error.
"""

from __future__ import annotations

from dataclasses import dataclass

from neuron_compile.neff.codegen.math_expr import Expr, Operand, fma, where


@dataclass(frozen=True, slots=True)
class Pair:
    """high + low."""

    high: Expr
    low: Expr

    def value(self) -> Expr:
        return self.high + self.low

    def __neg__(self) -> Pair:
        return Pair(-self.high, -self.low)


def ordered_sum(a: Expr, b: Operand) -> Pair:
    """A + b exactly, if |a| >= |b| or a is 0."""
    total = a + b
    return Pair(total, a - total + b)


def exact_sum(a: Expr, b: Operand) -> Pair:
    """A + b exactly."""
    total = a + b
    from_b = total - a
    return Pair(total, (a - (total - from_b)) + (_as_expr(a, b) - from_b))


def exact_product(a: Expr, b: Operand) -> Pair:
    """A * b exactly."""
    product = a * b
    return Pair(product, fma(a, b, -product))


def exact_quotient(a: Expr, b: Expr) -> Pair:
    """A / b to twice the precision."""
    quotient = a / b
    return Pair(quotient, fma(-quotient, b, a) / b)


def _as_expr(like: Expr, value: Operand) -> Expr:
    return value if isinstance(value, Expr) else like.constant(value)


def constant_pair(like: Expr, high: float, low: float) -> Pair:
    return Pair(like.constant(high), like.constant(low))


def add(a: Pair, b: Pair) -> Pair:
    total = exact_sum(a.high, b.high)
    return ordered_sum(total.high, total.low + (a.low + b.low))


def add_float(a: Pair, b: Operand) -> Pair:
    total = exact_sum(a.high, b)
    return ordered_sum(total.high, total.low + a.low)


def multiply(a: Pair, b: Pair) -> Pair:
    product = exact_product(a.high, b.high)
    low = fma(a.high, b.low, fma(a.low, b.high, product.low))
    return ordered_sum(product.high, low)


def multiply_float(a: Pair, b: Operand) -> Pair:
    product = exact_product(a.high, b)
    return ordered_sum(product.high, fma(a.low, b, product.low))


def divide(a: Pair, b: Pair) -> Pair:
    quotient = a.high / b.high
    rest = fma(-quotient, b.high, a.high) + a.low
    return ordered_sum(quotient, fma(-quotient, b.low, rest) / b.high)


def square_root(a: Pair) -> Pair:
    """sqrt(a) for a > 0."""
    root = a.high.square_root()
    rest = fma(-root, root, a.high) + a.low
    return ordered_sum(root, rest / (root + root))


def where_pair(condition: Expr, yes: Pair, no: Pair) -> Pair:
    return Pair(where(condition, yes.high, no.high), where(condition, yes.low, no.low))
