"""Kernels for `select_and_scatter`, the gradient of max pooling: fill, then window by window.

In: a node with its operand, source and initial value. Out: a loop kernel that fills the result, and
one that combines each source element into the element its window chose. Windows that may overlap
are visited by one thread in order; dimensions without a window are the tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.elementwise import compute_elem, narrow, widen
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.evaluate import Evaluator
from neuron_compile.neff.codegen.index import Index, contiguous_strides, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.reductions import apply_region
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import Condition, Indices
from neuron_compile.neff.codegen.workspace import Workspace

OPERAND_OPS, SOURCE_OPS = 4, 16  # an operand's element is read by every window it lies in
CANDIDATE_NANOSECONDS = 2.0


def select_and_scatter_kernels(
    nodes: Sequence[Node], roots: Sequence[Root], work: Workspace
) -> None:
    """Adds the kernels to `work`; `roots` is the one result."""
    node = nodes[0]
    (root,) = roots
    operand, source, initial = node.operands
    full = Node("stablehlo.broadcast_in_dim", (initial,), root.output, {"broadcast_dimensions": ()})
    work.store([Root(full, root.output, root.number)])
    if 0 in source.shape:
        return
    work.make_readable(operand, OPERAND_OPS)
    work.make_readable(source, SOURCE_OPS)
    work.kernels.append(_WindowEmitter(node, root, work).kernel())


class _WindowEmitter:
    """Writes the kernel that visits the windows."""

    def __init__(self, node: Node, root: Root, work: Workspace) -> None:
        self.node, self.root = node, root
        self.operand, self.source, _ = node.operands
        self.select, self.scatter = node.regions
        self.name, self.target = work.next_name(), work.target
        e = self.e = Emitter(work.target.vector_bytes // 4, frozenset(work.target.features))
        self.v = Evaluator(e, {n: e.pointer_argument("%ptrs", i) for n, i in work.leaves.items()})
        self.address = e.pointer_argument("%ptrs", root.number)
        rank = len(self.operand.shape)
        a = node.attributes
        self.window = a.get("window_dimensions", (1,) * rank)
        self.strides = a.get("window_strides", (1,) * rank)
        self.low = [
            int(x) for x in np.asarray(a.get("padding", np.zeros((rank, 2), np.int64)))[:, 0]
        ]
        self.tasks_over = [
            d
            for d in range(rank)
            if (self.window[d], self.strides[d], self.low[d]) == (1, 1, 0)
            and self.operand.shape[d] == self.source.shape[d]
        ]
        self.serial = [d for d in range(rank) if d not in self.tasks_over]

    def kernel(self) -> Kernel:
        e, v = self.e, self.v
        shape = tuple(self.source.shape[d] for d in self.tasks_over)
        tasks = prod(shape)

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            task = domain.variable(max(tasks, 2))
            v.values[task] = t
            known: dict[int, Index] = {}
            for d, i in zip(self.tasks_over, unravel(of(task), shape), strict=True):
                x = domain.variable(max(self.source.shape[d], 2))
                v.values[x] = v.scalar(i)
                known[d] = of(x)
            self._loops(self.serial, self.source.shape, known, self._window)
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        text = e.function(self.name, self.target.llvm_attributes())
        work = prod(self.source.shape) * prod(self.window) * CANDIDATE_NANOSECONDS
        return Kernel(self.name, text, tasks, work, (), tuple(sorted(e.externals)))

    def _loops(
        self,
        dims: Sequence[int],
        shape: Sequence[int],
        known: dict[int, Index],
        inner: Callable[[Indices], None],
    ) -> None:
        """Nested loops over `dims`, in order; the other dimensions are known."""
        if not dims:
            inner(tuple(known[d] for d in range(len(shape))))
            return
        first, *rest = dims
        e = self.e

        def step(i: Val, _: tuple[Val, ...]) -> list[Val]:
            x = domain.variable(max(shape[first], 2))
            self.v.values[x] = i
            self._loops(rest, shape, {**known, first: of(x)}, inner)
            return []

        e.loop(e.index(0), e.index(shape[first]), 1, step)

    def _window(self, at: Indices) -> None:
        """Choose in the window of source element `at`, then combine."""
        e = self.e
        elem = compute_elem(self.operand.tensor)
        start = [e.const(elem, 0), e.index(0), e.const("i1", False)]
        _, chosen, found = self._search(list(range(len(at))), at, [], start)
        e.when(found, lambda: self._combine(at, chosen))

    def _search(
        self, dims: list[int], at: Indices, offsets: list[Index], carried: Sequence[Val]
    ) -> Sequence[Val]:
        """Walk the window in index order, carrying (value, linear position, found one)."""
        if not dims:
            return self._candidate(at, offsets, carried)
        e = self.e
        first, *rest = dims
        if self.window[first] == 1:
            return self._search(rest, at, [*offsets, Index(0)], carried)

        def step(i: Val, inner: tuple[Val, ...]) -> Sequence[Val]:
            x = domain.variable(self.window[first])
            self.v.values[x] = i
            return self._search(rest, at, [*offsets, of(x)], inner)

        return e.loop(e.index(0), e.index(self.window[first]), 1, step, carried)

    def _candidate(self, at: Indices, offsets: list[Index], carried: Sequence[Val]) -> list[Val]:
        e, v = self.e, self.v
        best, position, found = carried
        shape = self.operand.shape
        place = [
            i * s + o + -low
            for i, s, o, low in zip(at, self.strides, offsets, self.low, strict=True)
        ]
        inside = v.conditions([Condition(i, 0, n) for i, n in zip(place, shape, strict=True)])
        safe = tuple(i.bounded(0, n - 1) for i, n in zip(place, shape, strict=True))
        value = v.value(self.operand, safe)
        (keep,) = apply_region(e, self.select, (best, value))
        take = e.binary("arith.xori", e.binary("arith.andi", keep, found), e.const("i1", True))
        if inside is not None:
            take = e.binary("arith.andi", take, inside)
        here = v.scalar(linear(safe, contiguous_strides(shape)))
        return [
            e.select(take, value, best),
            e.select(take, here, position),
            e.binary("arith.ori", found, take),
        ]

    def _combine(self, at: Indices, chosen: Val) -> None:
        v, e, root = self.v, self.e, self.root
        flat = v.runtime(chosen, 0, root.node.tensor.size - 1)
        where = linear(unravel(flat, root.node.shape), root.output.strides)
        raw = v.load_offset(
            self.address, where, root.output.stored, root.node.tensor.size, None, constant=False
        )
        old = widen(e, raw, root.output)
        (value,) = apply_region(e, self.scatter, (old, v.value(self.source, at)))
        narrowed = narrow(e, value, root.output)
        v.store(narrowed, self.address, where, narrowed.elem)
