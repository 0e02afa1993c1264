"""A dot product or convolution as batched matrix products C[b, m, n] = sum over k of A[b, m, k] *
B[b, k, n].

In: the contraction node, and whether the operands' roles are swapped. Out: a `Contraction`:
extents, and the index mappings between (b, m, n, k) and the node's and its operands' dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from neuron_compile.neff.codegen.index import Index, unravel
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.reduction_specs import Spec, spec_of
from neuron_compile.neff.codegen.views import Condition, Indices, Source

# Positions from which one image alone fills the panels. Fewer leave a part of the last one empty
# and the weights would be packed for each image; all images together cost a scattered read of the
# data (14x14 of 256 channels: 0.76 of torch's speed one by one, 0.87 together).
ONE_IMAGE = 512


@dataclass(frozen=True, slots=True)
class Contraction:
    """`position(b, m, n)` is the result's index; A varies with m and k, B with n and k."""

    node: Node
    batch: tuple[int, ...]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    reduced: tuple[int, ...]
    position: Callable[[Indices, Indices, Indices], Indices]
    first_is_a: bool
    spec: Spec

    @property
    def m(self) -> int:
        return prod(self.rows)

    @property
    def n(self) -> int:
        return prod(self.columns)

    @property
    def k(self) -> int:
        return prod(self.reduced)

    @property
    def a(self) -> Node:
        return self.spec.nodes[0].operands[0 if self.first_is_a else 1]

    @property
    def b(self) -> Node:
        return self.spec.nodes[0].operands[1 if self.first_is_a else 0]

    def at(self, b: Indices, m: Index, n: Index) -> Indices:
        """The result's index for flat row and column numbers."""
        return self.position(b, unravel(m, self.rows), unravel(n, self.columns))

    def a_source(self, b: Indices, m: Index, k: Index) -> Source:
        zero = (Index(0),) * len(self.columns)
        at = self.position(b, unravel(m, self.rows), zero)
        return self.spec.sources(at, unravel(k, self.reduced))[0 if self.first_is_a else 1]

    def b_source(self, b: Indices, n: Index, k: Indices) -> Source:
        """`k` is given dimension by dimension: packing loops over them."""
        zero = (Index(0),) * len(self.rows)
        at = self.position(b, zero, unravel(n, self.columns))
        return self.spec.sources(at, k)[1 if self.first_is_a else 0]


def k_block(c: Contraction, number: Index, size: int) -> Contraction:
    """The part of a product over `size` consecutive values of its first reduced dimension.

    If blocks of this size do not fill the dimension, what lies beyond it counts as 0.
    """
    first = c.reduced[0]
    whole = first % size == 0

    def sources(at: Indices, r: Indices) -> list[Source]:
        k = number * size + r[0]
        if whole:
            return c.spec.sources(at, (k, *r[1:]))
        inside = Condition(k, 0, first)
        found = c.spec.sources(at, (k.bounded(0, first - 1), *r[1:]))
        return [replace(s, conditions=(*s.conditions, inside)) for s in found]

    extents = (size, *c.reduced[1:])
    return replace(c, reduced=extents, spec=Spec(c.spec.nodes, extents, sources))


def contraction_of(
    node: Node, *, swap: bool = False, operands: tuple[Node, ...] | None = None
) -> Contraction:
    """`swap` exchanges the roles of A and B of a dot product, and so of rows and columns.

    `operands` replaces the node's operands by others of the same shape, e.g. by copies in memory.
    """
    spec = spec_of(node if operands is None else replace(node, operands=operands))
    return (
        _dot(node, spec, swap) if node.op == "stablehlo.dot_general" else _convolution(node, spec)
    )


def _dot(node: Node, spec: Spec, swap: bool) -> Contraction:
    dims = node.attributes["dot_dimension_numbers"]
    batch = len(dims.get("lhs_batching_dimensions", ()))
    lhs = len(node.operands[0].shape) - batch - len(dims.get("lhs_contracting_dimensions", ()))
    left, right = node.shape[batch : batch + lhs], node.shape[batch + lhs :]
    if swap:
        return Contraction(
            node,
            node.shape[:batch],
            right,
            left,
            spec.extents,
            lambda b, m, n: (*b, *n, *m),
            False,
            spec,
        )
    return Contraction(
        node,
        node.shape[:batch],
        left,
        right,
        spec.extents,
        lambda b, m, n: (*b, *m, *n),
        True,
        spec,
    )


def _convolution(node: Node, spec: Spec) -> Contraction:
    """Rows are output features (A: the weights), columns are positions (B: windows of the data)."""
    layout = node.attributes["dimension_numbers"]["out"]
    groups = node.attributes.get("feature_group_count", 1) * node.attributes.get(
        "batch_group_count", 1
    )
    f, b = layout.index("f"), layout.index("b")
    spatial = [layout.index(str(i)) for i in range(len(layout) - 2)]
    features = node.shape[f] // groups
    shape = node.shape

    def place(feature: Index, image: Index, where: Indices) -> Indices:
        indices = [Index(0)] * len(shape)
        indices[f], indices[b] = feature, image
        for d, i in zip(spatial, where, strict=True):
            indices[d] = i
        return tuple(indices)

    positions = tuple(shape[d] for d in spatial)
    if prod(positions) >= ONE_IMAGE or shape[b] == 1:
        return Contraction(
            node, (shape[b], groups), (features,), positions, spec.extents,
            lambda bs, m, n: place(bs[1] * features + m[0], bs[0], n), False, spec,
        )  # fmt: skip
    return Contraction(
        node, (groups,), (features,), (shape[b], *positions), spec.extents,
        lambda bs, m, n: place(bs[0] * features + m[0], n[0], n[1:]), False, spec,
    )  # fmt: skip
