"""Products of a few rows with weights that lie across k: every weight is read once, unpacked.

In: a `Contraction` with at most MOST_ROWS rows whose B has contiguous columns. Out: one kernel. A
task is a wide panel; a few rows of B at a time are added to the panel's sums, so that B is read in
long stretches.
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
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.target import Target

MOST_ROWS = 8
LEAST_K = 16
WIDEST = 64  # vectors of a panel: 4 KiB of each row of B
FEWEST_PANELS = 4  # so that threads have a share
HELD = 24  # elements of A in registers


def pays(c: Contraction, leaves: Mapping[Node, int], target: Target) -> bool:
    """Whether few rows meet weights that lie along the columns."""
    few = c.m <= MOST_ROWS and c.n % vector_lanes(c, target) == 0
    fits = few and c.k >= LEAST_K and c.node.elem != "i1"
    return fits and reads_b_along(c, leaves, k=False)


class ThinGemm(GemmKernel):
    """Writes the kernel. A must lie in memory."""

    def __init__(
        self,
        c: Contraction,
        roots: Sequence[tuple[Root, Inverse]],
        leaves: Mapping[Node, int],
        name: str,
        target: Target,
    ) -> None:
        vectors = c.n // vector_lanes(c, target)
        width = max(1, min(WIDEST, -(-vectors // FEWEST_PANELS)))
        super().__init__(c, roots, leaves, name, target, tile=Shape(c.m, width))

    def kernel(self, packed: int | None = None) -> Kernel:
        """One task per panel and batch entry."""
        assert packed is None, "nothing is packed"
        e = self.e
        self.sums = e.local(self.elem, self.c.m * self.width)
        steps = max(2, HELD // self.c.m)
        whole = self.c.k // steps * steps

        def task(batch: Indices, _: Index, panel: Index) -> None:
            first, columns = panel * self.width, self._columns(panel)
            limit = e.index(self.width) if columns is None else columns
            self._clear()

            def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
                k = domain.stepping(whole, steps)
                self.v.values[k] = i
                self._add_rows(batch, first, limit, of(k), steps)
                return []

            if whole:
                e.loop(e.index(0), e.index(whole), steps, body)
            if self.c.k % steps:
                self._add_rows(batch, first, limit, Index(whole), self.c.k % steps)
            self._epilogue(batch, Index(0), self.c.m, Index(0), first, columns)

        return self._over_tasks(1, task, 0.4 * self.c.n * self.c.k, self.name)

    def _clear(self) -> None:
        e, zero = self.e, self.e.const(self.elem, 0, self.lanes)

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            e.store(zero, e.gep(self.sums, i, self.elem))
            return []

        e.loop(e.index(0), e.index(self.c.m * self.width), self.lanes, body)

    def _add_rows(self, batch: Indices, first: Index, limit: Val, k: Index, count: int) -> None:
        """`count` rows of B times their elements of A, added to the sums of all columns."""
        e, v = self.e, self.v
        elements = [
            [self._a(batch, Index(r), k + u) for u in range(count)] for r in range(self.c.m)
        ]

        def body(j: Val, _: tuple[Val, ...]) -> list[Val]:
            part = domain.stepping(self.width, self.lanes)
            v.values[part] = j
            column = domain.variable(self.c.n)
            v.values[column] = v.scalar(first + of(part))
            places = [
                e.gep(self.sums, v.scalar(of(part) + r * self.width), self.elem)
                for r in range(self.c.m)
            ]
            # From zero, not from the sums: rounding errors of short sums stay small.
            sums = [e.const(self.elem, 0, self.lanes)] * self.c.m
            for u in range(count):
                weights = self._weights(batch, of(column), k + u)
                sums = [
                    self.product.multiply_add(elements[r][u], weights, s)
                    for r, s in enumerate(sums)
                ]
            for place, total in zip(places, sums, strict=True):
                before = e.load(place, self.elem, self.lanes, constant=False)
                e.store(e.add(before, total), place)
            return []

        e.loop(e.index(0), limit, self.lanes, body)

    def _weights(self, batch: Indices, column: Index, k: Index) -> Val:
        """A vector of B in the type of the products."""
        e, v = self.e, self.v
        variable = v.fresh_var(self.lanes, is_lane=True)
        with v.vector(Lane(variable, self.lanes)):
            source = self.c.b_source(batch, column + of(variable), (k,))
            value = v.value(source.operand, source.indices)
            return convert(e, e.splat(value, self.lanes), source.operand.tensor, self.computed)
