"""Activation functions and their gradients.

In: input, saved values, parameters. Out: the activation or the gradient of its input. Invariant:
everything is computed in float32 for 16-bit floats and rounded once, as eager's kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value


def _computed(b: Builder, function: Callable[..., Value], *tensors: Value) -> Value:
    """Function over the tensors in eager's math dtype, rounded to the result's dtype once."""
    dtype = b.result_dtype()
    wide = [sem.convert_like_eager(b, x, sem.math_dtype(dtype)) for x in tensors]
    shape = b.result_shape()
    return b.convert(function(*(b.broadcast_to(x, shape) for x in wide)), dtype)


@emits(aten.relu.default)
def relu(b: Builder, x: Value) -> Value:
    """max(x, 0); NaN stays."""
    return sem.at_least(b, x, 0)


@emits(aten.relu6.default)
def relu6(b: Builder, x: Value) -> Value:
    """min(max(x, 0), 6)."""
    return sem.at_most(b, sem.at_least(b, x, 0), 6)


@emits(aten.threshold_backward.default)
def threshold_backward(b: Builder, grad: Value, x: Value, threshold: Scalar) -> Value:
    """The gradient where x > threshold (also where x is NaN), else 0."""

    def combine(grad: Value, x: Value) -> Value:
        off = b.compare(x, b.full_like(x, threshold), "LE")
        return b.select(off, b.full_like(grad, 0), grad)

    return _computed(b, combine, grad, x)


@emits(aten.threshold.default)
def threshold(b: Builder, x: Value, threshold: Scalar, value: Scalar) -> Value:
    """x where x > threshold (or NaN), else value."""
    off = b.compare(x, b.full_like(x, threshold), "LE")
    return b.select(off, b.full_like(x, value), x)


# ---- GELU: "none" is x * Phi(x); "tanh" the usual approximation --------------------------------

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715  # Hendrycks & Gimpel 2016, section 2


@emits(aten.gelu.default)
def gelu(b: Builder, x: Value, *, approximate: str = "none") -> Value:
    """The Gaussian error linear unit."""

    def exact(x: Value) -> Value:
        return b.multiply(x, _normal_cdf(b, x))

    def by_tanh(x: Value) -> Value:
        half = b.multiply(b.full_like(x, 0.5), x)
        return b.multiply(half, b.add(b.full_like(x, 1.0), b.tanh(_tanh_argument(b, x))))

    return _computed(b, by_tanh if approximate == "tanh" else exact, x)


def _normal_cdf(b: Builder, x: Value) -> Value:
    erf = b.erf(b.multiply(x, b.full_like(x, _SQRT_HALF)))
    return b.multiply(b.full_like(x, 0.5), b.add(b.full_like(x, 1.0), erf))


def _tanh_argument(b: Builder, x: Value) -> Value:
    cube = b.multiply(b.multiply(x, x), x)
    return b.multiply(
        b.full_like(x, _SQRT_2_OVER_PI), b.add(x, b.multiply(b.full_like(x, _CUBIC), cube))
    )


@emits(aten.gelu_backward.default)
def gelu_backward(b: Builder, grad: Value, x: Value, *, approximate: str = "none") -> Value:
    """Grad * d gelu / dx."""

    def exact(grad: Value, x: Value) -> Value:
        square = b.multiply(x, x)
        density = b.multiply(
            b.exp(b.multiply(square, b.full_like(x, -0.5))),
            b.full_like(x, 1.0 / math.sqrt(2.0 * math.pi)),
        )
        return b.multiply(grad, b.add(_normal_cdf(b, x), b.multiply(x, density)))

    def by_tanh(grad: Value, x: Value) -> Value:
        one, half = b.full_like(x, 1.0), b.full_like(x, 0.5)
        tanh = b.tanh(_tanh_argument(b, x))
        square = b.multiply(x, x)
        inner = b.multiply(
            b.full_like(x, _SQRT_2_OVER_PI),
            b.add(one, b.multiply(b.full_like(x, 3.0 * _CUBIC), square)),
        )
        left = b.multiply(half, b.add(one, tanh))
        right = b.multiply(
            b.multiply(b.multiply(half, x), b.subtract(one, b.multiply(tanh, tanh))), inner
        )
        return b.multiply(grad, b.add(left, right))

    return _computed(b, by_tanh if approximate == "tanh" else exact, grad, x)


# ---- sigmoid and its kin -------------------------------------------------------------------------


@emits(aten.silu.default)
def silu(b: Builder, x: Value) -> Value:
    """x * sigmoid(x)."""
    return _computed(b, lambda x: b.multiply(x, b.logistic(x)), x)


@emits(aten.silu_backward.default)
def silu_backward(b: Builder, grad: Value, x: Value) -> Value:
    """Grad * s * (1 + x * (1 - s)), s = sigmoid(x)."""

    def combine(grad: Value, x: Value) -> Value:
        one, s = b.full_like(x, 1.0), b.logistic(x)
        slope = b.multiply(s, b.add(one, b.multiply(x, b.subtract(one, s))))
        return b.multiply(grad, slope)

    return _computed(b, combine, grad, x)


@emits(aten.sigmoid_backward.default)
def sigmoid_backward(b: Builder, grad: Value, y: Value) -> Value:
    """Grad * y * (1 - y), y the sigmoid."""
    return _computed(
        b, lambda g, y: b.multiply(g, b.multiply(y, b.subtract(b.full_like(y, 1.0), y))), grad, y
    )


@emits(aten.tanh_backward.default)
def tanh_backward(b: Builder, grad: Value, y: Value) -> Value:
    """Grad * (1 - y * y), y the tanh."""
    return _computed(
        b, lambda g, y: b.multiply(g, b.subtract(b.full_like(y, 1.0), b.multiply(y, y))), grad, y
    )


@emits(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(b: Builder, x: Value) -> list[Value]:
    """min(x, 0) - log1p(buffer), and the buffer exp(-|x|)."""
    wide = b.convert(x, sem.math_dtype(b.dtype(x)))
    buffer = b.exp(b.negate(b.abs(wide)))
    made = b.subtract(b.minimum(wide, b.full_like(wide, 0.0)), b.log1p(buffer))
    if b.result_shape(1) != b.shape(x):  # on other devices than the CPU there is no buffer
        buffer = b.full(b.result_shape(1), 0.0, b.dtype(wide))
    return [b.convert(made, b.result_dtype()), b.convert(buffer, b.result_dtype(1))]


@emits(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(b: Builder, grad: Value, x: Value, buffer: Value) -> Value:
    """Grad * sigmoid(-x)."""
    return _computed(b, lambda g, x: b.multiply(g, b.logistic(b.negate(x))), grad, x)


@emits(aten.softplus.default)
def softplus(b: Builder, x: Value, beta: Scalar = 1, threshold: Scalar = 20) -> Value:
    """log1p(exp(beta x)) / beta; x itself where beta x > threshold."""

    def combine(x: Value) -> Value:
        scaled = b.multiply(x, b.full_like(x, beta))
        soft = b.divide(b.log1p(b.exp(scaled)), b.full_like(x, beta))
        return b.select(b.compare(scaled, b.full_like(x, threshold), "GT"), x, soft)

    return _computed(b, combine, x)


@emits(aten.softplus_backward.default)
def softplus_backward(b: Builder, grad: Value, x: Value, beta: Scalar, threshold: Scalar) -> Value:
    """Grad * sigmoid(beta x); grad itself above the threshold."""

    def combine(grad: Value, x: Value) -> Value:
        scaled = b.multiply(x, b.full_like(x, beta))
        above = b.compare(scaled, b.full_like(x, threshold), "GT")
        return b.select(above, grad, b.multiply(grad, b.logistic(scaled)))

    return _computed(b, combine, grad, x)


@emits(aten.mish.default)
def mish(b: Builder, x: Value) -> Value:
    """x * tanh(log1p(exp(x)))."""
    return _computed(b, lambda x: b.multiply(x, b.tanh(b.log1p(b.exp(x)))), x)


@emits(aten.hardsigmoid.default)
def hardsigmoid(b: Builder, x: Value) -> Value:
    """min(max(x + 3, 0), 6) / 6."""
    return _computed(b, lambda x: _six_th(b, _ramp6(b, x)), x)


@emits(aten.hardswish.default)
def hardswish(b: Builder, x: Value) -> Value:
    """x * min(max(x + 3, 0), 6) / 6."""
    return _computed(b, lambda x: _six_th(b, b.multiply(x, _ramp6(b, x))), x)


def _ramp6(b: Builder, x: Value) -> Value:
    shifted = b.add(x, b.full_like(x, 3.0))
    return b.minimum(b.maximum(shifted, b.full_like(x, 0.0)), b.full_like(x, 6.0))


def _six_th(b: Builder, x: Value) -> Value:
    return b.divide(x, b.full_like(x, 6.0))


@emits(aten.hardtanh.default)
def hardtanh(b: Builder, x: Value, min_val: Scalar = -1, max_val: Scalar = 1) -> Value:
    """min(max(x, min_val), max_val)."""
    return sem.at_most(b, sem.at_least(b, x, min_val), max_val)


@emits(aten.elu.default)
def elu(
    b: Builder, x: Value, alpha: Scalar = 1, scale: Scalar = 1, input_scale: Scalar = 1
) -> Value:
    """Scale * x above 0, scale * alpha * expm1(input_scale * x) below."""

    def combine(x: Value) -> Value:
        curve = b.multiply(
            b.expm1(b.multiply(x, b.full_like(x, input_scale))), b.full_like(x, alpha * scale)
        )
        line = b.multiply(x, b.full_like(x, scale))
        return b.select(b.compare(x, b.full_like(x, 0.0), "LE"), curve, line)

    return _computed(b, combine, x)


@emits(aten.leaky_relu.default)
def leaky_relu(b: Builder, x: Value, negative_slope: Scalar = 0.01) -> Value:
    """x above 0, negative_slope * x below."""

    def combine(x: Value) -> Value:
        return b.select(
            b.compare(x, b.full_like(x, 0.0), "GT"),
            x,
            b.multiply(x, b.full_like(x, negative_slope)),
        )

    return _computed(b, combine, x)


@emits(aten.leaky_relu_backward.default)
def leaky_relu_backward(
    b: Builder, grad: Value, x: Value, negative_slope: Scalar, self_is_result: bool
) -> Value:
    """Grad above 0, negative_slope * grad below."""

    def combine(grad: Value, x: Value) -> Value:
        return b.select(
            b.compare(x, b.full_like(x, 0.0), "GT"),
            grad,
            b.multiply(grad, b.full_like(grad, negative_slope)),
        )

    return _computed(b, combine, grad, x)
