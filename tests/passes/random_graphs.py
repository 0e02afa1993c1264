"""Hypothesis strategy for StableHLO modules: small DAGs of pull ops, reductions and dots.

In: draws. Out: module texts that the interpreter accepts. Invariant: every op is total on any input
(no conversion of NaN to integers, no division of integers), so results can be compared exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

from hypothesis import strategies as st

FLOATS = ("f32", "bf16", "f16", "f64")
INTEGERS = ("i32", "i64", "ui8", "i8")
DTYPES = (*FLOATS, *INTEGERS, "i1")
SHAPES = ((2, 3, 4), (6, 4), (4, 6), (24,), (2, 3), (4,), (3,), (), (1, 4), (6, 1), (2, 12), (3, 3))

_FLOAT_UNARY = ("negate", "abs", "exponential", "tanh", "floor", "sign", "rsqrt", "logistic")
_INTEGER_UNARY = ("negate", "abs", "not")
_FLOAT_BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
_INTEGER_BINARY = ("add", "subtract", "multiply", "maximum", "minimum", "and", "or", "xor")
_BOOL_BINARY = ("and", "or", "xor")
_REDUCERS = {"f": ("add", "maximum", "minimum"), "i": ("add", "maximum", "xor"), "b": ("and", "or")}


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def type(self) -> str:
        return "tensor<" + "x".join([*map(str, self.shape), self.dtype]) + ">"


@dataclass
class Module:
    arguments: list[Tensor] = field(default_factory=list)
    values: list[Tensor] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def emit(self, shape: Sequence[int], dtype: str, text: str) -> Tensor:
        """Adds `%n = text` and answers the value; `{type}` in `text` is its type."""
        value = Tensor(f"%v{len(self.lines)}", tuple(shape), dtype)
        self.lines.append(f"  {value.name} = " + text.replace("{type}", value.type))
        self.values.append(value)
        return value

    def constant(self, shape: Sequence[int], dtype: str, number: str) -> Tensor:
        return self.emit(shape, dtype, f"stablehlo.constant dense<{number}> : {{type}}")

    def text(self, outputs: Sequence[Tensor]) -> str:
        arguments = ", ".join(f"{a.name}: {a.type}" for a in self.arguments)
        types = ", ".join(o.type for o in outputs)
        names = ", ".join(o.name for o in outputs)
        body = "\n".join(self.lines)
        return (
            f"func.func @main({arguments}) -> ({types}) {{\n{body}\n  return {names} : {types}\n}}"
        )


def family(dtype: str) -> str:
    return "f" if dtype in FLOATS else "b" if dtype == "i1" else "i"


@st.composite
def modules(draw: st.DrawFn, max_ops: int = 14) -> str:
    """A module of one to three arguments, up to `max_ops` ops and one to four outputs."""
    module = Module()
    for index in range(draw(st.integers(1, 3))):
        argument = Tensor(
            f"%a{index}", draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
        )
        module.arguments.append(argument)
        module.values.append(argument)
    for _ in range(draw(st.integers(1, max_ops))):
        _step(draw, module)
    count = draw(st.integers(1, min(4, len(module.values))))
    recent = module.values[-8:]
    outputs = [draw(st.sampled_from(recent)) for _ in range(count)]
    return module.text(outputs)


def _step(draw: st.DrawFn, module: Module) -> None:
    step = draw(st.sampled_from(_STEPS))
    step(draw, module, draw(st.sampled_from(module.values)))


def _unary(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    names = {"f": _FLOAT_UNARY, "i": _INTEGER_UNARY, "b": ("not",)}[family(x.dtype)]
    if x.dtype == "ui8":
        names = ("not",)
    module.emit(x.shape, x.dtype, f"stablehlo.{draw(st.sampled_from(names))} {x.name} : {x.type}")


def _match(draw: st.DrawFn, module: Module, x: Tensor) -> Tensor:
    """A value of the type of `x`: an existing one, a constant, or one spread to its shape."""
    same = [v for v in module.values if v.shape == x.shape and v.dtype == x.dtype]
    choice = draw(st.integers(0, 2))
    if choice == 0:
        return draw(st.sampled_from(same))
    if choice == 1 and family(x.dtype) != "b":
        return module.constant(x.shape, x.dtype, draw(st.sampled_from(_numbers(x.dtype))))
    spread = [
        (v, dims)
        for v in module.values
        if v.dtype == x.dtype
        for dims in _placements(v.shape, x.shape)
    ]
    if not spread:
        return draw(st.sampled_from(same))
    v, dims = draw(st.sampled_from(spread))
    return _broadcast(module, v, x.shape, dims)


def _numbers(dtype: str) -> tuple[str, ...]:
    if family(dtype) == "f":
        return ("0.0", "-0.0", "1.0", "2.0", "0.5", "-3.0")
    return ("0", "1", "2", "3")


def _placements(source: tuple[int, ...], target: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The ascending ways to place `source` in `target`."""
    if not source:
        return [()]
    found = []
    for rest in _placements(source[:-1], target):
        start = rest[-1] + 1 if rest else 0
        found += [(*rest, d) for d in range(start, len(target)) if source[-1] in (1, target[d])]
    return found


def _broadcast(module: Module, v: Tensor, shape: tuple[int, ...], dims: Sequence[int]) -> Tensor:
    text = f"stablehlo.broadcast_in_dim {v.name}, dims = {list(dims)} : ({v.type}) -> {{type}}"
    return module.emit(shape, v.dtype, text)


def _binary(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    y = _match(draw, module, x)
    names = {"f": _FLOAT_BINARY, "i": _INTEGER_BINARY, "b": _BOOL_BINARY}[family(x.dtype)]
    name = draw(st.sampled_from(names))
    first, second = (x, y) if draw(st.booleans()) else (y, x)
    module.emit(x.shape, x.dtype, f"stablehlo.{name} {first.name}, {second.name} : {x.type}")


def _choose(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    y = _match(draw, module, x)
    direction = draw(st.sampled_from(("LT", "GE", "EQ", "NE")))
    mask = module.emit(
        x.shape,
        "i1",
        f"stablehlo.compare {direction}, {x.name}, {y.name} : ({x.type}, {x.type}) -> {{type}}",
    )
    text = f"stablehlo.select {mask.name}, {x.name}, {y.name} : {mask.type}, {x.type}"
    module.emit(x.shape, x.dtype, text)


def _convert(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    targets = FLOATS if family(x.dtype) == "f" else DTYPES
    target = draw(st.sampled_from([t for t in targets if t != x.dtype]))
    module.emit(x.shape, target, f"stablehlo.convert {x.name} : ({x.type}) -> {{type}}")


def _reshape(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    shapes = [s for s in SHAPES if prod(s) == prod(x.shape)]
    shapes += [(1, *x.shape), (*x.shape, 1)]
    shape = draw(st.sampled_from(shapes))
    module.emit(shape, x.dtype, f"stablehlo.reshape {x.name} : ({x.type}) -> {{type}}")


def _transpose(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    order = draw(st.permutations(range(len(x.shape))))
    shape = [x.shape[d] for d in order]
    text = f"stablehlo.transpose {x.name}, dims = {list(order)} : ({x.type}) -> {{type}}"
    module.emit(shape, x.dtype, text)


def _spread(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    targets = [(s, dims) for s in SHAPES for dims in _placements(x.shape, s) if prod(s) <= 24]
    if targets:
        shape, dims = draw(st.sampled_from(targets))
        _broadcast(module, x, shape, dims)


def _slice(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    ranges, shape = [], []
    for size in x.shape:
        start = draw(st.integers(0, size - 1))
        stop = draw(st.integers(start + 1, size))
        step = draw(st.sampled_from((1, 1, 2)))
        ranges.append(f"{start}:{stop}:{step}")
        shape.append(-(-(stop - start) // step))
    if shape:
        text = f"stablehlo.slice {x.name} [{', '.join(ranges)}] : ({x.type}) -> {{type}}"
        module.emit(shape, x.dtype, text)


def _reverse(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    if x.shape:
        dim = draw(st.integers(0, len(x.shape) - 1))
        module.emit(x.shape, x.dtype, f"stablehlo.reverse {x.name}, dims = [{dim}] : {x.type}")


def _pad(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    if not x.shape or prod(x.shape) > 24 or x.dtype == "i1":
        return
    low, high, inner = (draw(st.integers(least, 1)) for least in (0, -1, 0))
    shape = [low + high + size + (size - 1) * inner for size in x.shape]
    if min(shape) < 1:
        return
    zero = module.constant((), x.dtype, "0.0" if family(x.dtype) == "f" else "0")
    low_high = [[value] * len(shape) for value in (low, high, inner)]
    module.emit(
        shape,
        x.dtype,
        f"stablehlo.pad {x.name}, {zero.name}, low = {low_high[0]}, high = {low_high[1]}, "
        f"interior = {low_high[2]} : ({x.type}, {zero.type}) -> {{type}}",
    )


def _concatenate(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    if not x.shape or prod(x.shape) > 24:
        return
    y = _match(draw, module, x)
    dim = draw(st.integers(0, len(x.shape) - 1))
    shape = [size * 2 if d == dim else size for d, size in enumerate(x.shape)]
    text = f"stablehlo.concatenate {x.name}, {y.name}, dim = {dim} : ({x.type}, {x.type}) -> "
    module.emit(shape, x.dtype, text + "{type}")


def _reduce(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    if not x.shape:
        return
    dims = sorted(draw(st.sets(st.integers(0, len(x.shape) - 1), min_size=1)))
    name = draw(st.sampled_from(_REDUCERS[family(x.dtype)]))
    number = {"f": "0.0", "i": "0", "b": "true" if name == "and" else "false"}[family(x.dtype)]
    init = module.constant((), x.dtype, number)
    kept = [size for d, size in enumerate(x.shape) if d not in dims]
    reduced = module.emit(
        kept,
        x.dtype,
        f"stablehlo.reduce({x.name} init: {init.name}) applies stablehlo.{name} across "
        f"dimensions = {dims} : ({x.type}, {init.type}) -> {{type}}",
    )
    if draw(st.booleans()):  # what norms and softmax do: spread it over the rows again
        around = [d for d in range(len(x.shape)) if d not in dims]
        spread = _broadcast(module, reduced, x.shape, around)
        if family(x.dtype) == "f":
            text = f"stablehlo.subtract {x.name}, {spread.name} : {x.type}"
            module.emit(x.shape, x.dtype, text)


def _iota(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    if x.shape and x.dtype != "i1":
        dim = draw(st.integers(0, len(x.shape) - 1))
        module.emit(x.shape, x.dtype, f"stablehlo.iota dim = {dim} : {{type}}")


def _dot(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    if len(x.shape) != 2 or x.dtype not in ("f32", "f64"):
        return
    others = [
        (v, d)
        for v in module.values
        if v.dtype == x.dtype and len(v.shape) == 2
        for d in (0, 1)
        if v.shape[d] == x.shape[1] and prod(x.shape) * v.shape[1 - d] < 200
    ]
    if not others:
        return
    y, dim = draw(st.sampled_from(others))
    module.emit(
        (x.shape[0], y.shape[1 - dim]),
        x.dtype,
        f"stablehlo.dot_general {x.name}, {y.name}, contracting_dims = [1] x [{dim}] : "
        f"({x.type}, {y.type}) -> {{type}}",
    )


_STEPS = (
    _unary,
    _binary,
    _binary,
    _choose,
    _convert,
    _reshape,
    _transpose,
    _spread,
    _slice,
    _reverse,
    _pad,
    _concatenate,
    _reduce,
    _reduce,
    _iota,
    _dot,
)


@st.composite
def index_modules(draw: st.DrawFn, max_ops: int = 12) -> str:
    """A module without arguments: integers and bools from iota and constants."""
    module = Module()
    for _ in range(draw(st.integers(1, 2))):
        shape = draw(st.sampled_from([s for s in SHAPES if s]))
        dim = draw(st.integers(0, len(shape) - 1))
        dtype = draw(st.sampled_from(INTEGERS))
        module.emit(shape, dtype, f"stablehlo.iota dim = {dim} : {{type}}")
    for _ in range(draw(st.integers(1, max_ops))):
        step = draw(st.sampled_from(_INDEX_STEPS))
        step(draw, module, draw(st.sampled_from(module.values)))
    return module.text(module.values[-3:])


def _convert_index(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    target = draw(st.sampled_from([t for t in (*INTEGERS, "i1") if t != x.dtype]))
    module.emit(x.shape, target, f"stablehlo.convert {x.name} : ({x.type}) -> {{type}}")


def _gather(draw: st.DrawFn, module: Module, x: Tensor) -> None:
    """Whole rows of `x`, at the indices of some other value."""
    indices = [v for v in module.values if v.dtype in ("i32", "i64") and len(v.shape) == 1]
    if not indices or not x.shape or prod(x.shape) > 24:
        return
    i = draw(st.sampled_from(indices))
    rest = x.shape[1:]
    offsets = list(range(1, len(x.shape)))
    sizes = ", ".join(map(str, (1, *rest)))
    module.emit(
        (*i.shape, *rest),
        x.dtype,
        f'"stablehlo.gather"({x.name}, {i.name}) <{{dimension_numbers = #stablehlo.gather<'
        f"offset_dims = {offsets}, collapsed_slice_dims = [0], start_index_map = [0], "
        f"index_vector_dim = 1>, slice_sizes = array<i64: {sizes}>}}> "
        f": ({x.type}, {i.type}) -> {{type}}",
    )


_INDEX_STEPS = (
    _unary,
    _binary,
    _binary,
    _choose,
    _convert_index,
    _reshape,
    _transpose,
    _spread,
    _slice,
    _reverse,
    _pad,
    _concatenate,
    _reduce,
    _gather,
    _gather,
)
