"""The gradient of weight normalisation, w = g * v / |v|.

In: gradient of w, v, g, and the saved norms. Out: gradients of v and g. Invariant: sums over all
dimensions but one, in float32 for half precision.
"""

from __future__ import annotations

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.semantics import math_dtype

aten = torch.ops.aten


@emits(aten._weight_norm_interface_backward.default)
def weight_norm_backward(
    b: Builder, grad: ir.Value, v: ir.Value, g: ir.Value, norms: ir.Value, dim: int
) -> list[ir.Value]:
    """Gradients of v and of g (size 1 but along `dim`).

    Salimans and Kingma 2016, equation 3: grad_g = grad . v / |v|,
    grad_v = g / |v| * (grad - v * (grad . v) / |v|^2).
    """
    dtype, shape = b.dtype(v), b.shape(v)
    wide = math_dtype(dtype)
    grad, v, g, norms = (b.convert(x, wide) for x in (grad, v, g, norms))
    others = [d for d in range(len(shape)) if d != dim]
    inner = b.reduce(b.multiply(grad, v), b.scalar(0, wide), others, b.add)
    line = [shape[dim]]
    g, norm = b.reshape(g, line), b.reshape(norms, line)

    def spread(x: ir.Value) -> ir.Value:
        return b.broadcast_in_dim(x, shape, [dim])

    along = b.divide(inner, b.multiply(norm, norm))
    rest = b.subtract(grad, b.multiply(v, spread(along)))
    grad_v = b.multiply(spread(b.divide(g, norm)), rest)
    grad_g = b.reshape(b.divide(inner, norm), b.result_shape(1))
    return [b.convert(grad_v, dtype), b.convert(grad_g, b.result_dtype(1))]
