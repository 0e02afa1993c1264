"""Layer, group, batch and RMS normalisation, forward and backward.

In: input, statistics, affine parameters. Out: normalised tensors, statistics, gradients. Invariant:
statistics are computed in float32 for 16-bit floats; emitted as row reductions and elementwise ops
so that a norm and its neighbours can be one fused kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.ops.reduction import keep, mean_over, sum_over, variance_over
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value


def _wide(b: Builder, x: Value) -> Value:
    return b.convert(x, sem.math_dtype(b.dtype(x)))


def _reciprocal_root(b: Builder, variance: Value, eps: float) -> Value:
    return b.rsqrt(b.add(variance, b.full_like(variance, eps)))


# ---- layer norm ------------------------------------------------------------------------------


@emits(aten.native_layer_norm.default)
def layer_norm(
    b: Builder,
    x: Value,
    normalized_shape: Sequence[int],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> list[Value]:
    """(x - mean) * rstd * weight + bias over the trailing dimensions; mean and rstd."""
    shape, wide = b.shape(x), _wide(b, x)
    dims = list(range(len(shape) - len(normalized_shape), len(shape)))
    variance, mean = variance_over(b, wide, dims, 0.0)
    rstd = _reciprocal_root(b, variance, eps)
    made = b.multiply(b.subtract(wide, keep(b, mean, dims, shape)), keep(b, rstd, dims, shape))
    if weight is not None:
        made = b.multiply(made, b.broadcast_to(b.convert(weight, b.dtype(made)), shape))
    if bias is not None:
        made = b.add(made, b.broadcast_to(b.convert(bias, b.dtype(made)), shape))
    return [b.convert(made, b.result_dtype()), _statistic(b, mean, 1), _statistic(b, rstd, 2)]


def _statistic(b: Builder, value: Value, index: int) -> Value:
    return b.reshape(b.convert(value, b.result_dtype(index)), b.result_shape(index))


@emits(aten.native_layer_norm_backward.default)
def layer_norm_backward(
    b: Builder,
    grad: Value,
    x: Value,
    normalized_shape: Sequence[int],
    mean: Value,
    rstd: Value,
    weight: Value | None,
    bias: Value | None,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    """Gradients of input, weight and bias."""
    shape, grad, wide = b.shape(x), _wide(b, grad), _wide(b, x)
    dtype = b.dtype(wide)
    lead = len(shape) - len(normalized_shape)
    inner, outer = list(range(lead, len(shape))), list(range(lead))
    mean = b.broadcast_to(b.convert(mean, dtype), shape)
    rstd = b.broadcast_to(b.convert(rstd, dtype), shape)
    normal = b.multiply(b.subtract(wide, mean), rstd)
    made: list[Value | None] = [None, None, None]
    if output_mask[0]:
        slope = (
            grad
            if weight is None
            else b.multiply(grad, b.broadcast_to(b.convert(weight, dtype), shape))
        )
        average = keep(b, mean_over(b, slope, inner), inner, shape)
        along = keep(b, mean_over(b, b.multiply(slope, normal), inner), inner, shape)
        centred = b.subtract(b.subtract(slope, average), b.multiply(normal, along))
        made[0] = b.convert(b.multiply(centred, rstd), b.result_dtype(0))
    if output_mask[1]:
        made[1] = b.convert(sum_over(b, b.multiply(grad, normal), outer), b.result_dtype(1))
    if output_mask[2]:
        made[2] = b.convert(sum_over(b, grad, outer), b.result_dtype(2))
    return made


# ---- RMS norm --------------------------------------------------------------------------------


@emits(aten._fused_rms_norm.default)
def rms_norm(
    b: Builder, x: Value, normalized_shape: Sequence[int], weight: Value | None, eps: float | None
) -> list[Value]:
    """x * rsqrt(mean(x * x) + eps) * weight; and the reciprocal root."""
    shape, wide = b.shape(x), _wide(b, x)
    dims = list(range(len(shape) - len(normalized_shape), len(shape)))
    least = torch.finfo(b.dtype(x)).eps if eps is None else eps
    rstd = _reciprocal_root(b, mean_over(b, b.multiply(wide, wide), dims), least)
    made = b.multiply(wide, keep(b, rstd, dims, shape))
    if weight is not None:
        made = b.multiply(made, b.broadcast_to(b.convert(weight, b.dtype(made)), shape))
    return [b.convert(made, b.result_dtype()), _statistic(b, rstd, 1)]


@emits(aten._fused_rms_norm_backward.default)
def rms_norm_backward(
    b: Builder,
    grad: Value,
    x: Value,
    normalized_shape: Sequence[int],
    rstd: Value,
    weight: Value | None,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    """Gradients of input and weight."""
    shape, grad, wide = b.shape(x), _wide(b, grad), _wide(b, x)
    lead = len(shape) - len(normalized_shape)
    inner, outer = list(range(lead, len(shape))), list(range(lead))
    rstd = b.broadcast_to(b.convert(rstd, b.dtype(wide)), shape)
    normal = b.multiply(wide, rstd)
    made: list[Value | None] = [None, None]
    if output_mask[0]:
        slope = (
            grad
            if weight is None
            else b.multiply(grad, b.broadcast_to(b.convert(weight, b.dtype(wide)), shape))
        )
        along = keep(b, mean_over(b, b.multiply(slope, normal), inner), inner, shape)
        made[0] = b.convert(
            b.multiply(b.subtract(slope, b.multiply(normal, along)), rstd), b.result_dtype(0)
        )
    if output_mask[1]:
        made[1] = b.convert(sum_over(b, b.multiply(grad, normal), outer), b.result_dtype(1))
    return made


# ---- group norm ------------------------------------------------------------------------------


@emits(aten.native_group_norm.default)
def group_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> list[Value]:
    """Normalisation over each group of channels; mean and rstd of shape (N, group)."""
    shape = b.shape(x)
    grouped = (N, group, C // group, HxW)
    wide = b.reshape(_wide(b, x), grouped)
    variance, mean = variance_over(b, wide, [2, 3], 0.0)
    rstd = _reciprocal_root(b, variance, eps)
    made = b.multiply(
        b.subtract(wide, keep(b, mean, [2, 3], grouped)), keep(b, rstd, [2, 3], grouped)
    )
    made = b.reshape(made, shape)
    if weight is not None:
        made = b.multiply(made, b.broadcast_in_dim(b.convert(weight, b.dtype(made)), shape, [1]))
    if bias is not None:
        made = b.add(made, b.broadcast_in_dim(b.convert(bias, b.dtype(made)), shape, [1]))
    return [b.convert(made, b.result_dtype()), _statistic(b, mean, 1), _statistic(b, rstd, 2)]


@emits(aten.native_group_norm_backward.default)
def group_norm_backward(
    b: Builder,
    grad: Value,
    x: Value,
    mean: Value,
    rstd: Value,
    weight: Value | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    """Gradients of input, weight and bias."""
    grouped = (N, group, C // group, HxW)
    grad, wide = b.reshape(_wide(b, grad), grouped), b.reshape(_wide(b, x), grouped)
    dtype = b.dtype(wide)
    mean = keep(b, b.reshape(b.convert(mean, dtype), (N, group)), [2, 3], grouped)
    rstd = keep(b, b.reshape(b.convert(rstd, dtype), (N, group)), [2, 3], grouped)
    normal = b.multiply(b.subtract(wide, mean), rstd)
    made: list[Value | None] = [None, None, None]
    if output_mask[0]:
        slope = grad
        if weight is not None:
            per_channel = b.reshape(b.convert(weight, dtype), (group, C // group))
            slope = b.multiply(grad, b.broadcast_in_dim(per_channel, grouped, [1, 2]))
        average = keep(b, mean_over(b, slope, [2, 3]), [2, 3], grouped)
        along = keep(b, mean_over(b, b.multiply(slope, normal), [2, 3]), [2, 3], grouped)
        centred = b.subtract(b.subtract(slope, average), b.multiply(normal, along))
        made[0] = b.convert(b.reshape(b.multiply(centred, rstd), b.shape(x)), b.result_dtype(0))
    if output_mask[1]:
        total = b.reshape(sum_over(b, b.multiply(grad, normal), [0, 3]), (C,))
        made[1] = b.convert(total, b.result_dtype(1))
    if output_mask[2]:
        made[2] = b.convert(b.reshape(sum_over(b, grad, [0, 3]), (C,)), b.result_dtype(2))
    return made


# ---- batch norm ------------------------------------------------------------------------------


def _channel_dims(b: Builder, x: Value) -> list[int]:
    return [d for d in range(b.rank(x)) if d != 1]


def _affine(
    b: Builder, x: Value, mean: Value, rstd: Value, weight: Value | None, bias: Value | None
) -> Value:
    shape, dtype = b.shape(x), b.dtype(x)

    def spread(value: Value) -> Value:
        return b.broadcast_in_dim(b.convert(value, dtype), shape, [1])

    scale = rstd if weight is None else b.multiply(rstd, b.convert(weight, dtype))
    made = b.multiply(b.subtract(x, spread(mean)), spread(scale))
    return made if bias is None else b.add(made, spread(bias))


def _training(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    wide, dims = _wide(b, x), _channel_dims(b, x)
    variance, mean = variance_over(b, wide, dims, 0.0)
    rstd = _reciprocal_root(b, variance, eps)
    return _affine(b, wide, mean, rstd, weight, bias), mean, rstd, variance


def _updated(b: Builder, running: Value, batch: Value, momentum: float, index: int) -> Value:
    """(1 - momentum) * running + momentum * batch, as result `index` of the node.

    Its dtype need not be that of `running`: for bfloat16 the graph expects float32.
    """
    wide = _wide(b, running)
    batch = b.convert(batch, b.dtype(wide))
    kept = b.multiply(wide, b.full_like(wide, 1.0 - momentum))
    updated = b.add(kept, b.multiply(batch, b.full_like(wide, momentum)))
    return b.convert(updated, b.result_dtype(index))


@emits(aten._native_batch_norm_legit_functional.default)
def batch_norm_functional(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Output, saved mean, saved rstd, new running mean, new running variance."""
    if not training:
        normal = batch_norm_inference(b, x, weight, bias, running_mean, running_var, momentum, eps)
        kept = [b.convert(v, b.result_dtype(i)) for i, v in ((3, running_mean), (4, running_var))]
        return [*normal, *kept]
    made, mean, rstd, variance = _training(b, x, weight, bias, eps)
    count = math.prod(n for d, n in enumerate(b.shape(x)) if d != 1)
    # The running variance is the unbiased one; a single value per channel gives inf or NaN there.
    unbiased = b.multiply(variance, b.full_like(variance, count / max(count - 1, 1)))
    return [
        b.convert(made, b.result_dtype()),
        _statistic(b, mean, 1),
        _statistic(b, rstd, 2),
        _updated(b, running_mean, mean, momentum, 3),
        _updated(b, running_var, unbiased, momentum, 4),
    ]


@emits(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    training: bool,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Batch statistics without running ones: output, mean, rstd."""
    made, mean, rstd, _ = _training(b, x, weight, bias, eps)
    return [b.convert(made, b.result_dtype()), _statistic(b, mean, 1), _statistic(b, rstd, 2)]


@emits(aten._native_batch_norm_legit_no_training.default)
def batch_norm_inference(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> list[Value]:
    """Normalisation by the running statistics; the two saved statistics are empty."""
    wide = _wide(b, x)
    mean = b.convert(running_mean, b.dtype(wide))
    rstd = _reciprocal_root(b, b.convert(running_var, b.dtype(wide)), eps)
    made = _affine(b, wide, mean, rstd, weight, bias)
    empty = [b.full(b.result_shape(i), 0.0, b.result_dtype(i)) for i in (1, 2)]
    return [b.convert(made, b.result_dtype()), *empty]


@emits(aten.native_batch_norm_backward.default)
def batch_norm_backward(
    b: Builder,
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_var: Value | None,
    save_mean: Value | None,
    save_rstd: Value | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    """Gradients of input, weight and bias."""
    shape, grad, wide = b.shape(x), _wide(b, grad), _wide(b, x)
    dtype, dims = b.dtype(wide), _channel_dims(b, x)
    if train:
        assert save_mean is not None
        assert save_rstd is not None
        mean, rstd = b.convert(save_mean, dtype), b.convert(save_rstd, dtype)
    else:
        assert running_mean is not None
        assert running_var is not None
        mean = b.convert(running_mean, dtype)
        rstd = _reciprocal_root(b, b.convert(running_var, dtype), eps)
    normal = b.multiply(b.subtract(wide, keep(b, mean, dims, shape)), keep(b, rstd, dims, shape))
    grad_sum = sum_over(b, grad, dims)
    along_sum = sum_over(b, b.multiply(grad, normal), dims)
    made: list[Value | None] = [None, None, None]
    if output_mask[0]:
        scale = rstd if weight is None else b.multiply(rstd, b.convert(weight, dtype))
        centred = grad
        if train:
            count = math.prod(shape[d] for d in dims)
            share = b.full_like(grad_sum, 1.0 / max(count, 1))
            average = keep(b, b.multiply(grad_sum, share), dims, shape)
            along = keep(b, b.multiply(along_sum, share), dims, shape)
            centred = b.subtract(b.subtract(grad, average), b.multiply(normal, along))
        made[0] = b.convert(b.multiply(centred, keep(b, scale, dims, shape)), b.result_dtype(0))
    if output_mask[1]:
        made[1] = b.convert(along_sum, b.result_dtype(1))
    if output_mask[2]:
        made[2] = b.convert(grad_sum, b.result_dtype(2))
    return made
