"""The matrix-product kernel.

Packed panels of B, register tiles of C, an epilogue evaluated on each tile.

In: a `Contraction` whose A lies in memory, and the roots to store. Out: one kernel. A task is a
panel of columns of one batch entry, over a chunk of rows. Sums are in f32 for f32 and narrower
floats, exact for integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.contraction import Contraction
from neuron_compile.neff.codegen.elementwise import convert, narrow
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.epilogue import Inverse
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane
from neuron_compile.neff.codegen.index import Index, Var, contiguous_strides, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.packing import Packer, PanelLayout
from neuron_compile.neff.codegen.program import Node, Tensor
from neuron_compile.neff.codegen.tile_product import TileProduct
from neuron_compile.neff.codegen.value import Val, bits_of, bytes_of
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.target import Target

# A task's own panel: on the stack, and mostly in the second-level cache.
PANEL_BYTES = 3 << 19


@dataclass(frozen=True, slots=True)
class Shape:
    """A register tile: `rows` x `vectors` accumulators."""

    rows: int
    vectors: int


def compute_tensor(c: Contraction) -> Tensor:
    """Type of the products and sums."""
    elem = c.node.elem
    return Tensor(c.node.shape, "f32" if elem in ("f16", "bf16") else elem, c.node.tensor.strides)


def is_paired(c: Contraction, target: Target) -> bool:
    """Products of bfloat16 pairs by one instruction (AVX512-BF16)."""
    both = c.a.elem == "bf16" and c.b.elem == "bf16" and c.node.elem in ("bf16", "f32")
    return both and c.k % 2 == 0 and target.has("avx512_bf16")


def vector_lanes(c: Contraction, target: Target) -> int:
    """Accumulators per vector register."""
    return target.vector_bytes * 8 // max(bits_of(compute_tensor(c).signless), 32)


def tile_shape(c: Contraction, target: Target) -> Shape:
    """The register tile with the least estimated time."""
    return min(_shapes(c, target), key=lambda s: _time(c, s, vector_lanes(c, target)))


def tile_time(c: Contraction, target: Target) -> float:
    """Estimated cycles of one batch entry with the best register tile."""
    lanes = vector_lanes(c, target)
    return c.k * min(_time(c, s, lanes) for s in _shapes(c, target))


def _shapes(c: Contraction, target: Target) -> Iterator[Shape]:
    """Tiles that leave registers for the row of B and an element of A.

    Of 32 registers three more stay free: with all in use LLVM keeps sums on the stack.
    """
    registers = 16 if target.isa == "x86-64-v3" else 29
    lanes = vector_lanes(c, target)
    for vectors in (2, 1, 3, 4):
        if vectors > 1 and _panel_bytes(c, vectors * lanes) > PANEL_BYTES:
            continue
        for rows in range(min((registers - 1 - vectors) // vectors, c.m), 0, -1):
            yield Shape(rows, vectors)


def _panel_bytes(c: Contraction, width: int) -> int:
    return c.k * width * bytes_of(compute_tensor(c).signless)


def _time(c: Contraction, s: Shape, lanes: int) -> float:
    """Cycles per k: whole tiles and the rest, and packing a panel once for all rows."""
    panels = -(-c.n // (s.vectors * lanes))
    whole, rest = divmod(c.m, s.rows)
    tiles = whole * _step(s.rows, s.vectors) + (_step(rest, s.vectors) if rest else 0.0)
    return panels * (tiles + 2.0 * s.vectors)


def _step(rows: int, vectors: int) -> float:
    """Cycles of one step of k, or the latency of a sum, whatever takes longest.

    Two products per cycle, and something for each load of B and each element of A. The weights
    are fitted: 8x3 is 4-8 % faster than 13x2 (products 256x768x3072), 6x4 within 1 % of 8x3, and
    27x1 reached 0.8 of 12x2 (a convolution of 256 channels).
    """
    return max(rows * vectors / 2 + 0.7 * vectors + 0.35 * rows, 4.0)


def reads_b_along(c: Contraction, leaves: Mapping[Node, int], *, k: bool) -> bool:
    """Whether B is read without conditions, in vectors along k (else along the columns).

    B may be a function of what lies in memory. Never with several reduced dimensions.
    """
    if len(c.reduced) != 1:
        return False
    columns, depth = domain.variable(c.n), domain.variable(c.k)
    batch = tuple(of(domain.variable(x)) for x in c.batch)
    source = c.b_source(batch, of(columns), (of(depth),))
    if source.conditions:
        return False
    found = trace([(source.operand, source.indices)], leaves.__contains__)
    steps = [a.offset.coefficient(depth if k else columns) for a in found.accesses]
    return not found.reductions and 1 in steps and all(s in (0, 1) for s in steps)


class GemmKernel:
    """Writes the kernel."""

    def __init__(
        self,
        c: Contraction,
        roots: Sequence[tuple[Root, Inverse]],
        leaves: Mapping[Node, int],
        name: str,
        target: Target,
        *,
        tile: Shape | None = None,
    ) -> None:
        """`tile`: that of a kernel which packs nothing."""
        self.c, self.roots, self.leaves, self.name, self.target = c, roots, leaves, name, target
        self.computed = compute_tensor(c)
        self.elem = self.computed.signless
        self.lanes = vector_lanes(c, target)
        self.paired = tile is None and is_paired(c, target)  # pairs are made by packing
        self.tile = tile or tile_shape(c, target)
        self.width = self.tile.vectors * self.lanes
        self.e = Emitter(self.lanes, frozenset((target.isa, *target.features)))
        self.v = Evaluator(
            self.e, {n: self.e.pointer_argument("%ptrs", i) for n, i in leaves.items()}
        )
        self.part = c  # what one panel covers of k
        layout = PanelLayout(self.width, self.lanes, self.elem, self.paired)
        self.packer = Packer(self.v, self.part, layout, self.computed)
        self.product = TileProduct(self.v, self.elem, self.lanes, self.tile.vectors, self.paired)
        self.results = {r.number: self.e.pointer_argument("%ptrs", r.number) for r, _ in roots}

    @property
    def panels(self) -> int:
        """Panels of one batch entry."""
        return -(-self.c.n // self.width)

    @property
    def panel_elements(self) -> int:
        return max(1, self.part.k) * self.width

    @property
    def packed_tensor(self) -> Tensor:
        """All panels of B, packed."""
        shape = (prod(self.c.batch), self.panels, self.panel_elements)
        return Tensor(shape, self._panel_elem, contiguous_strides(shape))

    @property
    def _panel_elem(self) -> str:
        return "i16" if self.paired else self.elem

    def packs_ahead(self) -> bool:
        """Whether panels are too long for a thread's own memory, so that a kernel before packs all.

        Only then: reading panels back from shared memory costs a third of the speed.
        """
        return _panel_bytes(self.c, self.width) > PANEL_BYTES

    def pack_kernel(self, pointer: int) -> Kernel:
        """Packs all panels into the buffer `pointer`, one task per panel."""
        base = self.e.pointer_argument("%ptrs", pointer)

        def task(batch: Indices, _: Index, panel: Index) -> None:
            self._pack(batch, panel, self._packed_panel(base, batch, panel))

        work = prod(self.c.batch) * self.c.n * self.c.k * 0.2
        return self._over_tasks(1, task, work, f"{self.name}_pack")

    def kernel(self, packed: int | None = None) -> Kernel:
        """The product; `packed` is the pointer of B's panels if they are packed already."""
        chunks = self._chunks()
        self.sums = self.e.local(self.elem, self.tile.rows * self.width)
        if packed is None:
            local = self.e.local(self._panel_elem, self.panel_elements)
        else:
            base = self.e.pointer_argument("%ptrs", packed)

        def task(batch: Indices, chunk: Index, panel: Index) -> None:
            first, columns = panel * self.width, self._columns(panel)
            if packed is None:
                self.panel = local
                self._pack(batch, panel, local)
            else:
                self.panel = self._packed_panel(base, batch, panel)
            self._tiles(
                chunk,
                chunks,
                lambda row, rows: self._tile(batch, row, rows, first, columns),
            )

        return self._over_tasks(chunks, task, self._work(), self.name)

    def _packed_panel(self, base: Val, batch: Indices, panel: Index) -> Val:
        shape = self.packed_tensor.shape
        entry = linear(batch, contiguous_strides(self.c.batch))
        offset = linear((entry, panel), (shape[1] * shape[2], shape[2]))
        return self.e.gep(base, self.v.scalar(offset), self._panel_elem)

    def _over_tasks(
        self, chunks: int, task: Callable[[Indices, Index, Index], None], work: float, name: str
    ) -> Kernel:
        """A kernel whose tasks are (batch entry, chunk of rows, panel), the panels innermost."""
        c, e = self.c, self.e
        tasks = prod(c.batch) * chunks * self.panels

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            number = domain.variable(tasks)
            self.v.values[number] = t
            *batch, chunk, panel = unravel(of(number), (*c.batch, chunks, self.panels))
            fixed = tuple(self._variable(i, n) for i, n in zip(batch, c.batch, strict=True))
            task(fixed, self._variable(chunk, chunks), self._variable(panel, self.panels))
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        text = e.function(name, self.target.llvm_attributes())
        return Kernel(name, text, tasks, work, (), tuple(sorted(e.externals)))

    def _variable(self, index: Index, extent: int) -> Index:
        """A loop variable that holds an index computed once."""
        if not index.terms:
            return index
        v = domain.variable(extent)
        self.v.values[v] = self.v.scalar(index)
        return of(v)

    def _work(self) -> float:
        per_nanosecond = 2.5 * self.lanes * (2 if self.paired else 1) * 2
        c = self.c
        return prod(c.batch) * (
            c.m * c.n * c.k / per_nanosecond + c.n * c.k * 0.1 + c.m * c.n * 0.2
        )

    def _chunks(self) -> int:
        """Cut the rows only where too few panels share the work: each part packs again."""
        c = self.c
        panels = prod(c.batch) * self.panels
        if panels >= 8:
            return 1
        most = max(1, c.m // (2 * self.tile.rows))
        return max(1, min(-(-8 // panels), most, c.m // max(1, c.k // 16)))

    # -- one task --------------------------------------------------------------------------------

    def _pack(self, batch: Indices, panel: Index, to: Val) -> None:
        """Pack one panel; the last one may have fewer columns."""
        e, pack = self.e, self.packer.pack
        first, rest = panel * self.width, self.c.n % self.width
        if not rest:
            pack(to, batch, first, self.width, None)
        elif self.panels == 1:
            pack(to, batch, first, self.width, e.index(rest))
        else:
            last = e.compare("eq", self.v.scalar(panel), e.index(self.panels - 1))
            whole = e.binary("arith.xori", last, e.const("i1", True))
            e.when(whole, lambda: pack(to, batch, first, self.width, None))
            e.when(last, lambda: pack(to, batch, first, self.width, e.index(rest)))

    def _columns(self, panel: Index) -> Val | None:
        """Columns of a panel, None where every panel is full."""
        e, rest = self.e, self.c.n % self.width
        if not rest:
            return None
        if self.panels == 1:
            return e.index(rest)
        last = e.compare("eq", self.v.scalar(panel), e.index(self.panels - 1))
        return e.select(last, e.index(rest), e.index(self.width))

    def _tiles(self, chunk: Index, chunks: int, tile: Callable[[Index, int], None]) -> None:
        """Call `tile(row, rows)` for all register tiles of a chunk of rows."""
        e, m, size = self.e, self.c.m, self.tile.rows
        whole = m // size

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            number = domain.variable(max(whole, 2))
            self.v.values[number] = i
            tile(of(number) * size, size)
            return []

        if whole:
            e.loop(self._first_tile(chunk, chunks), self._first_tile(chunk + 1, chunks), 1, body)
        if m % size:
            if chunks == 1:
                tile(Index(whole * size), m % size)
            else:
                final = e.compare("eq", self.v.scalar(chunk), e.index(chunks - 1))
                e.when(final, lambda: tile(Index(whole * size), m % size))

    def _first_tile(self, chunk: Index, chunks: int) -> Val:
        e, whole = self.e, self.c.m // self.tile.rows
        if not chunk.terms:
            return e.index(chunk.constant * whole // chunks)
        return e.binary("arith.divui", self.v.scalar(chunk * whole), e.index(chunks))

    def _tile(
        self, batch: Indices, row: Index, rows: int, first: Index, columns: Val | None
    ) -> None:
        """One register tile from products to results."""
        self._store_sums(self._multiply(batch, row, rows), self.sums)
        self._epilogue(batch, row, rows, Index(0), first, columns)

    def _store_sums(self, sums: Sequence[Val], to: Val) -> None:
        for i, total in enumerate(sums):
            self.e.store(total, self.e.gep(to, i * self.lanes, self.elem))

    # -- products --------------------------------------------------------------------------------

    def _multiply(self, batch: Indices, row: Index, rows: int) -> Sequence[Val]:
        """Sums of a register tile over the k of a panel."""
        count = self.part.k // (2 if self.paired else 1)

        def a(r: int, position: Index) -> Val:
            return self._a(batch, row + r, position)

        return self.product.sums(rows, count, a, self.panel, self.width)

    def _a(self, batch: Indices, row: Index, position: Index) -> Val:
        """One element (or pair) of A in all lanes."""
        v, e, c = self.v, self.e, self.part
        if self.paired:
            source = c.a_source(batch, row, position * 2)
            tensor = source.operand.tensor
            offset = linear(source.indices, tensor.strides)
            moving = Index(0, offset.terms)
            base = e.gep(v.bases[source.operand], v.scalar(moving), "i16")
            pair = e.load(e.gep(base, offset.constant, "i16"), "i32")
            return e.bitcast_lanes(e.splat(pair, self.lanes), "bf16", 2 * self.lanes)
        source = c.a_source(batch, row, position)
        with v.vector(None):
            value = v.value(source.operand, source.indices)
        return e.splat(convert(e, value, source.operand.tensor, self.computed), self.lanes)

    # -- epilogue --------------------------------------------------------------------------------

    def _epilogue(
        self,
        batch: Indices,
        row: Index,
        rows: int,
        buffered: Index,  # the rows' first row in the buffer of sums
        first: Index,
        columns: Val | None,
    ) -> None:
        """Row by row, vector by vector.

        Evaluate every root with the sum in place of the contraction.
        """
        e, v = self.e, self.v

        def per_row(r: Val, _: tuple[Val, ...]) -> list[Val]:
            inner = domain.variable(max(rows, 2))
            v.values[inner] = r

            def per_vector(j: Val, _: tuple[Val, ...]) -> list[Val]:
                part = domain.stepping(self.width, self.lanes)
                v.values[part] = j
                self._vector(
                    batch,
                    row + of(inner),
                    buffered + of(inner),
                    first,
                    of(part),
                    self._mask(j, columns),
                )
                return []

            limit = e.index(self.width) if columns is None else columns
            e.loop(e.index(0), limit, self.lanes, per_vector)
            return []

        e.loop(e.index(0), e.index(rows), 1, per_row)

    def _mask(self, j: Val, columns: Val | None) -> Val | None:
        if columns is None:
            return None
        e = self.e
        return e.compare("slt", e.lane_ids(self.lanes), e.splat(e.sub(columns, j), self.lanes))

    def _vector(
        self,
        batch: Indices,
        row: Index,
        inner: Index,
        first: Index,
        part: Index,
        active: Val | None,
    ) -> None:
        v, c = self.v, self.c
        variable = v.fresh_var(self.lanes, is_lane=True)
        with v.vector(Lane(variable, self.lanes)):
            place = inner * self.width + part + of(variable)
            span = 1 << 40  # the sums of this tile are in range
            total = v.load_offset(self.sums, place, self.elem, span, None, constant=False)
        # Results' places are found for a column that exists: past the last one no lane is active.
        column = domain.variable(max(c.n, 2))
        actual = {column: first + part + of(variable)}
        at = c.at(batch, row, of(column))
        with v.vector(Lane(variable, self.lanes, active)):
            v.forget()
            v.fixed[c.node] = total
            for root, inverse in self.roots:
                where = tuple(i.substitute(actual) for i in inverse.root_at(at))
                value = narrow(self.e, v.value(root.node, where), root.output)
                offset = linear(where, root.output.strides)
                v.store(value, self.results[root.number], offset, value.elem)
            del v.fixed[c.node]


def lane_cost(offset: Index, variable: Var) -> int:
    """0 where a vector along `variable` is contiguous, 1 where it is scattered."""
    nested = (a for a, _ in offset.terms if not isinstance(a, Var))
    if any(variable in of(a).variables() for a in nested):
        return 1
    return 0 if offset.coefficient(variable) in (0, 1) else 1
