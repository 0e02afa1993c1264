"""Max and average pooling with their gradients.

In: aten pooling ops on [N, C, *spatial] or [C, *spatial]. Out: `reduce_window` (the dimensions that
are not pooled have a window of 1), the gradient of max pooling a scatter by the saved indices.
Invariant: half precision averages are summed in float32 and rounded once, as in eager.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from neuron_compile.lowering import winners
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.indices import put_along
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class _Windows:
    """Pooling windows along the last `rank` dimensions of a tensor."""

    size: tuple[int, ...]
    out: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def pads(self) -> list[tuple[int, int]]:
        """What to pad so that exactly `out` windows fit: ceil_mode lets the last one hang over."""
        return [
            (p, max(0, (m - 1) * s + d * (k - 1) + 1 - n - p))
            for n, m, k, s, p, d in zip(
                self.size,
                self.out,
                self.kernel,
                self.stride,
                self.padding,
                self.dilation,
                strict=True,
            )
        ]


def _windows(
    size: Sequence[int],
    out: Sequence[int],
    rank: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int] | int,
    dilation: Sequence[int] | int = 1,
) -> _Windows:
    def each(values: Sequence[int] | int) -> tuple[int, ...]:
        many = (values,) if isinstance(values, int) else tuple(values)
        return many * rank if len(many) == 1 else many

    return _Windows(
        tuple(size[-rank:]),
        tuple(out[-rank:]),
        each(kernel),
        each(stride or kernel),
        each(padding),
        each(dilation),
    )


# ---- max pooling -----------------------------------------------------------------------------


def _max_pool(b: Builder, x: ir.Value, w: _Windows) -> list[ir.Value | None]:
    """Values and, if anybody takes them, flat indices within the spatial dimensions."""
    shape, dtype = b.shape(x), b.dtype(x)
    lead = len(shape) - w.rank
    ones = [1] * lead
    pooled = functools.partial(
        b.reduce_window,
        window=[*ones, *w.kernel],
        strides=[*ones, *w.stride],
        padding=[(0, 0)] * lead + w.pads(),
        window_dilations=[*ones, *w.dilation],
    )
    init = b.scalar(winners.lowest(dtype), dtype)
    if not b.is_used(1):
        return [pooled([x], [init], b.maximum)[0], None]
    count = math.prod(w.size)
    kind = winners.index_dtype(count)
    flat = b.reshape(b.iota([count], 0, kind), w.size)
    where = b.broadcast_in_dim(flat, shape, range(lead, len(shape)))
    # Eager keeps the first of equal values but the last of several NaNs.
    values, indices = pooled(
        [x, where],
        [init, b.scalar(winners.beyond(kind), kind)],
        winners.winner(b, last_nan=True),
    )
    return [values, b.convert(indices, torch.int64)]


@emits(aten.max_pool2d_with_indices.default)
def max_pool2d(
    b: Builder,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> list[ir.Value | None]:
    """Largest element of each window and its flat index; padding never wins."""
    del ceil_mode  # shows in the result's size
    w = _windows(b.shape(x), b.result_shape(), 2, kernel_size, stride, padding, dilation)
    return _max_pool(b, x, w)


@emits(aten.max_pool3d_with_indices.default)
def max_pool3d(
    b: Builder,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    dilation: Sequence[int] | int = 1,
    ceil_mode: bool = False,
) -> list[ir.Value | None]:
    """As `max_pool2d`, over three dimensions."""
    del ceil_mode
    w = _windows(b.shape(x), b.result_shape(), 3, kernel_size, stride, padding, dilation)
    return _max_pool(b, x, w)


def _max_pool_backward(b: Builder, grad: ir.Value, indices: ir.Value, rank: int) -> ir.Value:
    """Each gradient goes to the element its window chose; windows may share one, so they add."""
    shape, dtype = b.result_shape(), b.result_dtype()
    lead = shape[:-rank]
    source = [*lead, math.prod(b.shape(grad)[-rank:])]
    zeros = b.full([*lead, math.prod(shape[-rank:])], 0, dtype)
    flat = put_along(
        b, zeros, len(lead), b.reshape(indices, source), b.reshape(grad, source), b.add
    )
    return b.reshape(flat, shape)


@emits(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(
    b: Builder,
    grad: ir.Value,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: ir.Value,
) -> ir.Value:
    """Gradient with respect to the input."""
    del x, kernel_size, stride, padding, dilation, ceil_mode
    return _max_pool_backward(b, grad, indices, 2)


@emits(aten.max_pool3d_with_indices_backward.default)
def max_pool3d_backward(
    b: Builder,
    grad: ir.Value,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    indices: ir.Value,
) -> ir.Value:
    """Gradient with respect to the input."""
    del x, kernel_size, stride, padding, dilation, ceil_mode
    return _max_pool_backward(b, grad, indices, 3)


@emits(aten.fractional_max_pool2d_backward.default)
def fractional_max_pool2d_backward(
    b: Builder,
    grad: ir.Value,
    x: ir.Value,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    indices: ir.Value,
) -> ir.Value:
    """Gradient with respect to the input."""
    del x, kernel_size, output_size
    return _max_pool_backward(b, grad, indices, 2)


@emits(aten.fractional_max_pool3d_backward.default)
def fractional_max_pool3d_backward(
    b: Builder,
    grad: ir.Value,
    x: ir.Value,
    kernel_size: Sequence[int],
    output_size: Sequence[int],
    indices: ir.Value,
) -> ir.Value:
    """Gradient with respect to the input."""
    del x, kernel_size, output_size
    return _max_pool_backward(b, grad, indices, 3)


@emits(aten.adaptive_max_pool2d_backward.default)
def adaptive_max_pool2d_backward(
    b: Builder, grad: ir.Value, x: ir.Value, indices: ir.Value
) -> ir.Value:
    """Gradient with respect to the input."""
    del x
    return _max_pool_backward(b, grad, indices, 2)


@emits(aten.adaptive_max_pool3d_backward.default)
def adaptive_max_pool3d_backward(
    b: Builder, grad: ir.Value, x: ir.Value, indices: ir.Value
) -> ir.Value:
    """Gradient with respect to the input."""
    del x
    return _max_pool_backward(b, grad, indices, 3)


# ---- average pooling -------------------------------------------------------------------------


def _counts(w: _Windows, dim: int, include_pad: bool) -> list[int]:
    """How many elements each window along `dim` counts."""
    n, p = w.size[dim], w.padding[dim]
    counts = []
    for i in range(w.out[dim]):
        start = i * w.stride[dim] - p
        end = min(start + w.kernel[dim], n + p)
        counts.append(end - start if include_pad else min(end, n) - max(start, 0))
    return counts


def _divide_by_counts(
    b: Builder, x: ir.Value, w: _Windows, include_pad: bool, divisor_override: int | None
) -> ir.Value:
    """x, whose last dimensions are windows, over the number of elements of each window."""
    if divisor_override is not None:
        return b.divide(x, b.full_like(x, divisor_override))
    dtype, shape = b.dtype(x), b.shape(x)
    lead = len(shape) - w.rank
    uniform = 1
    varying: ir.Value | None = None
    for dim in range(w.rank):
        counts = _counts(w, dim, include_pad)
        if len(set(counts)) <= 1:
            uniform *= counts[0] if counts else 1
            continue
        each = b.broadcast_in_dim(b.array(torch.tensor(counts, dtype=dtype)), shape, [lead + dim])
        varying = each if varying is None else b.multiply(varying, each)
    divisor = b.full_like(x, uniform)
    return b.divide(x, divisor if varying is None else b.multiply(varying, divisor))


def _avg_pool(
    b: Builder, x: ir.Value, w: _Windows, include_pad: bool, divisor_override: int | None
) -> ir.Value:
    lead = b.rank(x) - w.rank
    wide = math_dtype(b.dtype(x))
    total = b.reduce_window(
        [b.convert(x, wide)],
        [b.scalar(0, wide)],
        b.add,
        window=[1] * lead + [*w.kernel],
        strides=[1] * lead + [*w.stride],
        padding=[(0, 0)] * lead + w.pads(),
    )[0]
    return b.convert(_divide_by_counts(b, total, w, include_pad, divisor_override), b.dtype(x))


def _avg_pool_backward(
    b: Builder, grad: ir.Value, w: _Windows, include_pad: bool, divisor_override: int | None
) -> ir.Value:
    """Every input element adds up its windows: a window sum over the dilated gradient."""
    lead = b.rank(grad) - w.rank
    wide = math_dtype(b.dtype(grad))
    share = _divide_by_counts(b, b.convert(grad, wide), w, include_pad, divisor_override)
    pads = []
    for n, m, k, s, p in zip(w.size, w.out, w.kernel, w.stride, w.padding, strict=True):
        low = k - 1 - p
        pads.append((low, n + k - 1 - ((m - 1) * s + 1) - low))
    ones = [1] * lead
    total = b.reduce_window(
        [share],
        [b.scalar(0, wide)],
        b.add,
        window=[*ones, *w.kernel],
        padding=[(0, 0)] * lead + pads,
        base_dilations=[*ones, *w.stride],
    )[0]
    return b.convert(total, b.dtype(grad))


@emits(aten.avg_pool2d.default)
def avg_pool2d(
    b: Builder,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> ir.Value:
    """Mean of each window; integers truncate towards zero."""
    del ceil_mode
    w = _windows(b.shape(x), b.result_shape(), 2, kernel_size, stride, padding)
    return _avg_pool(b, x, w, count_include_pad, divisor_override)


@emits(aten.avg_pool3d.default)
def avg_pool3d(
    b: Builder,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] | int = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> ir.Value:
    """As `avg_pool2d`, over three dimensions."""
    del ceil_mode
    w = _windows(b.shape(x), b.result_shape(), 3, kernel_size, stride, padding)
    return _avg_pool(b, x, w, count_include_pad, divisor_override)


@emits(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    b: Builder,
    grad: ir.Value,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> ir.Value:
    """Gradient with respect to the input."""
    del ceil_mode
    w = _windows(b.shape(x), b.shape(grad), 2, kernel_size, stride, padding)
    return _avg_pool_backward(b, grad, w, count_include_pad, divisor_override)


@emits(aten.avg_pool3d_backward.default)
def avg_pool3d_backward(
    b: Builder,
    grad: ir.Value,
    x: ir.Value,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> ir.Value:
    """Gradient with respect to the input."""
    del ceil_mode
    w = _windows(b.shape(x), b.shape(grad), 3, kernel_size, stride, padding)
    return _avg_pool_backward(b, grad, w, count_include_pad, divisor_override)
