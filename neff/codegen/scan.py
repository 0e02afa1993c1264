"""Kernels for cumulative `reduce_window`: running sums, products, maxima, folds of several values.

In: a reduce_window whose window is a whole dimension, padded on one side. Out: one kernel that
walks it once, with lanes along another dimension or with a prefix scan inside each vector. The
body must be associative and the initial values its identity, as StableHLO asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.elementwise import narrow
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane
from neuron_compile.neff.codegen.gemm import lane_cost
from neuron_compile.neff.codegen.index import ZERO, Index, Var, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.reductions import UNROLLED_POINTS, Combine, combine_of, kind_of
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.codegen.workspace import Workspace

PROLOGUE_OPS = 64  # each operand element is pulled once


@dataclass(frozen=True, slots=True)
class Direction:
    """Along dimension `dim`, from index 0 on or, `backward`, from the last one down."""

    dim: int
    backward: bool


def direction_of(node: Node) -> Direction | None:
    """How a reduce_window accumulates.

    None if it is no running fold, or too short to be worth a kernel.
    """
    if node.op != "stablehlo.reduce_window":
        return None
    a = node.attributes
    shape = node.operands[0].shape
    rank = len(shape)
    ones = (1,) * rank
    steps = (
        a.get("window_strides", ones),
        a.get("base_dilations", ones),
        a.get("window_dilations", ones),
    )
    if any(tuple(s) != ones for s in steps):
        return None
    long = [d for d, n in enumerate(a["window_dimensions"]) if n > 1]
    if len(long) != 1:
        return None
    dim = long[0]
    extent = shape[dim]
    padding = np.asarray(a.get("padding", np.zeros((rank, 2), np.int64)))
    others = np.delete(padding, dim, 0)
    if a["window_dimensions"][dim] != extent or others.any() or extent <= UNROLLED_POINTS:
        return None
    low, high = int(padding[dim, 0]), int(padding[dim, 1])
    if sorted((low, high)) != [0, extent - 1]:
        return None
    return Direction(dim, backward=high > 0)


def scan_kernels(nodes: Sequence[Node], roots: Sequence[Root], work: Workspace) -> None:
    """Adds the kernel to `work`; `roots` are the results somebody reads."""
    node = nodes[0]
    count = len(node.operands) // 2
    for operand in node.operands[:count]:
        work.make_readable(operand, PROLOGUE_OPS)
    work.kernels.append(_ScanEmitter(node, roots, work).kernel())


class _ScanEmitter:
    """Writes the kernel: tasks are the other dimensions, or vectors of them."""

    def __init__(self, node: Node, roots: Sequence[Root], work: Workspace) -> None:
        direction = direction_of(node)
        assert direction is not None
        self.node, self.roots, self.direction = node, roots, direction
        count = len(node.operands) // 2
        self.inputs, self.initial = node.operands[:count], node.operands[count:]
        self.name, self.target = work.next_name(), work.target
        wide = any(n.elem == "f64" for n in self.inputs)
        self.native = work.target.vector_bytes // (8 if wide else 4)
        e = self.e = Emitter(self.native, frozenset(work.target.features))
        self.v = Evaluator(e, {n: e.pointer_argument("%ptrs", i) for n, i in work.leaves.items()})
        self.addresses = [e.pointer_argument("%ptrs", r.number) for r in roots]
        region = node.regions[0]
        self.combine: Combine = combine_of(region, kind_of(region))
        self.extent = node.shape[direction.dim]
        self.others = [d for d in range(len(node.shape)) if d != direction.dim]
        self.along = domain.variable(self.extent)
        self.space = domain.fit(tuple(node.shape[d] for d in self.others), self._probe)
        self.lane_variable = self._choose_lane()

    # -- choices ---------------------------------------------------------------------------------

    def _place(self, others: Indices, along: Index) -> Indices:
        place = [ZERO] * len(self.node.shape)
        for d, i in zip(self.others, others, strict=True):
            place[d] = i
        place[self.direction.dim] = along
        return tuple(place)

    def _probe(self, others: Indices) -> list[Index]:
        place = self._place(others, of(self.along))
        found = trace([(x, place) for x in self.inputs], self.v.bases.__contains__).offsets()
        return [*found, *(linear(place, r.output.strides) for r in self.roots)]

    def _choose_lane(self) -> Var | None:
        """Another dimension to run the lanes along; None: the scanned one."""
        offsets = self._probe(self.space.indices)
        smooth = [
            x
            for x in self.space.variables
            if x.extent >= self.native // 2 and all(lane_cost(o, x) == 0 for o in offsets)
        ]
        return max(smooth, key=lambda x: x.extent, default=None)

    # -- loops -----------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        e, lane = self.e, self.lane_variable
        outer = [x for x in self.space.variables if x is not lane]
        blocks = -(-lane.extent // self.native) if lane else 1
        tasks = prod(x.extent for x in outer) * blocks

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            task = domain.variable(tasks)
            self.v.values[task] = t
            *positions, part = unravel(of(task), (*(x.extent for x in outer), blocks))
            for x, i in zip(outer, positions, strict=True):
                self.v.values[x] = self.v.scalar(i)
            if lane is None:
                self._along_lanes()
            else:
                self._across_lanes(lane, part, blocks)
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        text = e.function(self.name, self.target.llvm_attributes())
        points = prod(self.node.shape)
        work = points * len(self.inputs) * (1.0 if lane is None else 0.3)
        return Kernel(self.name, text, tasks, work, (), tuple(sorted(e.externals)))

    def _starts(self, lanes: int) -> list[Val]:
        with self.v.vector(None):
            return [self.e.splat(self.v.value(n, ()), lanes) for n in self.initial]

    def _across_lanes(self, lane: Var, part: Index, blocks: int) -> None:
        """One vector of rows, element after element."""
        e, width = self.e, self.native
        left = lane.extent % width

        def run(active: Val | None) -> None:
            variable = self.v.fresh_var(width, is_lane=True)
            values = {lane: part * width + of(variable)}
            with self.v.vector(Lane(variable, width, active)):
                self._walk(self._starts(width), values)

        if not left:
            run(None)
        elif blocks == 1:
            run(e.lane_mask(left, width))
        else:
            last = e.compare("eq", self.v.scalar(part), e.index(blocks - 1))
            e.when(e.binary("arith.xori", last, e.const("i1", True)), lambda: run(None))
            e.when(last, lambda: run(e.lane_mask(left, width)))

    def _walk(self, totals: list[Val], values: dict[Var, Index]) -> None:
        """Fold element after element, in this vector of rows."""
        e = self.e

        def step(i: Val, carried: tuple[Val, ...]) -> list[Val]:
            position = domain.variable(self.extent)
            self.v.values[position] = i
            at = self._at(of(position), values)
            new = [e.splat(self.v.value(x, at), self.native) for x in self.inputs]
            after = self._fold(carried, new)
            self._store(after, at)
            return after

        e.loop(e.index(0), e.index(self.extent), 1, step, totals)

    def _along_lanes(self) -> None:
        """Vector after vector of one row; the last lane carries over."""
        e, width = self.e, self.native
        whole = self.extent // width * width

        def step(base: Index, active: Val | None, carried: Sequence[Val]) -> list[Val]:
            variable = self.v.fresh_var(width, is_lane=True)
            with self.v.vector(Lane(variable, width, active)):
                at = self._at(base + of(variable), {})
                new = [e.splat(self.v.value(x, at), width) for x in self.inputs]
                after = self._fold([e.splat(c, width) for c in carried], self._prefix(new))
                self._store(after, at)
            return [e.extract(x, width - 1) for x in after]

        def body(i: Val, carried: tuple[Val, ...]) -> list[Val]:
            base = domain.variable(self.extent)
            self.v.values[base] = i
            return step(of(base), None, carried)

        totals: Sequence[Val] = self._starts(0)
        if whole:
            totals = e.loop(e.index(0), e.index(whole), width, body, totals)
        if whole < self.extent:
            step(Index(whole), e.lane_mask(self.extent - whole, width), totals)

    def _at(self, position: Index, values: dict[Var, Index]) -> Indices:
        """Element number `position` of the walk."""
        if self.direction.backward:
            position = position * -1 + (self.extent - 1)
        others = tuple(i.substitute(values) for i in self.space.indices)
        return self._place(others, position)

    # -- folding ---------------------------------------------------------------------------------

    def _fold(self, before: Sequence[Val], after: Sequence[Val]) -> list[Val]:
        """Combine in the order of the index."""
        first, second = (after, before) if self.direction.backward else (before, after)
        return self.combine(self.e, first, second)

    def _prefix(self, vectors: list[Val]) -> list[Val]:
        """Running fold over the lanes, in log2(lanes) rounds."""
        e, width = self.e, self.native
        step = 1
        while step < width:
            moved = [e.shuffle(x, x, [max(i - step, 0) for i in range(width)]) for x in vectors]
            combined = self._fold(moved, vectors)
            first = e.lane_mask(step, width)
            vectors = [e.select(first, x, c) for x, c in zip(vectors, combined, strict=True)]
            step *= 2
        return vectors

    def _store(self, values: Sequence[Val], at: Indices) -> None:
        for root, address in zip(self.roots, self.addresses, strict=True):
            value = narrow(self.e, values[root.node.result], root.output)
            self.v.store(value, address, linear(at, root.output.strides), value.elem)
