"""Values and choices for random groups: tensors in text, memory for arguments, bringing values
together.

In: a source of choices. Out: arguments with their memory, and values of the shapes and sizes that
an operation needs.
"""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

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
ARGUMENT_ELEMENTS = 600
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


def argument(choose: Choose, group: RandomGroup, number: int, elem: str) -> None:
    shape = any_shape(choose)
    random = np.random.default_rng(choose.integer(0, 1 << 16))
    low = 0 if elem in ("ui8", "i1") else -5
    array = random.integers(low, 2 if elem == "i1" else 6, shape)
    strides = any_strides(choose, shape)
    dtype = np.dtype(oracle._NUMPY[elem])
    wide = oracle.to_bf16(array.astype(np.float32)) if elem == "bf16" else array.astype(dtype)
    memory = np.full(
        sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + 1 if array.size else 1, 77
    ).astype(dtype)
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


def any_shape(choose: Choose, least: int = 0) -> tuple[int, ...]:
    rank = choose.integer(least, 4)
    shape: list[int] = []
    for _ in range(rank):
        fitting = [n for n in EXTENTS if n * prod(shape) <= ARGUMENT_ELEMENTS]
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


def any_strides(choose: Choose, shape: tuple[int, ...], *, zero: bool = True) -> tuple[int, ...]:
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


def layout_text(choose: Choose, shape: tuple[int, ...]) -> str:
    strides = any_strides(choose, shape, zero=False)
    return "" if strides == contiguous(shape) else attribute(strides)


# -- picking -----------------------------------------------------------------------------------------


def pick(
    choose: Choose, group: RandomGroup, elems: Sequence[str] = DTYPES, *, exact: bool = False
) -> Value | None:
    fitting = [v for v in group.values if v.elem in elems and (v.exact or not exact)]
    if not fitting:
        return None
    recent = fitting[-3:] if choose.integer(0, 3) else fitting
    return choose.one_of(recent)


def small(group: RandomGroup, v: Value, limit: int = SMALL) -> Value:
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


def fit(group: RandomGroup, v: Value, shape: tuple[int, ...]) -> Value:
    """`v` in another shape: broadcast where it fits, else one element of it spread."""
    if v.shape == shape:
        return v
    if len(v.shape) <= len(shape) and v.size:
        lead = len(shape) - len(v.shape)
        if all(n in (1, m) for n, m in zip(v.shape, shape[lead:], strict=True)):
            return spread(group, v, shape, range(lead, len(shape)))
    if not v.size:
        return group.constant(shape, v.elem, 1)
    ones = (1,) * len(v.shape)
    slices = ", ".join("0:1" for _ in v.shape)
    one = group.add(
        ones,
        v.elem,
        v.bound,
        f"stablehlo.slice {v.name} [{slices}] : ({v.type}) -> {{t}}",
        exact=v.exact,
    )
    scalar = group.add(
        (), v.elem, v.bound, f"stablehlo.reshape {one.name} : ({one.type}) -> {{t}}", exact=v.exact
    )
    return spread(group, scalar, shape, ())


def spread(group: RandomGroup, v: Value, shape: tuple[int, ...], dims: Sequence[int]) -> Value:
    text = f"stablehlo.broadcast_in_dim {v.name}, dims = [{', '.join(map(str, dims))}] : ({v.type}) -> {{t}}"
    return group.add(shape, v.elem, v.bound, text, exact=v.exact)


def equal_pair(
    choose: Choose, group: RandomGroup, elems: Sequence[str] = DTYPES, *, exact: bool = False
) -> tuple[Value, Value] | None:
    a = pick(choose, group, elems, exact=exact)
    if a is None:
        return None
    b = pick(choose, group, (a.elem,), exact=exact)
    assert b is not None
    return a, fit(group, b, a.shape)
