"""Conversions and copies.

In: one tensor. Out: the same values in the node's dtype; copies are the value itself, since a
functional graph has no storage. Invariant: conversion is `semantics.convert_like_eager`.
"""

from __future__ import annotations

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.registry import emits

aten = torch.ops.aten
prims = torch.ops.prims
Value = ir.Value


@emits(aten._to_copy.default)
def to_copy(b: Builder, x: Value, *, dtype: torch.dtype | None = None) -> Value:
    """x in another dtype; layout and device do not concern the values."""
    return sem.convert_like_eager(b, x, b.result_dtype())


@emits(prims.convert_element_type.default)
def convert_element_type(b: Builder, x: Value, dtype: torch.dtype) -> Value:
    """x in another dtype."""
    return sem.convert_like_eager(b, x, dtype)


@emits(
    aten.clone.default,
    aten.alias.default,
    aten.detach.default,
    aten.contiguous.default,
    aten.lift_fresh_copy.default,
    aten.lift_fresh.default,
    aten.positive.default,
    aten.resolve_conj.default,
    aten.resolve_neg.default,
    prims.device_put.default,
)
def same(b: Builder, x: Value, *_: object) -> Value:
    """The value itself."""
    return x


@emits(aten.copy.default)
def copy(b: Builder, x: Value, source: Value, _non_blocking: bool = False) -> Value:
    """The source, broadcast and converted to shape and dtype of x."""
    return sem.operand(b, source, b.shape(x), b.dtype(x))


@emits(
    aten.view.dtype,
    supports=lambda node: (
        "bool cannot be reinterpreted"
        if torch.bool in (node.args[1], node.args[0].meta["val"].dtype)
        else None
    ),
)
def view_dtype(b: Builder, x: Value, dtype: torch.dtype) -> Value:
    """The same bytes in another dtype; the last dimension is scaled (T001)."""
    return b.reshape(reinterpret(b, x, dtype), b.result_shape())


def reinterpret(b: Builder, x: Value, dtype: torch.dtype) -> Value:
    """The bytes of x as another dtype; where widths differ, a last dimension is cut or joined."""
    old, new = b.dtype(x).itemsize, dtype.itemsize
    shape = b.shape(x)
    if new > old:  # StableHLO joins a trailing dimension of just the right size
        x = b.reshape(x, (*shape[:-1], shape[-1] * old // new, new // old))
    return b.bitcast_convert(x, dtype)
