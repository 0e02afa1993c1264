"""Matrix products: mm, bmm, addmm, baddbmm, mv, dot and their kin.

In: matrices, an addend, scale factors. Out: products. Invariant: 16-bit floats are multiplied as
they are, summed in float32 and rounded once, after the addend.
"""

from __future__ import annotations

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
Value = ir.Value


def product(b: Builder, x: Value, y: Value, *, batch: int = 0) -> Value:
    """x @ y over matrices with `batch` leading batch dimensions, in the accumulation dtype."""
    lead = list(range(batch))
    dtype = sem.math_dtype(b.dtype(x))
    return b.dot_general(x, y, batch=(lead, lead), contract=([batch + 1], [batch]), dtype=dtype)


def _plus(b: Builder, addend: Value, made: Value, beta: Scalar, alpha: Scalar) -> Value:
    """Beta * addend + alpha * made; beta == 0 ignores the addend, even NaN in it."""
    if alpha != 1:
        made = b.multiply(made, b.full_like(made, alpha))
    if beta != 0:
        term = b.broadcast_to(b.convert(addend, b.dtype(made)), b.shape(made))
        if beta != 1:
            term = b.multiply(term, b.full_like(term, beta))
        made = b.add(made, term)
    return b.convert(made, b.result_dtype())


@emits(aten.mm.default)
def mm(b: Builder, x: Value, y: Value) -> Value:
    """Matrix times matrix."""
    return b.convert(product(b, x, y), b.result_dtype())


@emits(aten.mm.dtype, aten.bmm.dtype)
def mm_dtype(b: Builder, x: Value, y: Value, out_dtype: torch.dtype) -> Value:
    """A product whose sum is kept in a wider dtype."""
    return b.convert(product(b, x, y, batch=b.rank(x) - 2), out_dtype)


@emits(aten.bmm.default)
def bmm(b: Builder, x: Value, y: Value) -> Value:
    """Batched matrix times matrix."""
    return b.convert(product(b, x, y, batch=1), b.result_dtype())


@emits(aten.addmm.default)
def addmm(
    b: Builder, addend: Value, x: Value, y: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """Beta * addend + alpha * (x @ y)."""
    return _plus(b, addend, product(b, x, y), beta, alpha)


@emits(aten.baddbmm.default)
def baddbmm(
    b: Builder, addend: Value, x: Value, y: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """Batched addmm."""
    return _plus(b, addend, product(b, x, y, batch=1), beta, alpha)


@emits(aten.addbmm.default)
def addbmm(
    b: Builder, addend: Value, x: Value, y: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """Beta * addend + alpha * the sum of the batch's products."""
    made = b.dot_general(x, y, contract=([0, 2], [0, 1]), dtype=sem.math_dtype(b.dtype(x)))
    return _plus(b, addend, made, beta, alpha)


@emits(aten.mv.default)
def mv(b: Builder, x: Value, y: Value) -> Value:
    """Matrix times vector."""
    made = b.dot_general(x, y, contract=([1], [0]), dtype=sem.math_dtype(b.dtype(x)))
    return b.convert(made, b.result_dtype())


@emits(aten.addmv.default)
def addmv(
    b: Builder, addend: Value, x: Value, y: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """Beta * addend + alpha * (x @ y), y a vector."""
    made = b.dot_general(x, y, contract=([1], [0]), dtype=sem.math_dtype(b.dtype(x)))
    return _plus(b, addend, made, beta, alpha)


@emits(aten.dot.default, aten.vdot.default)
def dot(b: Builder, x: Value, y: Value) -> Value:
    """The inner product of two vectors."""
    made = b.dot_general(x, y, contract=([0], [0]), dtype=sem.math_dtype(b.dtype(x)))
    return b.convert(made, b.result_dtype())


@emits(aten.addr.default)
def addr(
    b: Builder, addend: Value, x: Value, y: Value, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Value:
    """Beta * addend + alpha * the outer product."""
    shape, dtype = b.result_shape(), sem.math_dtype(b.result_dtype())
    rows = b.broadcast_in_dim(sem.convert_like_eager(b, x, dtype), shape, [0])
    columns = b.broadcast_in_dim(sem.convert_like_eager(b, y, dtype), shape, [1])
    return _plus(b, addend, b.multiply(rows, columns), beta, alpha)
