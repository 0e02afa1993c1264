"""Convolutions and their gradients: one plain `stablehlo.convolution` each.

In: aten.convolution / convolution_backward on [N, C, *spatial] values, weights [O, C/groups, *k]
(transposed: [C, O/groups, *k]). Out: StableHLO convolutions whose half precision sums are kept in
float32. Invariant: no operand is copied or padded in memory; all geometry is in the attributes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Geometry:
    """Stride, padding and dilation of a (not transposed) convolution, one entry per dimension."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def rank(self) -> int:
        """Number of spatial dimensions."""
        return len(self.stride)

    @property
    def digits(self) -> str:
        """The spatial dimensions in the notation of `conv_dimension_numbers`."""
        return "".join(str(d) for d in range(self.rank))

    @property
    def ones(self) -> list[int]:
        """A neutral stride or dilation."""
        return [1] * self.rank


def _geometry(
    rank: int, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], groups: int
) -> Geometry:
    def each(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * rank if len(values) == 1 else tuple(values)

    return Geometry(each(stride), each(padding), each(dilation), groups)


@emits(aten.convolution.default)
def convolution(
    b: Builder,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> ir.Value:
    """[N, C, *spatial] -> [N, O, *spatial]; `output_padding` only shows in the result's size."""
    del output_padding
    rank = b.rank(x) - 2
    geometry = _geometry(rank, stride, padding, dilation, groups)
    if _nothing_to_sum(b, x, weight):
        return b.full(b.result_shape(), 0, b.result_dtype())
    if transposed:
        out = _spread(b, x, weight, geometry, b.result_shape()[2:])
    else:
        out = _correlate(b, x, weight, geometry, b.result_shape()[2:])
    if bias is not None:
        # In the wide type: eager too rounds once, after the bias.
        wide = b.convert(bias, b.dtype(out))
        out = b.add(out, b.broadcast_in_dim(wide, b.shape(out), [1]))
    return b.convert(out, b.result_dtype())


def _nothing_to_sum(b: Builder, *values: ir.Value) -> bool:
    """Whether an operand is empty: eager's result is then empty too, its gradients zeros."""
    return any(0 in b.shape(value) for value in values)


def _correlate(
    b: Builder, x: ir.Value, weight: ir.Value, g: Geometry, out: Sequence[int]
) -> ir.Value:
    """The convolution of neural networks, of spatial size `out`; in the accumulation dtype.

    As the gradient of a transposed convolution it may be smaller than what fits: then the last
    rows of x, made by the output padding, take no part.
    """
    padding = []
    for n, m, k, s, p, d in zip(
        b.shape(x)[2:], out, b.shape(weight)[2:], g.stride, g.padding, g.dilation, strict=True
    ):
        reach = d * (k - 1) + 1
        fits = (n + 2 * p - reach) // s + 1
        padding.append((p, p if fits == m else (m - 1) * s + reach - n - p))
    numbers = b.conv_dimension_numbers("bf" + g.digits, "oi" + g.digits, "bf" + g.digits)
    return b.convolution(
        x,
        weight,
        _sum_type(b, [b.shape(x)[0], b.shape(weight)[0], *out], x),
        dimension_numbers=numbers,
        strides=g.stride,
        padding=padding,
        lhs_dilation=g.ones,
        rhs_dilation=g.dilation,
        feature_group_count=g.groups,
    )


def _spread(
    b: Builder, y: ir.Value, weight: ir.Value, g: Geometry, size: Sequence[int]
) -> ir.Value:
    """The transpose of `_correlate` with respect to its input, of spatial `size`.

    y is [N, O, *out], weight [O, C/groups, *k]; the result is [N, C, *size]. Every y[o] adds
    weight[k] at o * stride + k * dilation - padding: a convolution of the dilated y with the
    reversed kernel.
    """
    kernel = b.shape(weight)[2:]
    flipped = b.reverse(weight, [2 + i for i, k in enumerate(kernel) if k > 1])
    features = b.shape(weight)[1] * g.groups
    if g.groups > 1:
        # StableHLO wants [O/groups, groups * (C/groups), *k]: group-major output features.
        outer, inner = b.shape(weight)[:2]
        split = b.reshape(flipped, [g.groups, outer // g.groups, inner, *kernel])
        order = [1, 0, *range(2, 3 + g.rank)]
        flipped = b.reshape(b.transpose(split, order), [outer // g.groups, features, *kernel])
    padding = []
    for n, m, k, s, p, d in zip(
        size, b.shape(y)[2:], kernel, g.stride, g.padding, g.dilation, strict=True
    ):
        reach = d * (k - 1)
        low = reach - p
        padding.append((low, n + reach - ((m - 1) * s + 1) - low))
    numbers = b.conv_dimension_numbers("bf" + g.digits, "io" + g.digits, "bf" + g.digits)
    return b.convolution(
        y,
        flipped,
        _sum_type(b, [b.shape(y)[0], features, *size], y),
        dimension_numbers=numbers,
        strides=g.ones,
        padding=padding,
        lhs_dilation=g.stride,
        rhs_dilation=g.dilation,
        feature_group_count=g.groups,
    )


def _correlate_kernel(
    b: Builder, x: ir.Value, y: ir.Value, g: Geometry, kernel: Sequence[int]
) -> ir.Value:
    """The transpose of `_correlate` with respect to its weight, [O, C/groups, *kernel].

    weight[o, c, k] = sum over n, t of x[n, c, t * stride + k * dilation - padding] * y[n, o, t]:
    the batch is the contracted feature, y is the kernel, stride and dilation change places. Groups
    split x's channels, the batch of this convolution. The result is transposed afterwards because
    the reference interpreter aborts on a convolution whose result has the feature first.
    """
    padding = []
    for n, m, k, s, p, d in zip(
        b.shape(x)[2:], b.shape(y)[2:], kernel, g.stride, g.padding, g.dilation, strict=True
    ):
        padding.append((p, d * (k - 1) + (m - 1) * s + 1 - n - p))
    numbers = b.conv_dimension_numbers("fb" + g.digits, "io" + g.digits, "bf" + g.digits)
    inner = b.shape(x)[1] // g.groups
    turned = b.convolution(
        x,
        y,
        _sum_type(b, [inner, b.shape(y)[1], *kernel], x),
        dimension_numbers=numbers,
        strides=g.dilation,
        padding=padding,
        lhs_dilation=g.ones,
        rhs_dilation=g.stride,
        batch_group_count=g.groups,
    )
    return b.transpose(turned, [1, 0, *range(2, 2 + g.rank)])


@emits(aten.convolution_backward.default)
def convolution_backward(
    b: Builder,
    grad: ir.Value,
    x: ir.Value,
    weight: ir.Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Gradients of input, weight and bias; None where `output_mask` is false."""
    del bias_sizes, output_padding
    g = _geometry(b.rank(x) - 2, stride, padding, dilation, groups)
    dtype = b.dtype(x)
    grads: list[ir.Value | None] = [None, None, None]
    if _nothing_to_sum(b, grad, x, weight):
        return [
            b.full(b.result_shape(i), 0, dtype) if m else None for i, m in enumerate(output_mask)
        ]
    if output_mask[0]:
        if transposed:
            grad_x = _correlate(b, grad, weight, g, b.shape(x)[2:])
        else:
            grad_x = _spread(b, grad, weight, g, b.shape(x)[2:])
        grads[0] = b.convert(grad_x, dtype)
    if output_mask[1]:
        large, small = (grad, x) if transposed else (x, grad)
        grads[1] = b.convert(_correlate_kernel(b, large, small, g, b.shape(weight)[2:]), dtype)
    if output_mask[2]:
        dims = [d for d in range(b.rank(grad)) if d != 1]
        wide = math_dtype(dtype)
        total = b.reduce(b.convert(grad, wide), b.scalar(0, wide), dims, b.add)
        grads[2] = b.convert(total, dtype)
    return grads


def _sum_type(b: Builder, shape: Sequence[int], operand: ir.Value) -> ir.RankedTensorType:
    dtype = b.dtype(operand)
    return b.types.tensor(shape, math_dtype(dtype))
