"""Discrete Fourier transforms as products with small constant matrices.

In: real or complex tensors, dimensions. Out: their transforms. Invariant: a length is split into
two factors until they are small (Cooley & Tukey 1965), so that the work is n * (sum of the factors)
and all of it runs in the kernels for matrix products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.ops.complex import multiply, product, scaled
from neuron_compile.lowering.pairs import Pair
from neuron_compile.lowering.registry import Supports, emits_complex

aten = torch.ops.aten
Value = ir.Value

# A product with a matrix this small costs less than the reshapes that another split would need.
_DIRECT = 64
# The matrix of a prime length p has 2 * p * p constants.
_LARGEST_PRIME = 512


def largest_prime_factor(n: int) -> int:
    """The largest prime that divides n; 1 for n < 2."""
    largest, candidate = 1, 2
    while candidate * candidate <= n:
        while n % candidate == 0:
            largest, n = candidate, n // candidate
        candidate += 1
    return max(largest, n)


def balanced_factor(n: int) -> int:
    """The largest divisor of n that is not above its square root."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)


def _lengths_supported(last_from: int | None) -> Supports:
    def supports(node: torch.fx.Node) -> str | None:
        shape, dims = node.args[0].meta["val"].shape, node.args[1]  # type: ignore[union-attr]
        lengths = [shape[d] for d in dims]  # type: ignore[union-attr]
        if last_from is not None:
            lengths[-1] = node.args[last_from]
        if all(largest_prime_factor(n) <= _LARGEST_PRIME for n in lengths):
            return None
        return f"a transform whose length has a prime factor above {_LARGEST_PRIME}"

    return supports


def _roots(b: Builder, angles: torch.Tensor, dtype: torch.dtype) -> Pair:
    """cos and sin of exact angles (float64), as constants."""
    return Pair(b.array(angles.cos().to(dtype)), b.array(angles.sin().to(dtype)))


def _turns(rows: int, columns: int, n: int, sign: float) -> torch.Tensor:
    """sign * 2 pi * (row * column mod n) / n: reduced before it is rounded."""
    index = torch.arange(rows)[:, None] * torch.arange(columns)[None, :] % n
    return index.double() * (sign * 2.0 * math.pi / n)


def _transform_last(b: Builder, x: Pair, sign: float) -> Pair:
    """The unnormalised transform along the last dimension; sign -1 is forward."""
    shape, dtype = b.shape(x.real), b.dtype(x.real)
    n = shape[-1]
    first = balanced_factor(n) if n > _DIRECT else 1
    last = len(shape) - 1
    if first == 1:
        matrix = _roots(b, _turns(n, n, n, sign), dtype)
        return product(b, x, matrix, lambda p, q: b.dot_general(p, q, contract=([last], [0])))
    second = n // first
    lead = shape[:-1]
    # j = j1 * second + j2, k = k2 * first + k1: transform over j1, turn by k1 * j2, then over j2.
    swapped = [*range(last), last + 1, last]
    columns = _map(x, lambda v: b.transpose(b.reshape(v, (*lead, first, second)), swapped))
    columns = _transform_last(b, columns, sign)
    twiddles = _map(
        _roots(b, _turns(second, first, n, sign), dtype),
        lambda v: b.broadcast_to(v, (*lead, second, first)),
    )
    rows = _map(multiply(b, columns, twiddles), lambda v: b.transpose(v, swapped))
    rows = _transform_last(b, rows, sign)
    return _map(rows, lambda v: b.reshape(b.transpose(v, swapped), shape))


def _map(x: Pair, function: Callable[[Value], Value]) -> Pair:
    return Pair(function(x.real), function(x.imag))


def _transposed(b: Builder, x: Pair, order: Sequence[int]) -> Pair:
    return Pair(b.transpose(x.real, order), b.transpose(x.imag, order))


def _transform(b: Builder, x: Pair, dims: Sequence[int], sign: float) -> Pair:
    rank = b.rank(x.real)
    for dim in dims:
        order = [*(d for d in range(rank) if d != dim % rank), dim % rank]
        back = [order.index(d) for d in range(rank)]
        moved = _transform_last(b, _transposed(b, x, order), sign)
        x = _transposed(b, moved, back)
    return x


def _normalised(b: Builder, x: Pair, count: int, normalization: int) -> Pair:
    """0: as it is; 1: divided by sqrt(count); 2: by count."""
    factors = (1.0, 1.0 / math.sqrt(count), 1.0 / count)
    return scaled(b, x, factors[normalization])


@emits_complex(aten._fft_c2c.default, supports=_lengths_supported(None))
def c2c(b: Builder, x: Pair, dim: Sequence[int], normalization: int, forward: bool) -> Pair:
    """Complex to complex."""
    count = math.prod(b.shape(x.real)[d] for d in dim)
    return _normalised(b, _transform(b, x, dim, -1.0 if forward else 1.0), count, normalization)


@emits_complex(aten._fft_r2c.default, supports=_lengths_supported(None))
def r2c(b: Builder, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Pair:
    """Real to complex; if onesided only the first n // 2 + 1 of the last dimension."""
    count = math.prod(b.shape(x)[d] for d in dim)
    whole = Pair(x, b.full_like(x, 0.0))
    last = dim[-1] % b.rank(x)
    made = _transform(b, whole, [last], -1.0)
    if onesided:
        half = b.shape(x)[last] // 2 + 1
        made = _map(made, lambda v: b.slice_in_dim(v, last, 0, half))
    return _normalised(b, _transform(b, made, dim[:-1], -1.0), count, normalization)


@emits_complex(aten._fft_c2r.default, supports=_lengths_supported(3))
def c2r(b: Builder, x: Pair, dim: Sequence[int], normalization: int, last_dim_size: int) -> Value:
    """The inverse of a onesided real transform: the other half is the conjugate, mirrored."""
    last = dim[-1] % b.rank(x.real)
    count = last_dim_size * math.prod(b.shape(x.real)[d] for d in dim[:-1])
    made = _transform(b, x, dim[:-1], 1.0)
    made = _map(made, lambda v: b.slice_in_dim(v, last, 0, last_dim_size // 2 + 1))
    mirrored = _map(
        made, lambda v: b.reverse(b.slice_in_dim(v, last, 1, (last_dim_size - 1) // 2 + 1), [last])
    )
    whole = Pair(
        b.concatenate([made.real, mirrored.real], last),
        b.concatenate([made.imag, b.negate(mirrored.imag)], last),
    )
    return _normalised(b, _transform(b, whole, [last], 1.0), count, normalization).real
