"""The innermost loops of every matrix product: a tile of C in registers, summed over k.

In: how to read an element of A, and a packed panel of B. Out: the accumulators, row by row. One
step of k loads a row of the panel and multiplies it by one broadcast element of A per row of the
tile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.evaluate import Evaluator
from neuron_compile.neff.codegen.index import Index, of
from neuron_compile.neff.codegen.value import Val

UNROLL = (
    4  # steps of k per loop iteration: hides the loop, keeps the code inside the micro-op cache
)
# Steps that are summed one after the other; such sums are then added up. The rounding error of
# 200,000 products falls from 17 times that of the library to its own.
SEGMENT = 512


class TileProduct:
    """`vectors` registers of `lanes` per row; `paired`: two k at once, from bfloat16 pairs."""

    def __init__(
        self, v: Evaluator, elem: str, lanes: int, vectors: int, paired: bool = False
    ) -> None:
        self.v, self.e = v, v.e
        self.elem, self.lanes, self.vectors, self.paired = elem, lanes, vectors, paired

    def sums(
        self,
        rows: int,
        count: int | Val,
        a: Callable[[int, Index], Val],
        panel: Val,
        width: int,
        last: range = range(0),
    ) -> list[Val]:
        """`rows * vectors` sums over `count` steps.

        A run-time `count` (i64) is a multiple of UNROLL, at most the start of `last`, whose steps
        follow always.
        `a(r, position)` gives A's element (or pair) of row r in all lanes; `width` is the distance
        between rows of the panel in elements.
        """
        e = self.e
        zero = (e.const(self.elem, 0, self.lanes),) * (rows * self.vectors)
        if isinstance(count, int):
            if count < 2 * SEGMENT or not zero[0].is_float:
                return self._span(rows, Index(0), count, a, panel, width, zero)
            return self._segments(rows, count, a, panel, width, zero)

        def body(i: Val, carried: tuple[Val, ...]) -> list[Val]:
            base = domain.stepping(last.start // UNROLL * UNROLL, UNROLL)
            self.v.values[base] = i
            return self._steps(rows, of(base), UNROLL, a, panel, width, carried)

        totals = e.loop(e.index(0), count, UNROLL, body, zero)
        return self._steps(rows, Index(last.start), len(last), a, panel, width, totals)

    def _segments(
        self,
        rows: int,
        count: int,
        a: Callable[[int, Index], Val],
        panel: Val,
        width: int,
        zero: tuple[Val, ...],
    ) -> list[Val]:
        """Sums of segments, added up; what is left behind them is one more."""
        e = self.e
        whole = count // SEGMENT

        def plus(totals: Sequence[Val], first: Index, length: int) -> list[Val]:
            sums = self._span(rows, first, length, a, panel, width, zero)
            return [self.add(t, x) for t, x in zip(totals, sums, strict=True)]

        def segment(s: Val, totals: tuple[Val, ...]) -> list[Val]:
            number = domain.variable(whole)
            self.v.values[number] = s
            return plus(totals, of(number) * SEGMENT, SEGMENT)

        totals = e.loop(e.index(0), e.index(whole), 1, segment, zero)
        rest = count % SEGMENT
        return plus(totals, Index(whole * SEGMENT), rest) if rest else list(totals)

    def _span(
        self,
        rows: int,
        first: Index,
        count: int,
        a: Callable[[int, Index], Val],
        panel: Val,
        width: int,
        totals: Sequence[Val],
    ) -> list[Val]:
        """`totals` plus the products of `count` steps from `first` on, one after the other."""
        e = self.e
        whole = count // UNROLL * UNROLL

        def body(i: Val, carried: tuple[Val, ...]) -> list[Val]:
            base = domain.stepping(whole, UNROLL)
            self.v.values[base] = i
            return self._steps(rows, first + of(base), UNROLL, a, panel, width, carried)

        if whole:
            totals = e.loop(e.index(0), e.index(whole), UNROLL, body, totals)
        return self._steps(rows, first + whole, count - whole, a, panel, width, totals)

    def _steps(
        self,
        rows: int,
        base: Index,
        count: int,
        a: Callable[[int, Index], Val],
        panel: Val,
        width: int,
        totals: Sequence[Val],
    ) -> list[Val]:
        sums = list(totals)
        for u in range(count):
            position = base + u
            columns = self._panel_row(panel, width, position)
            for r in range(rows):
                element = a(r, position)
                for j, b in enumerate(columns):
                    i = r * self.vectors + j
                    sums[i] = self.multiply_add(element, b, sums[i])
        return sums

    def _panel_row(self, panel: Val, width: int, position: Index) -> list[Val]:
        """The vectors of B at one k (or pair of k)."""
        e, v = self.e, self.v
        elem = "i16" if self.paired else self.elem
        per_step = 2 if self.paired else 1
        moving = Index(0, position.terms)
        scale = width * per_step
        base = e.gep(panel, v.scalar(moving * scale), elem) if moving.terms else panel
        lanes = self.lanes * per_step
        return [
            e.load(
                e.gep(base, position.constant * scale + j * lanes, elem),
                "bf16" if self.paired else elem,
                lanes,
                constant=False,
            )
            for j in range(self.vectors)
        ]

    def multiply_add(self, a: Val, b: Val, total: Val) -> Val:
        """`total + a * b` for vectors of the products' type, or for vectors of pairs."""
        e = self.e
        if self.paired:
            return e.intrinsic("llvm.x86.avx512bf16.dpbf16ps.512", (total, a, b), "f32", self.lanes)
        if self.elem == "i1":
            return self.add(total, e.binary("arith.andi", a, b))
        if total.is_float:
            return e.fma(a, b, total)
        return e.add(total, e.mul(a, b))

    def add(self, a: Val, b: Val) -> Val:
        """The sum of two sums; of booleans, whether one of them holds."""
        return self.e.binary("arith.ori", a, b) if self.elem == "i1" else self.e.add(a, b)
