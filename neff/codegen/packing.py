"""Copies a panel of B into thread-local memory in the order in which the micro-kernel reads it.

In: a contraction, a panel's first column, and how many columns exist. Out: a buffer [k][columns]
(or, for pairs of bfloat16, [k/2][columns][2]) of compute elements. Where B is contiguous along k,
tiles are transposed in registers; everything else is pulled with the lanes along the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.contraction import Contraction
from neuron_compile.neff.codegen.elementwise import compute_elem, convert, to_bfloat16
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane
from neuron_compile.neff.codegen.index import Index, Var, contiguous_strides, linear, of, unravel
from neuron_compile.neff.codegen.program import Node, Tensor
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import PERMUTATIONS, Indices


@dataclass(frozen=True, slots=True)
class PanelLayout:
    """`columns` is a multiple of `lanes`; `paired`: two consecutive k side by side, as bfloat16."""

    columns: int
    lanes: int
    elem: str
    paired: bool

    @property
    def row_elements(self) -> int:
        """Elements from one k (or pair) to the next."""
        return self.columns * (2 if self.paired else 1)


@dataclass(frozen=True, slots=True)
class Leaf:
    """B read straight from memory: offset(n, k) = start + n * column + k * step."""

    node: Node
    step: int
    column: int


def leaf_of(v: Evaluator, c: Contraction) -> Leaf | None:
    """B's strides if it is one affine access of a materialised tensor without conditions."""
    n, k = domain.variable(c.n), domain.variable(c.k)
    batch = tuple(of(domain.variable(x)) for x in c.batch)
    source = c.b_source(batch, of(n), unravel(of(k), c.reduced))
    if source.conditions:
        return None
    found = trace([(source.operand, source.indices)], lambda x: x in v.bases)
    if len(found.uses) != 1 or len(found.accesses) != 1:
        return None
    node, at = found.uses[0]
    if not only_views(source.operand, node):
        return None
    offset = linear(at, node.tensor.strides)
    if any(not isinstance(a, Var) for a, _ in offset.terms):
        return None
    return Leaf(node, offset.coefficient(k), offset.coefficient(n))


def only_views(top: Node, bottom: Node) -> bool:
    """Whether `top` is `bottom` seen through views."""
    while top is not bottom:
        if top.op not in PERMUTATIONS:
            return False
        top = top.operands[0]
    return True


class Packer:
    """Packs one panel; `computed` is the element type of the products."""

    def __init__(self, v: Evaluator, c: Contraction, layout: PanelLayout, computed: Tensor) -> None:
        self.v, self.c, self.layout, self.computed = v, c, layout, computed
        self.leaf = leaf_of(v, c)

    def pack(
        self, panel: Val, batch: Indices, first: Index, width: int, active: Val | None
    ) -> None:
        """Fill `panel` for columns `first` .. `first + width`.

        Only the first `active` (i64, None: all) columns exist; the others become zero.
        """
        if active is None and self._transposable():
            self._transposed(panel, batch, first)
        else:
            self._pulled(batch, lambda store: store(panel, first), width, active)

    def pack_group(self, panels: Val, batch: Indices, first: Index, count: Val, size: int) -> None:
        """Fill `count` whole panels of `size` elements from panel `first` on, one behind the other.

        B is read in long rows where its columns are contiguous: each page of it is visited once.
        """
        e, v, columns = self.v.e, self.v, self.layout.columns
        elem = "i16" if self.layout.paired else self.layout.elem

        def each(store: Callable[[Val, Index], None]) -> None:
            def body(j: Val, _: tuple[Val, ...]) -> list[Val]:
                panel = domain.variable(max(self.c.n // columns, 2))
                v.values[panel] = e.add(v.scalar(first), j)
                target = e.gep(panels, e.mul(j, e.index(size)), elem)
                store(target, of(panel) * columns)
                return []

            e.loop(e.index(0), count, 1, body)

        if self._transposable():
            each(lambda target, column: self._transposed(target, batch, column))
        else:
            self._pulled(batch, each, columns, None)

    def _transposable(self) -> bool:
        """Whether B is one tensor in memory, contiguous along k, of the type that is packed."""
        leaf = self.leaf
        if leaf is None or leaf.step != 1 or leaf.column in (0, 1):
            return False
        same = compute_elem(leaf.node.tensor) == self.layout.elem or self.layout.paired
        block = self.layout.lanes * (2 if self.layout.paired else 1)
        wanted = "bf16" if self.layout.paired else self.layout.elem
        return same and self.c.k >= block and leaf.node.elem == wanted and wanted in ("f32", "bf16")

    # -- general ---------------------------------------------------------------------------------

    def _pulled(
        self,
        batch: Indices,
        each: Callable[[Callable[[Val, Index], None]], None],
        width: int,
        active: Val | None,
    ) -> None:
        """Loops over panels, columns and k; the lanes run along the columns.

        `each(store)` calls `store(panel, first column)` for every panel wanted. Dimensions of k
        that decide which columns count (the taps of a padded window) are outside of the others
        (its channels), so that masks and scattered offsets are computed once for all of these.
        Without such dimensions all of k is outside: rows of B are read from end to end.
        """
        v, c, lanes = self.v, self.c, self.layout.lanes
        column = domain.variable(c.n)

        def probe(k: Indices) -> list[Index]:
            source = c.b_source(batch, of(column), k)
            found = trace([(source.operand, source.indices)], lambda x: x in v.bases)
            return [*(x.index for x in source.conditions), *found.offsets()]

        space = domain.fit(c.reduced, probe)
        flat = linear(space.indices, contiguous_strides(c.reduced))
        source = c.b_source(batch, of(column), space.indices)
        deciding = {x for condition in source.conditions for x in condition.index.variables()}
        inner = [x for x in space.variables if deciding and x not in deciding]
        outer = [x for x in space.variables if x not in inner]

        def store(panel: Val, first: Index) -> None:
            def columns(j: Val, _: tuple[Val, ...]) -> list[Val]:
                start = domain.stepping(width, lanes)
                v.values[start] = j
                column, mask = first + of(start), self._mask(j, active)
                place = of(start)
                self._over(
                    [*outer, *inner] if inner else [],
                    lambda: self._store(panel, batch, column, place, space.indices, flat, mask),
                )
                return []

            v.e.loop(v.e.index(0), v.e.index(width), lanes, columns)

        self._over([] if inner else outer, lambda: each(store))

    def _over(self, variables: Sequence[Var], body: Callable[[], None]) -> None:
        """`body` inside one loop per variable."""
        if not variables:
            body()
            return
        head, *rest = variables
        e = self.v.e

        def step(i: Val, _: tuple[Val, ...]) -> list[Val]:
            self.v.values[head] = i
            self._over(rest, body)
            return []

        e.loop(e.index(0), e.index(head.extent), 1, step)

    def _mask(self, j: Val, count: Val | None) -> Val | None:
        """Lanes j .. j + lanes that are below `count` existing columns."""
        if count is None:
            return None
        e, lanes = self.v.e, self.layout.lanes
        left = e.splat(e.sub(count, j), lanes)
        return e.compare("slt", e.lane_ids(lanes), left)

    def _store(
        self,
        panel: Val,
        batch: Indices,
        column: Index,
        place: Index,
        k: Indices,
        flat: Index,
        active: Val | None,
    ) -> None:
        v, layout = self.v, self.layout
        variable = v.fresh_var(layout.lanes, is_lane=True)
        with v.vector(Lane(variable, layout.lanes, active)):
            source = self.c.b_source(batch, column + of(variable), k)
            if source.never:
                value = v.e.const(layout.elem, 0, layout.lanes)
            else:
                value, condition = v.from_source(source, None)
                value = convert(
                    v.e, v.e.splat(value, layout.lanes), source.operand.tensor, self.computed
                )
                keep = v.e.both(condition, active)
                if keep is not None:
                    value = v.e.select(keep, value, v.e.const(value.elem, 0, value.lanes))
        with v.vector(Lane(variable, layout.lanes)):
            if not layout.paired:
                v.store(value, panel, flat * layout.columns + place + of(variable), layout.elem)
                return
            narrow = to_bfloat16(v.e, value)
            offset = flat // 2 * layout.row_elements + place * 2 + flat % 2
            v.store(narrow, panel, offset + of(variable) * 2, "i16")

    # -- contiguous along k ----------------------------------------------------------------------

    def _transposed(self, panel: Val, batch: Indices, first: Index) -> None:
        """Tiles of lanes x lanes words.

        Rows are columns of B, read along k, transposed in registers.
        """
        v, c, layout = self.v, self.c, self.layout
        e, lanes = v.e, layout.lanes
        per_word = 2 if layout.paired else 1
        depth = lanes * per_word
        whole = c.k // depth * depth
        leaf = self.leaf
        assert leaf is not None
        source = c.b_source(batch, first, tuple(Index(0) for _ in c.reduced))
        offset = linear(
            self._leaf_indices(source.operand, source.indices), leaf.node.tensor.strides
        )
        base = e.gep(v.bases[leaf.node], v.scalar(offset), leaf.node.elem)
        word = "i32" if layout.paired else "f32"

        def tile(j: Val, k: Val) -> None:
            corner = e.gep(base, e.add(e.mul(j, e.index(leaf.column)), k), leaf.node.elem)
            rows = [
                e.load(e.gep(corner, i * leaf.column, leaf.node.elem), word, lanes)
                for i in range(lanes)
            ]
            target = e.add(e.mul(k, e.index(layout.columns)), e.mul(j, e.index(per_word)))
            out = e.gep(panel, target, "i16" if layout.paired else layout.elem)
            for i, row in enumerate(transpose(e, rows)):
                e.store(row, e.gep(out, i * layout.columns, word))

        def columns(j: Val, _: tuple[Val, ...]) -> list[Val]:
            def depths(k: Val, _: tuple[Val, ...]) -> list[Val]:
                tile(j, k)
                return []

            e.loop(e.index(0), e.index(whole), depth, depths)
            return []

        e.loop(e.index(0), e.index(layout.columns), lanes, columns)
        for k in range(whole, c.k):
            self._rest(panel, batch, first, k)

    def _rest(self, panel: Val, batch: Indices, first: Index, k: int) -> None:
        v = self.v

        def body(j: Val, _: tuple[Val, ...]) -> list[Val]:
            start = domain.stepping(self.layout.columns, self.layout.lanes)
            v.values[start] = j
            position = unravel(Index(k), self.c.reduced)
            self._store(panel, batch, first + of(start), of(start), position, Index(k), None)
            return []

        v.e.loop(v.e.index(0), v.e.index(self.layout.columns), self.layout.lanes, body)

    def _leaf_indices(self, top: Node, at: Indices) -> Indices:
        assert self.leaf is not None
        while top is not self.leaf.node:
            source = PERMUTATIONS[top.op](top, at)
            top, at = source.operand, source.indices
        return at


def transpose(e: Emitter, rows: list[Val]) -> list[Val]:
    """Transpose a square of vectors by log2(lanes) rounds of pairwise exchanges."""
    lanes = len(rows)
    step = 1
    while step < lanes:
        low = [i if not i & step else lanes + i - step for i in range(lanes)]
        high = [i + step if not i & step else lanes + i for i in range(lanes)]
        following = list(rows)
        for i in range(lanes):
            if not i & step:
                following[i] = e.shuffle(rows[i], rows[i + step], low)
                following[i + step] = e.shuffle(rows[i], rows[i + step], high)
        rows = following
        step *= 2
    return rows
