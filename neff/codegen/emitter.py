"""Typed text emitter for `arith`/`math`/`scf`/`vector`/`llvm` with scopes.

A pure operation is placed in the outermost open loop in which all its operands exist, and an
equal pure operation there is reused. So loop-invariant code motion and common subexpression
elimination happen while the text is written, and no MLIR or LLVM pass has to find them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from neuron_compile.errors import CodegenError
from neuron_compile.neff.codegen.value import (
    FLOAT_BITS,
    INT_BITS,
    Val,
    bytes_of,
    float_literal,
    memory_elem,
    type_text,
)

# `contract` lets a multiply and an add become one fused operation; it keeps NaN, inf and signed
# zero.
CONTRACT = "fastmath<contract>"
LINE_BYTES = 64  # of a cache line, as a prefetch fetches it and a streamed store fills it
# Of buffers on the stack of one thread: glibc gives threads 2 MiB where the limit is unlimited.
STACK_BYTES = 7 << 18


@dataclass(slots=True)
class _Scope:
    number: int
    lines: list[str] = field(default_factory=list)
    memo: dict[str, Val] = field(default_factory=dict)
    is_branch: bool = False


class Emitter:
    """Writes one function body. All integer indices are `i64`."""

    def __init__(self, lanes: int, features: frozenset[str] = frozenset()) -> None:
        self.lanes = lanes  # the native vector length in elements of 4 bytes
        self.features = features  # of the target, as in `Target.features`
        self._scopes: list[_Scope] = [_Scope(0)]
        self._scope_count = 0
        self._count = 0
        self._constants: dict[str, Val] = {}
        self._constant_lines: list[str] = []
        self.externals: set[str] = set()
        self.locals_bytes = 0

    # -- placement -------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        return len(self._scopes) - 1

    @property
    def branch_depth(self) -> int:
        """Of the innermost open branch: what reads memory must not leave it."""
        return next((i for i in range(self.depth, 0, -1) if self._scopes[i].is_branch), 0)

    def fresh(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def _define(self, elem: str, lanes: int) -> Val:
        """A fresh value of the innermost scope."""
        return Val(self.fresh(), elem, lanes, self.depth, self._scopes[-1].number)

    def _results(self, name: str, like: Sequence[Val]) -> tuple[Val, ...]:
        number = self._scopes[-1].number
        return tuple(
            Val(f"{name}#{i}", v.elem, v.lanes, self.depth, number) for i, v in enumerate(like)
        )

    def here(self) -> Val:
        """A mark of the present scope, to ask later whether it is still open."""
        return Val("", "", 0, self.depth, self._scopes[-1].number)

    def alive(self, value: Val) -> bool:
        """Whether `value` may be used here."""
        return value.depth < len(self._scopes) and self._scopes[value.depth].number == value.scope

    @contextmanager
    def outside(self, depth: int) -> Iterator[None]:
        """Append to the scope at `depth`, before the loops that are open inside it."""
        inner = self._scopes[depth + 1 :]
        del self._scopes[depth + 1 :]
        try:
            yield
        finally:
            self._scopes.extend(inner)

    def pure(self, text: str, operands: Sequence[Val], elem: str, lanes: int) -> Val:
        """An operation without side effects, hoisted and shared."""
        return self._place(text, _depth(operands), elem, lanes)

    def read(self, text: str, operands: Sequence[Val], elem: str, lanes: int) -> Val:
        """A load of memory that this kernel never writes.

        Hoisted out of loops, not out of branches.
        """
        return self._place(text, max(_depth(operands), self.branch_depth), elem, lanes)

    def _place(self, text: str, depth: int, elem: str, lanes: int) -> Val:
        scope = self._scopes[depth]
        known = scope.memo.get(text)
        if known is not None:
            return known
        value = Val(self.fresh(), elem, lanes, depth, scope.number)
        scope.lines.append(f"{value.name} = {text}")
        scope.memo[text] = value
        return value

    def effect(self, text: str, elem: str, lanes: int) -> Val:
        """An operation with side effects (or reading mutable memory) that yields a value, kept in
        place.
        """
        value = self._define(elem, lanes)
        self._scopes[-1].lines.append(f"{value.name} = {text}")
        return value

    def statement(self, text: str) -> None:
        self._scopes[-1].lines.append(text)

    # -- constants -------------------------------------------------------------------------------

    def _constant(self, text: str, elem: str, lanes: int) -> Val:
        known = self._constants.get(text)
        if known is None:
            known = Val(self.fresh(), elem, lanes, 0, 0)
            self._constants[text] = known
            self._constant_lines.append(f"{known.name} = {text}")
        return known

    def const(self, elem: str, value: float | bool, lanes: int = 0) -> Val:
        """A scalar or splat constant."""
        if elem in FLOAT_BITS:
            literal = float_literal(elem, float(value))
        elif elem == "i1":
            literal = "true" if value else "false"
        else:
            bits = INT_BITS[elem]
            wrapped = int(value) & ((1 << bits) - 1)
            literal = str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
        kind = type_text(elem, lanes)
        text = (
            f"dense<{literal}> : {kind}"
            if lanes
            else f"{literal}{'' if elem == 'i1' else f' : {kind}'}"
        )
        return self._constant(f"arith.constant {text}", elem, lanes)

    def index(self, value: int) -> Val:
        return self.const("i64", value)

    def lane_ids(self, lanes: int, elem: str = "i64", step: int = 1) -> Val:
        """The vector 0, step, 2*step, ..."""
        items = ", ".join(str(i * step) for i in range(lanes))
        return self._constant(
            f"arith.constant dense<[{items}]> : {type_text(elem, lanes)}", elem, lanes
        )

    def lane_mask(self, active: int, lanes: int) -> Val:
        """The constant mask whose first `active` lanes are set."""
        items = ", ".join("true" if i < active else "false" for i in range(lanes))
        return self._constant(f"arith.constant dense<[{items}]> : vector<{lanes}xi1>", "i1", lanes)

    # -- arithmetic ------------------------------------------------------------------------------

    def splat(self, value: Val, lanes: int) -> Val:
        if value.lanes or not lanes:
            return value
        return self.pure(
            f"vector.broadcast {value.name} : {value.type} to {type_text(value.elem, lanes)}",
            (value,),
            value.elem,
            lanes,
        )

    def match(self, *values: Val) -> tuple[Val, ...]:
        """Splat scalars so that all values have the same number of lanes."""
        first = values[0].lanes
        for value in values:
            if value.lanes != first:
                lanes = max(v.lanes for v in values)
                return tuple(self.splat(v, lanes) for v in values)
        return values

    def binary(self, op: str, a: Val, b: Val, flags: str = "") -> Val:
        a, b = self.match(a, b)
        return self.pure(
            f"{op} {a.name}, {b.name}{flags and ' ' + flags} : {a.type}", (a, b), a.elem, a.lanes
        )

    def unary(self, op: str, a: Val, flags: str = "") -> Val:
        return self.pure(f"{op} {a.name}{flags and ' ' + flags} : {a.type}", (a,), a.elem, a.lanes)

    def add(self, a: Val, b: Val) -> Val:
        return (
            self.binary("arith.addf", a, b, CONTRACT)
            if a.is_float
            else self.binary("arith.addi", a, b)
        )

    def sub(self, a: Val, b: Val) -> Val:
        return (
            self.binary("arith.subf", a, b, CONTRACT)
            if a.is_float
            else self.binary("arith.subi", a, b)
        )

    def mul(self, a: Val, b: Val) -> Val:
        return (
            self.binary("arith.mulf", a, b, CONTRACT)
            if a.is_float
            else self.binary("arith.muli", a, b)
        )

    def div(self, a: Val, b: Val) -> Val:
        """Float division (IEEE)."""
        return self.binary("arith.divf", a, b)

    def neg(self, a: Val) -> Val:
        return (
            self.unary("arith.negf", a)
            if a.is_float
            else self.sub(self.const(a.elem, 0, a.lanes), a)
        )

    def abs(self, a: Val) -> Val:
        return self.unary("math.absf", a)

    def fma(self, a: Val, b: Val, c: Val) -> Val:
        """a * b + c with one rounding."""
        a, b, c = self.match(a, b, c)
        return self.pure(
            f"math.fma {a.name}, {b.name}, {c.name} : {a.type}", (a, b, c), a.elem, a.lanes
        )

    def compare(self, predicate: str, a: Val, b: Val) -> Val:
        """`arith.cmpf`/`arith.cmpi`; predicates as in MLIR (`olt`, `une`, `slt`, `ult`, ...)."""
        a, b = self.match(a, b)
        op = "arith.cmpf" if a.is_float else "arith.cmpi"
        return self.pure(f"{op} {predicate}, {a.name}, {b.name} : {a.type}", (a, b), "i1", a.lanes)

    def select(self, condition: Val, a: Val, b: Val) -> Val:
        condition, a, b = self.match(condition, a, b)
        kind = f"{condition.type}, {a.type}" if a.lanes else a.type
        return self.pure(
            f"arith.select {condition.name}, {a.name}, {b.name} : {kind}",
            (condition, a, b),
            a.elem,
            a.lanes,
        )

    def both(self, a: Val | None, b: Val | None) -> Val | None:
        """Conjunction of two optional masks."""
        if a is None or b is None:
            return a if b is None else b
        return self.binary("arith.andi", a, b)

    def any(self, mask: Val) -> Val:
        """Whether any lane is set."""
        return self.pure(
            f"vector.reduction <or>, {mask.name} : {mask.type} into i1", (mask,), "i1", 0
        )

    def cast(self, op: str, a: Val, elem: str) -> Val:
        """A conversion op such as `arith.extf`; the lanes stay."""
        return self.pure(
            f"{op} {a.name} : {a.type} to {type_text(elem, a.lanes)}", (a,), elem, a.lanes
        )

    def bitcast(self, a: Val, elem: str) -> Val:
        return a if a.elem == elem else self.cast("arith.bitcast", a, elem)

    def bitcast_lanes(self, a: Val, elem: str, lanes: int) -> Val:
        """The same bits as a vector of other elements."""
        return self.pure(
            f"llvm.bitcast {a.name} : {a.type} to {type_text(elem, lanes)}", (a,), elem, lanes
        )

    def shuffle(self, a: Val, b: Val, picks: Sequence[int]) -> Val:
        return self.pure(
            f"vector.shuffle {a.name}, {b.name} [{', '.join(map(str, picks))}]"
            f" : {a.type}, {b.type}",
            (a, b),
            a.elem,
            len(picks),
        )

    def extract(self, a: Val, lane: int) -> Val:
        return self.pure(
            f"vector.extract {a.name}[{lane}] : {a.elem} from {a.type}", (a,), a.elem, 0
        )

    def intrinsic(self, name: str, operands: Sequence[Val], elem: str, lanes: int) -> Val:
        """A call of an LLVM intrinsic without side effects."""
        names = ", ".join(v.name for v in operands)
        types = ", ".join(v.type for v in operands)
        return self.pure(
            f'llvm.call_intrinsic "{name}"({names}) : ({types}) -> {type_text(elem, lanes)}',
            operands,
            elem,
            lanes,
        )

    # -- memory ----------------------------------------------------------------------------------

    def gep(self, base: Val, offset: Val | int, elem: str) -> Val:
        """Address of element `offset` of type `elem` behind `base`."""
        if isinstance(offset, int):
            if offset == 0:
                return base
            return self.pure(
                f"llvm.getelementptr inbounds {base.name}[{offset}]"
                f" : (!llvm.ptr) -> !llvm.ptr, {memory_elem(elem)}",
                (base,),
                "ptr",
                0,
            )
        return self.pure(
            f"llvm.getelementptr inbounds {base.name}[{offset.name}]"
            f" : (!llvm.ptr, i64) -> !llvm.ptr, {memory_elem(elem)}",
            (base, offset),
            "ptr",
            0,
        )

    def pointer_argument(self, table: str, slot: int) -> Val:
        """Load pointer number `slot` of the kernel's pointer table."""
        base = Val(table, "ptr", 0, 0, 0)
        address = self.pure(
            f"llvm.getelementptr inbounds {table}[{slot}] : (!llvm.ptr) -> !llvm.ptr, !llvm.ptr",
            (base,),
            "ptr",
            0,
        )
        return self.read(
            f"llvm.load {address.name} invariant : !llvm.ptr -> !llvm.ptr", (address,), "ptr", 0
        )

    def local(self, elem: str, count: int) -> Val:
        """A 64-byte aligned buffer on the stack of the running thread, made at function entry."""
        self.locals_bytes += count * bytes_of(elem)
        size = self.index(count)
        value = Val(self.fresh(), "ptr", 0, 0, 0)
        self._constant_lines.append(
            f"{value.name} = llvm.alloca {size.name} x {memory_elem(elem)}"
            " {alignment = 64 : i64} : (i64) -> !llvm.ptr"
        )
        return value

    def load(
        self,
        address: Val,
        elem: str,
        lanes: int = 0,
        mask: Val | None = None,
        *,
        constant: bool = True,
    ) -> Val:
        """Contiguous load. Masked-off lanes read as zero.

        `constant`: the kernel never writes this memory.
        """
        stored = memory_elem(elem)
        align = bytes_of(elem)
        kind = type_text(stored, lanes)
        operands: tuple[Val, ...] = (address,)
        if mask is None:
            text = f"llvm.load {address.name} {{alignment = {align} : i64}} : !llvm.ptr -> {kind}"
        elif not lanes:
            raise ValueError("a scalar load takes no mask: guard the address instead")
        else:
            mask = self.splat(mask, lanes)
            zero = self.const(stored, 0, lanes)
            operands = (address, mask)
            text = (
                f"llvm.intr.masked.load {address.name}, {mask.name}, {zero.name}"
                f" {{alignment = {align} : i32}} : (!llvm.ptr, {mask.type}, {kind}) -> {kind}"
            )
        value = (
            self.read(text, operands, stored, lanes)
            if constant
            else self.effect(text, stored, lanes)
        )
        return self.from_memory(value, elem)

    def prefetch(self, address: Val, level: int = 2) -> None:
        """Fetch a cache line into the first-level or the second-level cache."""
        hints = f"cache = 1 : i32, hint = {4 - level} : i32, rw = 0 : i32"
        self.statement(f'"llvm.intr.prefetch"({address.name}) <{{{hints}}}> : (!llvm.ptr) -> ()')

    def gather(
        self, base: Val, offsets: Val, elem: str, mask: Val | None = None, *, constant: bool = True
    ) -> Val:
        """Load `base[offsets[lane]]`, offsets in elements (i64). Masked-off lanes read as zero."""
        lanes = offsets.lanes
        stored = memory_elem(elem)
        pointers = self.pure(
            f"llvm.getelementptr inbounds {base.name}[{offsets.name}] : (!llvm.ptr, {offsets.type})"
            f" -> vector<{lanes}x!llvm.ptr>, {stored}",
            (base, offsets),
            "ptr",
            lanes,
        )
        mask = self.const("i1", True, lanes) if mask is None else self.splat(mask, lanes)
        zero = self.const(stored, 0, lanes)
        kind = type_text(stored, lanes)
        align = bytes_of(elem)
        text = (
            f"llvm.intr.masked.gather {pointers.name}, {mask.name}, {zero.name}"
            f" {{alignment = {align} : i32}}"
            f" : (vector<{lanes}x!llvm.ptr>, {mask.type}, {kind}) -> {kind}"
        )
        value = (
            self.read(text, (pointers, mask), stored, lanes)
            if constant
            else self.effect(text, stored, lanes)
        )
        return self.from_memory(value, elem)

    def store(self, value: Val, address: Val, mask: Val | None = None) -> None:
        """Contiguous store of a scalar or vector, aligned to its element type."""
        value = self.to_memory(value)
        align = bytes_of(value.elem)
        if mask is None:
            self._store(value, address, f"alignment = {align} : i64")
            return
        mask = self.splat(mask, value.lanes)
        self.statement(
            f"llvm.intr.masked.store {value.name}, {address.name}, {mask.name}"
            f" {{alignment = {align} : i32}} : {value.type}, {mask.type} into !llvm.ptr"
        )

    def stream(self, value: Val, address: Val) -> None:
        """Store a vector past the caches, at a multiple of `stream_alignment` of its type.

        Other threads may see it only after `drain`.
        """
        value = self.to_memory(value)
        align = stream_alignment(value.elem, value.lanes)
        self._store(value, address, f"alignment = {align} : i64, nontemporal")

    def _store(self, value: Val, address: Val, attributes: str) -> None:
        self.statement(
            f"llvm.store {value.name}, {address.name} {{{attributes}}} : {value.type}, !llvm.ptr"
        )

    def drain(self) -> None:
        """Order this thread's streamed stores before its later ones (x86)."""
        self.statement('llvm.call_intrinsic "llvm.x86.sse.sfence"() : () -> ()')

    def scatter(self, value: Val, base: Val, offsets: Val, mask: Val | None = None) -> None:
        """Store lane by lane to `base[offsets[lane]]`, offsets in elements (i64)."""
        value = self.to_memory(value)
        lanes = offsets.lanes
        pointers = self.pure(
            f"llvm.getelementptr inbounds {base.name}[{offsets.name}] : (!llvm.ptr, {offsets.type})"
            f" -> vector<{lanes}x!llvm.ptr>, {value.elem}",
            (base, offsets),
            "ptr",
            lanes,
        )
        mask = self.const("i1", True, lanes) if mask is None else self.splat(mask, lanes)
        align = bytes_of(value.elem)
        self.statement(
            f"llvm.intr.masked.scatter {value.name}, {pointers.name}, {mask.name}"
            f" {{alignment = {align} : i32}}"
            f" : {value.type}, {mask.type} into vector<{lanes}x!llvm.ptr>"
        )

    def from_memory(self, value: Val, elem: str) -> Val:
        """Booleans are stored as bytes 0/1 and computed as i1."""
        if elem != "i1":
            return value
        return self.compare("ne", value, self.const("i8", 0, value.lanes))

    def to_memory(self, value: Val) -> Val:
        return self.cast("arith.extui", value, "i8") if value.elem == "i1" else value

    # -- control flow ----------------------------------------------------------------------------

    @contextmanager
    def _scope(self, is_branch: bool = False) -> Iterator[_Scope]:
        self._scope_count += 1
        scope = _Scope(self._scope_count, is_branch=is_branch)
        self._scopes.append(scope)
        try:
            yield scope
        finally:
            self._scopes.pop()

    def loop(
        self,
        low: Val,
        high: Val,
        step: int,
        body: Callable[[Val, tuple[Val, ...]], Sequence[Val]],
        initial: Sequence[Val] = (),
    ) -> tuple[Val, ...]:
        """`for i in range(low, high, step)` with carried values.

        `body(i, carried)` returns the next ones.
        """
        with self._scope() as scope:
            variable = self._define("i64", 0)
            carried = tuple(self._define(v.elem, v.lanes) for v in initial)
            following = tuple(body(variable, carried))
        types = ", ".join(v.type for v in initial)
        stride = self.index(step)
        head = f"scf.for {variable.name} = {low.name} to {high.name} step {stride.name}"
        if not initial:
            self.statement(f"{head} : i64 {{\n" + "\n".join(scope.lines) + "\n}")
            return ()
        name = self.fresh()
        pairs = ", ".join(f"{c.name} = {v.name}" for c, v in zip(carried, initial, strict=True))
        results = ", ".join(v.name for v in following)
        self.statement(
            f"{name}:{len(initial)} = {head} iter_args({pairs}) -> ({types}) : i64 {{\n"
            + "\n".join(scope.lines)
            + f"\nscf.yield {results} : {types}\n}}"
        )
        return self._results(name, initial)

    def when(self, condition: Val, body: Callable[[], None]) -> None:
        """Run `body` only where the scalar `condition` holds."""
        with self._scope(is_branch=True) as scope:
            body()
        self.statement(f"scf.if {condition.name} {{\n" + "\n".join(scope.lines) + "\n}")

    def choose(
        self,
        condition: Val,
        then: Callable[[], Sequence[Val]],
        otherwise: Callable[[], Sequence[Val]],
    ) -> tuple[Val, ...]:
        """`scf.if` with results."""
        with self._scope(is_branch=True) as first:
            yes = tuple(then())
        with self._scope(is_branch=True) as second:
            no = tuple(otherwise())
        types = ", ".join(v.type for v in yes)
        name = self.fresh()
        self.statement(
            f"{name}:{len(yes)} = scf.if {condition.name} -> ({types}) {{\n"
            + "\n".join(first.lines)
            + f"\nscf.yield {', '.join(v.name for v in yes)} : {types}\n}} else {{\n"
            + "\n".join(second.lines)
            + f"\nscf.yield {', '.join(v.name for v in no)} : {types}\n}}"
        )
        return self._results(name, yes)

    def while_loop(
        self,
        initial: Sequence[Val],
        condition: Callable[[tuple[Val, ...]], Val],
        body: Callable[[tuple[Val, ...]], Sequence[Val]],
    ) -> tuple[Val, ...]:
        """`scf.while` over carried values."""
        types = ", ".join(v.type for v in initial)
        with self._scope(is_branch=True) as before:
            state = tuple(self._define(v.elem, v.lanes) for v in initial)
            go = condition(state)
        with self._scope(is_branch=True) as after:
            inner = tuple(self._define(v.elem, v.lanes) for v in initial)
            following = tuple(body(inner))
        name = self.fresh()
        pairs = ", ".join(f"{s.name} = {v.name}" for s, v in zip(state, initial, strict=True))
        arguments = ", ".join(f"{v.name}: {v.type}" for v in inner)
        self.statement(
            f"{name}:{len(initial)} = scf.while ({pairs}) : ({types}) -> ({types}) {{\n"
            + "\n".join(before.lines)
            + f"\nscf.condition({go.name}) {', '.join(s.name for s in state)} : {types}\n}} do {{\n"
            + f"^bb0({arguments}):\n"
            + "\n".join(after.lines)
            + f"\nscf.yield {', '.join(v.name for v in following)} : {types}\n}}"
        )
        return self._results(name, initial)

    # -- result ----------------------------------------------------------------------------------

    def function(self, name: str, attributes: str) -> str:
        """The kernel's text: `llvm.func internal @name(%ptrs, %begin, %end)`.

        Raises CodegenError if its buffers could overflow a thread's stack.
        """
        if self.locals_bytes > STACK_BYTES:
            raise CodegenError(f"{name} keeps {self.locals_bytes} bytes on the stack")
        body = "\n".join((*self._constant_lines, *self._scopes[0].lines))
        return (
            f"llvm.func internal @{name}(%ptrs: !llvm.ptr {{llvm.noalias, llvm.readonly}},"
            f" %begin: i64, %end: i64) attributes {{{attributes}}} {{\n{body}\nllvm.return\n}}\n"
        )


def stream_alignment(elem: str, lanes: int) -> int:
    """Bytes of which the address of a streamed store must be a multiple."""
    return min(LINE_BYTES, lanes * bytes_of(elem))


def _depth(operands: Sequence[Val]) -> int:
    """Of the outermost scope in which all operands exist. A loop: this runs for every operation."""
    depth = 0
    for value in operands:
        if value.depth > depth:
            depth = value.depth
    return depth
