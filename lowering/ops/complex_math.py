"""Functions of a complex tensor: modulus, angle, exp, log, roots, powers, trigonometry.

In: a `Pair`. Out: a `Pair`, or a real value. Invariant: formulas for the parts are those of
Abramowitz & Stegun chapter 4 and of Kahan 1987 ("Branch cuts for complex elementary functions").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.ops import random
from neuron_compile.lowering.ops.arithmetic import hypotenuse
from neuron_compile.lowering.ops.complex import Operand, as_pair, divide, each, multiply, scaled
from neuron_compile.lowering.ops.reduction import (
    norm_of_sizes,
    reduced_dims,
    variance_over,
)
from neuron_compile.lowering.pairs import Pair
from neuron_compile.lowering.registry import emits_complex

aten = torch.ops.aten
Value = ir.Value
Dims = int | Sequence[int] | None


@emits_complex(aten.abs.default)
def modulus(b: Builder, x: Pair) -> Value:
    """sqrt(re^2 + im^2) without early overflow."""
    return hypotenuse(b, x.real, x.imag)


@emits_complex(aten.angle.default)
def angle(b: Builder, x: Pair) -> Value:
    """The argument, in [-pi, pi]."""
    return b.atan2(x.imag, x.real)


@emits_complex(aten.sgn.default)
def sgn(b: Builder, x: Pair) -> Pair:
    """x / |x|, 0 at 0."""
    size = modulus(b, x)
    zero = b.full_like(size, 0.0)
    at_zero = b.compare(size, zero, "EQ")
    safe = b.select(at_zero, b.full_like(size, 1.0), size)
    return each(lambda part: b.select(at_zero, zero, b.divide(part, safe)), x)


@emits_complex(aten.reciprocal.default)
def reciprocal(b: Builder, x: Pair) -> Pair:
    """1 / x."""
    return divide(b, as_pair(b, 1.0), x)


@emits_complex(aten.exp.default)
def exp(b: Builder, x: Pair) -> Pair:
    """e^re (cos im + i sin im); a real x stays real, also where e^re overflows."""
    size = b.exp(x.real)
    is_real = b.compare(x.imag, b.full_like(x.imag, 0.0), "EQ")
    imag = b.select(is_real, x.imag, b.multiply(size, b.sine(x.imag)))
    return Pair(b.multiply(size, b.cosine(x.imag)), imag)


@emits_complex(aten.log.default)
def log(b: Builder, x: Pair) -> Pair:
    """log |x| + i angle."""
    return Pair(b.log(modulus(b, x)), angle(b, x))


@emits_complex(aten.log2.default)
def log2(b: Builder, x: Pair) -> Pair:
    """Logarithm to base 2."""
    return scaled(b, log(b, x), 1.0 / math.log(2.0))


@emits_complex(aten.log10.default)
def log10(b: Builder, x: Pair) -> Pair:
    """Logarithm to base 10."""
    return scaled(b, log(b, x), 1.0 / math.log(10.0))


@emits_complex(aten.log1p.default)
def log1p(b: Builder, x: Pair) -> Pair:
    """log(1 + x): |1 + x|^2 - 1 = re (2 + re) + im^2 keeps small x exact."""
    one, two = b.full_like(x.real, 1.0), b.full_like(x.real, 2.0)
    excess = b.add(b.multiply(x.real, b.add(two, x.real)), b.multiply(x.imag, x.imag))
    shifted = b.add(one, x.real)
    near = b.multiply(b.full_like(x.real, 0.5), b.log1p(excess))
    small = b.compare(hypotenuse(b, x.real, x.imag), b.full_like(x.real, 0.5), "LT")
    far = b.log(hypotenuse(b, shifted, x.imag))
    return Pair(b.select(small, near, far), b.atan2(x.imag, shifted))


@emits_complex(aten.sqrt.default)
def sqrt(b: Builder, x: Pair) -> Pair:
    """The root with a real part >= 0."""
    zero, half = b.full_like(x.real, 0.0), b.full_like(x.real, 0.5)
    size = modulus(b, x)
    root = b.sqrt(b.multiply(half, b.add(b.abs(x.real), size)))
    at_zero = b.compare(root, zero, "EQ")
    other = b.multiply(
        half, b.divide(b.abs(x.imag), b.select(at_zero, b.full_like(root, 1.0), root))
    )
    right = b.compare(x.real, zero, "GE")
    real, imag = b.select(right, root, other), b.select(right, other, root)
    return Pair(b.select(at_zero, zero, real), sem.copysign(b, imag, x.imag))


@emits_complex(aten.rsqrt.default)
def rsqrt(b: Builder, x: Pair) -> Pair:
    """1 / sqrt(x)."""
    return reciprocal(b, sqrt(b, x))


@emits_complex(aten.pow.Tensor_Scalar)
def power_scalar(b: Builder, x: Operand, exponent: Scalar) -> Pair:
    """x ** exponent; small whole exponents by multiplication."""
    base = as_pair(b, x)
    if exponent == 0:
        return as_pair(b, 1.0)
    if exponent == 0.5:
        return sqrt(b, base)
    if not isinstance(exponent, complex) and exponent in (1, 2, 3, 4, -1, -2, -3, -4):
        made = base
        for _ in range(int(abs(exponent)) - 1):
            made = multiply(b, made, base)
        return reciprocal(b, made) if exponent < 0 else made
    return power(b, base, exponent)


@emits_complex(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def power(b: Builder, x: Operand, y: Operand) -> Pair:
    """exp(y log x); 0 ** y is 0, or 1 for y == 0."""
    base, exponent = as_pair(b, x), as_pair(b, y)
    zero, one = b.full_like(base.real, 0.0), b.full_like(base.real, 1.0)

    def is_zero(p: Pair) -> Value:
        parts = each(lambda part: b.compare(part, zero, "EQ"), p)
        return b.and_(parts.real, parts.imag)

    made = exp(b, multiply(b, exponent, log(b, base)))
    from_zero, to_zero = is_zero(base), is_zero(exponent)
    made = each(lambda part: b.select(from_zero, zero, part), made)
    return Pair(b.select(to_zero, one, made.real), b.select(to_zero, zero, made.imag))


# ---- trigonometry ----------------------------------------------------------------------------


def _half_exponentials(b: Builder, x: Value) -> tuple[Value, Value]:
    """(cosh x, sinh x)."""
    return b.unary("chlo.cosh", x), b.unary("chlo.sinh", x)


@emits_complex(aten.sin.default)
def sin(b: Builder, x: Pair) -> Pair:
    """sin re cosh im + i cos re sinh im."""
    cosh, sinh = _half_exponentials(b, x.imag)
    return Pair(b.multiply(b.sine(x.real), cosh), b.multiply(b.cosine(x.real), sinh))


@emits_complex(aten.cos.default)
def cos(b: Builder, x: Pair) -> Pair:
    """cos re cosh im - i sin re sinh im."""
    cosh, sinh = _half_exponentials(b, x.imag)
    return Pair(b.multiply(b.cosine(x.real), cosh), b.negate(b.multiply(b.sine(x.real), sinh)))


@emits_complex(aten.sinh.default)
def sinh(b: Builder, x: Pair) -> Pair:
    """sinh re cos im + i cosh re sin im."""
    cosh, sinh = _half_exponentials(b, x.real)
    return Pair(b.multiply(sinh, b.cosine(x.imag)), b.multiply(cosh, b.sine(x.imag)))


@emits_complex(aten.cosh.default)
def cosh(b: Builder, x: Pair) -> Pair:
    """cosh re cos im + i sinh re sin im."""
    cosh, sinh = _half_exponentials(b, x.real)
    return Pair(b.multiply(cosh, b.cosine(x.imag)), b.multiply(sinh, b.sine(x.imag)))


@emits_complex(aten.tanh.default)
def tanh(b: Builder, x: Pair) -> Pair:
    """Kahan's form: with t = tan im, s = sinh re, beta = 1 + t^2, rho = sqrt(1 + s^2).

    Where |re| is so large that s^2 overflows, the result is +-1.
    """
    one = b.full_like(x.real, 1.0)
    far = b.compare(b.abs(x.real), b.full_like(x.real, 20.0), "GT")
    near = b.select(far, b.full_like(x.real, 0.0), x.real)
    t, s = b.tan(x.imag), b.unary("chlo.sinh", near)
    beta = b.add(one, b.multiply(t, t))
    square = b.multiply(s, s)
    below = b.add(one, b.multiply(beta, square))
    real = b.divide(b.multiply(b.multiply(beta, b.sqrt(b.add(one, square))), s), below)
    imag = b.divide(t, below)
    return Pair(
        b.select(far, sem.copysign(b, one, x.real), real),
        b.select(far, b.full_like(imag, 0.0), imag),
    )


@emits_complex(aten.tan.default)
def tan(b: Builder, x: Pair) -> Pair:
    """-i tanh(i x)."""
    turned = tanh(b, Pair(b.negate(x.imag), x.real))
    return Pair(turned.imag, b.negate(turned.real))


@emits_complex(aten.sigmoid.default)
def sigmoid(b: Builder, x: Pair) -> Pair:
    """1 / (1 + exp(-x))."""
    grown = exp(b, each(b.negate, x))
    return reciprocal(b, Pair(b.add(grown.real, b.full_like(grown.real, 1.0)), grown.imag))


@emits_complex(aten.tanh_backward.default)
def tanh_backward(b: Builder, grad: Pair, y: Pair) -> Pair:
    """grad * conj(1 - y * y)."""
    square = multiply(b, y, y)
    slope = Pair(b.subtract(b.full_like(square.real, 1.0), square.real), square.imag)
    return multiply(b, grad, slope)


@emits_complex(aten.sigmoid_backward.default)
def sigmoid_backward(b: Builder, grad: Pair, y: Pair) -> Pair:
    """grad * conj(y * (1 - y))."""
    rest = Pair(b.subtract(b.full_like(y.real, 1.0), y.real), b.negate(y.imag))
    slope = multiply(b, y, rest)
    return multiply(b, grad, Pair(slope.real, b.negate(slope.imag)))


@emits_complex(aten.silu.default)
def silu(b: Builder, x: Pair) -> Pair:
    """x * sigmoid(x)."""
    return multiply(b, x, sigmoid(b, x))


@emits_complex(aten.exp2.default)
def exp2(b: Builder, x: Pair) -> Pair:
    """2 ** x."""
    return exp(b, scaled(b, x, math.log(2.0)))


@emits_complex(aten.expm1.default)
def expm1(b: Builder, x: Pair) -> Pair:
    """e ** x - 1: with 1 - cos im as 2 sin(im / 2)^2, the real part does not cancel near 0."""
    half = b.sine(b.multiply(x.imag, b.full_like(x.imag, 0.5)))
    turn = b.multiply(b.full_like(half, 2.0), b.multiply(half, half))
    real = b.subtract(b.multiply(b.expm1(x.real), b.cosine(x.imag)), turn)
    return Pair(real, b.multiply(b.exp(x.real), b.sine(x.imag)))


# ---- spread: the variance is that of the real part plus that of the imaginary part ------------


def _spread(
    b: Builder, x: Pair, dim: Dims, correction: Scalar | None, *, root: bool
) -> tuple[Value, Pair]:
    assert not isinstance(correction, complex)
    dims = reduced_dims(dim, b.rank(x.real))
    shape, freedom = b.result_shape(), 1.0 if correction is None else float(correction)
    (real, mean), (imag, mean_imag) = (
        variance_over(b, part, dims, freedom) for part in (x.real, x.imag)
    )
    variance = b.reshape(b.add(real, imag), shape)
    return (b.sqrt(variance) if root else variance), Pair(
        b.reshape(mean, shape), b.reshape(mean_imag, shape)
    )


@emits_complex(aten.var.correction)
def var(
    b: Builder,
    x: Pair,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Value:
    """Variance."""
    return _spread(b, x, dim, correction, root=False)[0]


@emits_complex(aten.std.correction)
def std(
    b: Builder,
    x: Pair,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Value:
    """Standard deviation."""
    return _spread(b, x, dim, correction, root=True)[0]


@emits_complex(aten.var_mean.correction)
def var_mean(
    b: Builder,
    x: Pair,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> list[Value | Pair]:
    """Variance and mean."""
    return list(_spread(b, x, dim, correction, root=False))


@emits_complex(aten.std_mean.correction)
def std_mean(
    b: Builder,
    x: Pair,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> list[Value | Pair]:
    """Standard deviation and mean."""
    return list(_spread(b, x, dim, correction, root=True))


# ---- norms and random numbers ----------------------------------------------------------------


@emits_complex(aten.linalg_vector_norm.default)
def vector_norm(
    b: Builder,
    x: Pair,
    ord: Scalar = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    """The norm of the moduli."""
    assert not isinstance(ord, complex)
    size = sem.convert_like_eager(b, modulus(b, x), b.result_dtype())
    made = norm_of_sizes(b, size, float(ord), reduced_dims(dim, b.rank(size)))
    return b.reshape(made, b.result_shape())


@emits_complex(aten.randn.default, aten.randn_like.default)
def randn(b: Builder, *_: object, dtype: torch.dtype | None = None) -> Pair:
    """Normal with variance 1/2 in each part."""
    shape, part_dtype = b.result_shape(), b.result_dtype()
    parts = Pair(*(random.normal(b, shape, part_dtype) for _ in range(2)))
    return scaled(b, parts, math.sqrt(0.5))


@emits_complex(aten.native_dropout.default)
def native_dropout(b: Builder, x: Pair, p: float, train: bool | None) -> list[Pair | Value]:
    """Both parts of a share p of the elements zeroed, the rest divided by 1 - p; and the mask."""
    real, mask = random.native_dropout(b, x.real, p, train)
    if real is x.real:
        return [x, mask]
    kept = b.multiply(x.imag, b.convert(mask, b.dtype(x.imag)))
    return [Pair(real, b.multiply(kept, b.full_like(kept, 0.0 if p == 1 else 1 / (1 - p)))), mask]
