"""Sampling an image at the positions of a grid, and the gradients.

In: image [N, C, *size], grid [N, *out, rank] with positions in -1..1, last coordinate first. Out:
for each tap (2 per dimension, 1 for nearest, 4 for cubic) a gather, weighted and added. Invariant:
taps outside the image count as zero and touch no memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten

_NEAREST, _CUBIC = 1, 2  # interpolation modes; 0 is linear
_BORDER, _REFLECTION = 1, 2  # padding modes; 0 is zeros
_KEYS = -0.75  # the cubic kernel of Keys (1981)


@dataclass(frozen=True, slots=True)
class _Tap:
    """One neighbour along one dimension, tensors [N, *out].

    `place`: its coordinate, a whole number; `weight`; `slope`: the weight's derivative by the grid.
    """

    place: ir.Value
    weight: ir.Value
    slope: ir.Value


@dataclass(frozen=True, slots=True)
class _Mode:
    """The operator's parameters."""

    interpolation: int
    padding: int
    align_corners: bool


# ---- coordinates -----------------------------------------------------------------------------


def _constant(b: Builder, like: ir.Value, value: float) -> ir.Value:
    return b.full_like(like, value)


def _pixels(b: Builder, x: ir.Value, size: int, mode: _Mode) -> tuple[ir.Value, float]:
    """Grid coordinates in pixels, and pixels per grid unit."""
    if mode.align_corners:
        factor = (size - 1) / 2
        return b.multiply(b.add(x, _constant(b, x, 1)), _constant(b, x, factor)), factor
    doubled = b.multiply(b.add(x, _constant(b, x, 1)), _constant(b, x, size))
    moved = b.subtract(doubled, _constant(b, x, 1))
    return b.divide(moved, _constant(b, x, 2)), size / 2


def _padded(b: Builder, x: ir.Value, size: int, mode: _Mode) -> tuple[ir.Value, ir.Value]:
    """The coordinate by the padding mode, and its derivative."""
    slope = _constant(b, x, 1)
    if mode.padding == _REFLECTION:
        low, high = (0, 2 * (size - 1)) if mode.align_corners else (-1, 2 * size - 1)
        x, slope = _reflected(b, x, low / 2, (high - low) / 2)
    if mode.padding in (_BORDER, _REFLECTION):
        zero, end = _constant(b, x, 0), _constant(b, x, size - 1)
        inside = b.and_(b.compare(x, zero, "GT"), b.compare(x, end, "LT"))
        x, slope = b.minimum(b.maximum(x, zero), end), b.select(inside, slope, zero)
    return x, slope


def _reflected(b: Builder, x: ir.Value, low: float, span: float) -> tuple[ir.Value, ir.Value]:
    """Folded into [low, low + span]."""
    zero, one = _constant(b, x, 0), _constant(b, x, 1)
    if span == 0:
        return zero, zero
    moved = b.subtract(x, _constant(b, x, low))
    sign = b.select(b.compare(moved, zero, "LT"), _constant(b, x, -1), one)
    distance = b.abs(moved)
    length = _constant(b, x, span)
    rest = b.remainder(distance, length)
    flips = b.floor(b.divide(distance, length))
    even = b.compare(b.remainder(flips, _constant(b, x, 2)), zero, "EQ")
    folded = b.select(even, rest, b.subtract(length, rest))
    slope = b.select(even, sign, b.negate(sign))
    return b.add(folded, _constant(b, x, low)), slope


# ---- taps ------------------------------------------------------------------------------------


def _taps(b: Builder, x: ir.Value, size: int, mode: _Mode) -> list[_Tap]:
    """The neighbours of grid coordinates x along a dimension of this size."""
    pixels, factor = _pixels(b, x, size, mode)
    if mode.interpolation == _CUBIC:
        return _cubic_taps(b, pixels, size, mode, factor)
    place, slope = _padded(b, pixels, size, mode)
    one, zero = _constant(b, x, 1), _constant(b, x, 0)
    if mode.interpolation == _NEAREST:
        return [_Tap(b.round_half_even(place), one, zero)]
    slope = b.multiply(slope, _constant(b, x, factor))
    low = b.floor(place)
    high = b.add(low, one)
    return [
        _Tap(low, b.subtract(high, place), b.negate(slope)),
        _Tap(high, b.subtract(place, low), slope),
    ]


def _cubic_taps(b: Builder, pixels: ir.Value, size: int, mode: _Mode, factor: float) -> list[_Tap]:
    """Four neighbours; the padding mode applies to each neighbour, not to the position."""
    low = b.floor(pixels)
    share = b.subtract(pixels, low)
    taps = []
    for offset in (-1, 0, 1, 2):
        place = _padded(b, b.add(low, _constant(b, low, offset)), size, mode)[0]
        # distance >= 0 from the neighbour, and its derivative by the position
        if offset <= 0:
            distance, sign = b.add(share, _constant(b, share, -offset)), 1.0
        else:
            distance, sign = b.subtract(_constant(b, share, offset), share), -1.0
        weight, slope = _keys(b, distance, near=offset in (0, 1))
        taps.append(_Tap(place, weight, b.multiply(slope, _constant(b, slope, sign * factor))))
    return taps


def _keys(b: Builder, x: ir.Value, *, near: bool) -> tuple[ir.Value, ir.Value]:
    """The cubic kernel at distance x (within 1 if `near`, else 1..2) and its derivative."""
    a = _KEYS
    coefficients = (a + 2, -(a + 3), 0.0, 1.0) if near else (a, -5 * a, 8 * a, -4 * a)
    cubed, squared, linear, _ = coefficients
    return _horner(b, x, coefficients), _horner(b, x, (3 * cubed, 2 * squared, linear))


def _horner(b: Builder, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    value = _constant(b, x, coefficients[0])
    for coefficient in coefficients[1:]:
        value = b.add(b.multiply(value, x), _constant(b, x, coefficient))
    return value


@dataclass(frozen=True, slots=True)
class _Sampling:
    """Every combination of taps of a sampling.

    `taps`: per dimension of the image, its taps. `size`: the image's spatial size.
    """

    taps: list[list[_Tap]]
    size: tuple[int, ...]

    def combinations(self) -> list[tuple[_Tap, ...]]:
        """All corners."""
        return list(itertools.product(*self.taps))


def _sampling(b: Builder, size: Sequence[int], grid: ir.Value, mode: _Mode) -> _Sampling:
    shape = b.shape(grid)
    rank, last = shape[-1], len(shape) - 1
    wide = b.convert(grid, math_dtype(b.dtype(grid)))
    taps = []
    for d, n in enumerate(size):
        # The grid's coordinates are x, y, z, the image's dimensions z, y, x.
        column = rank - 1 - d
        x = b.reshape(b.slice_in_dim(wide, last, column, column + 1), shape[:-1])
        taps.append(_taps(b, x, n, mode))
    return _Sampling(taps, tuple(size))


def _vector(b: Builder, corner: Sequence[_Tap], size: Sequence[int]) -> tuple[ir.Value, ir.Value]:
    """Index vectors [N, *out, rank] (-1 outside) and whether they are inside [N, *out]."""
    inside: ir.Value | None = None
    columns: list[ir.Value] = []
    for tap, n in zip(corner, size, strict=True):
        zero, end = _constant(b, tap.place, 0), _constant(b, tap.place, n - 1)
        fits = b.and_(b.compare(tap.place, zero, "GE"), b.compare(tap.place, end, "LE"))
        inside = fits if inside is None else b.and_(inside, fits)
    assert inside is not None
    for tap in corner:
        safe = b.select(inside, tap.place, _constant(b, tap.place, -1))
        index = b.convert(safe, torch.int32)
        columns.append(b.reshape(index, [*b.shape(index), 1]))
    return b.concatenate(columns, b.rank(inside)), inside


def _weight(b: Builder, corner: Sequence[_Tap], slope_of: int | None = None) -> ir.Value:
    """The product of the weights, with the slope instead in one dimension."""
    factors = [tap.slope if d == slope_of else tap.weight for d, tap in enumerate(corner)]
    product = factors[0]
    for factor in factors[1:]:
        product = b.multiply(product, factor)
    return product


def _read(b: Builder, image: ir.Value, corner: Sequence[_Tap], size: Sequence[int]) -> ir.Value:
    """The image at a corner, [N, C, *out]; zero outside."""
    vector, inside = _vector(b, corner, size)
    rank, channels = len(size), b.shape(image)[1]
    spatial = list(range(2, 2 + rank))
    taken = b.gather(
        image,
        vector,
        offset_dims=[1],
        collapsed_slice_dims=spatial,
        start_index_map=spatial,
        index_vector_dim=rank + 1,
        slice_sizes=[1, channels, *[1] * rank],
        operand_batching_dims=[0],
        start_indices_batching_dims=[0],
    )
    return b.select(_over_channels(b, inside, taken), taken, b.full_like(taken, 0))


def _over_channels(b: Builder, x: ir.Value, like: ir.Value) -> ir.Value:
    """[N, *out] as [N, C, *out]."""
    return b.broadcast_in_dim(x, b.shape(like), [0, *range(2, b.rank(like))])


# ---- operators -------------------------------------------------------------------------------


@emits(aten.grid_sampler_2d.default, aten.grid_sampler_3d.default)
def grid_sampler(
    b: Builder,
    image: ir.Value,
    grid: ir.Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> ir.Value:
    """[N, C, *out]."""
    dtype = b.dtype(image)
    mode = _Mode(interpolation_mode, padding_mode, align_corners)
    wide = b.convert(image, math_dtype(dtype))
    sampling = _sampling(b, b.shape(image)[2:], grid, mode)
    total: ir.Value | None = None
    for corner in sampling.combinations():
        value = _read(b, wide, corner, sampling.size)
        term = b.multiply(value, _over_channels(b, _weight(b, corner), value))
        total = term if total is None else b.add(total, term)
    assert total is not None
    return b.convert(total, dtype)


@emits(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    b: Builder,
    grad: ir.Value,
    image: ir.Value,
    grid: ir.Value,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> list[ir.Value | None]:
    """Gradients of image and grid; None where `output_mask` is false."""
    dtype = b.dtype(image)
    wide = math_dtype(dtype)
    mode = _Mode(interpolation_mode, padding_mode, align_corners)
    sampling = _sampling(b, b.shape(image)[2:], grid, mode)
    grad = b.convert(grad, wide)
    grad_image = _image_gradient(b, grad, image, sampling) if output_mask[0] else None
    if not output_mask[1]:
        return [grad_image, None]
    return [grad_image, _grid_gradient(b, grad, b.convert(image, wide), grid, sampling)]


def _image_gradient(b: Builder, grad: ir.Value, image: ir.Value, sampling: _Sampling) -> ir.Value:
    """Every corner adds its share: one scatter, the corners side by side along out's first dim."""
    rank = len(sampling.size)
    corners = sampling.combinations()
    shares = [b.multiply(grad, _over_channels(b, _weight(b, c), grad)) for c in corners]
    vectors = [_vector(b, c, sampling.size)[0] for c in corners]
    spatial = list(range(2, 2 + rank))
    zeros = b.full(b.shape(image), 0, b.dtype(grad))
    made = b.scatter(
        zeros,
        b.concatenate(vectors, 1),
        b.concatenate(shares, 2),
        b.add,
        update_window_dims=[1],
        inserted_window_dims=spatial,
        scatter_dims_to_operand_dims=spatial,
        index_vector_dim=rank + 1,
        input_batching_dims=[0],
        scatter_indices_batching_dims=[0],
    )
    return b.convert(made, b.dtype(image))


def _grid_gradient(
    b: Builder, grad: ir.Value, image: ir.Value, grid: ir.Value, sampling: _Sampling
) -> ir.Value:
    rank = len(sampling.size)
    zero = b.scalar(0, b.dtype(grad))
    totals: list[ir.Value | None] = [None] * rank
    for corner in sampling.combinations():
        value = _read(b, image, corner, sampling.size)
        along = b.reduce(b.multiply(grad, value), zero, [1], b.add)
        for d in range(rank):
            term = b.multiply(along, _weight(b, corner, slope_of=d))
            known = totals[d]
            totals[d] = term if known is None else b.add(known, term)
    columns = [b.reshape(t, [*b.shape(t), 1]) for t in reversed(totals) if t is not None]
    return b.convert(b.concatenate(columns, rank + 1), b.dtype(grid))
