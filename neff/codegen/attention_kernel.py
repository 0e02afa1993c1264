"""The fused kernel of an attention: scores, softmax rows and weighted values, strip by strip.

In: an `AttentionPlan`. Out: its kernel. A task takes one batch entry: it packs keys and values
once, then for each few query rows computes a strip of scores, runs the group's own row operations
on it, and multiplies the strip with the values. Only the strip exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.attention_plan import AttentionPlan
from neuron_compile.neff.codegen.contraction import contraction_of
from neuron_compile.neff.codegen.elementwise import narrow
from neuron_compile.neff.codegen.emitter import Emitter, Val
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane, RowBuffer
from neuron_compile.neff.codegen.index import Index, contiguous_strides, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.packing import Packer, PanelLayout
from neuron_compile.neff.codegen.program import Node, Tensor
from neuron_compile.neff.codegen.rows import plan_rows
from neuron_compile.neff.codegen.tile_product import UNROLL, TileProduct
from neuron_compile.neff.codegen.views import Indices
from neuron_compile.neff.target import Target

STRIP_ROWS = 6  # query rows at a time: their scores stay in the first-level cache


class AttentionKernel:
    """Writes the fused kernel."""

    def __init__(
        self, plan: AttentionPlan, leaves: Mapping[Node, int], name: str, target: Target
    ) -> None:
        self.plan, self.name, self.target = plan, name, target
        self.lanes = target.vector_bytes // 4
        self.e = Emitter(self.lanes, frozenset((target.isa, *target.features)))
        self.v = Evaluator(
            self.e, {n: self.e.pointer_argument("%ptrs", i) for n, i in leaves.items()}
        )
        everything = (*plan.fused, *((r, None) for r in plan.rows))
        self.results = {r.number: self.e.pointer_argument("%ptrs", r.number) for r, _ in everything}
        self.vectors = 4 if target.vector_bytes == 64 else 2
        self.strip = STRIP_ROWS if target.vector_bytes == 64 else 4
        self.width = self.vectors * self.lanes
        self.keys = -(-plan.product.k // self.width) * self.width
        self.columns = -(-plan.product.n // self.width) * self.width
        self.product = TileProduct(self.v, "f32", self.lanes, self.vectors)

    def kernel(self) -> Kernel:
        e, plan = self.e, self.plan
        scores, product = plan.scores, plan.product
        self.packed_keys = e.local("f32", scores.k * self.keys)
        self.packed_values = e.local("f32", product.k * self.columns)
        self.queries = e.local("f32", self.strip * scores.k)
        self.scores = e.local("f32", self.strip * self.keys)
        self.weights = e.local("f32", self.strip * self.keys)
        self.sums = e.local("f32", self.strip * self.columns)
        self.divisors = e.local("f32", self.strip)
        layout = PanelLayout(self.width, self.lanes, "f32", False)
        floats = Tensor((), "f32", ())
        self.key_packer = Packer(self.v, scores, layout, floats)
        self.value_packer = Packer(self.v, product, layout, floats)
        roots = [plan.weights, *(r.node for r in plan.rows)]
        roots += [plan.divisor] if plan.divisor is not None else []
        self.v.rows = plan_rows(roots, self.v.bases.__contains__)
        chunks = self._chunks()
        tasks = prod(product.batch) * chunks

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            task = domain.variable(tasks)
            self.v.values[task] = t
            *batch, chunk = unravel(of(task), (*product.batch, chunks))
            fixed = tuple(self._held(i, n) for i, n in zip(batch, product.batch, strict=True))
            self._pack(self.key_packer, self.packed_keys, fixed, product.k, scores.k)
            self._pack(self.value_packer, self.packed_values, fixed, product.n, product.k)
            self._strips(fixed, chunk, chunks)
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        text = e.function(self.name, self.target.llvm_attributes())
        work = prod(product.batch) * product.m * product.k * (scores.k + product.n) / 60.0
        return Kernel(self.name, text, tasks, work, (), tuple(sorted(e.externals)))

    def _chunks(self) -> int:
        """Parts of the query rows, where there are few batch entries; each packs keys again."""
        batches = prod(self.plan.product.batch)
        if batches >= 4:
            return 1
        return max(1, min(4, self.plan.product.m // 64))

    def _held(self, index: Index, extent: int) -> Index:
        """An index computed once, as a loop variable."""
        if not index.terms:
            return index
        held = domain.variable(extent)
        self.v.values[held] = self.v.scalar(index)
        return of(held)

    def _pack(self, packer: Packer, to: Val, batch: Indices, columns: int, depth: int) -> None:
        """All panels of one operand, one after the other."""
        e = self.e
        whole = columns // self.width

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = domain.variable(whole)
            self.v.values[panel] = i
            target = e.gep(to, e.mul(i, e.index(depth * self.width)), "f32")
            packer.pack(target, batch, of(panel) * self.width, self.width, None)
            return []

        if whole == 1:  # no variable: the column is known to lie below the width
            packer.pack(to, batch, Index(0), self.width, None)
        elif whole:
            e.loop(e.index(0), e.index(whole), 1, body)
        if columns % self.width:
            target = e.gep(to, whole * depth * self.width, "f32")
            left = e.index(columns % self.width)
            packer.pack(target, batch, Index(whole * self.width), self.width, left)

    def _strips(self, batch: Indices, chunk: Index, chunks: int) -> None:
        e, m = self.e, self.plan.product.m
        whole = m // self.strip
        low = e.binary("arith.divui", e.mul(self.v.scalar(chunk), e.index(whole)), e.index(chunks))
        after = e.mul(self.v.scalar(chunk + 1), e.index(whole))
        high = e.binary("arith.divui", after, e.index(chunks))

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            block = domain.variable(max(whole, 2))
            self.v.values[block] = i
            self._one_strip(batch, of(block) * self.strip, self.strip)
            return []

        if whole:
            e.loop(low, high, 1, body)
        if m % self.strip:
            last = lambda: self._one_strip(batch, Index(whole * self.strip), m % self.strip)  # noqa: E731
            if chunks == 1:
                last()
            else:
                e.when(e.compare("eq", self.v.scalar(chunk), e.index(chunks - 1)), last)

    def _one_strip(self, batch: Indices, row: Index, rows: int) -> None:
        panels = self._panels_needed(batch, row, rows)
        self._copy_queries(batch, row, rows)
        self._compute_scores(rows, panels)
        self._each_row(row, rows, lambda at, inner: self._row(batch, at, inner, panels))
        self._weigh_values(rows, panels)
        self._each_row(row, rows, lambda at, inner: self._epilogue(batch, at, inner))

    def _each_row(self, row: Index, rows: int, do: Callable[[Index, Index], None]) -> None:
        """`do(row, row within the strip)` for the strip's rows, in a loop."""

        def one(r: Val, _: tuple[Val, ...]) -> list[Val]:
            inner = domain.variable(max(rows, 2))
            self.v.values[inner] = r
            do(row + of(inner), of(inner))
            return []

        self.e.loop(self.e.index(0), self.e.index(rows), 1, one)

    def _each_vector(
        self, count: int, do: Callable[[Index, Val | None], None], limit: Val | None = None
    ) -> None:
        """`do(start, active lanes)` for `count` elements, or for whole vectors below `limit` only.

        What is left behind the last whole vector is always visited.
        """
        e, lanes = self.e, self.lanes
        whole = count // lanes * lanes

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            base = domain.stepping(whole, lanes)
            self.v.values[base] = i
            do(of(base), None)
            return []

        if whole:
            high = e.index(whole)
            high = high if limit is None else e.binary("arith.minsi", limit, high)
            e.loop(e.index(0), high, lanes, body)
        if count % lanes:
            do(Index(whole), e.lane_mask(count % lanes, lanes))

    # -- scores ----------------------------------------------------------------------------------

    def _panels_needed(self, batch: Indices, row: Index, rows: int) -> Val:
        """Panels of keys with a weight other than 0 for these rows."""
        e, total = self.e, self.keys // self.width
        limit = self.plan.limit
        if limit is None:
            return e.index(total)
        last = self.v.scalar(limit.keys_of(row + (rows - 1)))
        needed = e.binary("arith.divsi", e.add(last, e.index(self.width - 1)), e.index(self.width))
        needed = e.binary("arith.maxsi", needed, e.index(1))
        return e.binary("arith.minsi", needed, e.index(total))

    def _copy_queries(self, batch: Indices, row: Index, rows: int) -> None:
        """The strip's rows side by side: in their tensor they may lie a power of two apart, which
        the first-level cache holds but few of.
        """
        v, scores = self.v, self.plan.scores

        def one(at: Index, inner: Index) -> None:
            def vector(start: Index, active: Val | None) -> None:
                variable = v.fresh_var(self.lanes, is_lane=True)
                with v.vector(Lane(variable, self.lanes, active)):
                    source = scores.a_source(batch, at, start + of(variable))
                    value = v.value(source.operand, source.indices)
                    v.store(value, self.queries, inner * scores.k + start + of(variable), "f32")

            self._each_vector(scores.k, vector)

        self._each_row(row, rows, one)

    def _compute_scores(self, rows: int, panels: Val) -> None:
        e, depth = self.e, self.plan.scores.k
        query = self._element_of(self.queries, depth)

        def body(p: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = e.gep(self.packed_keys, e.mul(p, e.index(depth * self.width)), "f32")
            sums = self.product.sums(rows, depth, query, panel, self.width)
            self._store_tile(
                sums, e.gep(self.scores, e.mul(p, e.index(self.width)), "f32"), self.keys
            )
            return []

        e.loop(e.index(0), panels, 1, body)

    def _element_of(self, strip: Val, columns: int) -> Callable[[int, Index], Val]:
        """`a(row, column)`: one element of a strip in local memory, in all lanes."""
        e, v = self.e, self.v

        def a(r: int, position: Index) -> Val:
            moving = Index(0, position.terms)
            base = e.gep(strip, v.scalar(moving), "f32") if moving.terms else strip
            offset = position.constant + r * columns
            return e.splat(e.load(e.gep(base, offset, "f32"), "f32", constant=False), self.lanes)

        return a

    def _store_tile(self, sums: list[Val], to: Val, columns: int) -> None:
        e = self.e
        for i, total in enumerate(sums):
            r, j = divmod(i, self.vectors)
            e.store(total, e.gep(to, r * columns + j * self.lanes, "f32"))

    # -- rows ------------------------------------------------------------------------------------

    def _row(self, batch: Indices, row: Index, inner: Index, panels: Val) -> None:
        """Evaluate the weights of one query row into the strip of weights."""
        e, v, plan = self.e, self.v, self.plan
        strip_row = e.gep(self.scores, v.scalar(inner * self.keys), "f32")
        where = plan.scores.at(batch, row, Index(0))
        v.buffers.clear()
        v.buffers[plan.scores.node] = RowBuffer(strip_row, where, (self._key_dimension(),), (1,))
        out = e.gep(self.weights, v.scalar(inner * self.keys), "f32")
        v.keep_in(plan.weights, out)
        limit = e.mul(panels, e.index(self.width)) if plan.limit is not None else None
        if limit is not None:
            v.limits = dict.fromkeys(plan.limit.reductions, limit)
        self._store_row_results(batch, row, inner)
        if self._is_kept(batch, row):
            return

        def vector(start: Index, active: Val | None) -> None:
            variable = v.fresh_var(self.lanes, is_lane=True)
            with v.vector(Lane(variable, self.lanes, active)):
                source = plan.product.a_source(batch, row, start + of(variable))
                value = v.value(plan.weights, source.indices)
                v.store(value, out, start + of(variable), "f32")

        self._each_vector(plan.product.k, vector, limit)

    def _is_kept(self, batch: Indices, row: Index) -> bool:
        """Whether some reduction of the row has left the weights in the strip."""
        weights, k = self.plan.weights, domain.variable(self.plan.product.k)
        buffer = self.v.buffers.get(weights)
        if buffer is None or buffer.filled is None or not self.e.alive(buffer.filled):
            return False
        at = self.plan.product.a_source(batch, row, of(k)).indices
        keys = tuple(d for d, i in enumerate(at) if i == of(k))
        rest = (at[d] == i for d, i in enumerate(buffer.row) if d not in buffer.dimensions)
        return buffer.dimensions == keys and all(rest)

    def _key_dimension(self) -> int:
        inner = contraction_of(self.plan.scores.node)
        return len(inner.batch) + len(inner.rows)

    def _store_row_results(self, batch: Indices, row: Index, inner: Index) -> None:
        v, e, product = self.v, self.e, self.plan.product
        for root in self.plan.rows:
            shape = (*product.batch, product.m)
            at = unravel(linear((*batch, row), contiguous_strides(shape)), root.node.shape)
            value = narrow(e, v.value(root.node, at), root.output)
            v.store(value, self.results[root.number], linear(at, root.output.strides), value.elem)
        if self.plan.divisor is not None:
            source = product.a_source(batch, row, Index(0))
            divisor = v.value(self.plan.divisor, source.indices)
            if self.plan.shares:
                divisor = e.div(e.const("f32", 1.0), divisor)
            v.store(divisor, self.divisors, inner, "f32")

    # -- values ----------------------------------------------------------------------------------

    def _weigh_values(self, rows: int, panels: Val) -> None:
        """The strip of weights times the packed values; weights of skipped keys are 0."""
        e, k = self.e, self.plan.product.k
        most = k // UNROLL * UNROLL
        count: int | Val = k
        if self.plan.limit is not None:
            count = e.binary("arith.minsi", e.mul(panels, e.index(self.width)), e.index(most))

        weight = self._element_of(self.weights, self.keys)

        def body(p: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = e.gep(self.packed_values, e.mul(p, e.index(k * self.width)), "f32")
            sums = self.product.sums(rows, count, weight, panel, self.width, last=range(most, k))
            self._store_tile(
                sums, e.gep(self.sums, e.mul(p, e.index(self.width)), "f32"), self.columns
            )
            return []

        e.loop(e.index(0), e.index(self.columns // self.width), 1, body)

    def _epilogue(self, batch: Indices, row: Index, inner: Index) -> None:
        """Every result that is a function of the second product, of one row."""
        divisor = None
        if self.plan.divisor is not None:
            divisor = self.v.load_offset(
                self.divisors, inner, "f32", self.strip, None, constant=False
            )

        def vector(start: Index, active: Val | None) -> None:
            self._vector(batch, row, inner, start, active, divisor)

        self._each_vector(self.plan.product.n, vector)

    def _vector(
        self,
        batch: Indices,
        row: Index,
        inner: Index,
        part: Index,
        active: Val | None,
        divisor: Val | None,
    ) -> None:
        v, product = self.v, self.plan.product
        variable = v.fresh_var(self.lanes, is_lane=True)
        with v.vector(Lane(variable, self.lanes)):
            span = self.strip * self.columns
            place = inner * self.columns + part + of(variable)
            total = v.load_offset(self.sums, place, "f32", span, None, constant=False)
        if divisor is not None:
            total = self.e.mul(total, divisor) if self.plan.shares else self.e.div(total, divisor)
        at_result = product.at(batch, row, part + of(variable))
        with v.vector(Lane(variable, self.lanes, active)):
            v.forget()
            v.fixed[product.node] = total
            for root, inverse in self.plan.fused:
                where = inverse.root_at(at_result)
                value = narrow(self.e, v.value(root.node, where), root.output)
                offset = linear(where, root.output.strides)
                v.store(value, self.results[root.number], offset, value.elem)
            del v.fixed[product.node]
