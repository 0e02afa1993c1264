"""Scaled dot-product attention of the CPU, forward and backward.

In: query, key, value of shape (batch, heads, length, width), an additive mask. Out: attention, the
rows' log-sum-exp, gradients. Invariant: emitted as dot -> row softmax -> dot, which the attention
fusion recognises; scores are float32 for 16-bit floats.
"""

from __future__ import annotations

import math

import torch
import torch.fx
from torch_mlir import ir

from neuron_compile.lowering import semantics as sem
from neuron_compile.lowering.builder import Builder
from neuron_compile.lowering.ops.reduction import keep, max_over, sum_over
from neuron_compile.lowering.registry import Supports, emits

aten = torch.ops.aten
Value = ir.Value

_BATCH = ([0, 1], [0, 1])
_KEYS = [3]  # the dimension of the scores that softmax runs over


def _no_dropout(position: int) -> Supports:
    def supports(node: torch.fx.Node) -> str | None:
        given = node.args[position] if len(node.args) > position else node.kwargs.get("dropout_p")
        return "dropout inside fused CPU attention" if given else None

    return supports


def _spread_heads(b: Builder, x: Value, heads: int) -> Value:
    """Keys or values of grouped queries: each head repeated for its `heads` / own query heads."""
    batch, own, length, width = b.shape(x)
    if own == heads:
        return x
    spread = [batch, own, heads // own, length, width]
    return b.reshape(b.broadcast_in_dim(x, spread, [0, 1, 3, 4]), [batch, heads, length, width])


def _gather_heads(b: Builder, grad: Value, own: int) -> Value:
    """The transpose of `_spread_heads`: gradients of repeated heads are added up."""
    batch, heads, length, width = b.shape(grad)
    if own == heads:
        return grad
    split = b.reshape(grad, [batch, own, heads // own, length, width])
    return sum_over(b, split, [2])


def _scores(
    b: Builder, q: Value, k: Value, mask: Value | None, is_causal: bool, scale: float | None
) -> Value:
    """Q @ k^T * scale + mask, -inf above the diagonal if causal; in the accumulation dtype."""
    dtype = sem.math_dtype(b.dtype(q))
    made = b.dot_general(q, k, batch=_BATCH, contract=([3], [3]), dtype=dtype)
    shape = b.shape(made)
    factor = 1.0 / math.sqrt(b.shape(q)[3]) if scale is None else scale
    made = b.multiply(made, b.full_like(made, factor))
    if mask is not None:
        if b.dtype(mask) is torch.bool:
            blocked = b.not_(b.broadcast_to(mask, shape))
            made = b.select(blocked, b.full_like(made, -math.inf), made)
        else:
            made = b.add(made, b.broadcast_to(b.convert(mask, dtype), shape))
    if is_causal:
        ahead = b.compare(b.iota(shape, 3, torch.int64), b.iota(shape, 2, torch.int64), "GT")
        made = b.select(ahead, b.full_like(made, -math.inf), made)
    return made


@emits(aten._scaled_dot_product_flash_attention_for_cpu.default, supports=_no_dropout(3))
def attention(
    b: Builder,
    q: Value,
    k: Value,
    v: Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value]:
    """softmax(q k^T scale + mask) v, and the log-sum-exp of each row.

    A row that is masked everywhere gives zeros, with a log-sum-exp of 0 (T119): backward then finds
    exp(-inf - 0) = 0 without a special case.
    """
    k, v = (_spread_heads(b, x, b.shape(q)[1]) for x in (k, v))
    scores = _scores(b, q, k, attn_mask, is_causal, scale)
    shape = b.shape(scores)
    top = max_over(b, scores, _KEYS)
    if attn_mask is not None:
        empty = b.compare(top, b.full_like(top, -math.inf), "EQ")
        top = b.select(empty, b.full_like(top, 0.0), top)
    weights = b.exp(b.subtract(scores, keep(b, top, _KEYS, shape)))
    total = sum_over(b, weights, _KEYS)
    if attn_mask is not None:
        total = b.select(empty, b.full_like(total, 1.0), total)
    weights = b.divide(weights, keep(b, total, _KEYS, shape))
    made = b.dot_general(
        b.convert(weights, b.dtype(v)),
        v,
        batch=_BATCH,
        contract=([3], [2]),
        dtype=sem.math_dtype(b.dtype(v)),
    )
    results = [b.convert(made, b.result_dtype())]
    if b.is_used(1):
        results.append(b.convert(b.add(top, b.log(total)), b.result_dtype(1)))
    return results


@emits(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, supports=_no_dropout(6))
def attention_backward(
    b: Builder,
    grad: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    logsumexp: Value,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value]:
    """Gradients of query, key and value, with the weights recomputed from the log-sum-exp.

    Formulas: Dao et al. 2022 (FlashAttention), appendix B.2, D = rowsum(grad * out).
    """
    narrow, wide = b.dtype(q), sem.math_dtype(b.dtype(q))
    factor = 1.0 / math.sqrt(b.shape(q)[3]) if scale is None else scale

    def dot(x: Value, y: Value, over: tuple[list[int], list[int]]) -> Value:
        return b.dot_general(x, y, batch=_BATCH, contract=over, dtype=wide)

    own = b.shape(k)[1]
    k, v = (_spread_heads(b, x, b.shape(q)[1]) for x in (k, v))
    scores = _scores(b, q, k, attn_mask, is_causal, scale)
    shape = b.shape(scores)
    rows = keep(b, b.convert(logsumexp, wide), _KEYS, shape)
    weights = b.exp(b.subtract(scores, rows))
    grad_v = dot(b.convert(weights, narrow), grad, ([2], [2]))
    grad_weights = dot(grad, v, ([3], [3]))
    inner = sum_over(b, b.multiply(b.convert(grad, wide), b.convert(out, wide)), _KEYS)
    centred = b.subtract(grad_weights, keep(b, inner, _KEYS, shape))
    grad_scores = b.multiply(b.multiply(weights, centred), b.full_like(weights, factor))
    grad_scores = b.convert(grad_scores, narrow)
    grad_q = dot(grad_scores, k, ([3], [2]))
    grad_k, grad_v = (
        _gather_heads(b, made, own) for made in (dot(grad_scores, q, ([2], [2])), grad_v)
    )
    return [b.convert(made, b.result_dtype(i)) for i, made in enumerate((grad_q, grad_k, grad_v))]
