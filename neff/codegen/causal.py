"""How many keys of a query row can have a weight other than 0, from the mask in the group itself.

In: the weights of an attention and its scores. Out: a `CausalLimit` or None. It rests on a `select`
whose condition compares the key's number with the row's and whose other side is -inf, and on a
proof that the weights are then 0 there, whatever the score, even NaN: see `_Proof`. A weight of 0
still counts where the value is not finite (0 * inf = NaN): a kernel may use the limit only for a
batch entry whose values are all finite, and must compute every key of the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.affine import as_index
from neuron_compile.neff.codegen.index import ZERO, Index, Var, of
from neuron_compile.neff.codegen.program import Node, postorder
from neuron_compile.neff.codegen.reduction_specs import spec_of
from neuron_compile.neff.codegen.reductions import kind_of
from neuron_compile.neff.codegen.softmax import shifted_rows
from neuron_compile.neff.codegen.views import PERMUTATIONS, Indices

Place = tuple[Node, Indices]


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
    weights: Place, others: Sequence[Place], scores: Node, row: Var, key: Var
) -> CausalLimit | None:
    """The tightest limit that some mask on the way from the weights to the scores gives.

    `others`: what else is computed of a row, at its place for `row`. None if the weights may differ
    from 0 behind the limit, or if something sees the scores there.
    """
    limits = [
        (limit, place) for place in _selects(*weights) for limit in _limits_of(*place, row, key)
    ]
    for offset, masked in sorted(limits, key=lambda found: found[0]):
        reductions = _proven(masked, [weights, *others], scores, key)
        if reductions is not None:
            return CausalLimit(offset, reductions)
    return None


def _proven(masked: Place, roots: Sequence[Place], scores: Node, key: Var) -> frozenset[int] | None:
    """Operations that may end at the limit, if the first root is 0 behind it; else None.

    All that the roots know of the scores they must know through `masked`.
    """
    nodes = tuple(node for node, _ in roots)
    if scores in postorder(nodes, lambda n: n is masked[0]):
        return None
    proof = _Proof(masked, key)
    if proof.behind(*roots[0]) is not Behind.ZERO:
        return None
    found = trace(list(roots), lambda n: n is scores).reductions
    seeing = [(n, at) for n, at in found if scores in postorder((n,))]
    if not all(proof.ignores(n, at) for n, at in seeing):
        return None
    return frozenset(n.operation for n, _ in seeing)


class Behind(Enum):
    """What an element is where its key lies behind the limit."""

    MASKED = "-inf"
    SHIFTED = "-inf, or the whole row is NaN"
    ZERO = "0, or the whole row is NaN"
    ANYTHING = "anything"


@dataclass(slots=True)
class _Proof:
    """Walks from a node at a row and key to the masked scores, and says what the mask makes of it.

    -inf stays -inf less a value of the row that is greater, its exponential is 0, and 0 stays 0
    in a product with a finite constant or over a positive value. Nothing else is trusted.
    """

    masked: Place
    key: Var
    known: dict[Place, Behind] = field(default_factory=dict)

    def behind(self, node: Node, at: Indices) -> Behind:
        place = (node, at)
        if place not in self.known:
            self.known[place] = self._find(node, at)
        return self.known[place]

    def _find(self, node: Node, at: Indices) -> Behind:
        if node is self.masked[0]:
            own = all(a - b == ZERO for a, b in zip(at, self.masked[1], strict=True))
            return Behind.MASKED if own else Behind.ANYTHING
        if (inner := _through(node, at)) is not None:
            return self.behind(*inner)
        steps = {
            "stablehlo.select": self._selected,
            "stablehlo.subtract": self._shifted,
            "stablehlo.exponential": self._weighed,
            "stablehlo.multiply": self._scaled,
            "stablehlo.divide": self._shared,
        }
        follows = node.op in steps and steps[node.op](node, at)
        if not follows:
            return Behind.ANYTHING
        return {"stablehlo.select": Behind.MASKED, "stablehlo.subtract": Behind.SHIFTED}.get(
            node.op, Behind.ZERO
        )

    def _is_infinite(self, node: Node, at: Indices) -> bool:
        return self.behind(node, at) in (Behind.MASKED, Behind.SHIFTED)

    def _selected(self, node: Node, at: Indices) -> bool:
        """Another mask, which has not met row values: else it could hide a key of a NaN row."""
        _, yes, no = node.operands
        other = yes if _is_minus_infinity(no) else no
        masks = _is_minus_infinity(no) or _is_minus_infinity(yes)
        return masks and self.behind(other, at) is Behind.MASKED

    def _shifted(self, node: Node, at: Indices) -> bool:
        left, right = node.operands
        return self._is_infinite(left, at) and self._exceeds_minus_infinity(right, at)

    def _weighed(self, node: Node, at: Indices) -> bool:
        return self._is_infinite(node.operands[0], at)

    def _scaled(self, node: Node, at: Indices) -> bool:
        left, right = node.operands
        one, factor = (right, left) if _uniform(left) is not None else (left, right)
        return _uniform(factor) is not None and self.behind(one, at) is Behind.ZERO

    def _shared(self, node: Node, at: Indices) -> bool:
        left, right = node.operands
        return self.behind(left, at) is Behind.ZERO and self._is_positive(right, at)

    def ignores(self, node: Node, at: Indices) -> bool:
        """Whether a reduction at a row has the same result without the keys behind the limit."""
        if node.op != "stablehlo.reduce" or len(node.operands) != 2:
            return False
        neutral = {"maximum": Behind.MASKED, "add": Behind.ZERO}
        kind = kind_of(node.regions[0])
        if kind not in neutral or len(node.attributes["dimensions"]) != 1:
            return False
        (source,) = spec_of(node).sources(at, (of(self.key),))
        return self.behind(source.operand, source.indices) is neutral[kind]

    def _exceeds_minus_infinity(self, node: Node, at: Indices) -> bool:
        """Whether a value of the row is above -inf, or NaN, unless all scores of the row are -inf.

        Such are its maximum, and the logarithm of the sum of its exponentials.
        """
        if _uniform(node) is not None:
            return True
        if node.op in PERMUTATIONS:
            return self._exceeds_minus_infinity(*_viewed(node, at))
        if node.op == "stablehlo.reduce":
            return kind_of(node.regions[0]) == "maximum" and self.ignores(node, at)
        if node.op == "stablehlo.log":
            return self._is_positive(node.operands[0], at)
        return self._is_row_value(node, at, "stablehlo.add") and all(
            self._exceeds_minus_infinity(n, at) for n in node.operands[-2:]
        )

    def _is_positive(self, node: Node, at: Indices) -> bool:
        """Whether a value of the row is above 0, or NaN: the sum of its softmax's exponentials."""
        value = _uniform(node)
        if value is not None:
            return value > 0
        if node.op in PERMUTATIONS:
            return self._is_positive(*_viewed(node, at))
        if node.op == "stablehlo.reduce":
            return self.ignores(node, at) and self._is_sum_of_softmax(node)
        return self._is_row_value(node, at, "stablehlo.add", "stablehlo.maximum") and all(
            self._is_positive(n, at) for n in node.operands[-2:]
        )

    def _is_row_value(self, node: Node, at: Indices, *ops: str) -> bool:
        """One of `ops`, or a choice between two values that is the same for all keys of the row."""
        chosen = node.op == "stablehlo.select" and not any(self.key in i.variables() for i in at)
        return chosen or node.op in ops

    def _is_sum_of_softmax(self, node: Node) -> bool:
        """Whether a reduction adds e to the difference from the row's maximum: at least 1."""
        dividend, start = node.operands
        if kind_of(node.regions[0]) != "add" or _uniform(start) != 0:
            return False
        if dividend.op != "stablehlo.exponential":
            return False
        return shifted_rows(dividend.operands[0]) == tuple(node.attributes["dimensions"])


def _through(node: Node, at: Indices) -> Place | None:
    """What a view or a conversion between floats reads."""
    if node.op == "stablehlo.convert":
        (operand,) = node.operands
        floats = all(n.elem.startswith(("f", "bf")) for n in (node, operand))
        return (operand, at) if floats else None
    return _viewed(node, at) if node.op in PERMUTATIONS else None


def _viewed(node: Node, at: Indices) -> Place:
    source = PERMUTATIONS[node.op](node, at)
    return source.operand, source.indices


def _selects(node: Node, at: Indices) -> Iterator[Place]:
    """Selects through which the score of a key may reach its weight, outermost first."""
    while True:
        if (inner := _through(node, at)) is not None:
            node, at = inner
        elif node.op == "stablehlo.select":
            yield node, at
            node = node.operands[1] if _is_minus_infinity(node.operands[2]) else node.operands[2]
        elif node.op == "stablehlo.multiply" and _uniform(node.operands[0]) is not None:
            node = node.operands[1]
        elif node.op in _TO_THE_MASK:
            node = node.operands[0]
        else:
            return


_TO_THE_MASK = (
    "stablehlo.subtract",
    "stablehlo.exponential",
    "stablehlo.multiply",
    "stablehlo.divide",
)


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
    values = _constant(node)
    return values is not None and bool(np.isneginf(values).all())


def _uniform(node: Node) -> float | None:
    """The finite value of all elements of a constant."""
    values = _constant(node)
    if values is None or not np.isfinite(values[0]) or (values != values[0]).any():
        return None
    return float(values[0])


def _constant(node: Node) -> np.ndarray | None:
    """The floats of a constant seen through views, flat; None where there are none."""
    while node.op in PERMUTATIONS:
        node = node.operands[0]
    if node.op != "stablehlo.constant":
        return None
    values = np.asarray(node.attributes["value"]).reshape(-1)
    return values if values.dtype.kind == "f" and values.size > 0 else None
