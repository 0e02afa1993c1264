"""Folds that look for the largest or smallest element and where it is.

In: values and the order eager PyTorch keeps. Out: bodies for reduce, reduce_window and sort over
(value, index) pairs. Invariant: the outcome does not depend on the order of the fold; NaN counts as
larger than every number, as in eager's sort, topk and max.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Body, Scalar

_INT32_LIMIT = 2**31 - 1


def index_dtype(count: int) -> torch.dtype:
    """The narrowest signed type counting to `count`: int32 keeps step with float32."""
    return torch.int32 if count < _INT32_LIMIT else torch.int64


def beyond(dtype: torch.dtype) -> int:
    """An index larger than any real one."""
    return torch.iinfo(dtype).max


def lowest(dtype: torch.dtype) -> Scalar:
    """The identity of maximum: -inf, False or the smallest integer."""
    if dtype.is_floating_point:
        return float("-inf")
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Scalar:
    """The identity of minimum: inf, True or the largest integer."""
    if dtype.is_floating_point:
        return float("inf")
    return True if dtype is torch.bool else torch.iinfo(dtype).max


def worst(dtype: torch.dtype, *, largest: bool) -> Scalar:
    """The value that loses or ties against every other: NaN is the largest of all."""
    if largest:
        return lowest(dtype)
    return float("nan") if dtype.is_floating_point else highest(dtype)


def precedes(b: Builder, x: ir.Value, y: ir.Value, *, largest: bool) -> ir.Value:
    """Whether x stands strictly before y: larger first or smaller first; NaN is the largest."""
    if not largest:
        x, y = y, x
    ahead = b.compare(x, y, "GT")
    if not b.dtype(x).is_floating_point:
        return ahead
    only_x = b.and_(b.compare(x, x, "NE"), b.compare(y, y, "EQ"))
    return b.or_(ahead, only_x)


def winner(
    b: Builder,
    *,
    largest: bool = True,
    last: bool = False,
    last_nan: bool | None = None,
    nan_wins: bool | None = None,
) -> Body:
    """A fold body over (value, index) pairs that keeps the better one.

    Among equal values the first index wins, or the `last`; among NaNs likewise, or by `last_nan`
    where eager treats them differently (max_pool). NaN beats numbers if the largest is wanted, or
    by `nan_wins` (cummin).
    """
    nan_by_last = last if last_nan is None else last_nan
    nan_first = largest if nan_wins is None else nan_wins

    def body(x: ir.Value, i: ir.Value, y: ir.Value, j: ir.Value) -> Sequence[ir.Value]:
        y_later = b.compare(j, i, "GT")
        y_earlier = b.compare(j, i, "LT")
        tie = b.and_(b.compare(x, y, "EQ"), y_later if last else y_earlier)
        take_y = b.or_(b.compare(y, x, "GT" if largest else "LT"), tie)
        if b.dtype(x).is_floating_point:
            x_nan, y_nan = b.compare(x, x, "NE"), b.compare(y, y, "NE")
            by_index = y_later if nan_by_last else y_earlier
            better, other = (y_nan, x_nan) if nan_first else (x_nan, y_nan)
            take_y = b.or_(take_y, b.and_(better, b.or_(b.not_(other), by_index)))
        return [b.select(take_y, y, x), b.select(take_y, j, i)]

    return body
