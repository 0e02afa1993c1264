"""Kernels for `sort` and `top_k`: sort each row's positions, then read every operand by them.

In: a sort node and where its results go. Out: one kernel; its tasks are rows, or stretches of rows
that share scratch memory. Comparators that only compare one operand's elements become integer
keys; any other one is called element by element in a merge sort. Always stable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log2, prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.elementwise import RULES, compute_elem, narrow
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane
from neuron_compile.neff.codegen.index import ZERO, Index, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.program import Node, postorder
from neuron_compile.neff.codegen.reductions import apply_region
from neuron_compile.neff.codegen.sort_order import Order, order_of
from neuron_compile.neff.codegen.sort_rows import (
    DIGITS,
    RANK_LIMIT,
    Items,
    by_merging,
    by_radix,
    by_rank,
)
from neuron_compile.neff.codegen.sort_select import (
    BUCKETS,
    append,
    bucket_limit,
    buckets_of,
    clear_buckets,
    count_buckets,
)
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import PERMUTATIONS, Indices
from neuron_compile.neff.codegen.workspace import Workspace

SELECT_FROM, SELECT_SHARE = 256, 8  # rows longer than that, of which an 8th or less is wanted
# Operations whose index mapping is known exactly while code is made.
_IN_PLACE = {*RULES, *PERMUTATIONS, "stablehlo.constant", "stablehlo.iota"}
KEY_OPS, COMPARED_OPS = 16, 2  # operations to pull a key (once) or a compared element (often)
STACK_BYTES = 1 << 17  # of one row's buffers; longer rows use scratch memory
STRETCHES = 16  # tasks that share the scratch memory


@dataclass(frozen=True, slots=True)
class _Row:
    """One row's buffers in bytes from a common start."""

    first: int
    first_positions: int
    second: int
    second_positions: int
    counts: int
    size: int


def sort_kernels(nodes: Sequence[Node], roots: Sequence[Root], work: Workspace) -> None:
    """Adds the kernel to `work`; `roots` are the results `nodes`, or what `direct_roots` found."""
    node = nodes[0]
    order = _order(node)
    for i, operand in enumerate(node.operands):
        compared = order.operand == i if order else True
        work.make_readable(operand, KEY_OPS if order and compared else COMPARED_OPS)
    work.kernels.append(_SortEmitter(nodes, order, roots, work).kernel())


def _order(node: Node) -> Order | None:
    if node.op == "chlo.top_k":
        return Order(0, descending=True, total=True)
    return order_of(node.regions[0])


class _SortEmitter:
    """Writes the kernel."""

    def __init__(
        self, nodes: Sequence[Node], order: Order | None, roots: Sequence[Root], work: Workspace
    ) -> None:
        node = nodes[0]
        self.node, self.sorted_nodes, self.order, self.roots = node, nodes, order, roots
        self.name, self.target = work.next_name(), work.target
        self.native = work.target.vector_bytes // 4
        e = self.e = Emitter(self.native, frozenset(work.target.features))
        self.v = Evaluator(e, {n: e.pointer_argument("%ptrs", i) for n, i in work.leaves.items()})
        self.addresses = [e.pointer_argument("%ptrs", r.number) for r in roots]
        operand = node.operands[0]
        self.dim = node.attributes.get("dimension", len(operand.shape) - 1) % len(operand.shape)
        self.extent = operand.shape[self.dim]
        self.others = [d for d in range(len(operand.shape)) if d != self.dim]
        self.rows = prod(operand.shape[d] for d in self.others)
        self.packed = order is not None and (
            order.key_elem(node.operands[order.operand].tensor) == "i32"
        )
        self.kept = roots[0].node.shape[self.dim]  # the first so many are wanted
        self.selects = (
            order is not None
            and self.extent > SELECT_FROM
            and self.kept * SELECT_SHARE <= self.extent
        )
        self.lanes_memory = e.local("i32", self.native) if self.selects else None
        self.number = e.local("i64", 1) if self.selects else None
        self.layout = self._layout()
        self.on_stack = self.layout.size <= STACK_BYTES
        self.tasks = self.rows if self.on_stack else min(self.rows, STRETCHES)
        if self.on_stack:
            self.memory = e.local("i8", self.layout.size)
        else:
            self.memory = e.pointer_argument("%ptrs", work.reserve(self.layout.size * self.tasks))

    def _layout(self) -> _Row:
        padded = -(-self.extent // self.native) * self.native
        keys = 8 * padded if self.order else 0
        positions = 0 if self.packed else 4 * padded
        ranked = self.order is not None and self.extent <= RANK_LIMIT
        counts = 0 if ranked or not self.order else max(8 * DIGITS * 8, BUCKETS * 4)
        if ranked:
            positions = 4 * padded
        starts = [0]
        for size in (keys, positions, keys, positions, counts):
            starts.append(starts[-1] + -(-size // 64) * 64)
        return _Row(*starts)

    def kernel(self) -> Kernel:
        e = self.e

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            if self.on_stack:
                self._row(t, self.memory)
                return []
            memory = e.gep(self.memory, e.mul(t, e.index(self.layout.size)), "i8")
            low = e.binary("arith.divui", e.mul(t, e.index(self.rows)), e.index(self.tasks))
            after = e.mul(e.add(t, e.index(1)), e.index(self.rows))
            high = e.binary("arith.divui", after, e.index(self.tasks))

            def row(r: Val, _: tuple[Val, ...]) -> list[Val]:
                self._row(r, memory)
                return []

            e.loop(low, high, 1, row)
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        text = e.function(self.name, self.target.llvm_attributes())
        return Kernel(self.name, text, self.tasks, self._work(), (), tuple(sorted(e.externals)))

    def _work(self) -> float:
        n = self.extent
        each = 5.0 * log2(max(n, 2)) if self.order is None else 4.0 + n / 4
        if self.order is not None and n > RANK_LIMIT:
            each = (2.5 * (4 if self.packed else 8)) + 2000 / n
        if self.selects:
            each = 1.5 + 6000 / n
        return self.rows * n * (each + len(self.roots))

    # -- one row ---------------------------------------------------------------------------------

    def _row(self, number: Val, memory: Val) -> None:
        e, v = self.e, self.v
        row = domain.variable(max(self.rows, 2))
        v.values[row] = number
        shape = tuple(self.node.operands[0].shape[d] for d in self.others)
        others: list[Index] = []
        for i, n in zip(unravel(of(row), shape), shape, strict=True):
            x = domain.variable(n)
            v.values[x] = v.scalar(i) if n > 1 else e.index(0)
            others.append(of(x))
        positions, shift = self._sorted(tuple(others), memory)
        self._write(tuple(others), positions, shift)

    def _place(self, others: Indices, along: Index) -> Indices:
        place = [ZERO] * (len(self.others) + 1)
        for d, i in zip(self.others, others, strict=True):
            place[d] = i
        place[self.dim] = along
        return tuple(place)

    def _part(self, memory: Val, offset: int) -> Val:
        return self.e.gep(memory, offset, "i8")

    def _sorted(self, others: Indices, memory: Val) -> tuple[Val, bool]:
        """Where the positions lie in order, and whether they are the low halves of i64 words."""
        e, n, layout = self.e, self.extent, self.layout
        first, second = (
            Items(self._part(memory, k), None if self.packed else self._part(memory, p))
            for k, p in (
                (layout.first, layout.first_positions),
                (layout.second, layout.second_positions),
            )
        )
        if self.order is None:
            a = self._part(memory, layout.first_positions)
            b = self._part(memory, layout.second_positions)
            return by_merging(e, a, b, n, lambda x, y: self._before(others, x, y)), False
        counts = self._part(memory, layout.counts)
        if self.selects:
            number = self._candidates(self.order, others, first, counts)
            done = by_radix(e, first, second, counts, number)
            return (done.keys, True) if done.positions is None else (done.positions, False)
        self._fill(self.order, others, first)
        if n <= RANK_LIMIT:
            result = self._part(memory, layout.second_positions)
            by_rank(e, first, n, self.native // 2, result)
            return result, False
        done = by_radix(e, first, second, counts, e.index(n))
        return (done.keys, True) if done.positions is None else (done.positions, False)

    def _before(self, others: Indices, a: Val, b: Val) -> Val:
        """The comparator on the elements at positions a and b."""
        v = self.v
        places = [self._place(others, v.runtime(i, 0, self.extent - 1)) for i in (a, b)]
        arguments = [v.value(o, place) for o in self.node.operands for place in places]
        return apply_region(self.e, self.node.regions[0], arguments)[0]

    # -- keys ------------------------------------------------------------------------------------

    def _words(
        self, order: Order, others: Indices, base: Index, active: Val | None
    ) -> tuple[Val, Val]:
        """Key words and positions of a vector; what is behind the end gets the largest key."""
        e, width = self.e, self.native
        operand = self.node.operands[order.operand]
        variable = self.v.fresh_var(width, is_lane=True)
        with self.v.vector(Lane(variable, width, active)):
            at = self._place(others, base + of(variable))
            value = e.splat(self.v.value(operand, at), width)
            key = order.key(e, value, operand.tensor)
        ids = e.add(e.splat(self.v.scalar(base), width), e.lane_ids(width))
        if self.packed:
            upper = e.binary(
                "arith.shli", e.cast("arith.extui", key, "i64"), e.const("i64", 32, width)
            )
            key = e.binary("arith.ori", upper, ids)
        if active is not None:
            key = e.select(active, key, e.const("i64", -1, width))
        return key, ids

    def _fill(self, order: Order, others: Indices, items: Items) -> None:
        """Keys and positions of the whole row."""
        e = self.e

        def step(base: Index, active: Val | None) -> None:
            words, ids = self._words(order, others, base, active)
            e.store(words, e.gep(items.keys, self.v.scalar(base), "i64"))
            if items.positions is not None:
                short = e.cast("arith.trunci", ids, "i32")
                e.store(short, e.gep(items.positions, self.v.scalar(base), "i32"))

        self._vectors(self.extent, self.native, step)

    def _candidates(self, order: Order, others: Indices, items: Items, counts: Val) -> Val:
        """Fill `items` with elements among which are the first `kept` of the row; their number."""
        e, width = self.e, self.native
        lanes, found = self.lanes_memory, self.number
        assert lanes is not None
        assert found is not None
        clear_buckets(e, counts)

        def count(base: Index, active: Val | None) -> None:
            words, _ = self._words(order, others, base, active)
            e.store(buckets_of(e, words), lanes)
            count_buckets(e, counts, lanes, self.extent % width if active else width)

        self._vectors(self.extent, width, count)
        limit = bucket_limit(e, counts, self.kept)
        e.store(e.index(0), found)

        def collect(base: Index, active: Val | None) -> None:
            words, ids = self._words(order, others, base, active)
            chosen = e.compare("ult", buckets_of(e, words), limit)
            if active is not None:
                chosen = e.binary("arith.andi", chosen, active)
            e.when(e.any(chosen), lambda: append(e, items, found, words, ids, chosen))

        self._vectors(self.extent, width, collect)
        return e.load(found, "i64", constant=False)

    def _vectors(self, extent: int, width: int, step: Callable[[Index, Val | None], None]) -> None:
        e = self.e
        whole = extent // width * width

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            base = domain.variable(extent)
            self.v.values[base] = i
            step(of(base), None)
            return []

        if whole:
            e.loop(e.index(0), e.index(whole), width, body)
        if whole < extent:
            step(Index(whole), e.lane_mask(extent - whole, width))

    # -- results ---------------------------------------------------------------------------------

    def _write(self, others: Indices, positions: Val, shift: bool) -> None:
        """Every root at the sorted positions."""
        e, v, width = self.e, self.v, self.native
        operand = self.node.operands[0]

        def step(base: Index, active: Val | None) -> None:
            variable = v.fresh_var(width, is_lane=True)
            found = self._positions(positions, shift, v.scalar(base), active)
            with v.vector(Lane(variable, width, active)):
                source = self._place(others, v.runtime(found, 0, self.extent - 1))
                target = self._place(others, base + of(variable))
                v.forget()
                for node in self.sorted_nodes:
                    v.fixed[node] = self._value(node, source, found)
                for root, address in zip(self.roots, self.addresses, strict=True):
                    value = narrow(e, v.value(root.node, target), root.output)
                    v.store(value, address, linear(target, root.output.strides), value.elem)
                v.fixed.clear()

        assert self.kept <= operand.shape[self.dim]
        self._vectors(self.kept, width, step)

    def _positions(self, positions: Val, shift: bool, start: Val, active: Val | None) -> Val:
        """The next positions as i64."""
        e, width = self.e, self.native
        elem = "i64" if shift else "i32"
        found = e.load(e.gep(positions, start, elem), elem, width, constant=False)
        if shift:
            found = e.binary("arith.andi", found, e.const("i64", 0xFFFFFFFF, width))
        else:
            found = e.cast("arith.extui", found, "i64")
        if active is None:
            return found
        # The buffer is padded, but not with positions.
        return e.select(active, found, e.const("i64", 0, width))

    def _value(self, node: Node, source: Indices, position: Val) -> Val:
        if self.node.op == "chlo.top_k" and node.result == 1:
            return self.e.cast("arith.trunci", position, compute_elem(node.tensor))
        return self.v.value(self.node.operands[node.result], source)


def direct_roots(nodes: Sequence[Node], work: Workspace) -> list[Root] | None:
    """The roots that can be stored in place of the sorted operands `nodes`; None if some cannot.

    Such a root is a function of what has been sorted, element by element, of the row's beginning.
    """

    def is_leaf(n: Node) -> bool:
        return n in nodes or n in work.leaves

    using = [r for r in work.roots if any(n in nodes for n in postorder((r.node,), is_leaf))]
    if not using or len({r.node.shape for r in using}) > 1:
        return None
    shape, full = using[0].node.shape, nodes[0].shape
    dim = nodes[0].attributes.get("dimension", len(full) - 1) % len(full)
    if len(shape) != len(full) or any(
        n != m if d != dim else n > m for d, (n, m) in enumerate(zip(shape, full, strict=True))
    ):
        return None
    between = postorder(tuple(r.node for r in using), is_leaf)
    if any(n.op not in _IN_PLACE for n in between if not is_leaf(n)):
        return None
    at = tuple(of(domain.variable(n)) for n in shape)
    for root in using:
        found = trace([(root.node, at)], is_leaf)
        if found.reductions or any(i != at for n, i in found.uses if n in nodes):
            return None
    return using
