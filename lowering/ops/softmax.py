"""Softmax, log-softmax, their gradients, and the negative log-likelihood losses.

In: scores, one dimension. Out: probabilities, log-probabilities, gradients, losses. Invariant:
emitted as max, exp, sum, divide over one row, in float32 for 16-bit floats, so that all of it can
be one fused kernel.
"""

from __future__ import annotations

import math

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.ops.reduction import keep, max_over, sum_over
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value


def _dims(b: Builder, x: Value, dim: int) -> list[int]:
    rank = b.rank(x)
    return [dim % rank] if rank else []


def _wide(b: Builder, x: Value) -> Value:
    return sem.convert_like_eager(b, x, sem.math_dtype(b.result_dtype()))


def softmax_rows(b: Builder, x: Value, dims: list[int], *, safe: bool) -> Value:
    """exp(x - max) / sum; if `safe`, a row of -inf only gives zeros instead of NaN (T119)."""
    shape = b.shape(x)
    top = max_over(b, x, dims)
    if safe:
        empty = b.compare(top, b.full_like(top, -math.inf), "EQ")
        top = b.select(empty, b.full_like(top, 0.0), top)
    weights = b.exp(b.subtract(x, keep(b, top, dims, shape)))
    total = sum_over(b, weights, dims)
    if safe:
        total = b.select(empty, b.full_like(total, 1.0), total)
    return b.divide(weights, keep(b, total, dims, shape))


@emits(aten._softmax.default)
def softmax(b: Builder, x: Value, dim: int, half_to_float: bool) -> Value:
    """Softmax along one dimension."""
    made = softmax_rows(b, _wide(b, x), _dims(b, x, dim), safe=False)
    return b.convert(made, b.result_dtype())


@emits(aten._safe_softmax.default)
def safe_softmax(b: Builder, x: Value, dim: int, dtype: torch.dtype | None = None) -> Value:
    """Softmax that gives zeros for a row of -inf only."""
    made = softmax_rows(b, _wide(b, x), _dims(b, x, dim), safe=True)
    return b.convert(made, b.result_dtype())


@emits(aten._log_softmax.default)
def log_softmax(b: Builder, x: Value, dim: int, half_to_float: bool) -> Value:
    """x - max - log(sum(exp(x - max)))."""
    wide, dims = _wide(b, x), _dims(b, x, dim)
    shape = b.shape(x)
    shifted = b.subtract(wide, keep(b, max_over(b, wide, dims), dims, shape))
    total = b.log(sum_over(b, b.exp(shifted), dims))
    return b.convert(b.subtract(shifted, keep(b, total, dims, shape)), b.result_dtype())


@emits(aten._softmax_backward_data.default)
def softmax_backward(
    b: Builder, grad: Value, output: Value, dim: int, input_dtype: torch.dtype
) -> Value:
    """Output * (grad - sum(grad * output))."""
    dims, math_dtype = _dims(b, grad, dim), sem.math_dtype(b.dtype(grad))
    grad, output = b.convert(grad, math_dtype), b.convert(output, math_dtype)
    product = b.multiply(grad, output)
    total = keep(b, sum_over(b, product, dims), dims, b.shape(grad))
    made = b.subtract(product, b.multiply(output, total))
    return b.convert(made, b.result_dtype())


@emits(aten._log_softmax_backward_data.default)
def log_softmax_backward(
    b: Builder, grad: Value, output: Value, dim: int, input_dtype: torch.dtype
) -> Value:
    """Grad - exp(output) * sum(grad)."""
    dims, math_dtype = _dims(b, grad, dim), sem.math_dtype(b.dtype(grad))
    grad, output = b.convert(grad, math_dtype), b.convert(output, math_dtype)
    total = keep(b, sum_over(b, grad, dims), dims, b.shape(grad))
    made = b.subtract(grad, b.multiply(b.exp(output), total))
    return b.convert(made, b.result_dtype())


# ---- negative log-likelihood -----------------------------------------------------------------
#
# The class axis is compared with the target instead of gathered from: the mask then fuses with the
# softmax around it. A target outside [0, classes), which eager refuses, contributes nothing.

_NONE, _MEAN, _SUM = 0, 1, 2


def _target_mask(
    b: Builder, target: Value, axis: int, shape: tuple[int, ...], ignore_index: int
) -> Value:
    classes = b.iota(shape, axis, torch.int64)
    wanted = keep(b, b.convert(target, torch.int64), [axis], shape)
    hit = b.compare(classes, wanted, "EQ")
    if 0 <= ignore_index < shape[axis]:
        hit = b.and_(hit, b.compare(wanted, b.full_like(wanted, ignore_index), "NE"))
    return hit


def _class_weights(b: Builder, x: Value, weight: Value | None, axis: int) -> Value:
    if weight is None:
        return b.full_like(x, 1.0)
    return b.broadcast_in_dim(b.convert(weight, b.dtype(x)), b.shape(x), [axis])


@emits(aten.nll_loss_forward.default, aten.nll_loss2d_forward.default)
def nll_loss_forward(
    b: Builder, x: Value, target: Value, weight: Value | None, reduction: int, ignore_index: int
) -> list[Value]:
    """-weight[target] * x[target], per element or reduced; and the total weight."""
    dtype = b.result_dtype()
    wide = b.convert(x, sem.math_dtype(dtype))
    axis = 0 if b.rank(x) == 1 else 1
    hit = _target_mask(b, target, axis, b.shape(x), ignore_index)
    zero = b.full_like(wide, 0.0)
    weights = b.select(hit, _class_weights(b, wide, weight, axis), zero)
    picked = b.select(hit, b.multiply(_class_weights(b, wide, weight, axis), b.negate(wide)), zero)
    losses = sum_over(b, picked, [axis])
    every = list(range(b.rank(losses)))
    total_weight = sum_over(b, weights, list(range(b.rank(x))))
    if reduction == _NONE:
        total_weight = b.full_like(total_weight, 0.0)
        loss = losses
    else:
        loss = sum_over(b, losses, every)
        if reduction == _MEAN:
            loss = b.divide(loss, total_weight)
    return [b.convert(loss, dtype), b.convert(total_weight, b.result_dtype(1))]


@emits(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def nll_loss_backward(
    b: Builder,
    grad: Value,
    x: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignore_index: int,
    total_weight: Value,
) -> Value:
    """-weight[target] * grad at the target, 0 elsewhere; divided by the total weight for a mean."""
    dtype, shape = b.result_dtype(), b.shape(x)
    math_dtype = sem.math_dtype(dtype)
    axis = 0 if len(shape) == 1 else 1
    grad = b.convert(grad, math_dtype)
    if reduction == _MEAN:
        grad = b.divide(grad, b.convert(total_weight, math_dtype))
    if reduction == _NONE and b.rank(grad):
        grad = keep(b, grad, [axis], shape)
    else:
        grad = b.broadcast_in_dim(grad, shape, [])
    hit = _target_mask(b, target, axis, shape, ignore_index)
    if weight is not None:
        grad = b.multiply(grad, _class_weights(b, grad, weight, axis))
    return b.convert(b.select(hit, b.negate(grad), b.full_like(grad, 0.0)), dtype)
