"""A block of A in thread-local memory.

Rows of a chunk by a block of k, as the register tiles read it.

In: a contraction over one block of k, whose A may be any expression. Out: a packed copy and its
elements. Where A is contiguous along k, so is each row of the copy. Otherwise `height` rows lie
side by side, those of a register tile unless that is taller than a vector: one step of k reads a
short piece of memory, the next step the one behind it. Rows, or bundles of rows, are padded by a
cache line, so that those a power of two apart do not share cache sets.
"""

from __future__ import annotations

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import in_memory, trace
from neuron_compile.neff.codegen.contraction import Contraction
from neuron_compile.neff.codegen.elementwise import convert, to_bfloat16
from neuron_compile.neff.codegen.emitter import LINE_BYTES
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane
from neuron_compile.neff.codegen.index import Index, of
from neuron_compile.neff.codegen.program import Tensor
from neuron_compile.neff.codegen.value import Val, bytes_of
from neuron_compile.neff.codegen.views import Indices

AHEAD = 8  # steps of k between prefetching and copying (products of 2048 rows: 4-8 % faster)


class ABlock:
    """`elem`: the element type of the copy (`i16`: bits of bfloat16, always with k contiguous).

    `tile_rows`: the height of a register tile.
    """

    def __init__(
        self, v: Evaluator, c: Contraction, elem: str, lanes: int, tile_rows: int, *, paired: bool
    ) -> None:
        self.v, self.c, self.elem, self.lanes, self.paired = v, c, elem, lanes, paired
        self.height = min(tile_rows, lanes)
        self.along_rows = not paired and self._rows_are_contiguous()
        along = c.k * (self.height if self.along_rows else 1)
        self.stride = -(-along // lanes) * lanes + LINE_BYTES // bytes_of(elem)

    @property
    def row_bytes(self) -> int:
        """Of the copy, its padding included."""
        return -(-self.stride // (self.height if self.along_rows else 1)) * bytes_of(self.elem)

    def _rows_are_contiguous(self) -> bool:
        """Whether most accesses of A are contiguous along its rows rather than along k."""
        m, k = domain.variable(self.c.m), domain.variable(self.c.k)
        batch = tuple(of(domain.variable(n)) for n in self.c.batch)
        source = self.c.a_source(batch, of(m), of(k))
        found = trace([(source.operand, source.indices)], lambda n: n in self.v.bases).offsets()
        rows = sum(o.coefficient(m) == 1 for o in found)
        return rows > sum(o.coefficient(k) == 1 for o in found)

    def allocate(self, rows: int, computed: Tensor) -> None:
        """Memory for `rows` rows of products' type `computed`."""
        self.computed = computed
        count = rows
        if self.along_rows:  # all pieces that vectors of rows are cut into, past the last row too
            count = -(-rows // self.height) + self.lanes // self.height
        self.memory = self.v.e.local(self.elem, count * self.stride)

    def pack(self, batch: Indices, first: Index, end: Val) -> None:
        """Copy rows `first` .. `end` (i64, exclusive)."""
        if self.along_rows:
            self._pack_along_rows(batch, first, end)
        else:
            self._pack_along_k(batch, first, end)

    def element(self, row: Index, position: Index) -> Val:
        """A(row, position) in all lanes, `row` counted within the block; a pair where paired."""
        e = self.v.e
        k = position * 2 if self.paired else position
        offset = row * self.stride + k
        if self.along_rows:
            offset = row // self.height * self.stride + k * self.height + row % self.height
        moving = Index(0, offset.terms)
        base = e.gep(self.memory, self.v.scalar(moving), self.elem) if moving.terms else self.memory
        address = e.gep(base, offset.constant, self.elem)
        if self.paired:
            pair = e.load(address, "i32", constant=False)
            return e.bitcast_lanes(e.splat(pair, self.lanes), "bf16", 2 * self.lanes)
        return e.splat(e.load(address, self.elem, constant=False), self.lanes)

    def _pack_along_k(self, batch: Indices, first: Index, end: Val) -> None:
        e, v, k = self.v.e, self.v, self.c.k
        whole = k // self.lanes * self.lanes

        def per_row(i: Val, _: tuple[Val, ...]) -> list[Val]:
            row = domain.variable(max(self.c.m, 2))
            v.values[row] = i

            def per_vector(j: Val, _: tuple[Val, ...]) -> list[Val]:
                start = domain.stepping(whole, self.lanes)
                v.values[start] = j
                self._copy(batch, of(row), of(start), first, None)
                return []

            if whole:
                e.loop(e.index(0), e.index(whole), self.lanes, per_vector)
            if k % self.lanes:
                mask = e.lane_mask(k % self.lanes, self.lanes)
                self._copy(batch, of(row), Index(whole), first, mask)
            return []

        e.loop(v.scalar(first), end, 1, per_row)

    def _pack_along_rows(self, batch: Indices, first: Index, end: Val) -> None:
        e, v = self.v.e, self.v
        pieces = self.lanes // self.height
        at_once = pieces * self.height
        count = e.sub(end, v.scalar(first))
        groups = e.binary("arith.divui", e.add(count, e.index(at_once - 1)), e.index(at_once))

        def per_k(j: Val, _: tuple[Val, ...]) -> list[Val]:
            position = domain.variable(max(self.c.k, 2))
            v.values[position] = j

            def per_group(i: Val, _: tuple[Val, ...]) -> list[Val]:
                group = domain.variable(max(-(-self.c.m // at_once), 2))
                v.values[group] = i
                row = first + of(group) * at_once
                self._prefetch(batch, row, of(position) + AHEAD)
                left = e.splat(e.sub(end, v.scalar(row)), self.lanes)
                mask = e.compare("slt", e.lane_ids(self.lanes), left)
                value = self._vector(batch, row, of(position), mask)
                for piece in range(pieces):
                    bundle = of(group) * pieces + piece
                    offset = v.scalar(bundle * self.stride + of(position) * self.height)
                    lanes = range(piece * self.height, (piece + 1) * self.height)
                    part = e.shuffle(value, value, list(lanes))
                    e.store(part, e.gep(self.memory, offset, self.elem))
                return []

            e.loop(e.index(0), groups, 1, per_group)
            return []

        e.loop(e.index(0), e.index(self.c.k), 1, per_k)

    def _prefetch(self, batch: Indices, row: Index, k: Index) -> None:
        """Fetch the line that is copied some steps of k later.

        Steps of k lie a row of memory apart: the processor sees no stream in them.
        """
        v, e = self.v, self.v.e
        source = self.c.a_source(batch, row, k.bounded(0, self.c.k - 1))
        found = in_memory(source, v.bases.__contains__)
        if found is not None:
            node, offset = found
            e.prefetch(e.gep(v.bases[node], v.scalar(offset), node.tensor.stored))

    def _copy(self, batch: Indices, row: Index, k: Index, first: Index, active: Val | None) -> None:
        """One vector along k."""
        value = self._vector(batch, row, k, active)
        offset = self.v.scalar((row - first) * self.stride + k)
        self.v.e.store(value, self.v.e.gep(self.memory, offset, self.elem), active)

    def _vector(self, batch: Indices, row: Index, k: Index, active: Val | None) -> Val:
        """One vector of A along k or along the rows, as it is kept."""
        v, e = self.v, self.v.e
        variable = v.fresh_var(self.lanes, is_lane=True)
        if self.along_rows:
            row = row + of(variable)
        else:
            k = k + of(variable)
        with v.vector(Lane(variable, self.lanes, active)):
            source = self.c.a_source(batch, row, k)
            value, condition = v.from_source(source, None)
            value = convert(e, e.splat(value, self.lanes), source.operand.tensor, self.computed)
            if condition is not None:
                value = e.select(condition, value, e.const(value.elem, 0, self.lanes))
            return to_bfloat16(e, value) if self.paired else value
