"""Elementwise StableHLO and CHLO ops as methods.

In: values of equal shape (and dtype, where the op has two). Out: one value. Invariant: these are
StableHLO's meanings; where eager PyTorch means something else, use `semantics` instead
(`divide` truncates, `remainder` has the dividend's sign, `convert` is undefined out of range).
"""

from __future__ import annotations

import torch
from torch_mlir import ir
from torch_mlir._mlir_libs import _stablehlo

from neuron_compile.lowering.builder_core import BuilderCore, is_integer

Value = ir.Value

_UNSIGNED = (torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64)


class ElementwiseOps(BuilderCore):
    """Elementwise ops; see StableHLO's specification for their exact meaning."""

    def unary(self, name: str, x: Value) -> Value:
        """Any unary op by its full name whose result has the type of `x`."""
        return self.op1(name, [x], x.type)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """Any binary op by its full name whose result has the type of both operands."""
        return self.op1(name, [x, y], x.type)

    # ---- arithmetic --------------------------------------------------------------------------

    def add(self, x: Value, y: Value) -> Value:
        """x + y; integers wrap; booleans or."""
        return self.binary("stablehlo.add", x, y)

    def subtract(self, x: Value, y: Value) -> Value:
        """x - y; integers wrap."""
        return self.binary("stablehlo.subtract", x, y)

    def multiply(self, x: Value, y: Value) -> Value:
        """x * y; integers wrap; booleans and."""
        return self.binary("stablehlo.multiply", x, y)

    def divide(self, x: Value, y: Value) -> Value:
        """x / y; integers truncate towards zero, undefined for y == 0."""
        return self.binary("stablehlo.divide", x, y)

    def remainder(self, x: Value, y: Value) -> Value:
        """C's fmod / %: the sign of the dividend."""
        return self.binary("stablehlo.remainder", x, y)

    def power(self, x: Value, y: Value) -> Value:
        """x ** y, elementwise; integers by repeated multiplication."""
        return self.binary("stablehlo.power", x, y)

    def maximum(self, x: Value, y: Value) -> Value:
        """The larger; NaN if either is NaN."""
        return self.binary("stablehlo.maximum", x, y)

    def minimum(self, x: Value, y: Value) -> Value:
        """The smaller; NaN if either is NaN."""
        return self.binary("stablehlo.minimum", x, y)

    def atan2(self, x: Value, y: Value) -> Value:
        """The angle of (y, x)."""
        return self.binary("stablehlo.atan2", x, y)

    def negate(self, x: Value) -> Value:
        """-x; integers wrap."""
        return self.unary("stablehlo.negate", x)

    def abs(self, x: Value) -> Value:
        """|x|; the most negative integer stays."""
        return self.unary("stablehlo.abs", x)

    def sign(self, x: Value) -> Value:
        """-1, 0, 1 by sign; NaN stays NaN, a signed zero stays."""
        return self.unary("stablehlo.sign", x)

    # ---- bits and booleans -------------------------------------------------------------------

    def and_(self, x: Value, y: Value) -> Value:
        """Bitwise (integers) or logical (booleans) and."""
        return self.binary("stablehlo.and", x, y)

    def or_(self, x: Value, y: Value) -> Value:
        """Bitwise or logical or."""
        return self.binary("stablehlo.or", x, y)

    def xor(self, x: Value, y: Value) -> Value:
        """Bitwise or logical exclusive or."""
        return self.binary("stablehlo.xor", x, y)

    def not_(self, x: Value) -> Value:
        """Bitwise or logical not."""
        return self.unary("stablehlo.not", x)

    def shift_left(self, x: Value, y: Value) -> Value:
        """x << y; 0 when y is out of range."""
        return self.binary("stablehlo.shift_left", x, y)

    def shift_right_arithmetic(self, x: Value, y: Value) -> Value:
        """x >> y, filling with the sign bit."""
        return self.binary("stablehlo.shift_right_arithmetic", x, y)

    def shift_right_logical(self, x: Value, y: Value) -> Value:
        """x >> y, filling with zeros."""
        return self.binary("stablehlo.shift_right_logical", x, y)

    # ---- functions of a float ----------------------------------------------------------------

    def exp(self, x: Value) -> Value:
        """E ** x."""
        return self.unary("stablehlo.exponential", x)

    def expm1(self, x: Value) -> Value:
        """E ** x - 1, exact near 0."""
        return self.unary("stablehlo.exponential_minus_one", x)

    def log(self, x: Value) -> Value:
        """Natural logarithm."""
        return self.unary("stablehlo.log", x)

    def log1p(self, x: Value) -> Value:
        """log(1 + x), exact near 0."""
        return self.unary("stablehlo.log_plus_one", x)

    def sqrt(self, x: Value) -> Value:
        """Square root, correctly rounded."""
        return self.unary("stablehlo.sqrt", x)

    def rsqrt(self, x: Value) -> Value:
        """1 / sqrt(x)."""
        return self.unary("stablehlo.rsqrt", x)

    def cosine(self, x: Value) -> Value:
        """The cosine."""
        return self.unary("stablehlo.cosine", x)

    def sine(self, x: Value) -> Value:
        """The sine."""
        return self.unary("stablehlo.sine", x)

    def tan(self, x: Value) -> Value:
        """The tangent."""
        return self.unary("stablehlo.tan", x)

    def tanh(self, x: Value) -> Value:
        """The hyperbolic tangent."""
        return self.unary("stablehlo.tanh", x)

    def logistic(self, x: Value) -> Value:
        """1 / (1 + exp(-x))."""
        return self.unary("stablehlo.logistic", x)

    def erf(self, x: Value) -> Value:
        """The error function (chlo.erf)."""
        return self.unary("chlo.erf", x)

    def floor(self, x: Value) -> Value:
        """Largest integer not above x, as a float."""
        return self.unary("stablehlo.floor", x)

    def ceil(self, x: Value) -> Value:
        """Smallest integer not below x, as a float."""
        return self.unary("stablehlo.ceil", x)

    def round_half_even(self, x: Value) -> Value:
        """Nearest integer, ties to even, as a float: what torch.round means."""
        return self.unary("stablehlo.round_nearest_even", x)

    # ---- choice, comparison, conversion ------------------------------------------------------

    def compare(self, x: Value, y: Value, direction: str) -> Value:
        """A bool tensor; direction is EQ, NE, LT, LE, GT or GE; comparisons with NaN as IEEE."""
        shape, dtype = self.types.describe(x.type)
        if dtype in _UNSIGNED:
            kind = "UNSIGNED"
        else:
            kind = "SIGNED" if is_integer(dtype) else "FLOAT"
        attributes = {
            "comparison_direction": _stablehlo.ComparisonDirectionAttr.get(direction),
            "compare_type": _stablehlo.ComparisonTypeAttr.get(kind),
        }
        return self.op1(
            "stablehlo.compare", [x, y], self.types.tensor(shape, torch.bool), attributes
        )

    def is_finite(self, x: Value) -> Value:
        """A bool tensor: neither infinite nor NaN."""
        return self.op1("stablehlo.is_finite", [x], self.types.tensor(self.shape(x), torch.bool))

    def select(self, predicate: Value, x: Value, y: Value) -> Value:
        """x where the predicate (0-d or of the same shape) holds, else y."""
        return self.op1("stablehlo.select", [predicate, x, y], x.type)

    def convert(self, x: Value, dtype: torch.dtype) -> Value:
        """StableHLO's convert; `x` itself when it has the dtype already.

        Out of the integer's range it is undefined: from float to integer use
        `semantics.convert_like_eager`.
        """
        shape, source = self.types.describe(x.type)
        if source is dtype:
            return x
        return self.op1("stablehlo.convert", [x], self.types.tensor(shape, dtype))

    def bitcast_convert(self, x: Value, dtype: torch.dtype) -> Value:
        """The same bits as another dtype; a last dimension goes or comes where widths differ."""
        shape, source = self.types.describe(x.type)
        old, new = source.itemsize, dtype.itemsize
        if new < old:
            shape = (*shape, old // new)
        elif new > old:
            shape = shape[:-1]
        return self.op1("stablehlo.bitcast_convert", [x], self.types.tensor(shape, dtype))
