"""Reductions: sum, mean, prod, extremes, any/all, variance, norms, cumulative sums.

In: a tensor, dimensions, keepdim. Out: reduced tensors. Invariant: 16-bit floats are accumulated in
float32 and rounded once; integers in the result's dtype (int64 for sums), as in eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.scans import running
from neuron_compile.lowering.semantics import highest, lowest
from neuron_compile.lowering.winners import beyond, index_dtype

aten = torch.ops.aten
prims = torch.ops.prims
Value = ir.Value
Dims = int | Sequence[int] | None


def reduced_dims(dims: Dims, rank: int, *, empty_is_all: bool = True) -> list[int]:
    """Normalised dimensions; None and (by default) an empty list mean all of them."""
    if dims is None or (empty_is_all and not isinstance(dims, int) and len(dims) == 0):
        return list(range(rank))
    listed = [dims] if isinstance(dims, int) else list(dims)
    return sorted({d + rank if d < 0 else d for d in listed}) if rank else []


def sum_over(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Sum in the dtype of x, dimensions dropped."""
    return b.reduce(x, b.scalar(0, b.dtype(x)), dims, b.add) if dims else x


def max_over(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Maximum (NaN wins), dimensions dropped."""
    if not dims:
        return x
    return b.reduce(x, b.scalar(lowest(b.dtype(x)), b.dtype(x)), dims, b.maximum)


def keep(b: Builder, x: Value, dims: Sequence[int], shape: Sequence[int]) -> Value:
    """Broadcast a value whose `dims` were dropped back to `shape`."""
    return b.broadcast_in_dim(x, shape, [d for d in range(len(shape)) if d not in dims])


# ---- sums ------------------------------------------------------------------------------------


@emits(aten.sum.default)
def sum_all(b: Builder, x: Value, *, dtype: torch.dtype | None = None) -> Value:
    """Sum of everything."""
    return sum_dims(b, x, None, dtype=dtype)


@emits(aten.sum.dim_IntList)
def sum_dims(
    b: Builder,
    x: Value,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    """Sum over dimensions, in dtype (integers: int64); the input is converted first."""
    result = b.result_dtype()
    wide = sem.convert_like_eager(b, x, result)
    wide = b.convert(
        wide if sem.math_dtype(result) is result else _unrounded(b, x, wide), sem.math_dtype(result)
    )
    total = sum_over(b, wide, reduced_dims(dim, b.rank(x)))
    return b.convert(b.reshape(total, b.result_shape()), result)


def _unrounded(b: Builder, x: Value, converted: Value) -> Value:
    """x itself if it is a 16-bit float, else what `dtype=` made of it before accumulation."""
    return x if b.dtype(x) in sem.REDUCED_FLOATS else converted


@emits(aten.mean.default)
def mean_all(b: Builder, x: Value, *, dtype: torch.dtype | None = None) -> Value:
    """Mean of everything."""
    return mean_dims(b, x, None, dtype=dtype)


@emits(aten.mean.dim)
def mean_dims(
    b: Builder,
    x: Value,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    """Mean over dimensions; NaN of nothing."""
    result = b.result_dtype()
    wide = sem.convert_like_eager(b, x, sem.math_dtype(result))
    mean = mean_over(b, wide, reduced_dims(dim, b.rank(x)))
    return b.convert(b.reshape(mean, b.result_shape()), result)


def mean_over(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    """Mean in the dtype of x, dimensions dropped."""
    count = math.prod(b.shape(x)[d] for d in dims)
    total = sum_over(b, x, dims)
    return b.divide(total, b.full_like(total, count))


@emits(aten.prod.default)
def prod_all(b: Builder, x: Value, *, dtype: torch.dtype | None = None) -> Value:
    """Product of everything."""
    return _product(b, x, list(range(b.rank(x))))


@emits(aten.prod.dim_int)
def prod_dim(
    b: Builder,
    x: Value,
    dim: int,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    """Product over one dimension."""
    return _product(b, x, reduced_dims(dim, b.rank(x)))


def _product(b: Builder, x: Value, dims: Sequence[int]) -> Value:
    result = b.result_dtype()
    wide = b.convert(sem.convert_like_eager(b, x, result), sem.math_dtype(result))
    if dims:
        wide = b.reduce(wide, b.scalar(1, b.dtype(wide)), dims, b.multiply)
    return b.convert(b.reshape(wide, b.result_shape()), result)


# ---- extremes --------------------------------------------------------------------------------


@emits(aten.amax.default)
def amax(b: Builder, x: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    """Maximum; NaN wins."""
    return b.reshape(max_over(b, x, reduced_dims(dim, b.rank(x))), b.result_shape())


@emits(aten.amin.default)
def amin(b: Builder, x: Value, dim: Dims = (), keepdim: bool = False) -> Value:
    """Minimum; NaN wins."""
    dims, dtype = reduced_dims(dim, b.rank(x)), b.dtype(x)
    made = b.reduce(x, b.scalar(highest(dtype), dtype), dims, b.minimum) if dims else x
    return b.reshape(made, b.result_shape())


@emits(aten.max.default)
def max_all(b: Builder, x: Value) -> Value:
    """The maximum of everything."""
    return amax(b, x)


@emits(aten.min.default)
def min_all(b: Builder, x: Value) -> Value:
    """The minimum of everything."""
    return amin(b, x)


def extreme_with_index(b: Builder, x: Value, dim: int, *, largest: bool) -> tuple[Value, Value]:
    """Extreme value and its int64 index along `dim` (dropped): the first; NaN wins (T065, T049)."""
    dtype = b.dtype(x)
    counter = index_dtype(b.shape(x)[dim])
    index = b.iota(b.shape(x), dim, counter)
    start = lowest(dtype) if largest else highest(dtype)
    inits = [b.scalar(start, dtype), b.scalar(beyond(counter), counter)]
    direction = "GT" if largest else "LT"

    def body(value: Value, at: Value, other: Value, other_at: Value) -> list[Value]:
        better = b.compare(value, other, direction)
        equal = b.compare(value, other, "EQ")
        if dtype in sem.FLOATS:
            nan, other_nan = sem.is_nan(b, value), sem.is_nan(b, other)
            better = b.or_(better, b.and_(nan, b.not_(other_nan)))
            equal = b.or_(equal, b.and_(nan, other_nan))
        keep = b.or_(better, b.and_(equal, b.compare(at, other_at, "LT")))
        return [b.select(keep, value, other), b.select(keep, at, other_at)]

    made = b.reduce_many([x, index], inits, [dim], body)
    return made[0], b.convert(made[1], torch.int64)


def _extreme(b: Builder, x: Value, dim: int | None, *, largest: bool) -> tuple[Value, Value]:
    if dim is None:
        x, dim = b.reshape(x, (math.prod(b.shape(x)),)), 0
    elif b.rank(x) == 0:
        x, dim = b.reshape(x, (1,)), 0
    return extreme_with_index(b, x, dim % b.rank(x), largest=largest)


@emits(aten.max.dim)
def max_dim(b: Builder, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """Maximum and where it is first."""
    made = _extreme(b, x, dim, largest=True)
    return [b.reshape(value, b.result_shape(i)) for i, value in enumerate(made)]


@emits(aten.min.dim)
def min_dim(b: Builder, x: Value, dim: int, keepdim: bool = False) -> list[Value]:
    """Minimum and where it is first."""
    made = _extreme(b, x, dim, largest=False)
    return [b.reshape(value, b.result_shape(i)) for i, value in enumerate(made)]


@emits(aten.argmax.default)
def argmax(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Where the maximum is first; NaN counts as the maximum."""
    return b.reshape(_extreme(b, x, dim, largest=True)[1], b.result_shape())


@emits(aten.argmin.default)
def argmin(b: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Where the minimum is first; NaN counts as the minimum."""
    return b.reshape(_extreme(b, x, dim, largest=False)[1], b.result_shape())


@emits(aten.aminmax.default)
def aminmax(b: Builder, x: Value, *, dim: int | None = None, keepdim: bool = False) -> list[Value]:
    """Minimum and maximum."""
    return [amin(b, x, dim, keepdim), amax(b, x, dim, keepdim)]


# ---- truth -----------------------------------------------------------------------------------


@emits(aten.any.default, aten.any.dim, aten.any.dims)
def any_(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Is any element nonzero (NaN is)."""
    return _truth(b, x, dim, False, b.or_)


@emits(aten.all.default, aten.all.dim, aten.all.dims)
def all_(b: Builder, x: Value, dim: Dims = None, keepdim: bool = False) -> Value:
    """Are all elements nonzero."""
    return _truth(b, x, dim, True, b.and_)


def _truth(b: Builder, x: Value, dim: Dims, start: bool, body: Callable[..., Value]) -> Value:
    truth = sem.convert_like_eager(b, x, torch.bool)
    # An empty list of dimensions reduces nothing for any.dims and all.dims... of a scalar only.
    dims = reduced_dims(dim, b.rank(x))
    if dims:
        truth = b.reduce(truth, b.scalar(start, torch.bool), dims, body)
    return b.convert(b.reshape(truth, b.result_shape()), b.result_dtype())


@emits(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def count_nonzero(b: Builder, x: Value, dim: Dims = None) -> Value:
    """How many elements are nonzero."""
    ones = b.convert(sem.convert_like_eager(b, x, torch.bool), torch.int64)
    return b.reshape(sum_over(b, ones, reduced_dims(dim, b.rank(x))), b.result_shape())


# ---- spread ----------------------------------------------------------------------------------


def variance_over(
    b: Builder, x: Value, dims: Sequence[int], correction: float
) -> tuple[Value, Value]:
    """Variance and mean in the dtype of x, dimensions dropped: two passes, as exact as Welford."""
    count = math.prod(b.shape(x)[d] for d in dims)
    mean = mean_over(b, x, dims)
    centred = b.subtract(x, keep(b, mean, dims, b.shape(x)))
    squares = sum_over(b, b.multiply(centred, centred), dims)
    return b.divide(squares, b.full_like(squares, max(count - correction, 0))), mean


def _spread(
    b: Builder, x: Value, dim: Dims, correction: Scalar | None, *, root: bool
) -> list[Value]:
    assert not isinstance(correction, complex)
    wide = b.convert(x, sem.math_dtype(b.dtype(x)))
    variance, mean = variance_over(
        b, wide, reduced_dims(dim, b.rank(x)), 1.0 if correction is None else float(correction)
    )
    made = [b.sqrt(variance) if root else variance, mean]
    return [b.reshape(b.convert(value, b.dtype(x)), b.result_shape()) for value in made]


@emits(aten.var.correction)
def var(
    b: Builder,
    x: Value,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Value:
    """Variance, divided by n - correction (default 1)."""
    return _spread(b, x, dim, correction, root=False)[0]


@emits(aten.std.correction)
def std(
    b: Builder,
    x: Value,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> Value:
    """Standard deviation."""
    return _spread(b, x, dim, correction, root=True)[0]


@emits(aten.var_mean.correction)
def var_mean(
    b: Builder,
    x: Value,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> list[Value]:
    """Variance and mean (T086: nan, nan of nothing)."""
    return _spread(b, x, dim, correction, root=False)


@emits(aten.std_mean.correction)
def std_mean(
    b: Builder,
    x: Value,
    dim: Dims = None,
    *,
    correction: Scalar | None = None,
    keepdim: bool = False,
) -> list[Value]:
    """Standard deviation and mean."""
    return _spread(b, x, dim, correction, root=True)


@emits(aten.linalg_vector_norm.default)
def vector_norm(
    b: Builder,
    x: Value,
    ord: Scalar = 2,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Value:
    """(sum |x|**ord) ** (1/ord); the extremes for +-inf, the count of nonzeros for 0."""
    assert not isinstance(ord, complex)
    result = b.result_dtype()
    size = b.abs(b.convert(x, sem.math_dtype(result)))
    dims = reduced_dims(dim, b.rank(x))
    made = norm_of_sizes(b, size, float(ord), dims)
    return b.convert(b.reshape(made, b.result_shape()), result)


def norm_of_sizes(b: Builder, size: Value, order: float, dims: Sequence[int]) -> Value:
    """The norm of absolute values, dimensions dropped."""
    if math.isinf(order):
        if order > 0:
            return max_over(b, size, dims)
        infinity = b.scalar(math.inf, b.dtype(size))
        return b.reduce(size, infinity, dims, b.minimum) if dims else size
    if order == 0:
        nonzero = b.compare(size, b.full_like(size, 0.0), "NE")
        return sum_over(b, b.convert(nonzero, b.dtype(size)), dims)
    if order == 1:
        return sum_over(b, size, dims)
    if order == 2:
        return b.sqrt(sum_over(b, b.multiply(size, size), dims))
    total = sum_over(b, b.power(size, b.full_like(size, order)), dims)
    return b.power(total, b.full_like(total, 1.0 / order))


@emits(aten.logsumexp.default)
def logsumexp(b: Builder, x: Value, dim: Dims, keepdim: bool = False) -> Value:
    """log(sum(exp(x))), shifted by the maximum where that is finite."""
    result, shape = b.result_dtype(), b.shape(x)
    wide = sem.convert_like_eager(b, x, sem.math_dtype(result))
    dims = reduced_dims(dim, b.rank(x))
    top = max_over(b, wide, dims)
    infinite = b.compare(b.abs(top), b.full_like(top, math.inf), "EQ")
    shift = b.select(infinite, b.full_like(top, 0.0), top)
    total = sum_over(b, b.exp(b.subtract(wide, keep(b, shift, dims, shape))), dims)
    return b.convert(b.reshape(b.add(b.log(total), shift), b.result_shape()), result)


# ---- cumulative ------------------------------------------------------------------------------


@emits(aten.cumsum.default)
def cumsum(b: Builder, x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    """Running sum along one dimension."""
    return _running(b, x, dim, 0, b.add)


@emits(aten.cumprod.default)
def cumprod(b: Builder, x: Value, dim: int, *, dtype: torch.dtype | None = None) -> Value:
    """Running product along one dimension."""
    return _running(b, x, dim, 1, b.multiply)


def _running(b: Builder, x: Value, dim: int, start: Scalar, body: Callable[..., Value]) -> Value:
    result, shape = b.result_dtype(), b.shape(x)
    wide = b.convert(sem.convert_like_eager(b, x, result), sem.math_dtype(result))
    if shape:
        identity = b.scalar(start, b.dtype(wide))
        wide = running(b, [wide], [identity], dim % len(shape), body)[0]
    return b.convert(wide, result)


@emits(aten.logcumsumexp.default)
def logcumsumexp(b: Builder, x: Value, dim: int) -> Value:
    """log of the running sum of exp(x)."""

    def body(p: Value, q: Value) -> Value:
        top, low = b.maximum(p, q), b.minimum(p, q)
        # Two equal infinities have no difference.
        same = b.compare(p, q, "EQ")
        gap = b.select(same, b.full_like(p, 0.0), b.subtract(low, top))
        return b.add(top, b.log1p(b.exp(gap)))

    return _running(b, x, dim, -math.inf, body)
