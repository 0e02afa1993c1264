"""Large matrix products: blocks of both operands share the second-level cache.

In: as for `gemm`, but A may be any expression; it is read in place or packed. Out: one kernel. A
chunk of rows is multiplied with group after group of packed panels. Where all of k fits into one
block, sums never leave the registers before the epilogue; otherwise those of a span of panels wait
in memory while the blocks of k pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.a_block import ABlock
from neuron_compile.neff.codegen.contraction import Contraction, k_block
from neuron_compile.neff.codegen.epilogue import Inverse
from neuron_compile.neff.codegen.gemm import GemmKernel
from neuron_compile.neff.codegen.index import Index, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.packing import Packer
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.value import Val, bytes_of
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.target import Target

Tile = Callable[[Index, Index, int], None]  # panel, first row, number of rows

LEAST_WORK = 1 << 20  # multiply-adds below which the plain kernel does
WHOLE_K = 1024  # up to here all of k is one block
LONG_K = 4096  # the same where A is read in place
BLOCK_K = 512
GROUP_BYTES = 400 << 10  # of packed panels
CHUNK_BYTES = 800 << 10  # of a chunk's rows of A, one block of k long
SUM_BYTES = 400 << 10  # of sums that wait in memory
GRAIN_COLUMNS = 384  # packing A takes 4 % of the time of its product with so many


def pays(c: Contraction) -> bool:
    """Whether blocking pays: long sums over enough rows."""
    enough = c.k >= 96 and c.m >= 16 and c.m * c.n * c.k >= LEAST_WORK
    return enough and block_size(c, in_place=False) > 0


def block_size(c: Contraction, *, in_place: bool) -> int:
    """How much of the first reduced dimension a block takes; 0 where even one value is too much.

    An even cut if there is one near; otherwise the last block is partly empty.
    """
    first = c.reduced[0]
    inner = c.k // first
    if c.k <= (LONG_K if in_place else WHOLE_K):
        return first
    most = BLOCK_K * 4 // 3 // inner
    if most == 0:
        return 0
    fewest = -(-first // most)
    for blocks in range(fewest, 2 * fewest):
        if first % blocks == 0 and (first // blocks * inner) % 2 == 0:
            return first // blocks
    even = -(-first // fewest)
    return even + (even * inner) % 2


class BlockedGemm(GemmKernel):
    """The product kernel with packed rows and, for long sums, an outer loop over k."""

    def __init__(
        self,
        c: Contraction,
        roots: Sequence[tuple[Root, Inverse]],
        leaves: Mapping[Node, int],
        name: str,
        target: Target,
        *,
        reads_a: bool = False,
    ) -> None:
        """`reads_a`: A is read where it lies, unless a block of k reaches past its end."""
        super().__init__(c, roots, leaves, name, target)
        size = block_size(c, in_place=reads_a)
        self.blocks = -(-c.reduced[0] // size)
        self.block = domain.variable(self.blocks)
        self.part = k_block(c, of(self.block), size)
        self.packer = Packer(self.v, self.part, self.packer.layout, self.computed)
        element = bytes_of(self._panel_elem)
        self.group = max(1, min(self.panels, GROUP_BYTES // (self.panel_elements * element)))
        self.reads_a = reads_a and c.reduced[0] % size == 0
        self.block_of_a = ABlock(
            self.v, self.part, self._panel_elem, self.lanes, self.tile.rows, paired=self.paired
        )

    def kernel(self, packed: int | None = None) -> Kernel:
        """Tasks are as for the plain kernel; those of one call are taken in spans."""
        assert packed is None, "blocks are never packed ahead"
        c, e = self.c, self.e
        chunks = self._chunks()
        tasks = prod(c.batch) * chunks * self.panels
        self.rows = -(-(c.m // self.tile.rows) // chunks) * self.tile.rows + c.m % self.tile.rows
        self.span = self._span()
        kept = self.span * self.rows if self.blocks > 1 else self.tile.rows
        if not self.reads_a:
            self.block_of_a.allocate(self.rows, self.computed)
        self.panel_block = e.local(self._panel_elem, self.group * self.panel_elements)
        self.sums = e.local(self.elem, kept * self.width)
        begin, end = Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0)

        def body(state: tuple[Val, ...]) -> list[Val]:
            number = domain.variable(max(tasks, 2))
            self.v.values[number] = state[0]
            *batch, chunk, panel = unravel(of(number), (*c.batch, chunks, self.panels))
            fixed = tuple(self._variable(i, n) for i, n in zip(batch, c.batch, strict=True))
            first = self._variable(panel, self.panels)
            left = e.sub(e.index(self.panels), self.v.scalar(first))
            count = e.binary("arith.minsi", e.sub(end, state[0]), left)
            count = e.binary("arith.minsi", count, e.index(self.span))
            self._products(fixed, self._variable(chunk, chunks), chunks, first, count)
            return [e.add(state[0], count)]

        e.while_loop([begin], lambda state: e.compare("slt", state[0], end), body)
        text = e.function(self.name, self.target.llvm_attributes())
        externals = tuple(sorted(e.externals))
        return Kernel(self.name, text, tasks, self._work(), (), externals, self._grain())

    def _chunks(self) -> int:
        """Parts of the rows that are packed or summed together, more where panels are few."""
        panels = prod(self.c.batch) * self.panels
        most = max(1, self.c.m // (2 * self.tile.rows))
        block = self.c.m * self.block_of_a.row_bytes
        parts = 1 if self.reads_a and self.blocks == 1 else -(-block // CHUNK_BYTES)
        return max(1, min(max(parts, -(-4 // panels)), most))

    def _grain(self) -> int:
        """Panels that are worth a thread's turn: a group, or as many as repay packing their A."""
        return self.group if self.reads_a else min(self.panels, -(-GRAIN_COLUMNS // self.width))

    def _span(self) -> int:
        """Panels that a block of A meets before the next one is packed."""
        if self.blocks == 1:
            return self.panels
        per_panel = self.rows * self.width * bytes_of(self.elem)
        return max(1, min(self.panels, SUM_BYTES // per_panel))

    def _products(
        self, batch: Indices, chunk: Index, chunks: int, first: Index, count: Val
    ) -> None:
        """A chunk of rows times `count` panels from `first` on, and the epilogue."""
        e, v = self.e, self.v
        start = domain.variable(max(2, self.c.m // self.tile.rows))
        v.values[start] = self._first_tile(chunk, chunks)
        self.origin = origin = of(start) * self.tile.rows
        after = e.add(v.scalar(first), count)

        def place(panel: Index, row: Index) -> Index:
            return (panel - first) * self.rows + (row - origin)

        def at_once(panel: Index, row: Index, rows: int) -> None:
            self._store_sums(self._multiply(batch, row, rows), self.sums)
            self._finish(batch, panel, row, rows, Index(0))

        def clear(panel: Index, row: Index, rows: int) -> None:
            zero = e.const(self.elem, 0, self.lanes)
            self._store_sums([zero] * (rows * self.tile.vectors), self._sums_at(place(panel, row)))

        def add(panel: Index, row: Index, rows: int) -> None:
            at = self._sums_at(place(panel, row))
            before = [
                e.load(e.gep(at, i * self.lanes, self.elem), self.elem, self.lanes, constant=False)
                for i in range(rows * self.tile.vectors)
            ]
            block = self._multiply(batch, row, rows)
            self._store_sums(
                [self.product.add(b, x) for b, x in zip(before, block, strict=True)], at
            )

        def finish(panel: Index, row: Index, rows: int) -> None:
            self._finish(batch, panel, row, rows, place(panel, row))

        def block(i: Val, _: tuple[Val, ...]) -> list[Val]:
            v.values[self.block] = i
            if not self.reads_a:
                self.block_of_a.pack(batch, origin, self._last_row(chunk, chunks))
            tile = at_once if self.blocks == 1 else add
            self._groups(batch, chunk, chunks, v.scalar(first), after, tile)
            return []

        if self.blocks == 1:
            block(e.index(0), ())
            return
        self._each_panel(chunk, chunks, v.scalar(first), after, clear)
        e.loop(e.index(0), e.index(self.blocks), 1, block)
        self._each_panel(chunk, chunks, v.scalar(first), after, finish)

    def _finish(self, batch: Indices, panel: Index, row: Index, rows: int, sums: Index) -> None:
        """The epilogue of one register tile whose sums begin at row `sums` of the buffer."""
        self._epilogue(batch, row, rows, sums, panel * self.width, self._columns(panel))

    def _last_row(self, chunk: Index, chunks: int) -> Val:
        """The row after a chunk's last one."""
        e, size = self.e, self.tile.rows
        end = e.mul(self._first_tile(chunk + 1, chunks), e.index(size))
        if not self.c.m % size:
            return end
        final = e.compare("eq", self.v.scalar(chunk), e.index(chunks - 1))
        return e.select(final, e.index(self.c.m), end)

    def _a(self, batch: Indices, row: Index, position: Index) -> Val:
        """One element (or pair) of A in all lanes."""
        if self.reads_a:
            return super()._a(batch, row, position)
        return self.block_of_a.element(row - self.origin, position)

    def _sums_at(self, row: Index) -> Val:
        return self.e.gep(self.sums, self.v.scalar(row * self.width), self.elem)

    def _groups(
        self, batch: Indices, chunk: Index, chunks: int, first: Val, after: Val, tile: Tile
    ) -> None:
        """Pack panels `first` .. `after` in groups and call `tile` for their register tiles."""
        e, v = self.e, self.v

        def body(g: Val, _: tuple[Val, ...]) -> list[Val]:
            start = domain.variable(self.panels)
            v.values[start] = g
            end = e.binary("arith.minsi", e.add(g, e.index(self.group)), after)
            self._pack_group(batch, of(start), end)
            each = self._each_row if self.reads_a else self._each_panel
            each(chunk, chunks, g, end, tile)
            return []

        e.loop(first, after, self.group, body)

    def _each_panel(self, chunk: Index, chunks: int, first: Val, after: Val, tile: Tile) -> None:
        """`tile(panel, row, rows)` for every register tile of panels `first` .. `after`."""
        self._panels(
            first,
            after,
            lambda panel: self._tiles(chunk, chunks, lambda row, rows: tile(panel, row, rows)),
        )

    def _each_row(self, chunk: Index, chunks: int, first: Val, after: Val, tile: Tile) -> None:
        """The same, row by row: A is read from afar once per group, whatever the number of rows."""
        self._tiles(
            chunk,
            chunks,
            lambda row, rows: self._panels(first, after, lambda panel: tile(panel, row, rows)),
        )

    def _panels(self, first: Val, after: Val, each: Callable[[Index], None]) -> None:
        """`each(panel)` for panels `first` .. `after` of the packed group."""
        e, v = self.e, self.v

        def body(j: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = domain.variable(self.panels)
            v.values[panel] = j
            offset = e.mul(e.sub(j, first), e.index(self.panel_elements))
            self.panel = e.gep(self.panel_block, offset, self._panel_elem)
            each(of(panel))
            return []

        e.loop(first, after, 1, body)

    def _pack_group(self, batch: Indices, first: Index, after: Val) -> None:
        """Pack panels `first` .. `after`; the matrix's last panel may have fewer columns."""
        e, rest = self.e, self.c.n % self.width
        size = self.panel_elements
        count = e.sub(after, self.v.scalar(first))
        if not rest:
            self.packer.pack_group(self.panel_block, batch, first, count, size)
            return
        is_last = e.compare("eq", after, e.index(self.panels))
        whole = e.sub(count, e.cast("arith.extui", is_last, "i64"))
        self.packer.pack_group(self.panel_block, batch, first, whole, size)

        def last() -> None:
            target = e.gep(self.panel_block, e.mul(whole, e.index(size)), self._panel_elem)
            column = Index((self.panels - 1) * self.width)
            self.packer.pack(target, batch, column, self.width, e.index(rest))

        e.when(is_last, last)
