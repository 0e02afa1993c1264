"""Steps of random groups: elementwise operations and views.

In: choices and a group. Out: the group with some lines more, or as it was where nothing fits.
"""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

from math import prod

from tests.neff.codegen.random_values import (
    DTYPES,
    FLOATS,
    INTEGERS,
    MOST_ELEMENTS,
    SMALL,
    Choose,
    RandomGroup,
    any_shape,
    equal_pair,
    fit,
    pick,
    small,
    spread,
)

# -- elementwise -------------------------------------------------------------------------------------


def unary(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group, (*FLOATS, *INTEGERS))
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
    group.add(
        a.shape,
        a.elem,
        a.bound + 1 if a.floating else 1 << 62,
        f"stablehlo.{op} {a.name} : {{t}}",
        exact=a.exact,
    )


def smooth(choose: Choose, group: RandomGroup) -> None:
    """What is not exact: computed on numbers of moderate size."""
    a = pick(choose, group, ("f32", "f64"))
    if a is None:
        return
    a = small(group, a, 4)
    op = choose.one_of(("exponential", "tanh", "logistic", "sqrt", "log", "rsqrt"))
    if op in ("sqrt", "log", "rsqrt"):
        one = group.constant(a.shape, a.elem, 1)
        size = group.add(a.shape, a.elem, 4, f"stablehlo.abs {a.name} : {{t}}", exact=a.exact)
        a = group.add(
            a.shape, a.elem, 5, f"stablehlo.add {size.name}, {one.name} : {{t}}", exact=a.exact
        )
    group.add(a.shape, a.elem, 55, f"stablehlo.{op} {a.name} : {{t}}", exact=False)


def binary(choose: Choose, group: RandomGroup) -> None:
    pair = equal_pair(choose, group)
    if pair is None:
        return
    a, b = pair
    ops = ["maximum", "minimum"]
    ops += ["and", "or", "xor"] if not a.floating else []
    ops += ["add", "subtract", "multiply"] if a.elem != "i1" else []
    op = choose.one_of(ops)
    bound = max(a.bound, b.bound)
    if op in ("add", "subtract", "multiply"):
        a, b = small(group, a), small(group, b)
        bound = SMALL * SMALL
    if not a.floating and a.elem != "i1":
        bound = 1 << 62
    group.add(
        a.shape,
        a.elem,
        bound,
        f"stablehlo.{op} {a.name}, {b.name} : {{t}}",
        exact=a.exact and b.exact,
    )


def compare_and_select(choose: Choose, group: RandomGroup) -> None:
    pair = equal_pair(choose, group, exact=True)
    if pair is None:
        return
    a, b = pair
    direction = choose.one_of(("EQ", "NE", "LT", "LE", "GT", "GE"))
    m = group.add(
        a.shape,
        "i1",
        1,
        f"stablehlo.compare {direction}, {a.name}, {b.name} : ({a.type}, {b.type}) -> {{t}}",
    )
    x = pick(choose, group)
    assert x is not None
    y = pick(choose, group, (x.elem,))
    assert y is not None
    x, y = fit(group, x, a.shape), fit(group, y, a.shape)
    group.add(
        a.shape,
        x.elem,
        max(x.bound, y.bound),
        f"stablehlo.select {m.name}, {x.name}, {y.name} : {m.type}, {{t}}",
        exact=x.exact and y.exact,
    )


def convert(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    to = choose.one_of(DTYPES if a.exact else ("f32", "f64"))
    if a.elem != "i1":
        a = small(group, a, 100)
    if to == "ui8" and a.elem not in ("ui8", "i1"):
        zero = group.constant(a.shape, a.elem, 0)
        a = group.add(a.shape, a.elem, a.bound, f"stablehlo.maximum {a.name}, {zero.name} : {{t}}")
    group.add(
        a.shape,
        to,
        1 if "i1" in (to, a.elem) else 100,
        f"stablehlo.convert {a.name} : ({a.type}) -> {{t}}",
        exact=a.exact,
    )


# -- views -------------------------------------------------------------------------------------------


def transpose(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    order = choose.order(len(a.shape))
    text = (
        f"stablehlo.transpose {a.name}, dims = [{', '.join(map(str, order))}] : ({a.type}) -> {{t}}"
    )
    group.add([a.shape[d] for d in order], a.elem, a.bound, text, exact=a.exact)


def reshape(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
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
    group.add(
        shape, a.elem, a.bound, f"stablehlo.reshape {a.name} : ({a.type}) -> {{t}}", exact=a.exact
    )


def broadcast(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    shape = list(a.shape)
    where = choose.integer(0, len(shape))
    n = choose.one_of((1, 2, 3, 7, 16, 20))
    if n * max(a.size, 1) > MOST_ELEMENTS or len(shape) > 4:
        return
    shape.insert(where, n)
    dims = [d for d in range(len(shape)) if d != where]
    spread(group, a, tuple(shape), dims)


def slice_(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    parts, shape = [], []
    for n in a.shape:
        start = choose.integer(0, min(3, n))
        limit = n - choose.integer(0, min(3, n - start))
        step = choose.one_of((1, 1, 2, 3))
        parts.append(f"{start}:{limit}:{step}")
        shape.append(-(-(limit - start) // step))
    group.add(
        shape,
        a.elem,
        a.bound,
        f"stablehlo.slice {a.name} [{', '.join(parts)}] : ({a.type}) -> {{t}}",
        exact=a.exact,
    )


def reverse(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    dims = [d for d in range(len(a.shape)) if choose.flag()]
    group.add(
        a.shape,
        a.elem,
        a.bound,
        f"stablehlo.reverse {a.name}, dims = [{', '.join(map(str, dims))}] : {{t}}",
        exact=a.exact,
    )


def pad(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
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


def concatenate(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    if not a.shape:
        return
    dim = choose.integer(0, len(a.shape) - 1)
    parts = [a]
    for _ in range(choose.integer(1, 2)):
        b = pick(choose, group, (a.elem,))
        assert b is not None
        n = choose.one_of((1, 2, 16))
        parts.append(fit(group, b, (*a.shape[:dim], n, *a.shape[dim + 1 :])))
    total = sum(p.shape[dim] for p in parts)
    shape = (*a.shape[:dim], total, *a.shape[dim + 1 :])
    if prod(shape) > MOST_ELEMENTS:
        return
    text = f"stablehlo.concatenate {', '.join(p.name for p in parts)}, dim = {dim} : ({', '.join(p.type for p in parts)}) -> {{t}}"
    group.add(shape, a.elem, max(p.bound for p in parts), text, exact=all(p.exact for p in parts))


def iota(choose: Choose, group: RandomGroup) -> None:
    shape = any_shape(choose, least=1)
    elem = choose.one_of(("i64", "i32", "f32", "bf16"))
    group.add(shape, elem, 100, f"stablehlo.iota dim = {choose.integer(0, len(shape) - 1)} : {{t}}")


def gather_rows(choose: Choose, group: RandomGroup) -> None:
    a, i = pick(choose, group), pick(choose, group, ("i32", "i64", "ui8"))
    if a is None or i is None or not a.shape or not a.size:
        return
    if i.elem == "ui8":
        i = small(group, i, 100)  # the interpreter takes 200 for -56
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


def dynamic_slice(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    starts = [
        fit(group, pick(choose, group, ("i64",)) or group.constant((), "i64", 1), ())
        for _ in a.shape
    ]
    shape = [choose.integer(n // 2, n) for n in a.shape]
    names, types = (
        ", ".join(x) for x in (["", *(s.name for s in starts)], ["", *(s.type for s in starts)])
    )
    if choose.flag():
        sizes = ", ".join(map(str, shape))
        group.add(
            shape,
            a.elem,
            a.bound,
            f"stablehlo.dynamic_slice {a.name}{names}, sizes = [{sizes}] : ({a.type}{types}) -> {{t}}",
            exact=a.exact,
        )
        return
    u = fit(group, pick(choose, group, (a.elem,)) or a, tuple(shape))
    group.add(
        a.shape,
        a.elem,
        max(a.bound, u.bound),
        f"stablehlo.dynamic_update_slice {a.name}, {u.name}{names} : ({a.type}, {u.type}{types}) -> {{t}}",
        exact=a.exact and u.exact,
    )
