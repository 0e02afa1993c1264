"""Hypothesis strategy for group functions: random DAGs of everything the code generator knows.

In: draws. Out: a `RandomGroup`: text as `native.outlined` takes it, and memory for its arguments. Invariant: a value
marked exact holds integers small enough that every order of rounding gives the same bits, so that it may be
compared, sorted and converted; other values meet no operation that jumps.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np
from hypothesis import strategies as st

from tests import oracle

FLOATS = ("f32", "f64", "bf16", "f16")
INTEGERS = ("i32", "i64", "i8", "ui8", "i16")
DTYPES = (*FLOATS, *INTEGERS, "i1")
EXACT = {"f32": 1 << 24, "f64": 1 << 53, "bf16": 1 << 8, "f16": 1 << 11}
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 40, 64, 100)
PALETTES = (
    ("f32",), ("f32", "i64"), ("f64", "i1"), ("bf16", "f32"), ("f16", "i32"), ("i64", "i32"), ("i8", "ui8"),
    ("i16", "f32"), ("bf16",), ("f32", "f64"),
)  # fmt: skip
MOST_ELEMENTS = 1600  # the interpreter takes microseconds for each
SMALL = 8


@dataclass(frozen=True)
class Value:
    """A tensor in the text; `bound` limits the magnitude of its elements."""

    name: str
    shape: tuple[int, ...]
    elem: str
    bound: int
    exact: bool = True
    is_constant: bool = False

    @property
    def type(self) -> str:
        return tensor(self.shape, self.elem)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def floating(self) -> bool:
        return self.elem in FLOATS


def tensor(shape: Sequence[int], elem: str) -> str:
    return f"tensor<{'x'.join([*map(str, shape), elem])}>"


@dataclass
class RandomGroup:
    """`memory` are the arguments' buffers, `arrays` the same as the interpreter takes them."""

    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    memory: list[np.ndarray] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    result_layouts: list[str] = field(default_factory=list)

    def add(
        self, shape: Sequence[int], elem: str, bound: int, text: str, *, exact: bool = True
    ) -> Value:
        """`text` is the operation; `{t}` stands for the result's type."""
        value = Value(f"%v{len(self.values)}", tuple(shape), elem, bound, exact)
        self.lines.append(f"  {value.name} = {text.replace('{t}', value.type)}")
        self.values.append(value)
        return value

    def constant(self, shape: Sequence[int], elem: str, number: int) -> Value:
        value = Value(f"%c{len(self.lines)}", tuple(shape), elem, abs(number), is_constant=True)
        text = f"dense<{literal(elem, number)}> : {value.type}"
        self.lines.append(f"  {value.name} = stablehlo.constant {text}")
        return value

    def unused(self) -> list[Value]:
        """Values that no line reads."""
        body = "\n".join(self.lines)
        return [v for v in self.values if len(re.findall(f"{v.name}\\b", body)) == 1]

    def text(self) -> str:
        results = ", ".join(
            o.type + layout for o, layout in zip(self.outputs, self.result_layouts, strict=True)
        )
        names = ", ".join(o.name for o in self.outputs)
        types = ", ".join(o.type for o in self.outputs)
        body = "\n".join(self.lines)
        return f"({', '.join(self.arguments)}) -> ({results}) {{\n{body}\n  return {names} : {types}\n}}\n"


def literal(elem: str, number: int) -> str:
    if elem == "i1":
        return "true" if number else "false"
    return f"{number}.0" if elem in FLOATS else str(number)


def attribute(strides: Sequence[int]) -> str:
    return f" {{neuron.strides = array<i64: {', '.join(map(str, strides))}>}}"


class Choose(Protocol):
    """Where the choices come from: Hypothesis, or a seed."""

    def integer(self, low: int, high: int) -> int: ...

    def one_of(self, items: Sequence[Any]) -> Any: ...

    def order(self, count: int) -> list[int]: ...

    def flag(self) -> bool: ...


class Drawn:
    """Choices by Hypothesis, which shrinks them."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, items: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(items))

    def order(self, count: int) -> list[int]:
        return self.draw(st.permutations(range(count)))

    def flag(self) -> bool:
        return self.draw(st.booleans())


class Seeded:
    """Choices by a seed: far more various than Hypothesis's, but nothing to shrink."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def one_of(self, items: Sequence[Any]) -> Any:
        return self.random.choice(items)

    def order(self, count: int) -> list[int]:
        return self.random.sample(range(count), count)

    def flag(self) -> bool:
        return self.random.random() < 0.5


@st.composite
def groups(draw: st.DrawFn, max_operations: int = 10) -> RandomGroup:
    """Groups as Hypothesis likes them."""
    return random_group(Drawn(draw), max_operations)


def random_group(choose: Choose, max_operations: int = 10) -> RandomGroup:
    """One to three arguments, up to `max_operations` steps, one to three results."""
    group = RandomGroup()
    elems = choose.one_of(PALETTES)
    for number in range(choose.integer(1, 3)):
        _argument(choose, group, number, choose.one_of(elems))
    for _ in range(choose.integer(2, max_operations)):
        choose.one_of(STEPS)(choose, group)
    made = [v for v in group.values if not v.name.startswith("%a")] or group.values
    last = [v for v in group.unused() if v in made][-2:]
    more = [choose.one_of(made)] if choose.flag() else []
    group.outputs = list(dict.fromkeys([*(last or made[-1:]), *more]))
    group.result_layouts = [_layout_text(choose, o.shape) for o in group.outputs]
    return group


def _argument(choose: Choose, group: RandomGroup, number: int, elem: str) -> None:
    shape = _shape(choose)
    random = np.random.default_rng(choose.integer(0, 1 << 16))
    low = 0 if elem in ("ui8", "i1") else -5
    array = random.integers(low, 2 if elem == "i1" else 6, shape)
    strides = _strides(choose, shape)
    dtype = np.dtype(oracle._NUMPY[elem])
    wide = oracle.to_bf16(array.astype(np.float32)) if elem == "bf16" else array.astype(dtype)
    memory = np.full(sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if array.size else 1, 77).astype(dtype)
    if array.size:
        view = np.lib.stride_tricks.as_strided(memory, shape, [s * dtype.itemsize for s in strides])
        view[...] = wide
        wide = view.copy()
    value = Value(f"%a{number}", shape, elem, 5)
    layout = "" if strides == contiguous(shape) else attribute(strides)
    group.arguments.append(f"{value.name}: {value.type}{layout}")
    group.values.append(value)
    group.memory.append(memory)
    group.arrays.append(wide)


def _shape(choose: Choose, least: int = 0) -> tuple[int, ...]:
    rank = choose.integer(least, 4)
    shape: list[int] = []
    for _ in range(rank):
        fitting = [n for n in EXTENTS if n * prod(shape) <= 600]
        shape.append(choose.one_of(fitting))
    if rank and choose.integer(0, 30) == 30:
        shape[choose.integer(0, rank - 1)] = 0
    return tuple(shape)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _strides(choose: Choose, shape: tuple[int, ...], *, zero: bool = True) -> tuple[int, ...]:
    """Strides of a permuted, padded or (an argument's only) repeated tensor."""
    if len(shape) == 0 or choose.flag():
        return contiguous(shape)
    strides = [0] * len(shape)
    step = choose.one_of((1, 1, 2))
    for d in choose.order(len(shape)):
        strides[d] = step
        step *= max(shape[d], 1)
        step += choose.one_of((0, 0, 3))
    if zero and choose.integer(0, 5) == 5:
        strides[choose.integer(0, len(shape) - 1)] = 0
    return tuple(strides)


def _layout_text(choose: Choose, shape: tuple[int, ...]) -> str:
    strides = _strides(choose, shape, zero=False)
    return "" if strides == contiguous(shape) else attribute(strides)


# -- picking -----------------------------------------------------------------------------------------


def _pick(choose: Choose, group: RandomGroup, elems: Sequence[str] = DTYPES, *, exact: bool = False) -> Value | None:
    fitting = [v for v in group.values if v.elem in elems and (v.exact or not exact)]
    if not fitting:
        return None
    recent = fitting[-3:] if choose.integer(0, 3) else fitting
    return choose.one_of(recent)


def _small(group: RandomGroup, v: Value, limit: int = SMALL) -> Value:
    """`v` with its elements cut off at `limit`."""
    if v.bound <= limit or v.elem == "i1":
        return v
    low = group.constant((), v.elem, 0 if v.elem == "ui8" else -limit)
    high = group.constant((), v.elem, limit)
    t, s = v.type, low.type
    return group.add(
        v.shape, v.elem, limit,
        f"stablehlo.clamp {low.name}, {v.name}, {high.name} : ({s}, {t}, {s}) -> {{t}}", exact=v.exact,
    )  # fmt: skip


def _fit(group: RandomGroup, v: Value, shape: tuple[int, ...]) -> Value:
    """`v` in another shape: broadcast where it fits, else one element of it spread."""
    if v.shape == shape:
        return v
    if len(v.shape) <= len(shape) and v.size:
        lead = len(shape) - len(v.shape)
        if all(n in (1, m) for n, m in zip(v.shape, shape[lead:], strict=True)):
            return _spread(group, v, shape, range(lead, len(shape)))
    if not v.size:
        return group.constant(shape, v.elem, 1)
    ones = (1,) * len(v.shape)
    slices = ", ".join("0:1" for _ in v.shape)
    one = group.add(ones, v.elem, v.bound, f"stablehlo.slice {v.name} [{slices}] : ({v.type}) -> {{t}}", exact=v.exact)
    scalar = group.add((), v.elem, v.bound, f"stablehlo.reshape {one.name} : ({one.type}) -> {{t}}", exact=v.exact)
    return _spread(group, scalar, shape, ())


def _spread(group: RandomGroup, v: Value, shape: tuple[int, ...], dims: Sequence[int]) -> Value:
    text = f"stablehlo.broadcast_in_dim {v.name}, dims = [{', '.join(map(str, dims))}] : ({v.type}) -> {{t}}"
    return group.add(shape, v.elem, v.bound, text, exact=v.exact)


def _pair(choose: Choose, group: RandomGroup, elems: Sequence[str] = DTYPES, *, exact: bool = False) -> tuple[Value, Value] | None:
    a = _pick(choose, group, elems, exact=exact)
    if a is None:
        return None
    b = _pick(choose, group, (a.elem,), exact=exact)
    assert b is not None
    return a, _fit(group, b, a.shape)


# -- elementwise -------------------------------------------------------------------------------------


def _unary(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group, (*FLOATS, *INTEGERS))
    if a is None:
        return
    ops = ["negate"]
    if a.elem != "ui8":
        ops += ["abs"]
    if a.exact and a.elem != "ui8":
        ops += ["sign"]
    if a.exact and a.floating:
        ops += ["floor", "round_nearest_even", "round_nearest_afz"]
    if not a.floating:
        ops += ["not"]
    op = choose.one_of(ops)
    group.add(a.shape, a.elem, a.bound + 1 if a.floating else 1 << 62, f"stablehlo.{op} {a.name} : {{t}}", exact=a.exact)


def _smooth(choose: Choose, group: RandomGroup) -> None:
    """What is not exact: computed on numbers of moderate size."""
    a = _pick(choose, group, ("f32", "f64"))
    if a is None:
        return
    a = _small(group, a, 4)
    op = choose.one_of(("exponential", "tanh", "logistic", "sqrt", "log", "rsqrt"))
    if op in ("sqrt", "log", "rsqrt"):
        one = group.constant(a.shape, a.elem, 1)
        size = group.add(a.shape, a.elem, 4, f"stablehlo.abs {a.name} : {{t}}", exact=a.exact)
        a = group.add(a.shape, a.elem, 5, f"stablehlo.add {size.name}, {one.name} : {{t}}", exact=a.exact)
    group.add(a.shape, a.elem, 55, f"stablehlo.{op} {a.name} : {{t}}", exact=False)


def _binary(choose: Choose, group: RandomGroup) -> None:
    pair = _pair(choose, group)
    if pair is None:
        return
    a, b = pair
    ops = ["maximum", "minimum"]
    ops += ["and", "or", "xor"] if not a.floating else []
    ops += ["add", "subtract", "multiply"] if a.elem != "i1" else []
    op = choose.one_of(ops)
    bound = max(a.bound, b.bound)
    if op in ("add", "subtract", "multiply"):
        a, b = _small(group, a), _small(group, b)
        bound = SMALL * SMALL
    if not a.floating and a.elem != "i1":
        bound = 1 << 62
    group.add(a.shape, a.elem, bound, f"stablehlo.{op} {a.name}, {b.name} : {{t}}", exact=a.exact and b.exact)


def _compare_and_select(choose: Choose, group: RandomGroup) -> None:
    pair = _pair(choose, group, exact=True)
    if pair is None:
        return
    a, b = pair
    direction = choose.one_of(("EQ", "NE", "LT", "LE", "GT", "GE"))
    m = group.add(a.shape, "i1", 1, f"stablehlo.compare {direction}, {a.name}, {b.name} : ({a.type}, {b.type}) -> {{t}}")
    x = _pick(choose, group)
    assert x is not None
    y = _pick(choose, group, (x.elem,))
    assert y is not None
    x, y = _fit(group, x, a.shape), _fit(group, y, a.shape)
    group.add(a.shape, x.elem, max(x.bound, y.bound), f"stablehlo.select {m.name}, {x.name}, {y.name} : {m.type}, {{t}}", exact=x.exact and y.exact)


def _convert(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    to = choose.one_of(DTYPES if a.exact else ("f32", "f64"))
    if a.elem != "i1":
        a = _small(group, a, 100)
    if to == "ui8" and a.elem not in ("ui8", "i1"):
        zero = group.constant(a.shape, a.elem, 0)
        a = group.add(a.shape, a.elem, a.bound, f"stablehlo.maximum {a.name}, {zero.name} : {{t}}")
    group.add(a.shape, to, 1 if "i1" in (to, a.elem) else 100, f"stablehlo.convert {a.name} : ({a.type}) -> {{t}}", exact=a.exact)


# -- views -------------------------------------------------------------------------------------------


def _transpose(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    order = choose.order(len(a.shape))
    text = f"stablehlo.transpose {a.name}, dims = [{', '.join(map(str, order))}] : ({a.type}) -> {{t}}"
    group.add([a.shape[d] for d in order], a.elem, a.bound, text, exact=a.exact)


def _reshape(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    left, shape = a.size, []
    if left:
        while left > 1:
            factor = choose.one_of([n for n in range(2, left + 1) if left % n == 0])
            shape.append(factor)
            left //= factor
    else:
        shape = [3, 0]
    for _ in range(choose.integer(0, 1)):
        shape.insert(choose.integer(0, len(shape)), 1)
    group.add(shape, a.elem, a.bound, f"stablehlo.reshape {a.name} : ({a.type}) -> {{t}}", exact=a.exact)


def _broadcast(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    shape = list(a.shape)
    where = choose.integer(0, len(shape))
    n = choose.one_of((1, 2, 3, 7, 16, 20))
    if n * max(a.size, 1) > MOST_ELEMENTS or len(shape) > 4:
        return
    shape.insert(where, n)
    dims = [d for d in range(len(shape)) if d != where]
    _spread(group, a, tuple(shape), dims)


def _slice(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    parts, shape = [], []
    for n in a.shape:
        start = choose.integer(0, min(3, n))
        limit = n - choose.integer(0, min(3, n - start))
        step = choose.one_of((1, 1, 2, 3))
        parts.append(f"{start}:{limit}:{step}")
        shape.append(-(-(limit - start) // step))
    group.add(shape, a.elem, a.bound, f"stablehlo.slice {a.name} [{', '.join(parts)}] : ({a.type}) -> {{t}}", exact=a.exact)


def _reverse(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    dims = [d for d in range(len(a.shape)) if choose.flag()]
    group.add(a.shape, a.elem, a.bound, f"stablehlo.reverse {a.name}, dims = [{', '.join(map(str, dims))}] : {{t}}", exact=a.exact)


def _pad(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    low, high, interior, shape = [], [], [], []
    for n in a.shape:
        between = choose.one_of((0, 0, 1, 2))
        size = n + max(n - 1, 0) * between
        before = choose.integer(-min(size, 2), 3)
        after = choose.integer(-min(size + before, 2), 3)
        low, high, interior = [*low, before], [*high, after], [*interior, between]
        shape.append(size + before + after)
    if prod(shape) > MOST_ELEMENTS:
        return
    p = group.constant((), a.elem, 1)
    lists = [", ".join(map(str, x)) for x in (low, high, interior)]
    group.add(
        shape, a.elem, max(a.bound, 1),
        f"stablehlo.pad {a.name}, {p.name}, low = [{lists[0]}], high = [{lists[1]}], interior = [{lists[2]}]"
        f" : ({a.type}, {p.type}) -> {{t}}", exact=a.exact,
    )  # fmt: skip


def _concatenate(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    if not a.shape:
        return
    dim = choose.integer(0, len(a.shape) - 1)
    parts = [a]
    for _ in range(choose.integer(1, 2)):
        b = _pick(choose, group, (a.elem,))
        assert b is not None
        n = choose.one_of((1, 2, 16))
        parts.append(_fit(group, b, (*a.shape[:dim], n, *a.shape[dim + 1 :])))
    total = sum(p.shape[dim] for p in parts)
    shape = (*a.shape[:dim], total, *a.shape[dim + 1 :])
    if prod(shape) > MOST_ELEMENTS:
        return
    text = f"stablehlo.concatenate {', '.join(p.name for p in parts)}, dim = {dim} : ({', '.join(p.type for p in parts)}) -> {{t}}"
    group.add(shape, a.elem, max(p.bound for p in parts), text, exact=all(p.exact for p in parts))


def _iota(choose: Choose, group: RandomGroup) -> None:
    shape = _shape(choose, least=1)
    elem = choose.one_of(("i64", "i32", "f32", "bf16"))
    group.add(shape, elem, 100, f"stablehlo.iota dim = {choose.integer(0, len(shape) - 1)} : {{t}}")


def _gather_rows(choose: Choose, group: RandomGroup) -> None:
    a, i = _pick(choose, group), _pick(choose, group, ("i32", "i64", "ui8"))
    if a is None or i is None or not a.shape or not a.size:
        return
    if i.elem == "ui8":
        i = _small(group, i, 100)  # the interpreter takes 200 for -56
    dim = choose.integer(0, len(a.shape) - 1)
    rest = [n for d, n in enumerate(a.shape) if d != dim]
    shape = (*i.shape, *rest)
    if prod(shape) > MOST_ELEMENTS:
        return
    count = len(i.shape)
    offset = ", ".join(str(count + k) for k in range(len(rest)))
    sizes = ", ".join(str(1 if d == dim else n) for d, n in enumerate(a.shape))
    group.add(
        shape, a.elem, a.bound,
        f'"stablehlo.gather"({a.name}, {i.name}) <{{dimension_numbers = #stablehlo.gather<offset_dims = [{offset}],'
        f" collapsed_slice_dims = [{dim}], start_index_map = [{dim}], index_vector_dim = {count}>,"
        f" slice_sizes = array<i64: {sizes}>}}> : ({a.type}, {i.type}) -> {{t}}", exact=a.exact,
    )  # fmt: skip


def _dynamic_slice(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    starts = [_fit(group, _pick(choose, group, ("i64",)) or group.constant((), "i64", 1), ()) for _ in a.shape]
    shape = [choose.integer(n // 2, n) for n in a.shape]
    names, types = (", ".join(x) for x in (["", *(s.name for s in starts)], ["", *(s.type for s in starts)]))
    if choose.flag():
        sizes = ", ".join(map(str, shape))
        group.add(shape, a.elem, a.bound, f"stablehlo.dynamic_slice {a.name}{names}, sizes = [{sizes}] : ({a.type}{types}) -> {{t}}", exact=a.exact)
        return
    u = _fit(group, _pick(choose, group, (a.elem,)) or a, tuple(shape))
    group.add(a.shape, a.elem, max(a.bound, u.bound), f"stablehlo.dynamic_update_slice {a.name}, {u.name}{names} : ({a.type}, {u.type}{types}) -> {{t}}", exact=a.exact and u.exact)


# -- reductions --------------------------------------------------------------------------------------

EXTREME = {"maximum": -(1 << 7), "minimum": (1 << 7) - 1}


def _reduce(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group)
    assert a is not None
    dims = [d for d in range(len(a.shape)) if choose.flag()]
    kept = [n for d, n in enumerate(a.shape) if d not in dims]
    count = prod(a.shape[d] for d in dims)
    if a.elem == "i1":
        op, init, bound = choose.one_of((("or", 0, 1), ("and", 1, 1)))
    else:
        op = choose.one_of(("add", "maximum", "minimum"))
        a = _small(group, a)
        init = 0 if op == "add" or a.elem == "ui8" else EXTREME[op]
        bound = SMALL * max(count, 1) if op == "add" else 1 << 7
        if a.elem in ("bf16", "f16") and bound > EXACT[a.elem]:
            return  # the interpreter would round after every step
    z = group.constant((), a.elem, init)
    text = f"stablehlo.reduce({a.name} init: {z.name}) applies stablehlo.{op} across dimensions = [{', '.join(map(str, dims))}] : ({a.type}, {z.type}) -> {{t}}"
    group.add(kept, a.elem, bound if a.floating or a.elem == "i1" else 1 << 62, text, exact=a.exact)


def _softmax_like(choose: Choose, group: RandomGroup) -> None:
    """Rows normalised by a sum, the pattern that row buffers are for."""
    a = _pick(choose, group, ("f32", "f64"))
    if a is None or not a.shape:
        return
    a = _small(group, a, 4)
    dim = choose.integer(0, len(a.shape) - 1)
    kept = [d for d in range(len(a.shape)) if d != dim]
    e = group.add(a.shape, a.elem, 55, f"stablehlo.exponential {a.name} : {{t}}", exact=False)
    z = group.constant((), a.elem, 0)
    s = group.add(
        [a.shape[d] for d in kept], a.elem, 1 << 20,
        f"stablehlo.reduce({e.name} init: {z.name}) applies stablehlo.add across dimensions = [{dim}] : ({e.type}, {z.type}) -> {{t}}",
        exact=False,
    )  # fmt: skip
    b = _spread(group, s, a.shape, kept)
    group.add(a.shape, a.elem, 1, f"stablehlo.divide {e.name}, {b.name} : {{t}}", exact=False)


def _window(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group, ("f32", "f64", "i32", "i64"))
    if a is None or not a.shape:
        return
    a = _small(group, a)
    cumulative = choose.flag()
    window, strides, padding, shape = [1] * len(a.shape), [1] * len(a.shape), [[0, 0] for _ in a.shape], list(a.shape)
    dim = choose.integer(0, len(a.shape) - 1)
    n = a.shape[dim]
    if not n:
        return
    if cumulative:
        window[dim] = n
        padding[dim] = [n - 1, 0] if choose.flag() else [0, n - 1]
    else:
        window[dim] = choose.integer(1, 4)
        strides[dim] = choose.integer(1, 3)
        padding[dim] = [choose.integer(0, 2), choose.integer(0, 2)]
        room = n + sum(padding[dim]) - window[dim]
        if room < 0:
            return
        shape[dim] = room // strides[dim] + 1
    z = group.constant((), a.elem, 0)
    s = z.type
    numbers = ", ".join(map(str, window)), ", ".join(map(str, strides))
    text = (
        f'"stablehlo.reduce_window"({a.name}, {z.name}) <{{padding = dense<{padding}> : tensor<{len(shape)}x2xi64>,'
        f" window_dimensions = array<i64: {numbers[0]}>, window_strides = array<i64: {numbers[1]}>}}> ({{\n"
        f"  ^bb0(%p: {s}, %q: {s}):\n    %m = stablehlo.add %p, %q : {s}\n    stablehlo.return %m : {s}\n"
        f"  }}) : ({a.type}, {s}) -> {{t}}"
    )
    group.add(shape, a.elem, SMALL * window[dim] if a.floating else 1 << 62, text, exact=a.exact)


def _dot(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group, ("f32", "f64", "i32", "i64"))
    if a is None or len(a.shape) < 1:
        return
    contracted = choose.integer(0, len(a.shape) - 1)
    n = choose.one_of((1, 3, 8, 20))
    b = _pick(choose, group, (a.elem,))
    assert b is not None
    right_first = choose.flag()
    k = a.shape[contracted]
    b = _fit(group, b, (k, n) if right_first else (n, k))
    a, b = _small(group, a), _small(group, b)
    left = [m for d, m in enumerate(a.shape) if d != contracted]
    if not k or prod(left) * n * k > 40000 or prod(left) * n > MOST_ELEMENTS:
        return  # the interpreter cannot sum nothing
    group.add(
        (*left, n), a.elem, SMALL * SMALL * k if a.floating else 1 << 62,
        f"stablehlo.dot_general {a.name}, {b.name}, contracting_dims = [{contracted}] x [{0 if right_first else 1}]"
        f" : ({a.type}, {b.type}) -> {{t}}", exact=a.exact and b.exact,
    )  # fmt: skip


# -- what cannot be pulled ---------------------------------------------------------------------------


def _scatter_rows(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group, ("f32", "f64", "i32", "i64"))
    i = _pick(choose, group, ("i32", "i64"))
    if a is None or i is None or not a.shape or i.size > 64:
        return
    dim = choose.integer(0, len(a.shape) - 1)
    rest = [n for d, n in enumerate(a.shape) if d != dim]
    if prod((*i.shape, *rest)) > MOST_ELEMENTS:
        return
    u = _pick(choose, group, (a.elem,))
    assert u is not None
    a, u = _small(group, a), _small(group, _fit(group, u, (*i.shape, *rest)))
    count = len(i.shape)
    window = ", ".join(str(count + k) for k in range(len(rest)))
    s = tensor((), a.elem)
    text = (
        f'"stablehlo.scatter"({a.name}, {i.name}, {u.name}) <{{scatter_dimension_numbers = #stablehlo.scatter<'
        f"update_window_dims = [{window}], inserted_window_dims = [{dim}], scatter_dims_to_operand_dims = [{dim}],"
        f" index_vector_dim = {count}>}}> ({{\n  ^bb0(%p: {s}, %q: {s}):\n    %m = stablehlo.add %p, %q : {s}\n"
        f"    stablehlo.return %m : {s}\n  }}) : ({a.type}, {i.type}, {u.type}) -> {{t}}"
    )
    bound = SMALL * (i.size + 1) if a.floating else 1 << 62
    group.add(a.shape, a.elem, bound, text, exact=a.exact and u.exact)


def _sort(choose: Choose, group: RandomGroup) -> None:
    a = _pick(choose, group, exact=True)
    if a is None or not a.shape:
        return
    dim = choose.integer(0, len(a.shape) - 1)
    direction = choose.one_of(("LT", "GT"))
    s = tensor((), a.elem)
    text = (
        f'"stablehlo.sort"({a.name}) <{{dimension = {dim} : i64, is_stable = true}}> ({{\n  ^bb0(%p: {s}, %q: {s}):\n'
        f"    %m = stablehlo.compare {direction}, %p, %q : ({s}, {s}) -> tensor<i1>\n"
        f"    stablehlo.return %m : tensor<i1>\n  }}) : ({a.type}) -> {{t}}"
    )
    group.add(a.shape, a.elem, a.bound, text)


STEPS = (
    _unary, _unary, _smooth, _binary, _binary, _binary, _compare_and_select, _convert,
    _transpose, _transpose, _reshape, _reshape, _broadcast, _slice, _reverse, _pad, _concatenate, _iota,
    _gather_rows, _dynamic_slice, _reduce, _reduce, _softmax_like, _window, _dot, _scatter_rows, _sort,
)  # fmt: skip
