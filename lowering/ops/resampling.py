"""Resizing of images: nearest, linear, cubic, antialiased; and their gradients.

In: [N, C, *spatial] values. Out: for each spatial dimension in turn a sum of taps at constant
positions (`taps`), the gradient by the transposed taps. Invariant: half precision is computed in
float32 and rounded once, as in eager.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering import taps
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.resample import apply_taps, take_at
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten

Scales = Sequence[float | None]
# Makes the taps of one dimension from input size, output size and scale.
_Maker = Callable[[int, int, float | None], taps.Taps]


def _real(b: Builder, x: ir.Value) -> type[np.floating]:
    return np.float64 if b.dtype(x) is torch.float64 else np.float32


def _floats_only(node: torch.fx.Node) -> str | None:
    dtype = node.args[0].meta["val"].dtype  # type: ignore[union-attr]
    return None if dtype.is_floating_point else f"interpolation of {dtype} is not supported"


def _forward(b: Builder, x: ir.Value, scales: Scales, make: _Maker) -> ir.Value:
    dtype = b.dtype(x)
    x = b.convert(x, math_dtype(dtype))
    for i, scale in enumerate(scales):
        dim = 2 + i
        x = apply_taps(b, x, dim, make(b.shape(x)[dim], b.result_shape()[dim], scale))
    return b.convert(x, dtype)


def _backward(b: Builder, grad: ir.Value, scales: Scales, make: _Maker) -> ir.Value:
    dtype = b.dtype(grad)
    grad = b.convert(grad, math_dtype(dtype))
    for i, scale in reversed(list(enumerate(scales))):
        dim = 2 + i
        inputs = b.result_shape()[dim]
        spread = make(inputs, b.shape(grad)[dim], scale)
        grad = apply_taps(b, grad, dim, taps.transpose(spread, inputs))
    return b.convert(grad, dtype)


def _vector_scales(b: Builder, factors: Sequence[float] | None) -> Scales:
    """The scales of a `.vec` overload: given for all dimensions or for none."""
    return list(factors) if factors else [None] * (len(b.result_shape()) - 2)


# ---- nearest ---------------------------------------------------------------------------------


def _nearest(b: Builder, x: ir.Value, scales: Scales, exact: bool) -> ir.Value:
    """No arithmetic, so any dtype as it is."""
    real = _real(b, x)
    for i, scale in enumerate(scales):
        dim = 2 + i
        chosen = taps.nearest(b.shape(x)[dim], b.result_shape()[dim], scale, exact=exact, real=real)
        x = take_at(b, x, dim, chosen.index[:, 0])
    return x


@emits(
    aten.upsample_nearest1d.default,
    aten.upsample_nearest2d.default,
    aten.upsample_nearest3d.default,
)
def upsample_nearest(
    b: Builder, x: ir.Value, output_size: Sequence[int], *scales: float | None
) -> ir.Value:
    """The input at floor(i / scale)."""
    return _nearest(b, x, _filled(output_size, scales), exact=False)


@emits(
    aten._upsample_nearest_exact1d.default,
    aten._upsample_nearest_exact2d.default,
    aten._upsample_nearest_exact3d.default,
)
def upsample_nearest_exact(
    b: Builder, x: ir.Value, output_size: Sequence[int], *scales: float | None
) -> ir.Value:
    """The input at floor((i + 0.5) / scale)."""
    return _nearest(b, x, _filled(output_size, scales), exact=True)


@emits(aten.upsample_nearest1d.vec, aten.upsample_nearest2d.vec, aten.upsample_nearest3d.vec)
def upsample_nearest_vec(
    b: Builder, x: ir.Value, output_size: Sequence[int] | None, factors: Sequence[float] | None
) -> ir.Value:
    """As `upsample_nearest`."""
    del output_size
    return _nearest(b, x, _vector_scales(b, factors), exact=False)


@emits(
    aten._upsample_nearest_exact1d.vec,
    aten._upsample_nearest_exact2d.vec,
    aten._upsample_nearest_exact3d.vec,
)
def upsample_nearest_exact_vec(
    b: Builder, x: ir.Value, output_size: Sequence[int] | None, factors: Sequence[float] | None
) -> ir.Value:
    """As `upsample_nearest_exact`."""
    del output_size
    return _nearest(b, x, _vector_scales(b, factors), exact=True)


def _filled(output_size: Sequence[int], scales: Sequence[float | None]) -> Scales:
    return [*scales, *[None] * (len(output_size) - len(scales))]


def _nearest_backward(b: Builder, grad: ir.Value, scales: Scales, exact: bool) -> ir.Value:
    real = _real(b, grad)
    return _backward(b, grad, scales, lambda n, m, s: taps.nearest(n, m, s, exact=exact, real=real))


@emits(
    aten.upsample_nearest1d_backward.default,
    aten.upsample_nearest2d_backward.default,
    aten.upsample_nearest3d_backward.default,
)
def upsample_nearest_backward(
    b: Builder,
    grad: ir.Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> ir.Value:
    """Gradient with respect to the input."""
    del input_size
    return _nearest_backward(b, grad, _filled(output_size, scales), exact=False)


@emits(
    aten._upsample_nearest_exact1d_backward.default,
    aten._upsample_nearest_exact2d_backward.default,
    aten._upsample_nearest_exact3d_backward.default,
)
def upsample_nearest_exact_backward(
    b: Builder,
    grad: ir.Value,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *scales: float | None,
) -> ir.Value:
    """Gradient with respect to the input."""
    del input_size
    return _nearest_backward(b, grad, _filled(output_size, scales), exact=True)


# ---- weighted neighbours ---------------------------------------------------------------------


def _maker(name: str, real: type[np.floating], align_corners: bool) -> _Maker:
    """The taps of an interpolation by name: linear, cubic, linear_aa, cubic_aa."""
    if name.endswith("_aa"):
        is_cubic = name.startswith("cubic")
        return lambda n, m, s: taps.antialiased(n, m, align_corners, s, real, is_cubic=is_cubic)
    make = taps.linear if name == "linear" else taps.cubic
    return lambda n, m, s: make(n, m, align_corners, s, real)


def _register(name: str, *operators: str) -> None:
    """Forward, `.vec` and backward emitters of one kind of interpolation."""

    def forward(
        b: Builder,
        x: ir.Value,
        output_size: Sequence[int],
        align_corners: bool,
        *scales: float | None,
    ) -> ir.Value:
        return _forward(
            b, x, _filled(output_size, scales), _maker(name, _real(b, x), align_corners)
        )

    def forward_vec(
        b: Builder,
        x: ir.Value,
        output_size: Sequence[int] | None,
        align_corners: bool,
        factors: Sequence[float] | None,
    ) -> ir.Value:
        del output_size
        return _forward(b, x, _vector_scales(b, factors), _maker(name, _real(b, x), align_corners))

    def backward(
        b: Builder,
        grad: ir.Value,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        *scales: float | None,
    ) -> ir.Value:
        del input_size
        return _backward(
            b, grad, _filled(output_size, scales), _maker(name, _real(b, grad), align_corners)
        )

    for operator in operators:
        packet = getattr(aten, operator)
        emits(packet.default, supports=_floats_only)(forward)
        emits(packet.vec, supports=_floats_only)(forward_vec)
        emits(getattr(aten, operator + "_backward").default, supports=_floats_only)(backward)


_register("linear", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")
_register("cubic", "upsample_bicubic2d")
_register("linear_aa", "_upsample_bilinear2d_aa")
_register("cubic_aa", "_upsample_bicubic2d_aa")
