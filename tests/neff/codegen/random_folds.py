"""Steps of random groups: reductions, windows, products, and what cannot be pulled.

In: choices and a group. Out: the group with some lines more, or as it was where nothing fits.
"""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

from math import prod

from tests.neff.codegen.random_values import (
    EXACT,
    MOST_ELEMENTS,
    SMALL,
    Choose,
    RandomGroup,
    Value,
    fit,
    pick,
    small,
    spread,
    tensor,
)

# -- reductions --------------------------------------------------------------------------------------

EXTREME = {"maximum": -(1 << 7), "minimum": (1 << 7) - 1}


def reduce(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group)
    assert a is not None
    dims = [d for d in range(len(a.shape)) if choose.flag()]
    kept = [n for d, n in enumerate(a.shape) if d not in dims]
    count = prod(a.shape[d] for d in dims)
    if a.elem == "i1":
        op, init, bound = choose.one_of((("or", 0, 1), ("and", 1, 1)))
    else:
        op = choose.one_of(("add", "maximum", "minimum"))
        a = small(group, a)
        init = 0 if op == "add" or a.elem == "ui8" else EXTREME[op]
        bound = SMALL * max(count, 1) if op == "add" else 1 << 7
        if a.elem in ("bf16", "f16") and bound > EXACT[a.elem]:
            return  # the interpreter would round after every step
    z = group.constant((), a.elem, init)
    text = f"stablehlo.reduce({a.name} init: {z.name}) applies stablehlo.{op} across dimensions = [{', '.join(map(str, dims))}] : ({a.type}, {z.type}) -> {{t}}"
    group.add(kept, a.elem, bound if a.floating or a.elem == "i1" else 1 << 62, text, exact=a.exact)


def arg_reduce(choose: Choose, group: RandomGroup) -> None:
    """Two carried values: the largest and the first place where it stands."""
    a = pick(choose, group, ("f32", "f64", "i32"), exact=True)
    if a is None or not a.shape:
        return
    dim = choose.integer(0, len(a.shape) - 1)
    kept = [n for d, n in enumerate(a.shape) if d != dim]
    where = group.add(a.shape, "i32", 100, f"stablehlo.iota dim = {dim} : {{t}}")
    low, far = group.constant((), a.elem, -1000), group.constant((), "i32", 1000)
    s, t = low.type, tensor(kept, a.elem)
    pair_name = f"%p{len(group.lines)}"
    group.lines.append(
        f"  {pair_name}:2 = stablehlo.reduce({a.name} init: {low.name}), ({where.name} init: {far.name}) across dimensions = [{dim}]"
        f" : ({a.type}, {where.type}, {s}, tensor<i32>) -> ({t}, {tensor(kept, 'i32')})\n"
        f"   reducer(%p: {s}, %q: {s}) (%ip: tensor<i32>, %iq: tensor<i32>) {{\n"
        f"    %g = stablehlo.compare GT, %q, %p : ({s}, {s}) -> tensor<i1>\n"
        f"    %e = stablehlo.compare EQ, %q, %p : ({s}, {s}) -> tensor<i1>\n"
        f"    %l = stablehlo.compare LT, %iq, %ip : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
        f"    %b = stablehlo.and %e, %l : tensor<i1>\n    %w = stablehlo.or %g, %b : tensor<i1>\n"
        f"    %x = stablehlo.select %w, %q, %p : tensor<i1>, {s}\n"
        f"    %y = stablehlo.select %w, %iq, %ip : tensor<i1>, tensor<i32>\n"
        f"    stablehlo.return %x, %y : {s}, tensor<i32>\n  }}"
    )
    for i, (elem, bound) in enumerate(((a.elem, max(a.bound, 1000)), ("i32", 1000))):
        group.values.append(Value(f"{pair_name}#{i}", tuple(kept), elem, bound))


def softmax_like(choose: Choose, group: RandomGroup) -> None:
    """Rows normalised by a sum, the pattern that row buffers are for."""
    a = pick(choose, group, ("f32", "f64"))
    if a is None or not a.shape:
        return
    a = small(group, a, 4)
    dim = choose.integer(0, len(a.shape) - 1)
    kept = [d for d in range(len(a.shape)) if d != dim]
    e = group.add(a.shape, a.elem, 55, f"stablehlo.exponential {a.name} : {{t}}", exact=False)
    z = group.constant((), a.elem, 0)
    s = group.add(
        [a.shape[d] for d in kept], a.elem, 1 << 20,
        f"stablehlo.reduce({e.name} init: {z.name}) applies stablehlo.add across dimensions = [{dim}] : ({e.type}, {z.type}) -> {{t}}",
        exact=False,
    )  # fmt: skip
    b = spread(group, s, a.shape, kept)
    group.add(a.shape, a.elem, 1, f"stablehlo.divide {e.name}, {b.name} : {{t}}", exact=False)


def normalised(choose: Choose, group: RandomGroup) -> None:
    """Rows minus their mean over their spread: three loops over the same row."""
    a = pick(choose, group, ("f32", "f64"))
    if a is None or not a.size or not a.shape:
        return
    a = small(group, a)
    dim = choose.integer(0, len(a.shape) - 1)
    kept = [d for d in range(len(a.shape)) if d != dim]
    rows = [a.shape[d] for d in kept]
    zero, count, one = (
        group.constant((), a.elem, 0),
        group.constant(rows, a.elem, a.shape[dim]),
        group.constant(rows, a.elem, 1),
    )

    def mean(x: Value) -> Value:
        text = (
            f"stablehlo.reduce({x.name} init: {zero.name}) applies stablehlo.add across dimensions = [{dim}]"
            f" : ({x.type}, {zero.type}) -> {{t}}"
        )
        total = group.add(rows, a.elem, 1 << 20, text, exact=False)
        return group.add(
            rows, a.elem, 100, f"stablehlo.divide {total.name}, {count.name} : {{t}}", exact=False
        )

    middle = spread(group, mean(a), a.shape, kept)
    off = group.add(
        a.shape, a.elem, 16, f"stablehlo.subtract {a.name}, {middle.name} : {{t}}", exact=False
    )
    square = group.add(
        a.shape, a.elem, 256, f"stablehlo.multiply {off.name}, {off.name} : {{t}}", exact=False
    )
    wide = mean(square)
    safe = group.add(
        rows, a.elem, 257, f"stablehlo.add {wide.name}, {one.name} : {{t}}", exact=False
    )
    scale = group.add(rows, a.elem, 1, f"stablehlo.rsqrt {safe.name} : {{t}}", exact=False)
    scales = spread(group, scale, a.shape, kept)
    group.add(
        a.shape, a.elem, 16, f"stablehlo.multiply {off.name}, {scales.name} : {{t}}", exact=False
    )


def window(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group, ("f32", "f64", "i32", "i64"))
    if a is None or not a.shape:
        return
    a = small(group, a)
    cumulative = choose.flag()
    window, strides, padding, shape = (
        [1] * len(a.shape),
        [1] * len(a.shape),
        [[0, 0] for _ in a.shape],
        list(a.shape),
    )
    dim = choose.integer(0, len(a.shape) - 1)
    n = a.shape[dim]
    if not n:
        return
    if cumulative and a.size * n > 200_000:
        return  # the interpreter takes n steps for each element
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


def dot(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group, ("f32", "f64", "i32", "i64"))
    if a is None or len(a.shape) < 1:
        return
    contracted = choose.integer(0, len(a.shape) - 1)
    n = choose.one_of((1, 3, 8, 20))
    b = pick(choose, group, (a.elem,))
    assert b is not None
    right_first = choose.flag()
    k = a.shape[contracted]
    b = fit(group, b, (k, n) if right_first else (n, k))
    a, b = small(group, a), small(group, b)
    left = [m for d, m in enumerate(a.shape) if d != contracted]
    if not k or prod(left) * n * k > 40000 or prod(left) * n > MOST_ELEMENTS:
        return  # the interpreter cannot sum nothing
    group.add(
        (*left, n), a.elem, SMALL * SMALL * k if a.floating else 1 << 62,
        f"stablehlo.dot_general {a.name}, {b.name}, contracting_dims = [{contracted}] x [{0 if right_first else 1}]"
        f" : ({a.type}, {b.type}) -> {{t}}", exact=a.exact and b.exact,
    )  # fmt: skip


def convolution(choose: Choose, group: RandomGroup) -> None:
    """One spatial dimension, any stride, dilation and padding."""
    a = pick(choose, group, ("f32", "f64", "i32"))
    b = pick(choose, group, (a.elem,)) if a else None
    if a is None or b is None or not a.size:
        return
    features, taps, outputs = (
        choose.one_of((1, 3, 4)),
        choose.one_of((1, 2, 3)),
        choose.one_of((1, 4, 5)),
    )
    batch, length = choose.one_of((1, 2)), choose.one_of((8, 20, 33))
    x = small(group, fit(group, a, (batch, features, length)))
    w = small(group, fit(group, b, (outputs, features, taps)))
    stride, spacing, dilation = choose.integer(1, 2), choose.integer(1, 2), choose.integer(1, 2)
    low, high = choose.integer(0, 2), choose.integer(0, 2)
    span = (length - 1) * spacing + 1 + low + high - ((taps - 1) * dilation + 1)
    group.add(
        (batch, outputs, span // stride + 1), a.elem, SMALL * SMALL * features * taps if a.floating else 1 << 62,
        f"stablehlo.convolution({x.name}, {w.name}) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {{"
        f"stride = [{stride}], pad = [[{low}, {high}]], lhs_dilate = [{spacing}], rhs_dilate = [{dilation}]}}"
        f" {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x.type}, {w.type}) -> {{t}}",
        exact=a.exact and b.exact,
    )  # fmt: skip


# -- what cannot be pulled ---------------------------------------------------------------------------


def scatter_rows(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group, ("f32", "f64", "i32", "i64"))
    i = pick(choose, group, ("i32", "i64"))
    if a is None or i is None or not a.shape or i.size > 64:
        return
    dim = choose.integer(0, len(a.shape) - 1)
    rest = [n for d, n in enumerate(a.shape) if d != dim]
    if prod((*i.shape, *rest)) > MOST_ELEMENTS:
        return
    u = pick(choose, group, (a.elem,))
    assert u is not None
    a, u = small(group, a), small(group, fit(group, u, (*i.shape, *rest)))
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


def sort(choose: Choose, group: RandomGroup) -> None:
    a = pick(choose, group, exact=True)
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
