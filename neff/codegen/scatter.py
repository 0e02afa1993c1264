"""Kernels for `scatter`: copy the operands, then apply the updates.

In: a scatter node and where its results go. Out: loop kernels for the copy, one for the updates.
Updates that may meet the same element are applied by one thread in the order of their indices, so
the result never depends on the number of threads. An update outside the operand is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.elementwise import convert, narrow, widen
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane
from neuron_compile.neff.codegen.gemm import lane_cost
from neuron_compile.neff.codegen.index import ZERO, Index, Var, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import TASKS_WANTED, Root
from neuron_compile.neff.codegen.program import Node, Region
from neuron_compile.neff.codegen.pulled import to_i64
from neuron_compile.neff.codegen.reductions import apply_region
from neuron_compile.neff.codegen.scatter_geometry import Geometry, geometry_of
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.codegen.workspace import Workspace
from neuron_compile.neff.target import Target

PROLOGUE_OPS = 16  # an index or update that takes more operations is stored first
BLOCK_LANES = 64  # a task's share of the vector dimension: each task reads all indices again


def scatter_kernels(nodes: Sequence[Node], roots: Sequence[Root], work: Workspace) -> None:
    """Adds the kernels to `work`; `roots` are the results somebody reads."""
    node = nodes[0]
    g = geometry_of(node)
    wanted = {r.node.result: r for r in roots}
    results = [wanted.get(i) or work.buffer(x) for i, x in enumerate(g.inputs)]
    made = len(work.kernels)
    work.store([Root(x, r.output, r.number) for x, r in zip(g.inputs, results, strict=True)])
    if len(g.inputs) == 1 and g.inputs[0] in work.leaves:
        copies = work.leaves[g.inputs[0]], results[0].number
        work.kernels[made:] = [replace(k, copies=copies) for k in work.kernels[made:]]
    if 0 in g.shape:
        return
    for operand in (g.indices, *g.updates):
        work.make_readable(operand, PROLOGUE_OPS)
    maker = _ScatterEmitter(g, node.regions[0], results, work.leaves, work.next_name(), work.target)
    work.kernels.append(maker.kernel())


class _ScatterEmitter:
    """Writes the kernel that applies the updates to results which hold the operands."""

    def __init__(
        self,
        g: Geometry,
        body: Region,
        results: Sequence[Root],
        leaves: Mapping[Node, int],
        name: str,
        target: Target,
    ) -> None:
        self.g, self.body, self.results, self.name, self.target = g, body, results, name, target
        wide = any(n.elem == "f64" for n in (*g.inputs, *g.updates))
        self.native = target.vector_bytes // (8 if wide else 4)
        self.e = Emitter(self.native, frozenset(target.features))
        self.v = Evaluator(
            self.e, {n: self.e.pointer_argument("%ptrs", i) for n, i in leaves.items()}
        )
        self.addresses = [self.e.pointer_argument("%ptrs", r.number) for r in results]
        self.fixed = [domain.variable(n) for n in g.shape]
        self.parallel = domain.fit(
            tuple(g.shape[d] for d in g.parallel), lambda at: self._probe(g.parallel, at)
        )
        self.serial = domain.fit(
            tuple(g.shape[d] for d in g.serial), lambda at: self._probe(g.serial, at)
        )
        self.lane_variable = self._choose_lane()

    # -- choices ---------------------------------------------------------------------------------

    def _probe(self, dims: Sequence[int], at: Indices) -> list[Index]:
        """Offsets that are accessed when the update dimensions `dims` are at `at`."""
        place = self._place(dict(zip(dims, at, strict=True)))
        is_leaf = self.v.bases.__contains__
        found = trace([(u, place) for u in self.g.updates], is_leaf).offsets()
        indices = self.g.index_at(place, 0)
        return [
            *found,
            *trace([(self.g.indices, indices)], is_leaf).offsets(),
            *self._result_offsets(place),
        ]

    def _place(self, known: Mapping[int, Index]) -> Indices:
        return tuple(
            known.get(d, of(self.fixed[d]) if n > 1 else ZERO) for d, n in enumerate(self.g.shape)
        )

    def _result_offsets(self, place: Indices) -> list[Index]:
        part = self.g.fixed_part(place)
        return [linear(part, r.output.strides) for r in self.results]

    def _choose_lane(self) -> Var | None:
        """A parallel variable along which results are contiguous, the longest."""
        place = self._place(dict(zip(self.g.parallel, self.parallel.indices, strict=True)))
        offsets = self._result_offsets(place)
        smooth = [
            x
            for x in self.parallel.variables
            if x.extent >= 4 and all(lane_cost(o, x) == 0 and o.coefficient(x) for o in offsets)
        ]
        return max(smooth, key=lambda x: x.extent, default=None)

    # -- loops -----------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        e = self.e
        lane = self.lane_variable
        outer = [x for x in self.parallel.variables if x is not lane]
        count = prod(x.extent for x in outer)
        self.width = self._width()
        block, blocks = self._blocks(count)
        tasks = count * blocks

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            task = domain.variable(tasks)
            self.v.values[task] = t
            *positions, part = unravel(of(task), (*(x.extent for x in outer), blocks))
            for x, i in zip(outer, positions, strict=True):
                self.v.values[x] = self.v.scalar(i)
            self._serial_loops(
                list(self.serial.variables), lambda: self._update(part, block, blocks)
            )
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        text = e.function(self.name, self.target.llvm_attributes())
        return Kernel(self.name, text, tasks, self._work(blocks), (), tuple(sorted(e.externals)))

    def _width(self) -> int:
        if self.lane_variable is None:
            return 1
        width = self.native
        while width < 4 * self.native and width * 2 <= self.lane_variable.extent:
            width *= 2
        return width

    def _blocks(self, count: int) -> tuple[int, int]:
        """The lane variable in blocks of so many elements: (block, number of blocks)."""
        lane = self.lane_variable
        if lane is None:
            return 1, 1
        wanted = -(-lane.extent // max(1, TASKS_WANTED // count))
        least = max(BLOCK_LANES, self.width)
        block = -(-max(wanted, least) // self.width) * self.width
        return block, -(-lane.extent // block)

    def _work(self, blocks: int) -> float:
        """Nanoseconds: contiguous updates cost their bytes, single ones their latencies."""
        points = prod(self.g.shape)
        serial = prod(self.g.shape[d] for d in self.g.serial)
        rows = points / (self.lane_variable.extent if self.lane_variable else 1)
        each = 0.25 if self.lane_variable else 3.0
        return points * each + max(rows, serial) * blocks * 1.5

    def _serial_loops(self, variables: Sequence[Var], inner: Callable[[], None]) -> None:
        if not variables:
            inner()
            return
        first, *rest = variables
        e = self.e

        def step(i: Val, _: tuple[Val, ...]) -> list[Val]:
            self.v.values[first] = i
            self._serial_loops(rest, inner)
            return []

        e.loop(e.index(0), e.index(first.extent), 1, step)

    def _update(self, part: Index, block: int, blocks: int) -> None:
        """Apply the updates of one task at one position of the serial loops."""
        lane = self.lane_variable
        if lane is None:
            self._point({}, None)
            return
        e, width = self.e, self.width
        low = self.v.scalar(part * block) if blocks > 1 else e.index(0)
        whole = lane.extent // width * width
        high = e.index(whole)
        if blocks > 1:
            high = e.binary("arith.minsi", e.add(low, e.index(block)), high)

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            base = domain.stepping(whole, width)
            self.v.values[base] = i
            self._vector(lane, of(base), None)
            return []

        def last() -> None:
            self._vector(lane, Index(whole), e.lane_mask(lane.extent - whole, width))

        if whole:
            e.loop(low, high, width, body)
        if whole < lane.extent:
            if blocks == 1:
                last()
            else:
                e.when(e.compare("eq", self.v.scalar(part), e.index(blocks - 1)), last)

    def _vector(self, lane: Var, base: Index, active: Val | None) -> None:
        variable = self.v.fresh_var(self.width, is_lane=True)
        with self.v.vector(Lane(variable, self.width, active)):
            self._point({lane: base + of(variable)}, Lane(variable, self.width, active))

    # -- one update ------------------------------------------------------------------------------

    def _point(self, values: dict[Var, Index], lane: Lane | None) -> None:
        """Combine one update (vector) into the results, where it lies inside them."""
        v, e, g = self.v, self.e, self.g
        known = dict(zip(g.parallel, self.parallel.indices, strict=True))
        known |= dict(zip(g.serial, self.serial.indices, strict=True))
        place = tuple(i.substitute(values) for i in self._place(known))
        position: list[Index] = []
        inside: Val | None = None
        for axis, fixed in zip(g.axes, g.fixed_part(place), strict=True):
            if axis.start is None:
                position.append(fixed)
                continue
            start = to_i64(e, v.value(g.indices, g.index_at(place, axis.start)), g.indices)
            moved = e.add(*e.match(start, self._index_value(fixed)))
            here = e.compare("ult", moved, e.const("i64", axis.extent, moved.lanes))
            inside = here if inside is None else e.both(*e.match(inside, here))
            position.append(v.runtime(moved, 0, axis.extent - 1))
        if inside is None:
            self._combine(place, tuple(position))
        elif not inside.lanes:
            e.when(inside, lambda: self._combine(place, tuple(position)))
        else:
            assert lane is not None
            guarded = Lane(lane.variable, lane.lanes, e.both(lane.active, inside))
            with v.vector(guarded):
                self._combine(place, tuple(position))

    def _index_value(self, index: Index) -> Val:
        return self.v.lanes_of(index) if self.v.varies(index) else self.v.scalar(index)

    def _combine(self, place: Indices, position: Indices) -> None:
        """results[position] = body(results[position], updates[place])."""
        v, e, g = self.v, self.e, self.g
        arguments = self.body.arguments
        count = len(g.inputs)
        offsets = [linear(position, r.output.strides) for r in self.results]
        old = []
        for root, address, offset in zip(self.results, self.addresses, offsets, strict=True):
            span = max(offset.bounds[1], 0) + 1
            raw = v.load_offset(address, offset, root.output.stored, span, None, constant=False)
            old.append(widen(e, raw, root.output))
        new = [
            convert(e, v.value(u, place), u.tensor, a.tensor)
            for u, a in zip(g.updates, arguments[count:], strict=True)
        ]
        values = e.match(*old, *new)
        combined = apply_region(e, self.body, values)
        for value, root, address, offset in zip(
            combined, self.results, self.addresses, offsets, strict=True
        ):
            narrowed = narrow(e, value, root.output)
            v.store(narrowed, address, offset, narrowed.elem)
