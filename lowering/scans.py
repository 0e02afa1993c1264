"""Running folds along one dimension, in the one form the code generator knows as a scan.

In: values, their identities, a fold body. Out: a `reduce_window` whose window reaches back over the
whole dimension. Invariant: element i of the result folds elements 0..i, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Body


def running(
    b: Builder, xs: Sequence[ir.Value], inits: Sequence[ir.Value], dim: int, body: Body
) -> list[ir.Value]:
    """Fold each prefix along `dim`; values of equal shape, `inits` the 0-d identities of `body`."""
    shape = b.shape(xs[0])
    if 0 in shape:
        return list(xs)
    window, padding = [1] * len(shape), [(0, 0)] * len(shape)
    window[dim], padding[dim] = shape[dim], (shape[dim] - 1, 0)
    return b.reduce_window(xs, inits, body, window=window, padding=padding)


def running_sum(b: Builder, x: ir.Value, dim: int) -> ir.Value:
    """Running sum in the dtype of `x`."""
    return running(b, [x], [b.scalar(0, b.dtype(x))], dim, b.add)[0]
