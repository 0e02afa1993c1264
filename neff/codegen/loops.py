"""Kernels for `loop` groups.

Elementwise and view chains, reductions, and everything that can be pulled.

In: a `Group`. Out: kernels that together compute all its results. Rows (what reductions are
indexed by) are the outer loops and the tasks; one variable runs through the vector lanes, chosen
by what the memory accesses cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from neuron_compile.neff.codegen import domain, random_bits, reductions, row_prefetch
from neuron_compile.neff.codegen.accesses import Access, Trace, trace
from neuron_compile.neff.codegen.elementwise import narrow
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane
from neuron_compile.neff.codegen.index import ZERO, Index, Var, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.overwrite import Pair, Stored, overwritable
from neuron_compile.neff.codegen.program import Group, Node, Tensor, postorder
from neuron_compile.neff.codegen.reduction_specs import spec_of
from neuron_compile.neff.codegen.rows import plan_rows
from neuron_compile.neff.codegen.value import Val, bytes_of
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.target import Target

TASKS_WANTED = 64  # enough for any number of threads to share evenly
BLOCK_BYTES = 16384  # of one result per task, where a single long loop is cut into tasks
# Of a result that is stored past the caches: a store that a cache takes reads the line first. On
# 2 cores with 2 MiB of L2 each, a kernel and the next one that reads its result took 0.9 of the
# time from 8 MiB on, and 1.1 of it at 4 MiB; the kernel alone 0.6 (4096x1024, RMSNorm).
STREAMED_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Root:
    """A value to store: the node, its layout, and its pointer's number in the kernel's table."""

    node: Node
    output: Tensor
    number: int  # its pointer in the kernel's table


@dataclass(frozen=True, slots=True)
class Nest:
    """Roots computed in one loop nest.

    `indices[i]` is where root i is evaluated at each point of the domain.
    """

    space: domain.Domain
    roots: tuple[Root, ...]
    indices: tuple[Indices, ...]


def loop_kernels(
    group: Group, name: str, target: Target, wanted: Collection[Pair] = ()
) -> list[Kernel]:
    """One kernel per iteration space among the results; usually one.

    `wanted` are pairs of pointers that callers would like to be the same memory.
    """
    first = len(group.parameters)
    outputs = zip(group.results, group.outputs, strict=True)
    roots = [Root(n, o, first + i) for i, (n, o) in enumerate(outputs)]
    return kernels_of(roots, {p: i for i, p in enumerate(group.parameters)}, name, target, wanted)


def kernels_of(
    roots: Sequence[Root],
    leaves: Mapping[Node, int],
    name: str,
    target: Target,
    wanted: Collection[Pair] = (),
) -> list[Kernel]:
    """Kernels that store all `roots`.

    `leaves` are the nodes that lie in memory, with their pointers; `wanted` as in `loop_kernels`.
    """
    left = [r for r in roots if r.output.size]
    nests: list[_NestEmitter] = []
    while left:
        nest, left = _take_nest(left, leaves)
        own = f"{name}_{len(nests)}" if nests else name
        nests.append(_NestEmitter(nest, leaves, own, target))
    if wanted:
        for one in nests:
            elsewhere = frozenset(node for n in nests if n is not one for node in n.nodes)
            one.allow_overwriting(wanted, elsewhere)
    return [n.kernel() for n in nests]


def _take_nest(roots: list[Root], leaves: Mapping[Node, int]) -> tuple[Nest, list[Root]]:
    """The roots that the largest root's loops can compute on the way, and the rest."""
    main = max(roots, key=lambda r: r.output.size)
    same = [r for r in roots if _squeezed(r.node.shape) == _squeezed(main.node.shape)]
    is_leaf = leaves.__contains__

    def probe(at: Indices) -> list[Index]:
        found = trace([(r.node, _same_place(main, r, at)) for r in same], is_leaf).offsets()
        return found + [linear(_same_place(main, r, at), r.output.strides) for r in same]

    space = domain.fit(main.node.shape, probe)
    indices = {r.number: _same_place(main, r, space.indices) for r in same}
    found = trace([(r.node, indices[r.number]) for r in same], is_leaf, into_reductions=False)
    for r in roots:
        if r.number not in indices:
            place = _row_place(r, found, is_leaf)
            if place is not None:
                indices[r.number] = place
    taken = [r for r in roots if r.number in indices]
    rest = [r for r in roots if r.number not in indices]
    return Nest(space, tuple(taken), tuple(indices[r.number] for r in taken)), rest


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _same_place(main: Root, other: Root, at: Indices) -> Indices:
    """`at` with the dimensions of size 1 put where `other` has them."""
    if other.node.shape == main.node.shape:
        return at
    kept = iter(i for i, n in zip(at, main.node.shape, strict=True) if n != 1)
    return tuple(ZERO if n == 1 else next(kept) for n in other.node.shape)


def _row_place(root: Root, found: Trace, is_leaf: Callable[[Node], bool]) -> Indices | None:
    """Where a root that is a function of row values must be evaluated, None if it is none of these
    rows.
    """
    own = [domain.variable(n) for n in root.node.shape]
    at = tuple(of(v) if v.extent > 1 else ZERO for v in own)
    mine = trace([(root.node, at)], is_leaf, into_reductions=False)
    known = {n.operation: where for n, where in found.reductions}
    values: dict[Var, Index] = {}
    for node, where in mine.reductions:
        theirs = known.get(node.operation)
        if theirs is None:
            continue
        for index, value in zip(where, theirs, strict=True):
            if len(index.terms) == 1 and index.terms[0][1] == 1 and index.constant == 0:
                atom = index.terms[0][0]
                if isinstance(atom, Var):
                    values.setdefault(atom, value)
    wanted = [v for v in own if v.extent > 1]
    if any(v not in values for v in wanted) or not _cover(wanted, values):
        return None
    return tuple(i.substitute(values) for i in at)


def _cover(own: Sequence[Var], values: Mapping[Var, Index]) -> bool:
    """Whether the nest visits every combination of `own`.

    Each value counts through its whole extent.
    """
    used: set[Var] = set()
    for v in own:
        count = 1
        for atom, factor in sorted(values[v].terms, key=lambda term: term[1]):
            if not isinstance(atom, Var) or atom in used or factor != count:
                return False
            used.add(atom)
            count *= atom.extent
        if count != v.extent or values[v].constant:
            return False
    return True


class _NestEmitter:
    """Chooses the loops of one nest and writes its kernel."""

    def __init__(self, nest: Nest, leaves: Mapping[Node, int], name: str, target: Target) -> None:
        self.nest, self.leaves, self.name, self.target = nest, leaves, name, target
        is_leaf = leaves.__contains__
        self.nodes = list(postorder(tuple(r.node for r in nest.roots), is_leaf))
        pairs = [(r.node, i) for r, i in zip(nest.roots, nest.indices, strict=True)]
        self.deep = trace(pairs, is_leaf)
        shallow = trace(pairs, is_leaf, into_reductions=False)
        self.row_variables = self._rows(shallow)
        self.wide = any(n.elem == "f64" and n.shape for n in self.nodes)
        self.native = target.vector_bytes // (8 if self.wide else 4)
        self.lane_variable = self._choose_lane()
        self.order = self._order()
        self.overwrites: tuple[Pair, ...] = ()
        self.next_rows = self._next_rows(shallow)
        self._stored: dict[tuple[int, Index], Val] = {}

    def allow_overwriting(self, wanted: Collection[Pair], elsewhere: frozenset[Node]) -> None:
        """Decide which of the wanted pairs may be the same memory."""
        points = prod(v.extent for v in self.nest.space.variables)
        stored = [
            Stored(r.number, r.output, at)
            for r, at in zip(self.nest.roots, self.nest.indices, strict=True)
            if prod(r.node.shape) == points
        ]
        self.overwrites = overwritable(
            wanted, stored, self.deep.uses, self.nodes, self.leaves, elsewhere
        )

    # -- choices ---------------------------------------------------------------------------------

    def _rows(self, shallow: Trace) -> tuple[Var, ...]:
        """Variables that index a reduction which is a loop of its own."""
        used = {
            v
            for node, at in shallow.reductions
            if prod(spec_of(node).extents) > reductions.UNROLLED_POINTS
            for i in at
            for v in i.variables()
        }
        return tuple(v for v in self.nest.space.variables if v in used)

    def _choose_lane(self) -> Var | None:
        candidates: list[Var | None] = [None, *self.nest.space.variables]
        return min(candidates, key=self._cost)

    def _cost(self, lane: Var | None) -> float:
        """Estimated element operations of the nest when `lane` runs through the vector."""
        rows = prod(v.extent for v in self.row_variables)
        everything = prod(v.extent for v in self.nest.space.variables)
        total = 0.0
        for a in self.deep.accesses:
            count = a.times * (rows if a.inner else everything)
            total += count * self._weight(a, lane)
        for r, at in zip(self.nest.roots, self.nest.indices, strict=True):
            offset = linear(at, r.output.strides)
            total += everything * 1.5 * self._weight(Access(offset, 1, ()), lane)
        total += everything * (0.25 if lane is None else 0.25 / min(lane.extent, self.native))
        return total

    def _weight(self, access: Access, lane: Var | None) -> float:
        """Cost of one element of an access.

        1 for a scalar or gathered one, less in a contiguous vector.
        """
        if access.inner and lane not in self.row_variables:
            best = [v for v in access.inner if self._is_smooth(access.offset, v) and v.extent >= 4]
            return min((1 / min(v.extent, self.native) for v in best), default=1.0)
        if lane is None:
            return 1.0
        if lane in access.offset.variables() and not self._is_smooth(access.offset, lane):
            return 1.0
        return 1 / min(lane.extent, self.native)

    def _is_smooth(self, offset: Index, v: Var) -> bool:
        nested = (a for a, _ in offset.terms if not isinstance(a, Var))
        return offset.coefficient(v) in (0, 1) and not any(v in of(a).variables() for a in nested)

    def _order(self) -> list[Var]:
        """Loops outside the lane loop, rows first."""
        variables = [v for v in self.nest.space.variables if v is not self.lane_variable]
        rows = [v for v in variables if v in self.row_variables]
        return rows + [v for v in variables if v not in self.row_variables]

    def _next_rows(self, shallow: Trace) -> list[tuple[Node, Index]]:
        """What to prefetch of the next row: nothing where the lanes run through rows."""
        lane = self.lane_variable
        if lane is None or not self.row_variables or lane in self.row_variables:
            return []
        return list(row_prefetch.next_rows(shallow.uses, self._task_variables()[-1], lane))

    # -- the kernel ------------------------------------------------------------------------------

    def kernel(self) -> Kernel:
        e = self.e = Emitter(self.native, frozenset((self.target.isa, *self.target.features)))
        bases = {
            p: e.pointer_argument("%ptrs", i) for p, i in self.leaves.items() if p in self.nodes
        }
        self.results = {r.number: e.pointer_argument("%ptrs", r.number) for r in self.nest.roots}
        self.v = Evaluator(e, bases)
        rows = plan_rows([r.node for r in self.nest.roots], self.leaves.__contains__)
        self.streamed = [r for r in self.nest.roots if self._is_streamed(r)]
        lane_rows = self.lane_variable is not None and self.lane_variable in self.row_variables
        self.v.rows = replace(rows, keep={}) if lane_rows else rows
        self.width = self._width(lane_rows)
        tasks = self._tasks()
        text = e.function(self.name, self.target.llvm_attributes())
        return Kernel(
            self.name,
            text,
            tasks,
            self._work(),
            externals=tuple(sorted(e.externals)),
            overwrites=self.overwrites,
        )

    def _is_streamed(self, root: Root) -> bool:
        if any(target == root.number for _, target in self.overwrites):
            return False  # its lines have been read, and a parameter may begin anywhere
        nbytes = root.output.size * bytes_of(root.output.stored)
        return nbytes >= STREAMED_BYTES and self.target.isa.startswith("x86")

    def _width(self, lane_rows: bool) -> int:
        """Lanes per step: several registers, to overlap latencies, where the body is small."""
        if self.lane_variable is None:
            return 1
        nodes = sum(1 for _ in self.nodes)
        is_random = any(n.op == random_bits.OP for n in self.nodes)  # a block fills several lanes
        most = 4 if lane_rows or nodes <= 12 or is_random else 2 if nodes <= 60 else 1
        width = self.native
        while width < most * self.native and width * 2 <= self.lane_variable.extent:
            width *= 2
        return width

    def _work(self) -> float:
        lane = self.lane_variable
        nodes = sum(1 for n in self.nodes if n.shape)
        nodes += sum(20 for n in self.nodes if n.op == random_bits.OP)
        return self._cost(lane) + 0.05 * nodes * max(r.output.size for r in self.nest.roots)

    def _tasks(self) -> int:
        """Write the loop over tasks; returns their number."""
        outer = self._task_variables()
        inner = [v for v in self.order if v not in outer]
        count = prod(v.extent for v in outer)
        block, blocks = self._blocks(count, inner)
        e = self.e

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            task = domain.variable(count * blocks)
            self.v.values[task] = t
            *positions, part = unravel(of(task), (*(v.extent for v in outer), blocks))
            for v, i in zip(outer, positions, strict=True):
                self.v.values[v] = self.v.scalar(i)
            self.v.buffers.clear()
            self._inner(inner, part, block)
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        if self.streamed:
            e.drain()
        return count * blocks

    def _task_variables(self) -> list[Var]:
        """Leading loops that become tasks.

        All rows at least where rows are reduced, until there are enough.
        """
        outer: list[Var] = []
        for v in self.order:
            if prod(x.extent for x in outer) >= TASKS_WANTED and self._enough_rows(outer):
                break
            if (
                self.row_variables
                and v not in self.row_variables
                and self.lane_variable not in self.row_variables
            ):
                break
            outer.append(v)
        return outer

    def _enough_rows(self, outer: list[Var]) -> bool:
        """Row buffers are filled once per task, so every row variable outside the lanes must be a
        task variable.
        """
        return all(v in outer for v in self.row_variables if v is not self.lane_variable)

    def _blocks(self, count: int, inner: list[Var]) -> tuple[int, int]:
        """Cut the lane loop into blocks of so many elements: (block, number of blocks)."""
        lane = self.lane_variable
        if lane is None:
            return 1, 1
        if lane in self.row_variables:
            return self.width, -(-lane.extent // self.width)
        if self.row_variables or count >= TASKS_WANTED or inner:
            return lane.extent, 1
        size = max(self.width, BLOCK_BYTES // (8 if self.wide else 4) // self.width * self.width)
        wanted = -(-lane.extent // max(1, TASKS_WANTED // count))
        block = min(size, max(self.width, -(-wanted // self.width) * self.width))
        block = max(block, self.width)
        return block, -(-lane.extent // block)

    def _inner(self, inner: list[Var], part: Index, block: int) -> None:
        lane = self.lane_variable
        if lane is None or lane in self.row_variables:
            self._rows_then(inner, part, block)
            return
        self._loops(inner, lambda: self._lane_loop(lane, part, block))

    def _rows_then(self, inner: list[Var], part: Index, block: int) -> None:
        """Lanes outside: fix the vector of rows, then loop over the rest."""
        lane = self.lane_variable
        if lane is None:
            self._loops(inner, lambda: self._point({}))
            return
        low = part * block
        whole = lane.extent // block * block

        def at(active: Val | None) -> None:
            self._loops(inner, lambda: self._lane_point(lane, low, block, active))

        if whole == lane.extent:
            at(None)
            return
        e = self.e
        left = lane.extent - whole
        if whole == 0:
            at(e.lane_mask(left, block))
            return
        last = e.compare("eq", self.v.scalar(part), e.index(whole // block))
        e.when(e.binary("arith.xori", last, e.const("i1", True)), lambda: at(None))
        e.when(last, lambda: at(e.lane_mask(left, block)))

    def _loops(self, inner: list[Var], body: Callable[[], None]) -> None:
        if not inner:
            body()
            return
        first, *rest = inner
        e = self.e

        def step(i: Val, _: tuple[Val, ...]) -> list[Val]:
            self.v.values[first] = i
            self._loops(rest, body)
            return []

        e.loop(e.index(0), e.index(first.extent), 1, step)

    def _lane_loop(self, lane: Var, part: Index, block: int) -> None:
        """Full vectors, then one partial vector."""
        e, width = self.e, self.width
        blocks = -(-lane.extent // block)
        low = self.v.scalar(part * block) if blocks > 1 else e.index(0)
        whole = lane.extent // width * width
        if blocks == 1:
            high = e.index(whole)
        else:
            high = e.binary("arith.minsi", e.add(low, e.index(block)), e.index(whole))

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            base = domain.stepping(whole, width)
            self.v.values[base] = i
            self._lane_point(lane, of(base), width, None)
            return []

        if whole:
            e.loop(low, high, width, body)
        if whole < lane.extent:
            mask = e.lane_mask(lane.extent - whole, width)
            last = lambda: self._lane_point(lane, Index(whole), width, mask)  # noqa: E731
            if blocks == 1:
                last()
            else:
                e.when(e.compare("eq", self.v.scalar(part), e.index(blocks - 1)), last)

    def _lane_point(self, lane: Var, base: Index, width: int, active: Val | None) -> None:
        if active is None:
            row_prefetch.prefetch(self.v, self.next_rows, lane, base, width)
        variable = self.v.fresh_var(width, is_lane=True)
        with self.v.vector(Lane(variable, width, active)):
            self._point({lane: base + of(variable)})

    def _point(self, values: dict[Var, Index]) -> None:
        """Evaluate and store every root here; row results do not vary with the lanes."""
        places = [tuple(i.substitute(values) for i in indices) for indices in self.nest.indices]
        pairs = zip(self.nest.roots, places, strict=True)
        made = ((root, at, self._value(root, at)) for root, at in pairs)
        # Where a store may change a parameter, everything is read before anything is written.
        for root, at, value in list(made) if self.overwrites else made:
            self._store(root, at, value)

    def _value(self, root: Root, at: Indices) -> Val:
        return narrow(self.e, self.v.value(root.node, at), root.output)

    def _store(self, root: Root, at: Indices, value: Val) -> None:
        offset = linear(at, root.output.strides)
        if self.v.varies(offset):
            base, streamed = self.results[root.number], root in self.streamed
            self.v.store(value, base, offset, value.elem, streamed=streamed)
        else:
            depth = self.v.depth_of(at)
            with self.e.outside(max(depth, value.depth)):
                self._store_row(root, value, offset)

    def _store_row(self, root: Root, value: Val, offset: Index) -> None:
        key = (root.number, offset)
        if self._stored.get(key) is value:
            return
        self._stored[key] = value
        self.v.store(value, self.results[root.number], offset, value.elem)
