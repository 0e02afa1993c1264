"""Products of a few rows, such as those of one new token: every weight is read once, unpacked.

In: a `Contraction` with at most MOST_ROWS rows whose operands both lie along k. Out: one kernel. A
task is a panel of `lanes` columns; their dot products run along k, a few columns and all rows at a
time, and are added across lanes in the end by transposing them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.contraction import Contraction
from neuron_compile.neff.codegen.elementwise import convert
from neuron_compile.neff.codegen.epilogue import Inverse
from neuron_compile.neff.codegen.evaluate import Lane
from neuron_compile.neff.codegen.gemm import GemmKernel, Shape, reads_b_along, vector_lanes
from neuron_compile.neff.codegen.index import Index, of
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root
from neuron_compile.neff.codegen.packing import transpose
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.value import Val, bytes_of
from neuron_compile.neff.codegen.views import Indices, Source
from neuron_compile.neff.target import Target

MOST_ROWS = 4
LEAST_K = 64
COLUMNS = 4  # whose dot products run side by side
# Weights beyond the second-level cache are asked for two groups of columns ahead: 25 -> 29 GB/s
# (3072 columns of 768 on one core); those within it come slower for it.
AHEAD = 2 * COLUMNS
FAR_BYTES = 1 << 20


def pays(c: Contraction, leaves: Mapping[Node, int], target: Target) -> bool:
    """Whether few rows meet weights that lie along k."""
    few = c.m <= MOST_ROWS and c.n >= vector_lanes(c, target)
    fits = few and c.k >= LEAST_K and c.node.elem != "i1"
    return fits and reads_b_along(c, leaves, k=True)


class DotRows(GemmKernel):
    """Writes the kernel. A must lie in memory with k contiguous."""

    def __init__(
        self,
        c: Contraction,
        roots: Sequence[tuple[Root, Inverse]],
        leaves: Mapping[Node, int],
        name: str,
        target: Target,
    ) -> None:
        super().__init__(c, roots, leaves, name, target, tile=Shape(c.m, 1))
        far = c.n * c.k * bytes_of(self.elem) > FAR_BYTES
        self.fetched = self.packer.leaf if far and not c.batch else None

    def kernel(self, packed: int | None = None) -> Kernel:
        """One task per panel and batch entry."""
        assert packed is None, "nothing is packed"
        e, lanes = self.e, self.lanes
        self.sums = e.local(self.elem, self.c.m * lanes)
        self.partial = e.local(self.elem, self.c.m * lanes * lanes)  # [row][column][lane]

        def task(batch: Indices, _: Index, panel: Index) -> None:
            first = panel * lanes
            self._dots(batch, first)
            for row in range(self.c.m):
                self._add_lanes(row)
            self._epilogue(batch, Index(0), self.c.m, Index(0), first, self._columns(panel))

        bytes_read = self.c.n * self.c.k * 4
        return self._over_tasks(1, task, 0.1 * bytes_read, self.name)

    def _dots(self, batch: Indices, first: Index) -> None:
        """Partial sums of every row with every column of the panel."""
        e, v = self.e, self.v

        def body(j: Val, _: tuple[Val, ...]) -> list[Val]:
            start = domain.stepping(self.lanes, COLUMNS)
            v.values[start] = j
            columns = [
                self._variable((first + of(start) + i).bounded(0, self.c.n - 1), self.c.n)
                for i in range(COLUMNS)
            ]
            later = self._variable(first + of(start) + AHEAD, self.c.n)
            sums = self._along_k(batch, columns, later)
            for row in range(self.c.m):
                for i in range(COLUMNS):
                    place = (of(start) + (row * self.lanes + i)) * self.lanes
                    address = e.gep(self.partial, v.scalar(place), self.elem)
                    e.store(sums[row * COLUMNS + i], address)
            return []

        e.loop(e.index(0), e.index(self.lanes), COLUMNS, body)

    def _along_k(self, batch: Indices, columns: Sequence[Index], later: Index) -> Sequence[Val]:
        e, v, k = self.e, self.v, self.c.k
        zero = e.const(self.elem, 0, self.lanes)
        sums: Sequence[Val] = (zero,) * (self.c.m * COLUMNS)
        whole = k // self.lanes * self.lanes

        def body(i: Val, carried: tuple[Val, ...]) -> list[Val]:
            base = domain.stepping(whole, self.lanes)
            v.values[base] = i
            self._fetch(later, of(base))
            return self._step(batch, columns, of(base), None, carried)

        if whole:
            sums = e.loop(e.index(0), e.index(whole), self.lanes, body, tuple(sums))
        if k % self.lanes:
            mask = e.lane_mask(k % self.lanes, self.lanes)
            sums = self._step(batch, columns, Index(whole), mask, sums)
        return sums

    def _fetch(self, column: Index, position: Index) -> None:
        """Bring the same k of later columns nearer."""
        leaf = self.fetched
        if leaf is None:
            return
        e, base, elem = self.e, self.v.bases[leaf.node], leaf.node.tensor.stored
        for i in range(COLUMNS):
            offset = (column + i) * leaf.column + position
            e.prefetch(e.gep(base, self.v.scalar(offset), elem))

    def _step(
        self,
        batch: Indices,
        columns: Sequence[Index],
        position: Index,
        active: Val | None,
        sums: Sequence[Val],
    ) -> list[Val]:
        """One vector of k: all rows times a few columns."""
        v, c = self.v, self.c
        variable = v.fresh_var(self.lanes, is_lane=True)
        k = position + of(variable)
        with v.vector(Lane(variable, self.lanes, active)):
            rows = [self._value(c.a_source(batch, Index(r), k), active) for r in range(c.m)]
            weights = [self._value(c.b_source(batch, n, (k,)), active) for n in columns]
        return [
            self.product.multiply_add(a, b, sums[r * COLUMNS + i])
            for r, a in enumerate(rows)
            for i, b in enumerate(weights)
        ]

    def _value(self, source: Source, active: Val | None) -> Val:
        """A vector of an operand in the type of the products; lanes that do not exist are 0."""
        e = self.e
        value = self.v.value(source.operand, source.indices)
        value = convert(e, e.splat(value, self.lanes), source.operand.tensor, self.computed)
        if active is None:
            return value
        return e.select(active, value, e.const(value.elem, 0, self.lanes))

    def _add_lanes(self, row: int) -> None:
        """The sums of a row: lane j becomes the sum over all lanes of column j."""
        e, lanes = self.e, self.lanes
        base = row * lanes
        columns = [
            e.load(
                e.gep(self.partial, (base + j) * lanes, self.elem), self.elem, lanes, constant=False
            )
            for j in range(lanes)
        ]
        terms = transpose(e, columns)
        while len(terms) > 1:
            terms = [e.add(a, b) for a, b in zip(terms[::2], terms[1::2], strict=True)]
        e.store(terms[0], e.gep(self.sums, base, self.elem))
