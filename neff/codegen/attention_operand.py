"""Keys or values of one batch entry as an attention reads them: packed in panels, then multiplied.

In: the product whose B they are. Out: code that packs all panels, and code that multiplies a strip
of A in local memory with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.contraction import Contraction
from neuron_compile.neff.codegen.evaluate import Evaluator
from neuron_compile.neff.codegen.index import Index, of
from neuron_compile.neff.codegen.packing import Packer, PanelLayout
from neuron_compile.neff.codegen.program import Tensor
from neuron_compile.neff.codegen.tile_product import UNROLL, TileProduct
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.target import Target


@dataclass(frozen=True, slots=True)
class Panels:
    """How an operand is cut: `count` panels of `depth` x (`vectors` * `lanes`) floats."""

    count: int
    vectors: int
    lanes: int
    depth: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes

    @property
    def padded(self) -> int:
        """Columns, those that only fill the last panel included."""
        return self.count * self.width

    @property
    def elements(self) -> int:
        return self.depth * self.padded


def panels_of(c: Contraction, target: Target) -> Panels:
    """As few panels as registers allow, none wider than it must be."""
    lanes = target.vector_bytes // 4
    most = 4 if target.vector_bytes == 64 else 2
    wanted = -(-c.n // lanes)
    count = -(-wanted // most)
    return Panels(count, -(-wanted // count), lanes, c.k)


class Operand:
    """The packed B of a product; `memory` holds its panels, one after the other."""

    def __init__(self, v: Evaluator, c: Contraction, panels: Panels, memory: Val) -> None:
        self.v, self.panels, self.memory = v, panels, memory
        self.columns = c.n
        layout = PanelLayout(panels.width, panels.lanes, "f32", False)
        self.packer = Packer(v, c, layout, Tensor((), "f32", ()))
        self.tile = TileProduct(v, "f32", panels.lanes, panels.vectors)

    def pack(self, batch: Indices) -> None:
        """All panels of a batch entry."""
        e, width = self.v.e, self.panels.width
        size = self.panels.depth * width
        whole = self.columns // width

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = domain.variable(whole)
            self.v.values[panel] = i
            target = e.gep(self.memory, e.mul(i, e.index(size)), "f32")
            self.packer.pack(target, batch, of(panel) * width, width, None)
            return []

        if whole == 1:  # no variable: the column is known to lie below the width
            self.packer.pack(self.memory, batch, Index(0), width, None)
        elif whole:
            e.loop(e.index(0), e.index(whole), 1, body)
        if self.columns % width:
            target = e.gep(self.memory, whole * size, "f32")
            left = e.index(self.columns % width)
            self.packer.pack(target, batch, Index(whole * width), width, left)

    def all_finite(self) -> Val:
        """Whether no packed element is NaN or infinite, as i1: 0 times such a one is NaN."""
        e, lanes, vectors = self.v.e, self.panels.lanes, self.panels.vectors
        zero = e.const("f32", 0.0, lanes)

        def body(i: Val, sums: tuple[Val, ...]) -> list[Val]:
            row = e.gep(self.memory, i, "f32")
            found = [
                e.load(e.gep(row, j * lanes, "f32"), "f32", lanes, constant=False)
                for j in range(vectors)
            ]
            return [e.fma(x, zero, total) for x, total in zip(found, sums, strict=True)]

        sums = e.loop(
            e.index(0), e.index(self.panels.elements), self.panels.width, body, (zero,) * vectors
        )
        total = reduce(e.add, sums)
        while total.lanes > 2:
            half = total.lanes // 2
            low, high = range(half), range(half, total.lanes)
            total = e.add(e.shuffle(total, total, low), e.shuffle(total, total, high))
        total = e.add(e.extract(total, 0), e.extract(total, 1))
        return e.compare("oeq", total, e.const("f32", 0.0))

    def multiply(
        self, panels: Val, rows: int, count: int | Val, strip: Val, columns: int, to: Val
    ) -> None:
        """`rows` rows of A, `columns` apart, times the first `panels`, summed over `count` of k.

        The results lie `padded` apart.
        """
        e, cut = self.v.e, self.panels
        last = range(cut.depth // UNROLL * UNROLL, cut.depth)
        a = self._element_of(strip, columns)

        def body(p: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = e.gep(self.memory, e.mul(p, e.index(cut.depth * cut.width)), "f32")
            sums = self.tile.sums(rows, count, a, panel, cut.width, last=last)
            target = e.gep(to, e.mul(p, e.index(cut.width)), "f32")
            for i, total in enumerate(sums):
                r, j = divmod(i, cut.vectors)
                e.store(total, e.gep(target, r * cut.padded + j * cut.lanes, "f32"))
            return []

        e.loop(e.index(0), panels, 1, body)

    def _element_of(self, strip: Val, columns: int) -> Callable[[int, Index], Val]:
        """`a(row, column)`: one element of a strip in local memory, in all lanes."""
        e, v, lanes = self.v.e, self.v, self.panels.lanes

        def a(r: int, position: Index) -> Val:
            moving = Index(0, position.terms)
            base = e.gep(strip, v.scalar(moving), "f32") if moving.terms else strip
            offset = position.constant + r * columns
            return e.splat(e.load(e.gep(base, offset, "f32"), "f32", constant=False), lanes)

        return a
