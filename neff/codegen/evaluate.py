"""Evaluates any element, or any vector of elements, of a group's nodes.

In: a node and an index (one lane variable may run through a vector). Out: an emitter value. Views
become index arithmetic; a reduction becomes a loop, placed where its index is known: so one per
row, however often it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from neuron_compile.errors import CodegenError
from neuron_compile.neff.codegen import views
from neuron_compile.neff.codegen.affine import Comparison, comparison_of
from neuron_compile.neff.codegen.elementwise import RULES, compute_elem, widen
from neuron_compile.neff.codegen.emitter import Emitter, stream_alignment
from neuron_compile.neff.codegen.index import (
    Bounded,
    Index,
    Quotient,
    Remainder,
    Runtime,
    Var,
    linear,
    of,
)
from neuron_compile.neff.codegen.program import Node
from neuron_compile.neff.codegen.pulled import PULLED, bitcast_to_other_width
from neuron_compile.neff.codegen.rows import RowPlan
from neuron_compile.neff.codegen.value import Val, bytes_of
from neuron_compile.neff.codegen.views import Condition, Indices, Source

SHORTEST_STREAMED = 16  # bytes: no shorter vector can be stored past the caches


@dataclass(frozen=True, slots=True)
class Lane:
    """The vector that is being computed.

    Its lane variable, length, and which lanes exist (None: all).
    """

    variable: Var
    lanes: int
    active: Val | None = None


@dataclass(frozen=True, slots=True)
class RowBuffer:
    """A node's values over `dimensions` at one row, kept in thread-local memory in the compute
    type.

    `filled` marks the scope at whose present end it is full: code outside of that scope comes
    before.
    """

    address: Val
    row: Indices
    dimensions: tuple[int, ...]
    strides: tuple[int, ...]
    filled: Val | None = None


class Evaluator:
    """Pull evaluation of one group inside one kernel."""

    def __init__(self, e: Emitter, bases: Mapping[Node, Val]) -> None:
        self.e = e
        self.bases = dict(bases)  # parameters (and other materialised nodes) to their address
        self.values: dict[Var, Val] = {}  # open loops
        self.lane: Lane | None = None
        self.buffers: dict[Node, RowBuffer] = {}
        self.fixed: dict[Node, Val] = {}  # nodes used at one index only: their value there
        self._runtimes: dict[str, Val] = {}
        self._memo: dict[tuple[Node, Indices, str], Val] = {}
        self.reduced: dict[tuple[int, Indices, str], tuple[Val, ...]] = {}
        self.rows = RowPlan({}, {}, {})
        # By operation: elements of its only reduced dimension from this number on change nothing.
        self.limits: Mapping[int, Val] = {}
        self._row_memory: dict[Node, Val] = {}
        self._fresh = 0

    # -- scopes ----------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drop remembered values: those of `fixed` nodes have changed."""
        self._memo.clear()

    def fresh_var(self, extent: int, *, is_lane: bool = False) -> Var:
        self._fresh += 1
        return Var(f"{'l' if is_lane else 'i'}{self._fresh}", extent, is_lane)

    @contextmanager
    def vector(self, lane: Lane | None) -> Iterator[None]:
        """Compute with this lane variable (None: scalars) inside the block."""
        before, self.lane = self.lane, lane
        try:
            yield
        finally:
            self.lane = before

    def keep_in(self, node: Node, address: Val) -> None:
        """Have loops that keep rows of `node` keep them there."""
        self._row_memory[node] = address

    def row_memory(self, node: Node, elem: str, size: int) -> Val:
        """Thread-local memory for a row of `node`, the same for every row."""
        if node not in self._row_memory:
            self._row_memory[node] = self.e.local(elem, size)
        return self._row_memory[node]

    # -- indices ---------------------------------------------------------------------------------

    def varies(self, index: Index) -> bool:
        """Whether the index differs between lanes."""
        return any(v.is_lane for v in index.variables()) or any(r.lanes for r in index.runtimes())

    def depth_of(self, indices: Indices) -> int:
        """The outermost scope where these indices are known; a lane number is known everywhere."""
        depth = 0
        for index in indices:
            for v in index.variables():
                if not v.is_lane:
                    depth = max(depth, self.values[v].depth)
            for r in index.runtimes():
                depth = max(depth, r.depth)
        return depth

    def scalar(self, index: Index) -> Val:
        """i64 value of a lane-free index."""
        return self._sum(index, 0, "i64")

    def lanes_of(self, index: Index, elem: str = "i64") -> Val:
        """Vector of the index's values in all lanes."""
        assert self.lane is not None
        return self._sum(index, self.lane.lanes, elem)

    def _sum(self, index: Index, lanes: int, elem: str) -> Val:
        """Uniform part as a scalar first, so that it is hoisted as far as it goes."""
        e = self.e
        fixed: Val | None = None
        varying: Val | None = None
        terms = sorted(index.terms, key=lambda t: self._term_depth(t[0]))
        for atom, factor in terms:
            if lanes and self.varies(Index(0, ((atom, 1),))):
                term = self._scale(self._atom(atom, lanes, elem), factor)
                varying = term if varying is None else e.add(varying, term)
            else:
                term = self._scale(self._atom(atom, 0, "i64"), factor)
                fixed = term if fixed is None else e.add(fixed, term)
        if fixed is None:
            fixed = e.index(index.constant)
        elif index.constant:
            fixed = e.add(fixed, e.index(index.constant))
        if not lanes:
            return fixed
        if elem != "i64":
            fixed = e.cast("arith.trunci", fixed, elem)
        return e.splat(fixed, lanes) if varying is None else e.add(varying, e.splat(fixed, lanes))

    def _term_depth(self, atom: object) -> int:
        return self.values[atom].depth if isinstance(atom, Var) and atom in self.values else 99

    def _scale(self, value: Val, factor: int) -> Val:
        return (
            value
            if factor == 1
            else self.e.mul(value, self.e.const(value.elem, factor, value.lanes))
        )

    def _atom(self, atom: object, lanes: int, elem: str) -> Val:
        e = self.e
        if isinstance(atom, Var):
            if atom.is_lane:
                return e.lane_ids(lanes, elem)
            return self.values[atom]
        if isinstance(atom, Runtime):
            value = self._runtimes[atom.name]
            return value if value.elem == elem else e.cast("arith.trunci", value, elem)
        assert isinstance(atom, (Quotient, Remainder, Bounded))
        inner = self._sum(atom.index, lanes, elem)
        if isinstance(atom, Bounded):
            lower = e.binary("arith.maxsi", inner, e.const(elem, atom.low, lanes))
            return e.binary("arith.minsi", lower, e.const(elem, atom.high, lanes))
        low, high = atom.index.bounds
        divisor = e.const(elem, atom.divisor, lanes)
        if low >= 0:
            return self._divide_unsigned(inner, atom, elem, lanes, high)
        quotient = e.binary("arith.floordivsi", inner, divisor)
        return quotient if isinstance(atom, Quotient) else e.sub(inner, e.mul(quotient, divisor))

    def _divide_unsigned(
        self, inner: Val, atom: Quotient | Remainder, elem: str, lanes: int, high: int
    ) -> Val:
        """Division of a non-negative index.

        Vectors of small indices divide in floating point, exactly.
        """
        e = self.e
        divisor = e.const(elem, atom.divisor, lanes)
        power = atom.divisor & (atom.divisor - 1) == 0
        if power:
            if isinstance(atom, Remainder):
                return e.binary("arith.andi", inner, e.const(elem, atom.divisor - 1, lanes))
            return e.binary(
                "arith.shrui", inner, e.const(elem, atom.divisor.bit_length() - 1, lanes)
            )
        if lanes and high < 1 << 31:
            # (x + 1/2) / d is at least 1/(2d) off every integer and errs by at most x/d * 2**-51.
            small = inner if elem == "i32" else e.cast("arith.trunci", inner, "i32")
            real = e.cast("arith.sitofp", small, "f64")
            scaled = e.fma(
                real,
                e.const("f64", 1.0 / atom.divisor, lanes),
                e.const("f64", 0.5 / atom.divisor, lanes),
            )
            quotient = e.cast("arith.fptosi", scaled, "i32")
            quotient = quotient if elem == "i32" else e.cast("arith.extsi", quotient, elem)
        else:
            quotient = e.binary("arith.divui", inner, divisor)
        return quotient if isinstance(atom, Quotient) else e.sub(inner, e.mul(quotient, divisor))

    def runtime(self, value: Val, low: int, high: int) -> Index:
        """An index that the kernel computes (already inside [low, high])."""
        self._runtimes[value.name] = value
        return of(Runtime(value.name, value.lanes, value.depth, low, high))

    # -- conditions ------------------------------------------------------------------------------

    def condition(self, c: Condition) -> Val | None:
        """i1 of a condition, None where it always holds."""
        if c.always:
            return None
        lanes = self.lane.lanes if self.lane and self.varies(c.index) else 0
        elem = "i32" if lanes and _is_small(c.index) else "i64"
        low, high = c.index.bounds
        result: Val | None = None
        if low < c.low and high >= c.high:  # one unsigned comparison
            moved = self._sum(c.index + -c.low, lanes, elem)
            result = self.e.compare("ult", moved, self.e.const(elem, c.high - c.low, lanes))
        elif low < c.low:
            result = self._compare("sge", c.index, c.low)
        elif high >= c.high:
            result = self._compare("slt", c.index, c.high)
        if c.multiple > 1:
            rest = c.index % c.multiple
            if rest.terms:
                whole = self.e.compare(
                    "eq", self._sum(rest, lanes, elem), self.e.const(elem, 0, lanes)
                )
                result = self.e.both(result, whole)
            elif rest.constant:
                return self.e.const("i1", False)
        return result

    def _compare(self, predicate: str, index: Index, bound: int) -> Val:
        """Lanes on one side, what they share on the other: one instruction per vector."""
        if self.lane is None or not self.varies(index):
            return self.e.compare(predicate, self.scalar(index), self.e.index(bound))
        terms = tuple(t for t in index.terms if self.varies(Index(0, (t,))))
        lanes = Index(0, terms)
        shared = Index(bound) - (index - lanes)
        elem = "i32" if _is_small(lanes) and _is_small(shared) else "i64"
        right = self.scalar(shared)
        right = right if elem == "i64" else self.e.cast("arith.trunci", right, elem)
        return self.e.compare(predicate, self.lanes_of(lanes, elem), right)

    def _compared(self, c: Comparison) -> Val:
        if c.condition.always or c.condition.never:
            return self.e.const("i1", c.condition.always == c.holds)
        value = self.condition(c.condition)
        assert value is not None
        if c.holds:
            return value
        return self.e.binary("arith.xori", value, self.e.const("i1", True, value.lanes))

    def conditions(self, items: Sequence[Condition]) -> Val | None:
        result: Val | None = None
        for item in items:
            result = self.e.both(result, self.condition(item))
        return result

    # -- nodes -----------------------------------------------------------------------------------

    def value(self, node: Node, at: Indices, mask: Val | None = None) -> Val:
        """The node's element at `at` in its compute type.

        Where `mask` is false `at` may be out of range.
        """
        given = self.fixed.get(node)
        if given is not None:
            return given
        if mask is not None and _inside(at, node.shape):
            mask = None
        key = (node, at, mask.name if mask else "")
        known = self._memo.get(key)
        if known is not None and self.e.alive(known):
            return known
        result = self._evaluate(node, at, mask)
        self._memo[key] = result
        return result

    def _evaluate(self, node: Node, at: Indices, mask: Val | None) -> Val:
        buffered = self._from_buffer(node, at, mask)
        if buffered is not None:
            return buffered
        if node in self.bases:
            return self.load(node, self.bases[node], at, mask)
        if views.changes_width(node):
            return bitcast_to_other_width(self, node, at, mask)
        compared = comparison_of(node, at)
        if compared is not None:
            return self._compared(compared)
        rule = RULES.get(node.op)
        if rule is not None:
            return rule(self.e, node, self._operands(node, at, mask))
        view = views.PERMUTATIONS.get(node.op)
        if view is not None:
            source = view(node, at)
            return self.value(source.operand, source.indices, mask)
        handler = PULLED.get(node.op)
        if handler is None:
            raise CodegenError(f"{node.op} has no pull rule; it needs a kernel of its own")
        return handler(self, node, at, mask)

    def _operands(self, node: Node, at: Indices, mask: Val | None) -> list[Val]:
        """Those that need most loops first: the loops may keep what the others would compute."""
        order = sorted(dict.fromkeys(node.operands), key=lambda o: -self.rows.levels.get(o, 0))
        values = {o: self.value(o, at if o.shape == node.shape else (), mask) for o in order}
        return [values[o] for o in node.operands]

    def from_source(self, source: Source, mask: Val | None) -> tuple[Val, Val | None]:
        """Value of a conditional source and the condition under which it counts."""
        condition = self.conditions(source.conditions)
        return self.value(source.operand, source.indices, self.e.both(mask, condition)), condition

    # -- memory ----------------------------------------------------------------------------------

    def load(
        self, node: Node, base: Val, at: Indices, mask: Val | None, *, constant: bool = True
    ) -> Val:
        tensor = node.tensor
        offset = linear(at, tensor.strides)
        span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.strides, strict=True)) + 1
        raw = self.load_offset(base, offset, tensor.stored, span, mask, constant=constant)
        return widen(self.e, raw, tensor)

    def load_offset(
        self,
        base: Val,
        offset: Index,
        elem: str,
        span: int,
        mask: Val | None,
        *,
        constant: bool = True,
    ) -> Val:
        """Load at an element offset whose legal values are [0, span)."""
        e = self.e
        low, high = offset.bounds
        safe = low >= 0 and high < span
        if not self.varies(offset):
            if not safe:
                offset = offset.bounded(0, span - 1)
            return e.load(self.address(base, offset, elem), elem, constant=constant)
        assert self.lane is not None
        lane = self.lane
        guard = e.both(lane.active, None if safe else mask)
        step = offset.coefficient(lane.variable)
        rest = offset + of(lane.variable) * -step
        if self.varies(rest):
            offsets = self.lanes_of(
                offset if safe or guard is not None else offset.bounded(0, span - 1)
            )
            return e.gather(base, offsets, elem, guard, constant=constant)
        address = self.address(base, rest, elem)
        if step == 1:
            return e.load(address, elem, lane.lanes, guard, constant=constant)
        return e.gather(
            address, e.lane_ids(lane.lanes, "i64", step), elem, guard, constant=constant
        )

    def address(self, base: Val, offset: Index, elem: str) -> Val:
        """The constant part goes last, into the instruction's displacement."""
        e = self.e
        moving = Index(0, offset.terms)
        if moving.terms:
            base = e.gep(base, self.scalar(moving), elem)
        return e.gep(base, offset.constant, elem)

    def store(
        self, value: Val, base: Val, offset: Index, elem: str, *, streamed: bool = False
    ) -> None:
        """Store a computed value (already narrowed) at an element offset.

        `streamed`: past the caches where whole vectors are stored; `base` is aligned to a line.
        """
        e = self.e
        if not self.varies(offset):
            if value.lanes:
                raise CodegenError("a vector cannot be stored to one element")
            e.store(value, self.address(base, offset, elem))
            return
        assert self.lane is not None
        lane = self.lane
        value = e.splat(value, lane.lanes)
        step = offset.coefficient(lane.variable)
        rest = offset + of(lane.variable) * -step
        if self.varies(rest):
            e.scatter(value, base, self.lanes_of(offset), lane.active)
        elif step == 1:
            address = self.address(base, rest, elem)
            if streamed and lane.active is None and _may_stream(rest, elem, lane.lanes):
                e.stream(value, address)
            else:
                e.store(value, address, lane.active)
        else:
            e.scatter(
                value,
                self.address(base, rest, elem),
                e.lane_ids(lane.lanes, "i64", step),
                lane.active,
            )

    def _from_buffer(self, node: Node, at: Indices, mask: Val | None) -> Val | None:
        buffer = self.buffers.get(node)
        if buffer is None or (buffer.filled is not None and not self.e.alive(buffer.filled)):
            return None
        if any(at[d] != i for d, i in enumerate(buffer.row) if d not in buffer.dimensions):
            return None
        offset = linear((at[d] for d in buffer.dimensions), buffer.strides)
        span = 1
        for d in buffer.dimensions:
            span *= node.shape[d]
        return self.load_offset(
            buffer.address, offset, compute_elem(node.tensor), span, mask, constant=False
        )


def _may_stream(offset: Index, elem: str, lanes: int) -> bool:
    """Whether vectors at `offset` are aligned as streamed stores must be, and not too short."""
    align = stream_alignment(elem, lanes)
    return align >= SHORTEST_STREAMED and offset.is_multiple(align // bytes_of(elem))


def _is_small(index: Index) -> bool:
    """Whether 32 bits hold all values of the index, and of what is divided or clamped inside it."""
    low, high = index.bounds
    inner = (a.index for a, _ in index.terms if isinstance(a, (Quotient, Remainder, Bounded)))
    return low >= -(1 << 31) and high < 1 << 31 and all(map(_is_small, inner))


def _inside(at: Indices, shape: tuple[int, ...]) -> bool:
    """Whether an index is in range for all values of its variables."""
    bounds = (i.bounds for i in at)
    return all(low >= 0 and high < n for (low, high), n in zip(bounds, shape, strict=True))
