"""Complex tensors: views, moves, sums, products, comparison, conversion.

In: `Pair`s of real values. Out: `Pair`s, or real values. Invariant: what treats both parts alike
uses the emitter for real tensors, twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.builder_core import Scalar
from neuron_compile.lowering.ops import cast, creation, linalg, reduction
from neuron_compile.lowering.pairs import Pair, join, real_dtype, split
from neuron_compile.lowering.registry import emits_complex, partwise, rule_for

aten = torch.ops.aten
prims = torch.ops.prims
Value = ir.Value
Operand = Pair | ir.Value | bool | int | float | complex

# Views and moves; linear functions of one tensor; reads and writes by index.
partwise(
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.view_copy.default,
    aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.unsqueeze.default,
    aten.expand.default, aten.permute.default, aten.transpose.int, aten.t.default,
    aten.slice.Tensor, aten.select.int, aten.unbind.int, aten.split.Tensor,
    aten.split_with_sizes.default, aten.flip.default, aten.roll.default, aten.repeat.default,
    aten.diagonal.default, aten.as_strided.default, aten.unfold.default,
    aten.unfold_backward.default, aten.slice_scatter.default, aten.select_scatter.default,
    aten.slice_backward.default, aten.select_backward.default, aten.tril.default,
    aten.triu.default, aten.clone.default, aten.alias.default, aten.detach.default,
    aten.lift_fresh_copy.default, aten.positive.default, aten.neg.default,
    aten.index_select.default, aten.index.Tensor, aten.gather.default, aten.index_put.default,
    aten.index_add.default, aten.index_copy.default, aten.scatter.src, aten.scatter_add.default,
    aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default,
    aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default, aten.empty.memory_format,
    aten.empty_like.default, aten.new_empty.default, aten.empty_strided.default,
    aten.new_empty_strided.default, aten.rand.default, aten.rand_like.default,
    aten.reflection_pad1d.default, aten.reflection_pad2d.default,
    aten.replication_pad1d.default, aten.replication_pad2d.default, aten.unsafe_split.Tensor,
    aten.permute_copy.default, aten.diagonal_copy.default, aten.unfold_copy.default,
    aten.unbind_copy.int, aten.expand_copy.default, aten.slice_copy.Tensor, aten.select_copy.int,
    aten.as_strided_copy.default, aten.empty_permuted.default, aten.zero.default,
    aten._unsafe_index_put.default, aten._unsafe_index.Tensor, aten.masked_scatter.default,
    aten.diagonal_scatter.default, aten.put.default, aten.take.default,
)  # fmt: skip


# ---- helpers ---------------------------------------------------------------------------------


def as_pair(b: Builder, value: Operand, shape: Sequence[int] | None = None) -> Pair:
    """Any operand as parts of the node's dtype, broadcast to `shape` (default: the node's)."""
    size = b.result_shape() if shape is None else shape
    dtype = _part_dtype(b)
    if isinstance(value, Pair):
        parts: tuple[sem.Operand, sem.Operand] = (value.real, value.imag)
    elif isinstance(value, complex):
        parts = (value.real, value.imag)
    else:
        parts = (value, 0.0)
    return Pair(*(sem.operand(b, part, size, dtype) for part in parts))


def _part_dtype(b: Builder) -> torch.dtype:
    """The parts' dtype of the result, or of the complex operands of a node with a real result."""
    candidates = [b.result(), *(n.meta["val"] for n in b.node.all_input_nodes)]
    dtypes = [t.dtype for t in candidates if isinstance(t, torch.Tensor) and t.dtype.is_complex]
    return real_dtype(max(dtypes, key=lambda dtype: dtype.itemsize))


def each(function: Callable[..., Value], *pairs: Pair) -> Pair:
    """The function of all real parts, and of all imaginary parts."""
    return Pair(function(*(p.real for p in pairs)), function(*(p.imag for p in pairs)))


def multiply(b: Builder, x: Pair, y: Pair) -> Pair:
    """(a + bi)(c + di) = (ac - bd) + (ad + bc)i."""
    real = b.subtract(b.multiply(x.real, y.real), b.multiply(x.imag, y.imag))
    imag = b.add(b.multiply(x.real, y.imag), b.multiply(x.imag, y.real))
    return Pair(real, imag)


def divide(b: Builder, x: Pair, y: Pair) -> Pair:
    """x / y with the larger part of y divided out first (Smith 1962), so that it rarely overflows.

    By zero: each part of x divided by zero.
    """
    zero, one = b.full_like(y.real, 0.0), b.full_like(y.real, 1.0)
    wide = b.compare(b.abs(y.real), b.abs(y.imag), "GE")
    large, small = b.select(wide, y.real, y.imag), b.select(wide, y.imag, y.real)
    is_zero = b.compare(large, zero, "EQ")
    ratio = b.divide(small, b.select(is_zero, one, large))
    scale = b.divide(one, b.add(large, b.multiply(small, ratio)))
    near, far = b.select(wide, x.real, x.imag), b.select(wide, x.imag, x.real)
    real = b.multiply(b.add(near, b.multiply(far, ratio)), scale)
    turned = b.multiply(b.subtract(far, b.multiply(near, ratio)), scale)
    imag = b.select(wide, turned, b.negate(turned))
    by_zero = each(lambda part: b.divide(part, b.abs(y.real)), x)
    return Pair(b.select(is_zero, by_zero.real, real), b.select(is_zero, by_zero.imag, imag))


def scaled(b: Builder, x: Pair, factor: Scalar) -> Pair:
    """x times a Python number."""
    if factor == 1:
        return x
    if isinstance(factor, complex):
        return multiply(
            b, x, Pair(b.full_like(x.real, factor.real), b.full_like(x.real, factor.imag))
        )
    return each(lambda part: b.multiply(part, b.full_like(part, factor)), x)


# ---- arithmetic ------------------------------------------------------------------------------


@emits_complex(aten.add.Tensor, aten.add.Scalar)
def add(b: Builder, x: Operand, y: Operand, alpha: Scalar = 1) -> Pair:
    """x + alpha * y."""
    return each(b.add, as_pair(b, x), scaled(b, as_pair(b, y), alpha))


@emits_complex(aten.sub.Tensor, aten.sub.Scalar)
def sub(b: Builder, x: Operand, y: Operand, alpha: Scalar = 1) -> Pair:
    """x - alpha * y."""
    return each(b.subtract, as_pair(b, x), scaled(b, as_pair(b, y), alpha))


@emits_complex(aten.rsub.Tensor, aten.rsub.Scalar)
def rsub(b: Builder, x: Operand, y: Operand, alpha: Scalar = 1) -> Pair:
    """y - alpha * x."""
    return sub(b, y, x, alpha)


@emits_complex(aten.mul.Tensor, aten.mul.Scalar)
def mul(b: Builder, x: Operand, y: Operand) -> Pair:
    """x * y."""
    return multiply(b, as_pair(b, x), as_pair(b, y))


@emits_complex(aten.div.Tensor, aten.div.Scalar)
def div(b: Builder, x: Operand, y: Operand) -> Pair:
    """x / y."""
    if isinstance(y, (int, float)) and y != 0:
        return each(lambda part: b.divide(part, b.full_like(part, y)), as_pair(b, x))
    return divide(b, as_pair(b, x), as_pair(b, y))


@emits_complex(aten.addcmul.default)
def addcmul(b: Builder, x: Operand, y: Operand, z: Operand, *, value: Scalar = 1) -> Pair:
    """x + value * y * z."""
    product = multiply(b, scaled(b, as_pair(b, y), value), as_pair(b, z))
    return each(b.add, as_pair(b, x), product)


@emits_complex(aten.addcdiv.default)
def addcdiv(b: Builder, x: Operand, y: Operand, z: Operand, *, value: Scalar = 1) -> Pair:
    """x + value * y / z."""
    quotient = divide(b, scaled(b, as_pair(b, y), value), as_pair(b, z))
    return each(b.add, as_pair(b, x), quotient)


@emits_complex(aten.where.self)
def where(b: Builder, condition: Value, x: Operand, y: Operand) -> Pair:
    """x where the condition holds, else y."""
    mask = sem.operand(b, condition, b.result_shape(), torch.bool)
    return each(lambda p, q: b.select(mask, p, q), as_pair(b, x), as_pair(b, y))


@emits_complex(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(b: Builder, x: Pair, mask: Value, value: Operand) -> Pair:
    """The value where the mask holds."""
    return where(b, mask, value, x)


# ---- comparison and truth --------------------------------------------------------------------


@emits_complex(aten.eq.Tensor, aten.eq.Scalar)
def eq(b: Builder, x: Operand, y: Operand) -> Value:
    """Both parts are equal."""
    same = each(lambda p, q: b.compare(p, q, "EQ"), as_pair(b, x), as_pair(b, y))
    return b.and_(same.real, same.imag)


@emits_complex(aten.ne.Tensor, aten.ne.Scalar)
def ne(b: Builder, x: Operand, y: Operand) -> Value:
    """Either part differs."""
    return b.not_(eq(b, x, y))


def nonzero(b: Builder, x: Operand) -> Value:
    """A bool tensor: either part is not zero; real tensors too."""
    if isinstance(x, Pair):
        parts = each(lambda part: b.compare(part, b.full_like(part, 0.0), "NE"), x)
        return b.or_(parts.real, parts.imag)
    assert isinstance(x, ir.Value)
    return sem.convert_like_eager(b, x, torch.bool)


def _of_truth(overload: torch._ops.OpOverload) -> None:
    """Translate an operator that only asks whether its arguments are zero."""

    @emits_complex(overload)
    def emit(b: Builder, *args: object, **kwargs: object) -> Value:
        rule = rule_for(overload)
        assert rule is not None
        truths = [nonzero(b, a) if isinstance(a, (Pair, ir.Value)) else a for a in args]
        return rule.emit(b, *truths, **kwargs)


for _overload in (
    aten.logical_not.default, aten.logical_and.default, aten.logical_or.default,
    aten.logical_xor.default, aten.any.default, aten.any.dim, aten.any.dims, aten.all.default,
    aten.all.dim, aten.all.dims, aten.count_nonzero.default, aten.count_nonzero.dim_IntList,
):  # fmt: skip
    _of_truth(_overload)


@emits_complex(aten.isnan.default)
def isnan(b: Builder, x: Pair) -> Value:
    """Either part is NaN."""
    return b.or_(sem.is_nan(b, x.real), sem.is_nan(b, x.imag))


@emits_complex(aten.isinf.default)
def isinf(b: Builder, x: Pair) -> Value:
    """Either part is infinite."""
    parts = each(lambda part: b.compare(b.abs(part), b.full_like(part, float("inf")), "EQ"), x)
    return b.or_(parts.real, parts.imag)


# ---- parts and conversion --------------------------------------------------------------------


@emits_complex(aten.complex.default)
def complex_(b: Builder, real: Value, imag: Value) -> Pair:
    """real + i imag."""
    shape = b.result_shape()
    return Pair(b.broadcast_to(real, shape), b.broadcast_to(imag, shape))


@emits_complex(aten.polar.default)
def polar(b: Builder, size: Value, angle: Value) -> Pair:
    """size * (cos angle + i sin angle)."""
    shape = b.result_shape()
    size, angle = b.broadcast_to(size, shape), b.broadcast_to(angle, shape)
    return Pair(b.multiply(size, b.cosine(angle)), b.multiply(size, b.sine(angle)))


@emits_complex(aten.view_as_real.default)
def view_as_real(b: Builder, x: Pair) -> Value:
    """Parts along a last dimension of 2."""
    return join(b, x)


@emits_complex(aten.view_as_complex.default)
def view_as_complex(b: Builder, x: Value) -> Pair:
    """The parts along the last dimension."""
    return split(b, x)


@emits_complex(aten.view.dtype)
def view_dtype(b: Builder, x: Pair | Value, dtype: torch.dtype) -> Pair | Value:
    """The same bytes in another dtype, of which one or both are complex."""
    real = join(b, x) if isinstance(x, Pair) else x
    if isinstance(x, Pair):
        *outer, last, two = b.shape(real) if b.shape(x.real) else (1, 2)
        real = b.reshape(real, (*outer, last * two))
    words = cast.reinterpret(b, real, real_dtype(dtype))
    if not dtype.is_complex:
        return b.reshape(words, b.result_shape())
    return split(b, b.reshape(words, (*b.result_shape(), 2)))


@emits_complex(aten._conj.default, aten._conj_physical.default, aten.conj_physical.default)
def conj(b: Builder, x: Pair) -> Pair:
    """The imaginary part negated."""
    return Pair(x.real, b.negate(x.imag))


@emits_complex(aten.resolve_conj.default, aten.resolve_neg.default)
def resolved(b: Builder, x: Pair) -> Pair:
    """The value itself: nothing is pending in a functional graph."""
    return x


@emits_complex(aten._to_copy.default, prims.convert_element_type.default)
def to_copy(b: Builder, x: Operand, dtype: torch.dtype | None = None) -> Pair | Value:
    """x in another dtype: to a real dtype the imaginary part goes, to bool x != 0."""
    if b.result().dtype.is_complex:
        return as_pair(b, x)
    assert isinstance(x, Pair)
    if b.result_dtype() is torch.bool:
        return nonzero(b, x)
    return sem.convert_like_eager(b, x.real, b.result_dtype())


@emits_complex(aten.copy.default)
def copy(b: Builder, x: Operand, source: Operand, _non_blocking: bool = False) -> Pair | Value:
    """The source in the shape and dtype of x."""
    if isinstance(x, Pair):
        return as_pair(b, source)
    assert isinstance(source, Pair)
    return sem.operand(b, source.real, b.result_shape(), b.result_dtype())


@emits_complex(aten.full.default, aten.full_like.default, aten.new_full.default)
def full(b: Builder, *args: Operand, dtype: torch.dtype | None = None) -> Pair:
    """A constant; the fill value is the last positional argument."""
    return as_pair(b, args[-1])


@emits_complex(aten.fill.Scalar, aten.fill.Tensor)
def fill(b: Builder, x: Pair, value: Operand) -> Pair:
    """The value in the shape of x."""
    return as_pair(b, value)


@emits_complex(aten.scalar_tensor.default)
def scalar_tensor(b: Builder, s: Scalar, dtype: torch.dtype | None = None) -> Pair:
    """A 0-d constant."""
    return as_pair(b, s)


@emits_complex(aten.ones.default, aten.ones_like.default, aten.new_ones.default)
def ones(b: Builder, *_: object, dtype: torch.dtype | None = None) -> Pair:
    """Ones."""
    return as_pair(b, 1)


@emits_complex(aten.eye.default, aten.eye.m)
def eye(b: Builder, *args: object, dtype: torch.dtype | None = None) -> Pair:
    """Ones on the diagonal."""
    return as_pair(b, creation.eye(b, *args, dtype=dtype))


@emits_complex(aten.cat.default)
def cat(b: Builder, tensors: Sequence[Pair | Value], dim: int = 0) -> Pair:
    """Join along one dimension; real tensors become complex."""
    return _joined(b, tensors, dim, aten.cat.default)


@emits_complex(aten.stack.default)
def stack(b: Builder, tensors: Sequence[Pair | Value], dim: int = 0) -> Pair:
    """Join along a new dimension."""
    return _joined(b, tensors, dim, aten.stack.default)


def _joined(
    b: Builder, tensors: Sequence[Pair | Value], dim: int, overload: torch._ops.OpOverload
) -> Pair:
    rule = rule_for(overload)
    assert rule is not None
    whole = [as_pair(b, t, b.shape(t.real if isinstance(t, Pair) else t)) for t in tensors]
    reals, imags = [p.real for p in whole], [p.imag for p in whole]
    return Pair(rule.emit(b, reals, dim), rule.emit(b, imags, dim))


@emits_complex(aten.constant_pad_nd.default)
def constant_pad_nd(b: Builder, x: Pair, pad: Sequence[int], value: Scalar = 0) -> Pair:
    """Pad each part with the part of the value."""
    rule = rule_for(aten.constant_pad_nd.default)
    assert rule is not None
    filler = complex(value)
    return Pair(rule.emit(b, x.real, pad, filler.real), rule.emit(b, x.imag, pad, filler.imag))


# ---- products of matrices, reductions --------------------------------------------------------


def product(b: Builder, x: Pair, y: Pair, function: Callable[[Value, Value], Value]) -> Pair:
    """Four real products for one complex product of matrices."""
    real = b.subtract(function(x.real, y.real), function(x.imag, y.imag))
    imag = b.add(function(x.real, y.imag), function(x.imag, y.real))
    return Pair(real, imag)


@emits_complex(aten.mm.default, aten.bmm.default)
def mm(b: Builder, x: Pair, y: Pair) -> Pair:
    """Matrix times matrix."""
    batch = b.rank(x.real) - 2
    return product(b, x, y, lambda p, q: linalg.product(b, p, q, batch=batch))


@emits_complex(aten.mv.default, aten.dot.default)
def mv(b: Builder, x: Pair, y: Pair) -> Pair:
    """Matrix or vector times vector."""
    last = b.rank(x.real) - 1
    return product(b, x, y, lambda p, q: b.dot_general(p, q, contract=([last], [0])))


@emits_complex(aten.vdot.default)
def vdot(b: Builder, x: Pair, y: Pair) -> Pair:
    """The inner product with the first vector conjugated."""
    return mv(b, conj(b, x), y)


@emits_complex(aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
def addmm(
    b: Builder, addend: Pair, x: Pair, y: Pair, *, beta: Scalar = 1, alpha: Scalar = 1
) -> Pair:
    """beta * addend + alpha * (x @ y)."""
    made = mv(b, x, y) if b.rank(y.real) == 1 else mm(b, x, y)
    made = scaled(b, made, alpha)
    if beta == 0:
        return made
    return each(b.add, scaled(b, as_pair(b, addend), beta), made)


@emits_complex(aten.prod.default)
def prod_all(b: Builder, x: Pair, *, dtype: torch.dtype | None = None) -> Pair:
    """Product of everything."""
    return prod_dim(b, x, None, dtype=dtype)


@emits_complex(aten.prod.dim_int)
def prod_dim(
    b: Builder, x: Pair, dim: int | None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Pair:
    """Product over one dimension."""
    whole = as_pair(b, x, b.shape(x.real))
    dims = reduction.reduced_dims(dim, b.rank(whole.real))
    made = [whole.real, whole.imag]
    if dims:
        starts = [b.scalar(value, b.dtype(whole.real)) for value in (1.0, 0.0)]

        def body(real: Value, imag: Value, other: Value, other_imag: Value) -> list[Value]:
            both = multiply(b, Pair(real, imag), Pair(other, other_imag))
            return [both.real, both.imag]

        made = b.reduce_many(made, starts, dims, body)
    return Pair(*(b.reshape(v, b.result_shape()) for v in made))
