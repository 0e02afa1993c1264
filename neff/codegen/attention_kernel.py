"""The fused kernel of an attention: scores, softmax rows and weighted values, strip by strip.

In: an `AttentionPlan`. Out: its kernel. A task takes one batch entry: it packs keys and values
once, then for each few query rows computes a strip of scores, runs the group's own row operations
on it, and multiplies the strip with the values. Only the strip exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.attention_operand import Operand, panels_of
from neuron_compile.neff.codegen.attention_plan import (
    AttentionPlan,
    packed_on_stack,
    row_place,
    strip_rows,
)
from neuron_compile.neff.codegen.attention_prefetch import Rows, prefetch, rows_in_memory
from neuron_compile.neff.codegen.contraction import contraction_of
from neuron_compile.neff.codegen.elementwise import compute_elem, narrow
from neuron_compile.neff.codegen.emitter import Emitter
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane, RowBuffer
from neuron_compile.neff.codegen.index import Index, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.rows import plan_rows
from neuron_compile.neff.codegen.tile_product import UNROLL
from neuron_compile.neff.codegen.value import Val
from neuron_compile.neff.codegen.views import Indices, Source
from neuron_compile.neff.target import Target


class AttentionKernel:
    """Writes the fused kernel."""

    def __init__(
        self,
        plan: AttentionPlan,
        leaves: Mapping[Node, int],
        free_slot: int,
        name: str,
        target: Target,
    ) -> None:
        """`free_slot`: the number that scratch memory has in the kernel's table of pointers."""
        self.plan, self.name, self.target = plan, name, target
        self.lanes = target.vector_bytes // 4
        self.e = Emitter(self.lanes, frozenset((target.isa, *target.features)))
        self.v = Evaluator(
            self.e, {n: self.e.pointer_argument("%ptrs", i) for n, i in leaves.items()}
        )
        everything = (*plan.fused, *((r, None) for r in plan.rows))
        self.results = {r.number: self.e.pointer_argument("%ptrs", r.number) for r, _ in everything}
        self.strip = strip_rows(target)
        self.packed_keys = panels_of(plan.scores, target)
        self.packed_values = panels_of(plan.product, target)
        self.packed_elements = self.packed_keys.elements + self.packed_values.elements
        self.scratch: Val | None = None
        if packed_on_stack(plan.scores, plan.product, target):
            self._put_operands_at(self.e.local("f32", self.packed_elements))
        else:
            self.scratch = self.e.pointer_argument("%ptrs", free_slot)

    def _put_operands_at(self, memory: Val) -> None:
        keys, plan = self.packed_keys, self.plan
        behind = self.e.gep(memory, keys.elements, "f32")
        self.keys = Operand(self.v, plan.scores, keys, memory)
        self.values = Operand(self.v, plan.product, self.packed_values, behind)

    def kernel(self) -> Kernel:
        e, plan = self.e, self.plan
        scores, product = plan.scores, plan.product
        self.queries = e.local("f32", self.strip * scores.k)
        self.scores = e.local("f32", self.strip * self.packed_keys.padded)
        self.weights = e.local("f32", self.strip * self.packed_keys.padded)
        self.sums = e.local("f32", self.strip * self.packed_values.padded)
        self.divisors = e.local("f32", self.strip)
        roots = [plan.weights, *(r.node for r in plan.rows)]
        roots += [plan.divisor] if plan.divisor is not None else []
        self.v.rows = plan_rows(roots, self.v.bases.__contains__)
        self.row_values: dict[Node, Val] = {}
        self.rows_in_memory = self._rows_in_memory()
        chunks = self._chunks()
        tasks = prod(product.batch) * chunks

        def body(t: Val, _: tuple[Val, ...]) -> list[Val]:
            task = domain.variable(tasks)
            self.v.values[task] = t
            if self.scratch is not None:
                own = e.mul(t, e.index(self.packed_elements))
                self._put_operands_at(e.gep(self.scratch, own, "f32"))
            *batch, chunk = unravel(of(task), (*product.batch, chunks))
            fixed = tuple(self._held(i, n) for i, n in zip(batch, product.batch, strict=True))
            self.keys.pack(fixed)
            self.values.pack(fixed)
            if plan.limit is not None:
                self.finite = self.values.all_finite()
            self._strips(of(task), fixed, chunk, chunks)
            return []

        e.loop(Val("%begin", "i64", 0, 0, 0), Val("%end", "i64", 0, 0, 0), 1, body)
        text = e.function(self.name, self.target.llvm_attributes())
        work = prod(product.batch) * product.m * product.k * (scores.k + product.n) / 60.0
        scratch = () if self.scratch is None else (4 * tasks * self.packed_elements,)
        return Kernel(self.name, text, tasks, work, scratch, tuple(sorted(e.externals)))

    def _rows_in_memory(self) -> tuple[Rows, ...]:
        """Those of queries, keys and values that lie there as they are read."""
        scores, product = self.plan.scores, self.plan.product

        def key(batch: Indices, row: Index, column: Index) -> Source:
            return scores.b_source(batch, row, unravel(column, scores.reduced))

        def value(batch: Indices, row: Index, column: Index) -> Source:
            return product.b_source(batch, column, (row,))

        rows = (
            rows_in_memory(self.v, product.batch, scores.a_source, product.m, scores.k),
            rows_in_memory(self.v, product.batch, key, product.k, scores.k),
            rows_in_memory(self.v, product.batch, value, product.k, product.n),
        )
        return tuple(r for r in rows if r is not None)

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

    def _next_batch(self, task: Index) -> Indices:
        """The batch entry of the task after this one, or the last."""
        batch = self.plan.product.batch
        count = prod(batch)
        after = unravel((task + 1).bounded(0, count - 1), batch)
        return tuple(self._held(i, n) for i, n in zip(after, batch, strict=True))

    def _strips(self, task: Index, batch: Indices, chunk: Index, chunks: int) -> None:
        e, m = self.e, self.plan.product.m
        whole = m // self.strip
        following = self._next_batch(task) if chunks == 1 < prod(self.plan.product.batch) else ()
        low = e.binary("arith.divui", e.mul(self.v.scalar(chunk), e.index(whole)), e.index(chunks))
        after = e.mul(self.v.scalar(chunk + 1), e.index(whole))
        high = e.binary("arith.divui", after, e.index(chunks))

        def strip(block: Index) -> None:
            if following:
                for rows in self.rows_in_memory:
                    prefetch(self.v, rows, following, block, whole)
            self._one_strip(batch, block * self.strip, self.strip)

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            block = domain.variable(whole)
            self.v.values[block] = i
            strip(of(block))
            return []

        # No variable where its only value is 0: rows must be known to lie in range.
        if whole == 1:
            strip(Index(0))
        elif whole:
            e.loop(low, high, 1, body)
        if m % self.strip:
            last = lambda: self._one_strip(batch, Index(whole * self.strip), m % self.strip)  # noqa: E731
            if chunks == 1:
                last()
            else:
                e.when(e.compare("eq", self.v.scalar(chunk), e.index(chunks - 1)), last)

    def _one_strip(self, batch: Indices, row: Index, rows: int) -> None:
        needed = self._keys_needed(row, rows)
        self._copy_queries(batch, row, rows)
        self._compute_scores(rows, needed)
        self._rows(batch, row, rows, needed)
        self._weigh_values(rows, needed)
        self._each_row(row, rows, lambda at, inner: self._epilogue(batch, at, inner))

    def _each_row(self, row: Index, rows: int, do: Callable[[Index, Index], None]) -> None:
        """`do(row, row within the strip)` for the strip's rows, in a loop."""

        def one(r: Val, _: tuple[Val, ...]) -> list[Val]:
            inner = domain.variable(max(rows, 2))  # never constant: a row's values stay in here
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

    def _keys_needed(self, row: Index, rows: int) -> Val | None:
        """Keys from the first on that count for these rows; None: all.

        Weights of 0 count where some value is not finite: 0 times it is NaN.
        """
        e, limit = self.e, self.plan.limit
        if limit is None:
            return None
        last = self.v.scalar(limit.keys_of(row + (rows - 1)))
        every = e.index(self.plan.product.k)
        weighing = e.binary("arith.minsi", e.binary("arith.maxsi", last, e.index(1)), every)
        return e.select(self.finite, weighing, every)

    def _rounded_up(self, count: Val, step: int) -> Val:
        """The least multiple of `step` not below `count`, in steps."""
        e = self.e
        return e.binary("arith.divui", e.add(count, e.index(step - 1)), e.index(step))

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

    def _compute_scores(self, rows: int, needed: Val | None) -> None:
        e, keys, depth = self.e, self.packed_keys, self.plan.scores.k
        panels = e.index(keys.count)
        if needed is not None:
            panels = self._rounded_up(needed, keys.width)
        self.keys.multiply(panels, rows, depth, self.queries, depth, self.scores)

    # -- rows ------------------------------------------------------------------------------------

    def _rows(self, batch: Indices, row: Index, rows: int, needed: Val | None) -> None:
        """Evaluate the weights of the query rows into the strip of weights.

        One reduction of all rows after the other: those of different rows do not wait for each
        other, so their latencies overlap.
        """
        v = self.v
        done: list[Node] = []
        kept: list[bool] = []
        for together in self._reductions(batch, row + of(domain.variable(max(rows, 2)))):
            before = tuple(done)

            def reduce(
                at: Index,
                inner: Index,
                before: tuple[Node, ...] = before,
                together: tuple[Node, ...] = together,
            ) -> None:
                self._open_row(batch, at, inner, needed, before)
                places = self._places(batch, at)
                for node in together:
                    v.store(v.value(node, places[node]), self._values_of(node), inner, "f32")
                kept.append(self._is_kept(batch, at))

            self._each_row(row, rows, reduce)
            done += together

        def finish(at: Index, inner: Index) -> None:
            self._open_row(batch, at, inner, needed, done)
            self._store_row_results(batch, at, inner)
            if not any(kept) and not self._is_kept(batch, at):
                self._store_weights(batch, at, inner, needed)

        self._each_row(row, rows, finish)

    def _open_row(
        self, batch: Indices, row: Index, inner: Index, needed: Val | None, done: Sequence[Node]
    ) -> None:
        """Tell the evaluator what is known of a row: its scores, and reductions `done` of it."""
        e, v, plan = self.e, self.v, self.plan
        v.buffers.clear()
        strip_row = e.gep(self.scores, v.scalar(inner * self.packed_keys.padded), "f32")
        where = plan.scores.at(batch, row, Index(0))
        v.buffers[plan.scores.node] = RowBuffer(strip_row, where, (self._key_dimension(),), (1,))
        v.keep_in(plan.weights, self._weights_of(inner))
        if plan.limit is not None and needed is not None:
            v.limits = dict.fromkeys(plan.limit.reductions, needed)
        if done:
            places = self._places(batch, row)
            for node in done:
                address = e.gep(self._values_of(node), v.scalar(inner), "f32")
                v.buffers[node] = RowBuffer(address, places[node], (), ())
                v.value(node, places[node])  # loaded here, not in the loops that need it

    def _values_of(self, reduction: Node) -> Val:
        """Memory for a strip's results of a reduction."""
        if reduction not in self.row_values:
            self.row_values[reduction] = self.e.local("f32", self.strip)
        return self.row_values[reduction]

    def _weights_of(self, inner: Index) -> Val:
        return self.e.gep(self.weights, self.v.scalar(inner * self.packed_keys.padded), "f32")

    def _reductions(self, batch: Indices, row: Index) -> list[tuple[Node, ...]]:
        """Reductions of a row's scores to floats, those of one loop together, in order."""
        places = self._places(batch, row)
        plan = self.v.rows
        loops = {
            plan.siblings[n.operation]: plan.levels[n]
            for n in places
            if n.op == "stablehlo.reduce" and len(n.operands) == 2
        }
        ordered = sorted(loops, key=lambda loop: loops[loop])
        return [
            loop
            for loop in ordered
            if all(n in places and compute_elem(n.tensor) == "f32" for n in loop)
        ]

    def _places(self, batch: Indices, row: Index) -> dict[Node, Indices]:
        """Reductions that a row's weights and results need, with the row's index in them.

        Those only that are needed at one index.
        """
        plan = self.plan
        roots = [(plan.weights, plan.product.a_source(batch, row, Index(0)).indices)]
        if plan.divisor is not None:
            roots.append((plan.divisor, roots[0][1]))
        roots += [(r.node, row_place(r.node, plan.product, batch, row)) for r in plan.rows]
        stop = {plan.scores.node, *self.v.bases}
        found = trace(roots, stop.__contains__, into_reductions=False).reductions
        indices: dict[Node, set[Indices]] = {}
        for node, at in found:
            indices.setdefault(node, set()).add(at)
        return {node: at.pop() for node, at in indices.items() if len(at) == 1}

    def _store_weights(self, batch: Indices, row: Index, inner: Index, needed: Val | None) -> None:
        v, plan = self.v, self.plan
        out = self._weights_of(inner)

        def vector(start: Index, active: Val | None) -> None:
            variable = v.fresh_var(self.lanes, is_lane=True)
            with v.vector(Lane(variable, self.lanes, active)):
                source = plan.product.a_source(batch, row, start + of(variable))
                value = v.value(plan.weights, source.indices)
                v.store(value, out, start + of(variable), "f32")

        self._each_vector(plan.product.k, vector, needed)

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
            at = row_place(root.node, product, batch, row)
            value = narrow(e, v.value(root.node, at), root.output)
            v.store(value, self.results[root.number], linear(at, root.output.strides), value.elem)
        if self.plan.divisor is not None:
            source = product.a_source(batch, row, Index(0))
            divisor = v.value(self.plan.divisor, source.indices)
            if self.plan.shares:
                divisor = e.div(e.const("f32", 1.0), divisor)
            v.store(divisor, self.divisors, inner, "f32")

    # -- values ----------------------------------------------------------------------------------

    def _weigh_values(self, rows: int, needed: Val | None) -> None:
        """The strip of weights times the packed values; weights of skipped keys are 0."""
        e, k = self.e, self.plan.product.k
        count: int | Val = k
        if needed is not None:
            steps = e.mul(self._rounded_up(needed, UNROLL), e.index(UNROLL))
            count = e.binary("arith.minsi", steps, e.index(k // UNROLL * UNROLL))
        panels, columns = e.index(self.packed_values.count), self.packed_keys.padded
        self.values.multiply(panels, rows, count, self.weights, columns, self.sums)

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
            span = self.strip * self.packed_values.padded
            place = inner * self.packed_values.padded + part + of(variable)
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
