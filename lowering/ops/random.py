"""Random numbers from counter-based bits: uniform, normal, integers, masks, permutations.

In: shapes, parameters, and the function's random state. Out: `stablehlo.rng_bit_generator` (Philox)
and elementwise ops on its bits. Invariant: each draw has bits of its own; values are functions of
(state, element) alone. The numbers are not those of eager's generator, their distribution is:
uniform values lie in [0, 1), with as many bits as the dtype holds exactly, so never 1 (T115).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.ops.sorting import first_of_order, search
from neuron_compile.lowering.registry import emits
from neuron_compile.lowering.scans import running_sum
from neuron_compile.lowering.semantics import convert_like_eager, math_dtype

aten = torch.ops.aten

# Bits of a uniform value: what the significand holds, as in eager.
_DIGITS = {torch.bfloat16: 8, torch.float16: 11, torch.float32: 24, torch.float64: 53}
_WORD = 1 << 32


# ---- from bits to numbers --------------------------------------------------------------------


def _high_bits(b: Builder, shape: Sequence[int], count: int) -> ir.Value:
    """`count` random bits as a nonnegative signed integer (int32 up to 31 bits, else int64)."""
    wide = count > 31
    bits = b.random_bits(shape, torch.uint64 if wide else torch.uint32)
    kept = b.shift_right_logical(bits, b.full_like(bits, (64 if wide else 32) - count))
    # Signed, because vector units convert signed integers to floats.
    return b.bitcast_convert(kept, torch.int64 if wide else torch.int32)


def uniform(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> ir.Value:
    """Multiples of 2**-digits in [0, 1)."""
    digits, wide = _DIGITS[dtype], math_dtype(dtype)
    steps = b.convert(_high_bits(b, shape, digits), wide)
    return b.convert(b.multiply(steps, b.full_like(steps, 2.0**-digits)), dtype)


def _open_uniform(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> ir.Value:
    """Midpoints of 2**(digits - 1) equal parts of (0, 1): neither 0 nor 1; float32 or float64."""
    digits = _DIGITS[dtype] - 1
    steps = b.convert(_high_bits(b, shape, digits), dtype)
    middle = b.add(steps, b.full_like(steps, 0.5))
    return b.multiply(middle, b.full_like(steps, 2.0**-digits))


def _normal(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> ir.Value:
    """Mean 0, variance 1 (Box and Muller 1958); float32 or float64."""
    pair = _open_uniform(b, [2, *shape], dtype)
    first, second = (b.reshape(b.slice_in_dim(pair, 0, i, i + 1), shape) for i in range(2))
    radius = b.sqrt(b.multiply(b.full_like(first, -2.0), b.log(first)))
    return b.multiply(radius, b.cosine(b.multiply(second, b.full_like(second, 2 * math.pi))))


def normal(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> ir.Value:
    """Standard normal."""
    return b.convert(_normal(b, shape, math_dtype(dtype)), dtype)


def _exponential(b: Builder, shape: Sequence[int], dtype: torch.dtype) -> ir.Value:
    """Mean 1, never 0; float32 or float64."""
    return b.negate(b.log(_open_uniform(b, shape, dtype)))


def integers(b: Builder, shape: Sequence[int], low: int, high: int) -> ir.Value:
    """int64 values in [low, high)."""
    count = high - low
    if count <= _WORD:
        # The high word of bits * count: the bias is below count / 2**32.
        bits = b.convert(b.random_bits(shape, torch.uint32), torch.uint64)
        scaled = b.multiply(bits, b.full_like(bits, count))
        value = b.shift_right_logical(scaled, b.full_like(bits, 32))
    else:
        value = b.random_bits(shape, torch.uint64)
        if count < 1 << 64:
            value = b.remainder(value, b.full_like(value, count))
    signed = b.bitcast_convert(value, torch.int64)
    return b.add(signed, b.full_like(signed, low))


def _chance(b: Builder, shape: Sequence[int], p: float) -> ir.Value:
    """True with probability p, to 2**-24."""
    digits = _DIGITS[torch.float32]
    bits = _high_bits(b, shape, digits)
    return b.compare(bits, b.full_like(bits, round(p * 2**digits)), "LT")


# ---- uniform and normal ----------------------------------------------------------------------


@emits(aten.rand.default)
def rand(b: Builder, size: Sequence[int], *, dtype: torch.dtype | None = None) -> ir.Value:
    """Uniform in [0, 1)."""
    del dtype
    return uniform(b, size, b.result_dtype())


@emits(aten.rand_like.default)
def rand_like(b: Builder, x: ir.Value, *, dtype: torch.dtype | None = None) -> ir.Value:
    """Uniform in [0, 1)."""
    del x, dtype
    return uniform(b, b.result_shape(), b.result_dtype())


@emits(aten.uniform.default)
def uniform_between(
    b: Builder, x: ir.Value, low: float = 0.0, high: float = 1.0, *, generator: None = None
) -> ir.Value:
    """Uniform in [low, high)."""
    del x, generator
    dtype = b.result_dtype()
    wide = math_dtype(dtype)
    unit = b.convert(uniform(b, b.result_shape(), dtype), wide)
    spread = b.multiply(unit, b.full_like(unit, high - low))
    return b.convert(b.add(spread, b.full_like(unit, low)), dtype)


@emits(aten.randn.default)
def randn(b: Builder, size: Sequence[int], *, dtype: torch.dtype | None = None) -> ir.Value:
    """Standard normal."""
    del dtype
    return normal(b, size, b.result_dtype())


@emits(aten.randn_like.default)
def randn_like(b: Builder, x: ir.Value, *, dtype: torch.dtype | None = None) -> ir.Value:
    """Standard normal."""
    del x, dtype
    return normal(b, b.result_shape(), b.result_dtype())


def _normal_with(b: Builder, mean: ir.Value | float, std: ir.Value | float) -> ir.Value:
    shape, dtype = b.result_shape(), b.result_dtype()
    wide = math_dtype(dtype)

    def spread(value: ir.Value | float) -> ir.Value:
        if isinstance(value, ir.Value):
            return b.broadcast_to(convert_like_eager(b, value, wide), shape)
        return b.full(shape, value, wide)

    scaled = b.multiply(normal(b, shape, wide), spread(std))
    return b.convert(b.add(scaled, spread(mean)), dtype)


@emits(aten.normal.Tensor_float)
def normal_around(
    b: Builder, mean: ir.Value, std: float = 1.0, *, generator: None = None
) -> ir.Value:
    """Normal with a mean for each element."""
    del generator
    return _normal_with(b, mean, std)


@emits(aten.normal.float_Tensor, aten.normal.Tensor_Tensor)
def normal_by_tensor(
    b: Builder, mean: ir.Value | float, std: ir.Value, *, generator: None = None
) -> ir.Value:
    """Normal with a standard deviation, perhaps a mean, for each element."""
    del generator
    return _normal_with(b, mean, std)


@emits(aten.normal.float_float)
def normal_of_size(
    b: Builder,
    mean: float,
    std: float,
    size: Sequence[int],
    *,
    generator: None = None,
    dtype: torch.dtype | None = None,
) -> ir.Value:
    """Normal numbers of a given shape."""
    del size, generator, dtype
    return _normal_with(b, mean, std)


@emits(aten.normal_functional.default)
def normal_like(
    b: Builder, x: ir.Value, mean: float = 0.0, std: float = 1.0, *, generator: None = None
) -> ir.Value:
    """What `x.normal_(mean, std)` leaves in x."""
    del x, generator
    return _normal_with(b, mean, std)


# ---- other distributions ---------------------------------------------------------------------


def _drawn(b: Builder) -> tuple[tuple[int, ...], torch.dtype]:
    """Shape of the node's result and the dtype to compute it in."""
    dtype = b.result_dtype()
    return b.result_shape(), math_dtype(dtype) if dtype.is_floating_point else torch.float32


@emits(aten.exponential.default)
def exponential(b: Builder, x: ir.Value, lambd: float = 1.0, *, generator: None = None) -> ir.Value:
    """Exponential with rate `lambd`."""
    del x, generator
    value = _exponential(b, *_drawn(b))
    return b.convert(b.divide(value, b.full_like(value, lambd)), b.result_dtype())


@emits(aten.geometric.default)
def geometric(b: Builder, x: ir.Value, p: float, *, generator: None = None) -> ir.Value:
    """Number of trials until the first success, from 1."""
    del x, generator
    value = _exponential(b, *_drawn(b))
    # p == 1 gives -0 / -inf: at once.
    trials = b.ceil(b.divide(value, b.full_like(value, -math.log1p(-p) if p < 1 else math.inf)))
    trials = b.maximum(trials, b.full_like(trials, 1))
    return convert_like_eager(b, trials, b.result_dtype())


@emits(aten.cauchy.default)
def cauchy(
    b: Builder, x: ir.Value, median: float = 0.0, sigma: float = 1.0, *, generator: None = None
) -> ir.Value:
    """Cauchy with this median and scale."""
    del x, generator
    unit = _open_uniform(b, *_drawn(b))
    angle = b.multiply(b.subtract(unit, b.full_like(unit, 0.5)), b.full_like(unit, math.pi))
    value = b.multiply(b.tan(angle), b.full_like(unit, sigma))
    return b.convert(b.add(value, b.full_like(value, median)), b.result_dtype())


@emits(aten.log_normal.default)
def log_normal(
    b: Builder, x: ir.Value, mean: float = 1.0, std: float = 2.0, *, generator: None = None
) -> ir.Value:
    """The exponential of a normal number."""
    del x, generator
    value = _normal(b, *_drawn(b))
    exponent = b.add(b.multiply(value, b.full_like(value, std)), b.full_like(value, mean))
    return b.convert(b.exp(exponent), b.result_dtype())


# ---- masks -----------------------------------------------------------------------------------


@emits(aten.bernoulli.p)
def bernoulli_p(b: Builder, x: ir.Value, p: float = 0.5, *, generator: None = None) -> ir.Value:
    """1 with probability p."""
    del x, generator
    return b.convert(_chance(b, b.result_shape(), p), b.result_dtype())


def _by_tensor(b: Builder, p: ir.Value) -> ir.Value:
    dtype = torch.float64 if b.dtype(p) is torch.float64 else torch.float32
    chance = b.broadcast_to(b.convert(p, dtype), b.result_shape())
    return b.convert(b.compare(uniform(b, b.result_shape(), dtype), chance, "LT"), b.result_dtype())


@emits(aten.bernoulli.default)
def bernoulli(b: Builder, p: ir.Value, *, generator: None = None) -> ir.Value:
    """1 with the probability each element gives."""
    del generator
    return _by_tensor(b, p)


@emits(aten.bernoulli.Tensor)
def bernoulli_tensor(b: Builder, x: ir.Value, p: ir.Value, *, generator: None = None) -> ir.Value:
    """1 with the probability p gives, in the shape and dtype of x."""
    del x, generator
    return _by_tensor(b, p)


@emits(aten.native_dropout.default)
def native_dropout(b: Builder, x: ir.Value, p: float, train: bool | None) -> list[ir.Value]:
    """A share p of the elements zeroed, the rest divided by 1 - p; and the mask of those kept."""
    dtype = b.dtype(x)
    if train is False or p == 0:
        return [x, b.full(b.shape(x), True, torch.bool)]
    mask = _chance(b, b.shape(x), 1 - p)
    wide = math_dtype(dtype)
    # A product, not a choice: eager makes NaN of an infinity that is dropped.
    kept = b.multiply(b.convert(x, wide), b.convert(mask, wide))
    scaled = b.multiply(kept, b.full_like(kept, 0.0 if p == 1 else 1 / (1 - p)))
    return [b.convert(scaled, dtype), mask]


# ---- integers, permutations, samples ---------------------------------------------------------


def _integers_like_result(b: Builder, low: int, high: int) -> ir.Value:
    made = integers(b, b.result_shape(), low, high)
    return convert_like_eager(b, made, b.result_dtype())


@emits(aten.randint.default)
def randint(
    b: Builder, high: int, size: Sequence[int], *, dtype: torch.dtype | None = None
) -> ir.Value:
    """Integers in [0, high)."""
    del size, dtype
    return _integers_like_result(b, 0, high)


@emits(aten.randint.low)
def randint_between(
    b: Builder, low: int, high: int, size: Sequence[int], *, dtype: torch.dtype | None = None
) -> ir.Value:
    """Integers in [low, high)."""
    del size, dtype
    return _integers_like_result(b, low, high)


@emits(aten.randint_like.default)
def randint_like(
    b: Builder, x: ir.Value, high: int, *, dtype: torch.dtype | None = None
) -> ir.Value:
    """Integers in [0, high)."""
    del x, dtype
    return _integers_like_result(b, 0, high)


@emits(aten.randint_like.low_dtype)
def randint_like_between(
    b: Builder, x: ir.Value, low: int, high: int, *, dtype: torch.dtype | None = None
) -> ir.Value:
    """Integers in [low, high)."""
    del x, dtype
    return _integers_like_result(b, low, high)


def _integer_limit(dtype: torch.dtype) -> int:
    """One past the largest integer `random_()` draws: floats as far as they count exactly."""
    if dtype.is_floating_point:
        return (1 << _DIGITS[dtype]) + 1
    return 2 if dtype is torch.bool else torch.iinfo(dtype).max + 1


@emits(aten.random.default)
def random_integers(b: Builder, x: ir.Value, *, generator: None = None) -> ir.Value:
    """What `x.random_()` leaves in x."""
    del x, generator
    return _integers_like_result(b, 0, _integer_limit(b.result_dtype()))


@emits(aten.random.to)
def random_below(b: Builder, x: ir.Value, to: int, *, generator: None = None) -> ir.Value:
    """Integers in [0, to)."""
    del x, generator
    return _integers_like_result(b, 0, to)


@emits(getattr(aten.random, "from"))
def random_between(
    b: Builder, x: ir.Value, low: int, to: int | None, *, generator: None = None
) -> ir.Value:
    """Integers in [low, to), or from `low` on."""
    del x, generator
    return _integers_like_result(b, low, _integer_limit(b.result_dtype()) if to is None else to)


@emits(aten.randperm.default)
def randperm(b: Builder, n: int, *, dtype: torch.dtype | None = None) -> ir.Value:
    """A permutation of 0..n-1: the order of n random keys."""
    del dtype
    if n == 0:
        return b.full([0], 0, b.result_dtype())
    keys = b.bitcast_convert(b.random_bits([n], torch.uint64), torch.int64)
    return b.convert(first_of_order(b, keys, n, 0, largest=False)[1], b.result_dtype())


@emits(aten.multinomial.default)
def multinomial(
    b: Builder,
    x: ir.Value,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: None = None,
) -> ir.Value:
    """Indices drawn by weight from each row.

    Without replacement: the largest of weight / Exp(1), which are exponential races. With it: one
    search in the running sum for each sample.
    """
    del generator
    shape, wide = b.shape(x), math_dtype(b.dtype(x))
    weight, last = b.convert(x, wide), len(b.shape(x)) - 1
    if not replacement or num_samples == 1:
        race = b.divide(weight, _exponential(b, shape, wide))
        found = first_of_order(b, race, num_samples, last, largest=True)[1]
        return b.convert(found, torch.int64)
    total = running_sum(b, weight, last)
    whole = b.slice_in_dim(total, last, shape[last] - 1, shape[last])
    # The last element is exactly 1, above every sample; weights of 0 are never met.
    share = b.divide(total, b.broadcast_in_dim(whole, shape, range(len(shape))))
    return search(b, share, uniform(b, b.result_shape(), wide), right=True)
