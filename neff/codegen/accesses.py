"""What memory an element of a node touches, found without emitting code.

In: a node and an index. Out: `Access` records: the element offset, how often it happens per
element, and the reduction (operation number) in whose loop it happens. Used to choose loops and
the vector dimension.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from neuron_compile.neff.codegen import random_bits, views
from neuron_compile.neff.codegen.elementwise import RULES
from neuron_compile.neff.codegen.index import (
    Index,
    Runtime,
    Var,
    constant,
    contiguous_strides,
    linear,
    of,
)
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.reduction_specs import OPS, spec_of
from neuron_compile.neff.codegen.views import Indices, Source

_names = count()


@dataclass(frozen=True, slots=True)
class Access:
    """`offset` in elements.

    `times` per evaluated element; `inner` the reduction variables around it.
    """

    offset: Index
    times: int
    inner: tuple[Var, ...]
    is_load: bool = True


@dataclass(slots=True)
class Trace:
    """All accesses of some roots, and the index at which each reduction is needed."""

    accesses: list[Access] = field(default_factory=list)
    reductions: list[tuple[Node, Indices]] = field(default_factory=list)
    uses: list[tuple[Node, Indices]] = field(default_factory=list)  # leaves

    def offsets(self) -> list[Index]:
        return [a.offset for a in self.accesses]


class Tracer:
    """Walks the same index mapping as the evaluator. `leaves` are nodes that lie in memory."""

    def __init__(self, leaves: Callable[[Node], bool], *, into_reductions: bool = True) -> None:
        self.leaves = leaves
        self.into_reductions = into_reductions
        self.trace = Trace()
        self._seen: set[tuple[Node, Indices]] = set()

    def walk(self, node: Node, at: Indices, times: int = 1, inner: tuple[Var, ...] = ()) -> None:
        if (node, at) in self._seen:
            return
        self._seen.add((node, at))
        if self.leaves(node):
            self.trace.uses.append((node, at))
            self.trace.accesses.append(Access(linear(at, node.tensor.strides), times, inner))
            return
        if views.changes_width(node):
            for place in views.width_sources(node, at):
                self.walk(node.operands[0], place, times, inner)
        elif node.op in RULES:
            for o in node.operands:
                self.walk(o, at if o.shape == node.shape else (), times, inner)
        elif node.op in views.PERMUTATIONS:
            source = views.PERMUTATIONS[node.op](node, at)
            self.walk(source.operand, source.indices, times, inner)
        elif node.op == "stablehlo.pad":
            self.walk(node.operands[1], (), times, inner)
            self._source(views.pad_source(node, at), times, inner)
        elif node.op == "stablehlo.concatenate":
            for source in views.concatenate_sources(node, at):
                self._source(source, times, inner)
        elif node.op in OPS:
            self._reduction(node, at, times, inner)
        elif node.op in (
            "stablehlo.gather",
            "stablehlo.dynamic_slice",
            "stablehlo.dynamic_update_slice",
        ):
            self._indexed(node, at, times, inner)
        elif node.op == "stablehlo.iota":
            self.trace.accesses.append(
                Access(at[node.attributes["iota_dimension"]], times, inner, is_load=False)
            )
        elif node.op == random_bits.OP:
            position = linear(at, contiguous_strides(node.shape))
            self.trace.accesses.append(Access(position, times, inner, is_load=False))
            self.walk(node.operands[0], (constant(0),), times, inner)
        elif node.op == "stablehlo.optimization_barrier":
            self.walk(node.operands[node.result], at, times, inner)

    def _source(self, source: Source, times: int, inner: tuple[Var, ...]) -> None:
        if source.never or 0 in source.operand.shape:
            return
        for c in source.conditions:
            self.trace.accesses.append(Access(c.index, times, inner, is_load=False))
        self.walk(source.operand, source.indices, times, inner)

    def _reduction(self, node: Node, at: Indices, times: int, inner: tuple[Var, ...]) -> None:
        self.trace.reductions.append((node, at))
        if node.regions:
            for start in node.operands[len(node.operands) // 2 :]:
                self.walk(start, (), times, inner)
        if not self.into_reductions:
            return
        spec = spec_of(node)
        variables = tuple(Var(f"r{next(_names)}", n) for n in spec.extents)
        total = 1
        for n in spec.extents:
            total *= n
        for source in spec.sources(at, tuple(of(v) for v in variables)):
            self._source(source, times * total, (*inner, *variables))

    def _indexed(self, node: Node, at: Indices, times: int, inner: tuple[Var, ...]) -> None:
        """The run-time index itself is an access; what it selects, a leaf at an unknown offset."""
        if node.op == "stablehlo.gather":
            dims = node.attributes["dimension_numbers"]
            starts = node.operands[1]
            offset_dims = dims.get("offset_dims", ())
            batch = [i for d, i in enumerate(at) if d not in offset_dims]
            vector_dim = dims.get("index_vector_dim", 0)
            components = starts.shape[vector_dim] if vector_dim < len(starts.shape) else 0
            for c in range(components):
                place = (*batch[:vector_dim], constant(c), *batch[vector_dim:])
                self.walk(starts, place, times, inner)
            if not components:
                self.walk(starts, tuple(batch), times, inner)
            operand = node.operands[0]
            collapsed = (
                *dims.get("collapsed_slice_dims", ()),
                *dims.get("operand_batching_dims", ()),
            )
            unknown = self._unknown(batch)
            indices = [unknown] * len(operand.shape)
            kept = [d for d in range(len(operand.shape)) if d not in collapsed]
            for d, o in zip(kept, offset_dims, strict=True):
                indices[d] = at[o] + self._start()
            self.walk(operand, tuple(indices), times, inner)
            return
        shifted = tuple(i + self._start() for i in at)
        is_slice = node.op == "stablehlo.dynamic_slice"
        places = (shifted,) if is_slice else (at, shifted)  # of the operand, of the update
        for tensor, place in zip(node.operands, places, strict=False):
            self.walk(tensor, place, times, inner)
        for start in node.operands[len(places) :]:
            self.walk(start, (), times, inner)

    def _start(self) -> Index:
        """Where a slice begins, which only the run tells: one number for all its elements."""
        return of(Runtime(f"?{next(_names)}", 0, 0, 0, 1 << 40))

    def _unknown(self, where: list[Index]) -> Index:
        """A run-time value; it varies with every variable of `where`, so those appear as its
        factors.
        """
        lanes = 0
        result = of(Runtime(f"?{next(_names)}", lanes, 0, 0, 1 << 40))
        for index in where:
            for v in index.variables():
                result = (
                    result + of(v) * 1_000_003
                )  # no neighbour walks as one with an unknown offset
        return result


def trace(
    roots: list[tuple[Node, Indices]],
    leaves: Callable[[Node], bool],
    *,
    into_reductions: bool = True,
) -> Trace:
    """Accesses of all roots together."""
    tracer = Tracer(leaves, into_reductions=into_reductions)
    for node, at in roots:
        tracer.walk(node, at)
    return tracer.trace


def in_memory(source: Source, is_leaf: Callable[[Node], bool]) -> tuple[Node, Index] | None:
    """The leaf and the element offset in it, if only views lie between."""
    if source.conditions:
        return None
    node, at = source.operand, source.indices
    while not is_leaf(node):
        if node.op not in views.PERMUTATIONS:
            return None
        inner = views.PERMUTATIONS[node.op](node, at)
        node, at = inner.operand, inner.indices
    return node, linear(at, node.tensor.strides)
