"""How many keys of a query row can have a weight other than 0, from the mask in the group itself.

In: the weights of an attention and its second product. Out: a `CausalLimit` or None. It rests on a
`select` whose condition compares the key's number with the row's and whose other side is -inf: then
later keys weigh exp(-inf) = 0, whatever their score, even NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.affine import as_index
from neuron_compile.neff.codegen.contraction import Contraction
from neuron_compile.neff.codegen.index import Index, Var, of
from neuron_compile.neff.codegen.program import Node, postorder
from neuron_compile.neff.codegen.reduction_specs import OPS
from neuron_compile.neff.codegen.reductions import kind_of
from neuron_compile.neff.codegen.softmax import shifted_rows
from neuron_compile.neff.codegen.views import PERMUTATIONS, Indices

# Between the masked score and the weight: ops that keep -inf -> 0 (exp) without using other keys.
_KEEPS = ("stablehlo.subtract", "stablehlo.exponential", "stablehlo.convert", "stablehlo.multiply")


@dataclass(frozen=True, slots=True)
class CausalLimit:
    """Keys below `row + offset` may count for a row.

    `reductions`: operations over a row's keys whose results the later ones do not change.
    """

    offset: int
    reductions: frozenset[int]

    def keys_of(self, row: Index) -> Index:
        return row + self.offset


def causal_limit(
    weights: Node, product: Contraction, scores: Node, others: Sequence[Node]
) -> CausalLimit | None:
    """The tightest limit that some mask on the way from the weights to the scores gives.

    `others`: what else is computed of the rows. None if something sees the scores behind it.
    """
    batch = tuple(of(domain.variable(n)) for n in product.batch)
    row, key = domain.variable(product.m), domain.variable(product.k)
    source = product.a_source(batch, of(row), of(key))
    limits = [
        (limit, node, at)
        for node, at in _selects(weights, source.indices)
        for limit in _limits_of(node, at, row, key)
    ]
    if not limits or product.m <= 1:
        return None
    offset, masked, at = min(limits, key=lambda found: found[0])
    keys = tuple(d for d, i in enumerate(at) if i == of(key))
    found = _reductions_of(scores, (weights, *others))
    if not all(_ignores(n, masked, keys) for n in found):
        return None
    return CausalLimit(offset, frozenset(n.operation for n in found))


def _reductions_of(scores: Node, roots: tuple[Node, ...]) -> list[Node]:
    """Reductions among `roots` and below that depend on the scores."""
    depends = {scores}
    for node in postorder(roots, lambda n: n is scores):
        if not depends.isdisjoint(node.operands):
            depends.add(node)
    return [n for n in depends if n.op in OPS and n is not scores]


def _ignores(reduction: Node, masked: Node, keys: tuple[int, ...]) -> bool:
    """Whether elements of `masked` that are -inf do not change a reduction over its keys.

    They are neutral in a maximum; e to their difference from the row's maximum is 0, or NaN where
    all of the row is.
    """
    if reduction.op != "stablehlo.reduce" or len(reduction.operands) != 2:
        return False
    if tuple(reduction.attributes["dimensions"]) != keys:
        return False
    kind, operand = kind_of(reduction.regions[0]), reduction.operands[0]
    if kind == "maximum":
        return operand is masked
    if kind != "add" or operand.op != "stablehlo.exponential":
        return False
    shifted = operand.operands[0]
    return shifted_rows(shifted) == keys and shifted.operands[0] is masked


def _selects(weights: Node, at: Indices) -> Iterator[tuple[Node, Indices]]:
    """Selects through which the score of a key reaches its weight, outermost first."""
    node = weights
    while True:
        if node.op == "stablehlo.select":
            yield node, at
            node = node.operands[1] if _is_minus_infinity(node.operands[2]) else node.operands[2]
        elif node.op in _KEEPS:
            node = node.operands[0]
        elif node.op in PERMUTATIONS:
            source = PERMUTATIONS[node.op](node, at)
            node, at = source.operand, source.indices
        else:
            return


def _limits_of(node: Node, at: Indices, row: Var, key: Var) -> Iterator[int]:
    condition, yes, no = node.operands
    where = at if condition.shape == node.shape else ()
    if _is_minus_infinity(no):
        yield from _from_condition(condition, where, row, key, holds=True)
    elif _is_minus_infinity(yes):
        yield from _from_condition(condition, where, row, key, holds=False)


def _from_condition(node: Node, at: Indices, row: Var, key: Var, *, holds: bool) -> Iterator[int]:
    """Limits that hold where `node` has the truth value `holds`."""
    if node.op in PERMUTATIONS:
        source = PERMUTATIONS[node.op](node, at)
        yield from _from_condition(source.operand, source.indices, row, key, holds=holds)
    elif node.op == "stablehlo.not":
        yield from _from_condition(node.operands[0], at, row, key, holds=not holds)
    elif node.op == ("stablehlo.and" if holds else "stablehlo.or"):
        for operand in node.operands:
            yield from _from_condition(operand, at, row, key, holds=holds)
    elif node.op == "stablehlo.compare":
        left, right = (as_index(o, at) for o in node.operands)
        if left is not None and right is not None:
            limit = _from_comparison(node, left, right, row, key, holds=holds)
            if limit is not None:
                yield limit


_NEGATED = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT"}
_SWAPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE"}


def _from_comparison(
    node: Node, left: Index, right: Index, row: Var, key: Var, *, holds: bool
) -> int | None:
    """`key <= row + c` gives c + 1, `key < row + c` gives c, in either direction and sign."""
    direction = node.attributes["comparison_direction"]
    if direction not in _NEGATED:
        return None
    if not holds:
        direction = _NEGATED[direction]
    difference = left - right
    factor = difference.coefficient(key)
    if factor == -1:
        difference, direction = difference * -1, _SWAPPED[direction]
    if abs(factor) != 1 or difference.coefficient(row) != -1 or len(difference.terms) != 2:
        return None
    if direction == "LE":
        return 1 - difference.constant
    return -difference.constant if direction == "LT" else None


def _is_minus_infinity(node: Node) -> bool:
    while node.op in PERMUTATIONS:
        node = node.operands[0]
    if node.op != "stablehlo.constant":
        return False
    values = np.asarray(node.attributes["value"]).reshape(-1)
    return values.dtype.kind == "f" and values.size > 0 and bool(np.isneginf(values).all())
