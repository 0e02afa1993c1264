"""Kernels for `attention` groups: scores, softmax rows and weighted values without a score matrix.

In: a `Group` dot -> row operations -> dot. Out: its kernels. A task takes one batch entry: it packs
keys and values once, then for each few query rows computes a strip of scores, runs the group's own
row operations on it, and multiplies the strip with the values. Only the strip exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from neuron_compile.neff.codegen import domain
from neuron_compile.neff.codegen.accesses import trace
from neuron_compile.neff.codegen.causal import CausalLimit, causal_limit
from neuron_compile.neff.codegen.contract import Scratch, product_kernels
from neuron_compile.neff.codegen.contraction import Contraction, contraction_of
from neuron_compile.neff.codegen.elementwise import compute_elem, narrow
from neuron_compile.neff.codegen.emitter import Emitter, Val
from neuron_compile.neff.codegen.epilogue import Inverse, invert
from neuron_compile.neff.codegen.evaluate import Evaluator, Lane, RowBuffer
from neuron_compile.neff.codegen.index import Index, Var, contiguous_strides, linear, of, unravel
from neuron_compile.neff.codegen.kernel import Kernel
from neuron_compile.neff.codegen.loops import Root, kernels_of
from neuron_compile.neff.codegen.macs import CONTRACTIONS
from neuron_compile.neff.codegen.packing import Packer, PanelLayout
from neuron_compile.neff.codegen.program import Group, Node, Tensor
from neuron_compile.neff.codegen.rows import plan_rows
from neuron_compile.neff.codegen.tile_product import UNROLL, TileProduct
from neuron_compile.neff.codegen.views import PERMUTATIONS, Indices
from neuron_compile.neff.target import Target

STRIP_ROWS = 6  # query rows at a time: their scores stay in the first-level cache
PACKED_BYTES = 1 << 20  # of keys and values on the thread's stack; longer ones are not fused
LEAST_ROWS = 4


def attention_kernels(group: Group, name: str, target: Target) -> list[Kernel]:
    """One fused kernel, or the two products with the rows between them in scratch memory."""
    leaves = {p: i for i, p in enumerate(group.parameters)}
    first = len(leaves)
    outputs = zip(group.results, group.outputs, strict=True)
    roots = [Root(n, o, first + i) for i, (n, o) in enumerate(outputs) if o.size]
    dots = [n for n in group.nodes() if n.op in CONTRACTIONS]
    plan = _plan(dots[0], dots[1], roots, leaves, target) if len(dots) == 2 else None
    if plan is not None:
        return [_AttentionKernel(plan, leaves, name, target).kernel()]
    return _separately(dots, roots, leaves, name, target)


def _separately(
    dots: list[Node], roots: list[Root], leaves: Mapping[Node, int], name: str, target: Target
) -> list[Kernel]:
    """Each contraction stored to scratch memory in turn, then everything else."""
    known = dict(leaves)
    scratch = Scratch(max((r.number for r in roots), default=len(leaves) - 1) + 1, [])
    made: list[Kernel] = []
    for i, dot in enumerate(dots):
        for operand in dot.operands:
            if operand not in known and operand.op not in PERMUTATIONS:
                stored = scratch.root(operand, operand.tensor)
                made += kernels_of([stored], known, f"{name}_in{i}_{stored.number}", target)
                known[operand] = stored.number
        root = scratch.root(dot, dot.tensor)
        made += product_kernels(dot, [root], known, scratch, f"{name}_dot{i}", target)
        known[dot] = root.number
    made += kernels_of(roots, known, f"{name}_out", target)
    return [replace(made[0], scratch=tuple(scratch.sizes)), *made[1:]] if made else []


@dataclass(frozen=True, slots=True)
class _Plan:
    """`scores` and `product` share batch, rows and k; `weights` is what multiplies the values.

    `divisor`: a row value by which the weights would be divided; the result is divided instead.
    """

    scores: Contraction
    product: Contraction
    weights: Node
    divisor: Node | None
    fused: tuple[tuple[Root, Inverse], ...]
    rows: tuple[Root, ...]
    limit: CausalLimit | None


def _plan(
    first: Node, second: Node, roots: list[Root], leaves: Mapping[Node, int], target: Target
) -> _Plan | None:
    product = contraction_of(second)
    if product.m < LEAST_ROWS or product.n < 4 or product.k < 4 or len(product.reduced) != 1:
        return None
    if compute_elem(second.tensor) != "f32" or compute_elem(first.tensor) != "f32":
        return None
    scores = _scores(first, product, leaves)
    if scores is None:
        return None
    packed = 4 * product.k * (product.n + 64 + scores.k)
    if packed > PACKED_BYTES:
        return None
    inverses = [(r, invert(r.node, second, leaves.__contains__)) for r in roots]
    fused = tuple((r, i) for r, i in inverses if i is not None)
    rows = tuple(r for r, i in inverses if i is None)
    if not fused or any(_row_position(r, product) is None for r in rows):
        return None
    weights, divisor = _split_division(product.a)
    return _Plan(scores, product, weights, divisor, fused, rows, causal_limit(weights, product))


def _scores(first: Node, product: Contraction, leaves: Mapping[Node, int]) -> Contraction | None:
    """The first dot as a product over the second one's batch and rows, with the keys as columns."""
    b = [domain.variable(n) for n in product.batch]
    m, k = domain.variable(product.m), domain.variable(product.k)
    source = product.a_source(tuple(of(v) for v in b), of(m), of(k))
    found = trace(
        [(source.operand, source.indices)],
        lambda n: n is first or n in leaves,
        into_reductions=False,
    )
    places = {at for n, at in found.uses if n is first}
    if len(places) != 1:
        return None
    (place,) = places
    inner = contraction_of(first)
    rank = len(inner.batch)
    keys = place[rank + len(inner.rows) :]
    if any(_uses(i, k) for i in place[: rank + len(inner.rows)]) or any(_uses(i, m) for i in keys):
        return None

    def position(batch: Indices, row: Indices, column: Indices) -> Indices:
        values: dict[Var, Index] = {m: linear(row, contiguous_strides(product.rows)), k: column[0]}
        values.update(zip(b, batch, strict=True))
        return tuple(i.substitute(values) for i in place)

    return Contraction(
        first, product.batch, product.rows, (product.k,), inner.reduced, position, True, inner.spec
    )


def _uses(index: Index, v: Var) -> bool:
    return v in index.variables()


def _split_division(weights: Node) -> tuple[Node, Node | None]:
    """(e, s) where the weights are e / broadcast(s), seen through rounding; else (weights, None).

    sum((e / s) * v) = sum(e * v) / s: re-association, and one division per result instead of one
    per weight.
    """
    node = weights
    while node.op == "stablehlo.convert" and compute_elem(node.tensor) == "f32":
        node = node.operands[0]
    if node.op == "stablehlo.divide" and compute_elem(node.tensor) == "f32":
        divisor = node.operands[1]
        if divisor.op == "stablehlo.broadcast_in_dim" and node.shape == weights.shape:
            return node.operands[0], divisor
    return weights, None


def _row_position(root: Root, product: Contraction) -> int | None:
    """Whether a row result has one element per batch entry and row."""
    return 0 if root.output.size == prod(product.batch) * product.m else None


class _AttentionKernel:
    """Writes the fused kernel."""

    def __init__(self, plan: _Plan, leaves: Mapping[Node, int], name: str, target: Target) -> None:
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
        self.scores = e.local("f32", self.strip * self.keys)
        self.weights = e.local("f32", self.strip * self.keys)
        self.sums = e.local("f32", self.strip * self.columns)
        self.divisors = e.local("f32", self.strip)
        layout = PanelLayout(self.width, self.lanes, "f32", False)
        floats = Tensor((), "f32", ())
        self.key_packer = Packer(self.v, scores, layout, floats)
        self.value_packer = Packer(self.v, product, layout, floats)
        self.v.rows = plan_rows([plan.weights], self.v.bases.__contains__)
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
            panel = domain.variable(max(whole, 2))
            self.v.values[panel] = i
            target = e.gep(to, e.mul(i, e.index(depth * self.width)), "f32")
            packer.pack(target, batch, of(panel) * self.width, self.width, None)
            return []

        if whole:
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
        e = self.e
        panels = self._panels_needed(batch, row, rows)
        self._compute_scores(batch, row, rows, panels)

        def one(r: Val, _: tuple[Val, ...]) -> list[Val]:
            inner = domain.variable(max(rows, 2))
            self.v.values[inner] = r
            self._row(batch, row + of(inner), of(inner))
            return []

        e.loop(e.index(0), e.index(rows), 1, one)
        self._weigh_values(rows, panels)
        self._epilogue(batch, row, rows)

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

    def _compute_scores(self, batch: Indices, row: Index, rows: int, panels: Val) -> None:
        e, scores = self.e, self.plan.scores

        def a(r: int, position: Index) -> Val:
            source = scores.a_source(batch, row + r, position)
            with self.v.vector(None):
                return e.splat(self.v.value(source.operand, source.indices), self.lanes)

        def body(p: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = e.gep(self.packed_keys, e.mul(p, e.index(scores.k * self.width)), "f32")
            sums = self.product.sums(rows, scores.k, a, panel, self.width)
            to = e.gep(self.scores, e.mul(p, e.index(self.width)), "f32")
            for i, total in enumerate(sums):
                r, j = divmod(i, self.vectors)
                e.store(total, e.gep(to, r * self.keys + j * self.lanes, "f32"))
            return []

        e.loop(e.index(0), panels, 1, body)

    # -- rows ------------------------------------------------------------------------------------

    def _row(self, batch: Indices, row: Index, inner: Index) -> None:
        """Evaluate the weights of one query row into the strip of weights."""
        e, v, plan = self.e, self.v, self.plan
        strip_row = e.gep(self.scores, v.scalar(inner * self.keys), "f32")
        where = plan.scores.at(batch, row, Index(0))
        key_dimension = self._key_dimension()
        v.buffers.clear()
        v.buffers[plan.scores.node] = RowBuffer(strip_row, where, (key_dimension,), (1,))
        out = e.gep(self.weights, v.scalar(inner * self.keys), "f32")
        k = plan.product.k

        def at(position: Index, active: Val | None) -> None:
            variable = v.fresh_var(self.lanes, is_lane=True)
            with v.vector(Lane(variable, self.lanes, active)):
                source = plan.product.a_source(batch, row, position + of(variable))
                value = e.splat(v.value(plan.weights, source.indices), self.lanes)
                if active is not None:
                    value = e.select(active, value, e.const("f32", 0.0, self.lanes))
            with v.vector(Lane(variable, self.lanes)):
                v.store(value, out, position + of(variable), "f32")

        whole = k // self.lanes * self.lanes

        def body(i: Val, _: tuple[Val, ...]) -> list[Val]:
            base = domain.stepping(whole, self.lanes)
            v.values[base] = i
            at(of(base), None)
            return []

        if whole:
            e.loop(e.index(0), e.index(whole), self.lanes, body)
        if k % self.lanes:
            at(Index(whole), e.lane_mask(k % self.lanes, self.lanes))
        self._store_row_results(batch, row, inner)

    def _key_dimension(self) -> int:
        inner = contraction_of(self.plan.scores.node)
        return len(inner.batch) + len(inner.rows)

    def _store_row_results(self, batch: Indices, row: Index, inner: Index) -> None:
        v, product = self.v, self.plan.product
        for root in self.plan.rows:
            shape = (*product.batch, product.m)
            at = unravel(linear((*batch, row), contiguous_strides(shape)), root.node.shape)
            value = narrow(self.e, v.value(root.node, at), root.output)
            v.store(value, self.results[root.number], linear(at, root.output.strides), value.elem)
        if self.plan.divisor is not None:
            source = product.a_source(batch, row, Index(0))
            divisor = v.value(self.plan.divisor, source.indices)
            v.store(divisor, self.divisors, inner, "f32")

    # -- values ----------------------------------------------------------------------------------

    def _weigh_values(self, rows: int, panels: Val) -> None:
        """The strip of weights times the packed values; weights of skipped keys are 0."""
        e, v, k = self.e, self.v, self.plan.product.k
        most = k // UNROLL * UNROLL
        count: int | Val = k
        if self.plan.limit is not None:
            count = e.binary("arith.minsi", e.mul(panels, e.index(self.width)), e.index(most))

        def a(r: int, position: Index) -> Val:
            moving = Index(0, position.terms)
            base = e.gep(self.weights, v.scalar(moving), "f32") if moving.terms else self.weights
            offset = position.constant + r * self.keys
            return e.splat(e.load(e.gep(base, offset, "f32"), "f32", constant=False), self.lanes)

        def body(p: Val, _: tuple[Val, ...]) -> list[Val]:
            panel = e.gep(self.packed_values, e.mul(p, e.index(k * self.width)), "f32")
            sums = self.product.sums(rows, count, a, panel, self.width, last=range(most, k))
            to = e.gep(self.sums, e.mul(p, e.index(self.width)), "f32")
            for i, total in enumerate(sums):
                r, j = divmod(i, self.vectors)
                e.store(total, e.gep(to, r * self.columns + j * self.lanes, "f32"))
            return []

        e.loop(e.index(0), e.index(self.columns // self.width), 1, body)

    def _epilogue(self, batch: Indices, row: Index, rows: int) -> None:
        """Every result that is a function of the second product, row by row."""
        e, v, n = self.e, self.v, self.plan.product.n

        def per_row(r: Val, _: tuple[Val, ...]) -> list[Val]:
            inner = domain.variable(max(rows, 2))
            v.values[inner] = r
            whole = n // self.lanes * self.lanes

            def per_vector(j: Val, _: tuple[Val, ...]) -> list[Val]:
                part = domain.stepping(whole, self.lanes)
                v.values[part] = j
                self._vector(batch, row + of(inner), of(inner), of(part), None)
                return []

            if whole:
                e.loop(e.index(0), e.index(whole), self.lanes, per_vector)
            if n % self.lanes:
                mask = e.lane_mask(n % self.lanes, self.lanes)
                self._vector(batch, row + of(inner), of(inner), Index(whole), mask)
            return []

        e.loop(e.index(0), e.index(rows), 1, per_row)

    def _vector(
        self, batch: Indices, row: Index, inner: Index, part: Index, active: Val | None
    ) -> None:
        v, product = self.v, self.plan.product
        variable = v.fresh_var(self.lanes, is_lane=True)
        with v.vector(Lane(variable, self.lanes)):
            span = self.strip * self.columns
            place = inner * self.columns + part + of(variable)
            total = v.load_offset(self.sums, place, "f32", span, None, constant=False)
            if self.plan.divisor is not None:
                at = stored_float(self.divisors, v, inner)
                total = self.e.div(total, self.e.splat(at, self.lanes))
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


def stored_float(base: Val, v: Evaluator, index: Index) -> Val:
    """An f32 of thread-local memory that this kernel has written."""
    address = v.e.gep(base, v.scalar(index), "f32") if index.terms else base
    return v.e.load(v.e.gep(address, 0, "f32"), "f32", constant=False)
