"""Reductions by pulling.

`reduce`, `reduce_window`, and contractions too small for their own kernel.

In: a node and the index of one result element (or one vector of them). Out: the reduced value.
The loop stands where the index is known. Sums run in several vector accumulators and in blocks:
the error grows with the square root of the length or less, never with the length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import copysign, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from neuron_compile.neff.codegen import domain, elementwise
from neuron_compile.neff.codegen.elementwise import compute_elem
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.index import ZERO, Index, Var, contiguous_strides, linear, of
from neuron_compile.neff.codegen.program import Node, Region, postorder
from neuron_compile.neff.codegen.reduction_specs import Spec, spec_of
from neuron_compile.neff.codegen.value import Val, bits_of
from neuron_compile.neff.codegen.views import Indices

if TYPE_CHECKING:
    from neuron_compile.neff.codegen.evaluate import Evaluator


UNROLLED_POINTS = 8  # so few reduced elements are written out instead of looped over
ACCUMULATORS = 4  # vectors in flight: covers the latency of an addition at two per cycle
BLOCK_STEPS = 128  # additions into one accumulator before it is added to the block's total


# -- combining -------------------------------------------------------------------------------------


def kind_of(region: Region) -> str:
    """The single binary op of a reduction's body (`add`, `maximum`, ...), or `general`."""
    if len(region.results) == 1 and len(region.arguments) == 2:
        result = region.results[0]
        if set(result.operands) == set(region.arguments) and len(result.operands) == 2:
            return result.op.removeprefix("stablehlo.")
    return "general"


def identity(kind: str, elem: str, *, unsigned: bool) -> float | int | None:
    """The value that changes nothing, None where there is none."""
    if elem.startswith(("f", "bf")):
        # -0 + x is x for every x; +0 + -0 would lose the sign.
        return {
            "add": -0.0,
            "multiply": 1.0,
            "maximum": float("-inf"),
            "minimum": float("inf"),
        }.get(kind)
    bits = bits_of(elem)
    plain = unsigned or elem == "i1"
    lowest = 0 if plain else -(1 << (bits - 1))
    highest = -1 if plain else (1 << (bits - 1)) - 1
    table: dict[str, int] = {"add": 0, "multiply": 1, "and": -1, "or": 0, "xor": 0}
    table |= {"maximum": lowest, "minimum": highest}
    return table.get(kind)


Combine = Callable[[Emitter, Sequence[Val], Sequence[Val]], list[Val]]


def combine_of(region: Region, kind: str) -> Combine:
    """The body as a function of accumulators and elements."""
    special = {"maximum": elementwise.running_maximum, "minimum": elementwise.running_minimum}.get(
        kind
    )

    def combine(e: Emitter, total: Sequence[Val], new: Sequence[Val]) -> list[Val]:
        if special is not None and total[0].is_float:
            return [special(e, *e.match(total[0], new[0]))]
        return apply_region(e, region, (*total, *new))

    return combine


def apply_region(e: Emitter, region: Region, arguments: Sequence[Val]) -> list[Val]:
    """Evaluate a scalar body, lane by lane at once."""
    known: dict[Node, Val] = dict(zip(region.arguments, arguments, strict=True))
    for node in postorder(region.results):
        if node in known:
            continue
        if node.op == "stablehlo.constant":
            known[node] = e.const(
                compute_elem(node.tensor),
                np.asarray(node.attributes["value"]).reshape(-1)[0].item(),
            )
        else:
            known[node] = elementwise.RULES[node.op](e, node, [known[o] for o in node.operands])
    lanes = max(v.lanes for v in arguments)
    return [e.splat(known[r], lanes) for r in region.results]


@dataclass(frozen=True, slots=True)
class _Part:
    """One operation of a reduction loop: how its elements combine."""

    nodes: int  # number of carried values
    elems: tuple[str, ...]
    start: Callable[[int], list[Val]]  # accumulators for so many lanes
    element: Callable[[Indices], list[Val]]
    combine: Combine
    finish: Callable[[list[Val]], list[Val]]
    is_sum: bool
    has_identity: bool


def reduce(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> Val:
    """The reduced element(s) at `at`.

    All results of the operation and its siblings are computed at once.
    """
    if mask is not None and mask.lanes and not any(v.varies(i) for i in at):
        mask = v.e.any(mask)  # one value for all lanes: its loop has lanes of its own
    name = mask.name if mask else ""
    key = (node.operation, at, name)
    known = v.reduced.get(key)
    if known is None or not all(v.e.alive(x) for x in known):
        operations = v.rows.siblings.get(node.operation, (node,))
        results = _reduce_together(v, operations, at, mask)
        for operation, values in zip(operations, results, strict=True):
            v.reduced[(operation.operation, at, name)] = tuple(values)
        known = v.reduced[key]
    return known[node.result]


def _reduce_together(
    v: Evaluator, operations: Sequence[Node], at: Indices, mask: Val | None
) -> list[list[Val]]:
    spec = spec_of(operations[0])
    varying = v.lane is not None and any(v.varies(i) for i in at)
    points = prod(spec.extents)
    parts = [_part(v, n, at, mask) for n in operations]
    if points <= UNROLLED_POINTS:
        lane = v.lane if varying else None
        with v.vector(lane):
            return [
                p.finish(_unrolled(v, p, spec.extents, lane.lanes if lane else 0)) for p in parts
            ]
    depth = max(v.depth_of(at), mask.depth if mask else 0, v.e.branch_depth)
    if varying and v.lane and v.lane.active:
        depth = max(depth, v.lane.active.depth)
    with v.e.outside(depth), v.vector(v.lane if varying else None):
        carried = _loops(v, operations, spec, parts, at, varying)
        return [p.finish(c) for p, c in zip(parts, carried, strict=True)]


def _part(v: Evaluator, node: Node, at: Indices, mask: Val | None) -> _Part:
    spec = spec_of(node)
    e = v.e
    if not node.regions:
        return _contraction_part(v, node, spec, at, mask)
    region = node.regions[0]
    kind = kind_of(region)
    half = len(node.operands) // 2
    initial_nodes = node.operands[half:]
    elems = tuple(compute_elem(n.tensor) for n in initial_nodes)
    neutral = identity(kind, elems[0], unsigned=node.tensor.unsigned) if half == 1 else None
    combine = combine_of(region, kind)

    def initial() -> list[Val]:
        return [v.value(n, ()) for n in initial_nodes]

    def start(lanes: int) -> list[Val]:
        if neutral is not None:
            return [e.const(elems[0], neutral, lanes)]
        return [e.splat(x, lanes) for x in initial()]

    def element(r: Indices) -> list[Val]:
        values = []
        for source, first in zip(spec.sources(at, r), initial_nodes, strict=True):
            if source.never:
                values.append(v.value(first, ()))
                continue
            value, condition = v.from_source(source, mask)
            values.append(
                value if condition is None else e.select(condition, value, v.value(first, ()))
            )
        return values

    def finish(total: list[Val]) -> list[Val]:
        if neutral is None or _is_constant(initial_nodes[0], neutral):
            return total
        return combine(e, [e.splat(x, total[0].lanes) for x in initial()], total)

    is_sum = kind == "add" and elems[0].startswith("f")
    return _Part(half, elems, start, element, combine, finish, is_sum, neutral is not None)


def _contraction_part(v: Evaluator, node: Node, spec: Spec, at: Indices, mask: Val | None) -> _Part:
    e = v.e
    elem = compute_elem(node.tensor)

    def element(r: Indices) -> list[Val]:
        left, right = spec.sources(at, r)
        if left.never or right.never:
            return [e.const(elem, 0)]
        factors = []
        guard: Val | None = None
        for source in (left, right):
            value, condition = v.from_source(source, mask)
            factors.append(
                elementwise.convert(e, value, source.operand.tensor, _computed(node, elem))
            )
            guard = e.both(guard, condition)
        a, b = e.match(*factors)
        product = e.binary("arith.andi", a, b) if elem == "i1" else e.mul(a, b)
        return [
            product if guard is None else e.select(guard, product, e.const(elem, 0, product.lanes))
        ]

    def combine(e: Emitter, total: Sequence[Val], new: Sequence[Val]) -> list[Val]:
        a, b = e.match(total[0], new[0])
        return [e.binary("arith.ori", a, b) if elem == "i1" else e.add(a, b)]

    return _Part(
        1,
        (elem,),
        lambda lanes: [e.const(elem, 0, lanes)],
        element,
        combine,
        lambda t: t,
        elem.startswith("f"),
        has_identity=False,  # 0 + -0 is 0, as in the kernels for products
    )


def _computed(node: Node, elem: str) -> Any:
    from neuron_compile.neff.codegen.program import Tensor

    return Tensor(node.shape, elem if not node.tensor.unsigned else node.elem, node.tensor.strides)


def _is_constant(node: Node, value: float) -> bool:
    if node.op != "stablehlo.constant":
        return False
    found = np.asarray(node.attributes["value"]).reshape(-1)
    same_sign = np.signbit(found) == (copysign(1.0, value) < 0) if found.dtype.kind == "f" else True
    return bool(found.size and ((found == value) & same_sign).all())


# -- loops -----------------------------------------------------------------------------------------


def _unrolled(v: Evaluator, part: _Part, extents: tuple[int, ...], lanes: int) -> list[Val]:
    total = part.start(lanes)
    strides = contiguous_strides(extents)
    for point in range(prod(extents)):
        r = tuple(Index(point // s % n) for s, n in zip(strides, extents, strict=True))
        new = [v.e.splat(x, lanes) for x in part.element(r)]
        total = part.combine(v.e, total, new) if point or not part.has_identity else new
    return total


def _loops(
    v: Evaluator,
    operations: Sequence[Node],
    spec: Spec,
    parts: list[_Part],
    at: Indices,
    varying: bool,
) -> list[list[Val]]:
    from neuron_compile.neff.codegen.accesses import Tracer

    def probe(r: Indices) -> list[Index]:
        tracer = Tracer(lambda n: n in v.bases or n in v.buffers, into_reductions=False)
        for operation in operations:
            for source in spec_of(operation).sources(at, r):
                for c in source.conditions:
                    tracer.trace.offsets().append(c.index)
                tracer.walk(source.operand, source.indices)
        return tracer.trace.offsets() + [c.index for s in spec.sources(at, r) for c in s.conditions]

    space = domain.fit(spec.extents, probe)
    keep = [] if varying else _kept(v, operations, spec, at)
    lane_lanes = v.lane.lanes if v.lane else 0
    if varying:
        walker = _Walker(v, parts, space, None, lane_lanes, keep)
    else:
        walker = _Walker(v, parts, space, _best_lane(space, probe(space.indices)), 0, keep)
        limits = [v.limits.get(n.operation) for n in operations]
        walker.limit = None if None in limits else limits[0]
    totals = walker.run()
    for kept in keep:
        v.buffers[kept.node] = replace(kept.buffer, filled=v.e.here())
    return totals


def _best_lane(space: domain.Domain, offsets: list[Index]) -> Var | None:
    """The variable along which most accesses are contiguous; long enough for a vector."""
    candidates = [x for x in space.variables if x.extent >= 4]
    if not candidates:
        return None

    def cost(x: Var) -> tuple[float, int]:
        strided = sum(1 for o in offsets if o.coefficient(x) not in (0, 1) or _nested(o, x))
        unit = sum(1 for o in offsets if o.coefficient(x) == 1)
        return (strided - 0.5 * unit if x.extent >= 8 else strided + 1, -x.extent)

    return min(candidates, key=cost)


def _nested(offset: Index, x: Var) -> bool:
    return any(x in of(a).variables() for a, _ in offset.terms if not isinstance(a, Var))


@dataclass(frozen=True, slots=True)
class _Kept:
    node: Node
    buffer: Any
    indices: Callable[[Indices], Indices]


def _kept(v: Evaluator, operations: Sequence[Node], spec: Spec, at: Indices) -> list[_Kept]:
    """Row buffers for the nodes that later loops of this row need again."""
    from neuron_compile.neff.codegen.evaluate import RowBuffer

    result: list[_Kept] = []
    for operation in operations:
        for node in v.rows.keep.get(operation.operation, ()):
            known = v.buffers.get(node)
            full = known is not None and (known.filled is None or v.e.alive(known.filled))
            if full or any(k.node is node for k in result):
                continue
            dimensions = operation.attributes["dimensions"]
            elem = compute_elem(node.tensor)
            size = prod(spec.extents)
            address = v.row_memory(node, elem, size)
            row = spec.sources(at, (ZERO,) * len(spec.extents))[0].indices
            strides = contiguous_strides(spec.extents)
            buffer = RowBuffer(address, row, dimensions, strides)
            result.append(_Kept(node, buffer, lambda r: spec.sources(at, r)[0].indices))
    return result


class _Walker:
    """Emits the loop nest of one reduction.

    `lane_variable` is vectorised, None: scalars or outer lanes.
    """

    def __init__(
        self,
        v: Evaluator,
        parts: list[_Part],
        space: domain.Domain,
        lane_variable: Var | None,
        outer_lanes: int,
        keep: list[_Kept],
    ) -> None:
        self.v, self.parts, self.space, self.keep = v, parts, space, keep
        self.width = _vector_length(v.e.lanes, lane_variable.extent) if lane_variable else 1
        self.lanes = self.width if lane_variable else outer_lanes
        self.is_vector = lane_variable is not None
        loops = [x for x in space.variables if x is not lane_variable]
        self.outer = loops if lane_variable else loops[:-1]
        self.inner = lane_variable or (loops[-1] if loops else None)
        self.limit: Val | None = None  # where the only loop may end, see `Evaluator.limits`

    def run(self) -> list[list[Val]]:
        totals = self._separate(self._nest(list(self.outer), {}, self._starts()))
        if not self.is_vector:
            return totals
        return [
            _across_lanes(self.v.e, p, vectors)
            for p, vectors in zip(self.parts, totals, strict=True)
        ]

    def _starts(self) -> list[Val]:
        return [x for p in self.parts for x in p.start(self.lanes)]

    def _separate(self, values: Sequence[Val]) -> list[list[Val]]:
        """Carried values, part by part."""
        result, position = [], 0
        for part in self.parts:
            result.append(list(values[position : position + part.nodes]))
            position += part.nodes
        return result

    def _nest(self, outer: list[Var], values: dict[Var, Index], totals: Sequence[Val]) -> list[Val]:
        if not outer:
            return self._innermost(values, totals)
        first, *rest = outer
        e = self.v.e

        def body(i: Val, carried: tuple[Val, ...]) -> list[Val]:
            self.v.values[first] = i
            return self._nest(rest, values, carried)

        return list(e.loop(e.index(0), e.index(first.extent), 1, body, totals))

    def _innermost(self, values: dict[Var, Index], totals: Sequence[Val]) -> list[Val]:
        if self.inner is None:
            return self._combine(dict(values), totals, None)
        full = self.inner.extent // self.width * self.width
        steps = full // self.width
        if any(p.is_sum for p in self.parts) and (self.outer or steps > 2 * BLOCK_STEPS):
            return self._blocked(totals, full)
        return self._tail(self._main(totals, 0, full), full)

    def _main(self, totals: Sequence[Val], low: int, high: int) -> Sequence[Val]:
        if high <= low:
            return totals
        e, end = self.v.e, self.v.e.index(high)
        if self.limit is not None and not self.outer and not low:
            end = e.binary("arith.minsi", self.limit, end)
        return e.loop(e.index(low), end, self.width, self._body, totals)

    def _body(self, i: Val, carried: tuple[Val, ...]) -> list[Val]:
        assert self.inner is not None
        base = domain.stepping(self.inner.extent // self.width * self.width, self.width)
        self.v.values[base] = i
        return self._combine({self.inner: of(base)}, carried, None)

    def _combine(
        self, values: dict[Var, Index], totals: Sequence[Val], active: Val | None
    ) -> list[Val]:
        """Combine one element (vector) into the accumulators."""
        from neuron_compile.neff.codegen.evaluate import Lane

        v = self.v
        lane = v.lane
        if self.is_vector:
            variable = v.fresh_var(self.width, is_lane=True)
            assert self.inner is not None
            values = {self.inner: values[self.inner] + of(variable)}
            lane = Lane(variable, self.width, active)
        with v.vector(lane):
            r = tuple(i.substitute(values) for i in self.space.indices)
            result: list[Val] = []
            for part, before in zip(self.parts, self._separate(totals), strict=True):
                new = [v.e.splat(x, self.lanes) for x in part.element(r)]
                after = part.combine(v.e, before, new)
                if active is not None:
                    after = [v.e.select(active, a, b) for a, b in zip(after, before, strict=True)]
                result.extend(after)
            for kept in self.keep:
                value = v.value(kept.node, kept.indices(r))
                v.store(value, kept.buffer.address, linear(r, kept.buffer.strides), value.elem)
        return result

    def _tail(self, totals: Sequence[Val], full: int) -> list[Val]:
        assert self.inner is not None
        left = self.inner.extent - full
        if not left:
            return list(totals)
        active = self.v.e.lane_mask(left, self.width)
        return self._combine({self.inner: Index(full)}, totals, active)

    def _blocked(self, totals: Sequence[Val], full: int) -> list[Val]:
        """Sum blocks from zero and add each block's sum to the total."""
        e = self.v.e
        block = BLOCK_STEPS * self.width
        whole = 0 if self.outer else full // block * block

        def body(i: Val, carried: tuple[Val, ...]) -> list[Val]:
            end = e.add(i, e.index(block))
            return self._add(carried, e.loop(i, end, self.width, self._body, self._starts()))

        if whole:
            totals = e.loop(e.index(0), e.index(whole), block, body, totals)
        return self._add(totals, self._tail(self._main(self._starts(), whole, full), full))

    def _add(self, a: Sequence[Val], b: Sequence[Val]) -> list[Val]:
        pairs = zip(self.parts, self._separate(a), self._separate(b), strict=True)
        return [x for part, left, right in pairs for x in part.combine(self.v.e, left, right)]


def _vector_length(native: int, extent: int) -> int:
    """Several registers as one vector: the additions overlap, and the text stays short."""
    width = native
    while width < ACCUMULATORS * native and width * 2 <= extent:
        width *= 2
    return width


def _across_lanes(e: Emitter, part: _Part, vectors: list[Val]) -> list[Val]:
    """Combine a vector's lanes by halving."""
    while vectors[0].lanes > 2:
        half = vectors[0].lanes // 2
        low = [e.shuffle(x, x, range(half)) for x in vectors]
        high = [e.shuffle(x, x, range(half, 2 * half)) for x in vectors]
        vectors = part.combine(e, low, high)
    return part.combine(e, [e.extract(x, 0) for x in vectors], [e.extract(x, 1) for x in vectors])
