"""Whether a group dot -> row operations -> dot can be computed without its score matrix, and how.

In: the two dots and the results of an `attention` group. Out: an `AttentionPlan`, or None. The
second dot must read the first at the same batch entry and row, key by key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.attention_operand import panels_of
from neuron_compile.neff.codegen.causal import CausalLimit, causal_limit
from neuron_compile.neff.codegen.contraction import Contraction, contraction_of
from neuron_compile.neff.codegen.elementwise import compute_elem
from neuron_compile.neff.codegen.emitter import STACK_BYTES
from neuron_compile.neff.codegen.epilogue import Inverse, invert
from neuron_compile.neff.codegen.index import Index, Var, contiguous_strides, linear, of, unravel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.program import Node, postorder
from neuron_compile.neff.codegen.reductions import ACCUMULATORS, BLOCK_STEPS
from neuron_compile.neff.codegen.rows import ROW_BYTES
from neuron_compile.neff.codegen.softmax import is_share
from neuron_compile.neff.codegen.views import PERMUTATIONS, Indices
from neuron_compile.neff.target import Target

MOST_KEYS = 1 << 14  # of which a strip of scores and one of weights fit on a thread's stack
LEAST_ROWS = 4
PACKED_BYTES = 1 << 20  # of keys and values on the stack; more of them lie in the arena, by task
SPARE_BYTES = ROW_BYTES + (1 << 14)  # rows that loops keep, and one value per row and reduction


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """`scores` and `product` share batch, rows and k; `weights` is what multiplies the values.

    `divisor`: a row value by which the weights would be divided; the result is divided instead.
    `shares`: the divisor is at least 1, or NaN. `fused` are functions of the second product, `rows`
    have one element per batch entry and row.
    """

    scores: Contraction
    product: Contraction
    weights: Node
    divisor: Node | None
    shares: bool
    fused: tuple[tuple[Root, Inverse], ...]
    rows: tuple[Root, ...]
    limit: CausalLimit | None


def plan_attention(
    first: Node, second: Node, roots: Sequence[Root], leaves: Mapping[Node, int], target: Target
) -> AttentionPlan | None:
    """None where the group is of another kind, or its strips would not fit on a thread's stack."""
    product = contraction_of(second)
    if product.m < LEAST_ROWS or product.n < 4 or len(product.reduced) != 1:
        return None
    if not 4 <= product.k <= MOST_KEYS:
        return None
    if compute_elem(second.tensor) != "f32" or compute_elem(first.tensor) != "f32":
        return None
    scores = _scores(first, product, leaves)
    if (
        scores is None
        or not scores.k
        or local_bytes(scores, product, target) + SPARE_BYTES > STACK_BYTES
    ):
        return None
    inverses = [(r, invert(r.node, second, leaves.__contains__)) for r in roots]
    fused = tuple((r, i) for r, i in inverses if i is not None)
    rows = tuple(r for r, i in inverses if i is None)
    if not fused or any(r.output.size != prod(product.batch) * product.m for r in rows):
        return None
    batch = tuple(of(domain.variable(n)) for n in product.batch)
    row, key = domain.variable(product.m), domain.variable(product.k)
    at = product.a_source(batch, of(row), of(key)).indices
    division = _division(product.a, at, key, first)
    weights, divisor = (product.a, None) if division is None else division.operands
    others = [(r.node, row_place(r.node, product, batch, of(row))) for r in rows]
    others += [(divisor, at)] if divisor is not None else []
    limit = causal_limit((weights, at), others, first, row, key)
    return AttentionPlan(
        scores,
        product,
        weights,
        divisor,
        division is not None and is_share(division),
        fused,
        rows,
        None if _may_read_past_a_limit(product.k, target) else limit,
    )


def _may_read_past_a_limit(keys: int, target: Target) -> bool:
    """Whether sums of a row go block by block, past a limit, and read what loops kept up to it."""
    steps = keys // (ACCUMULATORS * target.vector_bytes // 4)
    return steps > 2 * BLOCK_STEPS and 8 * keys <= ROW_BYTES


def strip_rows(target: Target) -> int:
    """Query rows at a time: their scores stay in the first-level cache."""
    return 6 if target.vector_bytes == 64 else 4


def packed_on_stack(scores: Contraction, product: Contraction, target: Target) -> bool:
    return _packed_bytes(scores, product, target) <= PACKED_BYTES


def local_bytes(scores: Contraction, product: Contraction, target: Target) -> int:
    """On the stack: a strip of queries, scores, weights and sums; keys and values if they fit."""
    keys, values = panels_of(scores, target), panels_of(product, target)
    strip = 4 * strip_rows(target) * (scores.k + 2 * keys.padded + values.padded + 1)
    packed = packed_on_stack(scores, product, target)
    return strip + (_packed_bytes(scores, product, target) if packed else 0)


def _packed_bytes(scores: Contraction, product: Contraction, target: Target) -> int:
    return 4 * (panels_of(scores, target).elements + panels_of(product, target).elements)


def row_place(node: Node, product: Contraction, batch: Indices, row: Index) -> Indices:
    """Where a row result has its element for a batch entry and row."""
    shape = (*product.batch, product.m)
    if node.shape == shape:
        return (*batch, row)
    return unravel(linear((*batch, row), contiguous_strides(shape)), node.shape)


def _scores(first: Node, product: Contraction, leaves: Mapping[Node, int]) -> Contraction | None:
    """The first dot as a product over the second one's batch and rows, with the keys as columns."""
    b = [domain.variable(n) for n in product.batch]
    m, k = domain.variable(product.m), domain.variable(product.k)
    source = product.a_source(tuple(of(v) for v in b), of(m), of(k))
    found = trace(
        [(source.operand, source.indices)],
        lambda n: n is first or n in leaves,
        into_reductions=False,
    )
    places = {at for n, at in found.uses if n is first}
    if len(places) != 1:
        return None
    (place,) = places
    inner = contraction_of(first)
    rank = len(inner.batch)
    keys = place[rank + len(inner.rows) :]
    if any(_uses(i, k) for i in place[: rank + len(inner.rows)]) or any(_uses(i, m) for i in keys):
        return None

    def position(batch: Indices, row: Indices, column: Indices) -> Indices:
        values: dict[Var, Index] = {m: linear(row, contiguous_strides(product.rows)), k: column[0]}
        values.update(zip(b, batch, strict=True))
        return tuple(i.substitute(values) for i in place)

    return Contraction(
        first, product.batch, product.rows, (product.k,), inner.reduced, position, True, inner.spec
    )


def _uses(index: Index, v: Var) -> bool:
    return v in index.variables()


def _division(weights: Node, at: Indices, key: Var, scores: Node) -> Node | None:
    """The node e / s that the weights are, seen through rounding, if s is one value per row.

    sum((e / s) * v) = sum(e * v) / s: re-association, and one division per result instead of one
    per weight. A divisor that knows nothing of the scores stays where it is: it may be 0, and an
    infinite weight has another effect than an infinite sum.
    """
    node = weights
    while node.op == "stablehlo.convert" and compute_elem(node.tensor) == "f32":
        node = node.operands[0]
    if node.op != "stablehlo.divide" or compute_elem(node.tensor) != "f32":
        return None
    divisor = node.operands[1]
    while divisor.op in PERMUTATIONS and any(_uses(i, key) for i in at):
        source = PERMUTATIONS[divisor.op](divisor, at)
        divisor, at = source.operand, source.indices
    if any(_uses(i, key) for i in at) or scores not in postorder((divisor,)):
        return None
    reads = trace([(divisor, at)], lambda n: n is scores, into_reductions=False)
    return None if reads.uses else node
