"""Sort kernels against the StableHLO interpreter: every way of sorting, comparators, NaN, ties,
dimensions."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.codegen.dispatch import generate
from neuron_compile.neff.codegen.program import read_group
from neuron_compile.neff.codegen.sort_order import Order, order_of
from neuron_compile.neff.target import detect
from tests import oracle
from tests.neff.codegen.native import agree, outlined, plain, run

NAN_ABOVE = """    %g = stablehlo.compare {first}, %a, %b : ({s}, {s}) -> tensor<i1>
    %n = stablehlo.compare NE, {x}, {x} : ({s}, {s}) -> tensor<i1>
    %m = stablehlo.compare EQ, {y}, {y} : ({s}, {s}) -> tensor<i1>
    %o = stablehlo.and %n, %m : tensor<i1>
    %p = stablehlo.or %g, %o : tensor<i1>
"""


def comparator(kind: str, elem: str) -> str:
    """Lines that define %p from %a and %b."""
    s = f"tensor<{elem}>"
    if kind == "nan above":
        return NAN_ABOVE.format(first="LT", x="%b", y="%a", s=s)
    if kind == "nan above, descending":
        return NAN_ABOVE.format(first="GT", x="%a", y="%b", s=s)
    if kind == "by magnitude":
        return f"""    %c = stablehlo.abs %a : {s}
    %d = stablehlo.abs %b : {s}
    %p = stablehlo.compare LT, %c, %d : ({s}, {s}) -> tensor<i1>
"""
    return f"    %p = stablehlo.compare {kind}, %a, %b : ({s}, {s}) -> tensor<i1>\n"


def sort(shape: tuple[int, ...], dim: int, elem: str, kind: str = "LT") -> str:
    """Sorts values and the positions along `dim` by value."""
    dims = "x".join(map(str, shape))
    t, i, s = f"tensor<{dims}x{elem}>", f"tensor<{dims}xi64>", f"tensor<{elem}>"
    return f"""(%x: {t}) -> ({t}, {i}) {{
  %i = stablehlo.iota dim = {dim} : {i}
  %r:2 = "stablehlo.sort"(%x, %i) <{{dimension = {dim} : i64, is_stable = true}}> ({{
  ^bb0(%a: {s}, %b: {s}, %ia: tensor<i64>, %ib: tensor<i64>):
{comparator(kind, elem)}    stablehlo.return %p : tensor<i1>
  }}) : ({t}, {i}) -> ({t}, {i})
  return %r#0, %r#1 : {t}, {i}
}}
"""


def check(body: str, arrays: list[np.ndarray] | None = None, target: str = "native") -> None:
    reference = oracle.parse(plain(body))
    arrays = oracle.random_inputs(reference) if arrays is None else arrays
    want = oracle.evaluate(reference, arrays)
    got = run(outlined(body, "sort"), arrays, detect(target))
    for g, w in zip(got, want, strict=True):
        if g.dtype.kind == "f":  # bit for bit, but for the payload of NaN
            np.testing.assert_array_equal(
                np.signbit(g) & ~np.isnan(g), np.signbit(w) & ~np.isnan(w)
            )
        agree(g, w, "f32")


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("kind", ["LT", "GT", "nan above", "by magnitude"])
@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((1,), 0),
        ((2,), 0),
        ((13,), 0),
        ((64,), 0),
        ((3, 40), 1),
        ((40, 3), 0),
        ((300,), 0),
        ((2, 70, 5), 1),
        ((5000,), 0),
    ],
)
def test_shapes(shape: tuple[int, ...], dim: int, kind: str, target: str) -> None:
    check(sort(shape, dim, "f32", kind), target=target)


@pytest.mark.parametrize("elem", ["f64", "i64", "i32", "i8", "ui8", "ui64", "i1"])
@pytest.mark.parametrize("kind", ["LT", "GT"])
@pytest.mark.parametrize("length", [50, 200])
def test_dtypes(elem: str, kind: str, length: int) -> None:
    random = np.random.default_rng(0)
    dtype = oracle._NUMPY[elem]
    if elem == "f64":
        x = random.standard_normal(length)
    elif elem == "i1":
        x = random.random(length) < 0.5
    else:
        info = np.iinfo(dtype)
        x = random.integers(info.min, info.max, length, dtype, endpoint=True)
        x[:20] = random.integers(0, 3, 20)
    check(sort((length,), 0, elem, kind), [x])


@pytest.mark.parametrize("elem", ["f16", "bf16"])
def test_half_precision(elem: str) -> None:
    x = np.random.default_rng(0).integers(-9, 9, 150).astype(np.float32)
    given = oracle.to_bf16(x) if elem == "bf16" else x.astype(np.float16)
    values, positions = run(outlined(sort((150,), 0, elem, "GT"), "sort"), [given])
    order = np.argsort(-x, kind="stable")
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(values, given[order])


SPECIAL = np.array(
    [1.0, np.nan, -0.0, 0.0, np.inf, -np.inf, np.nan, -1.0, 0.0, -0.0, 1.0, -np.nan] * 20,
    np.float32,
)


@pytest.mark.parametrize("length", [12, 240])
@pytest.mark.parametrize("kind", ["nan above", "nan above, descending"])
def test_nan_and_signed_zero(kind: str, length: int) -> None:
    check(sort((length,), 0, "f32", kind), [SPECIAL[:length]])


@pytest.mark.parametrize("length", [12, 240])
def test_total_order(length: int) -> None:
    """The interpreter knows no total order of floats."""
    x = SPECIAL[:length]
    bits = x.view(np.int32)
    keys = np.where(bits < 0, bits ^ 0x7FFFFFFF, bits).astype(np.int64)
    for kind, sign in (("LT", 1), ("GT", -1)):
        text = sort((length,), 0, "f32", kind)
        text = text.replace(", %a, %b : (tensor<f32>", ", %a, %b, TOTALORDER : (tensor<f32>")
        _, positions = run(outlined(text, "sort"), [x])
        np.testing.assert_array_equal(positions, np.argsort(keys * sign, kind="stable"))


def test_plain_comparison_of_nan_gives_a_permutation() -> None:
    """No order at all: whatever comes out must hold each element once."""
    for kind in ("LT", "by magnitude"):
        for length in (12, 240):
            values, positions = run(
                outlined(sort((length,), 0, "f32", kind), "sort"), [SPECIAL[:length]]
            )
            assert sorted(positions) == list(range(length))
            np.testing.assert_array_equal(values, SPECIAL[:length][positions])


@pytest.mark.parametrize(
    ("rows", "elem", "kind"),
    [(3, "f32", "nan above"), (20, "i64", "LT"), (2, "f32", "by magnitude")],
)
def test_rows_too_long_for_the_stack(rows: int, elem: str, kind: str) -> None:
    x = (
        np.random.default_rng(0)
        .integers(-(10**9), 10**9, (rows, 20000))
        .astype(oracle._NUMPY[elem])
    )
    values, positions = run(outlined(sort(x.shape, 1, elem, kind), "sort"), [x])
    order = np.argsort(np.abs(x) if kind == "by magnitude" else x, axis=1, kind="stable")
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


TWO_KEYS = """(%x: tensor<90xi32>, %y: tensor<90xf32>) -> (tensor<90xi32>, tensor<90xf32>) {
  %r:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<f32>):
    %l = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %e = stablehlo.compare EQ, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %g = stablehlo.compare GT, %c, %d : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %h = stablehlo.and %e, %g : tensor<i1>
    %p = stablehlo.or %l, %h : tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<90xi32>, tensor<90xf32>) -> (tensor<90xi32>, tensor<90xf32>)
  return %r#0, %r#1 : tensor<90xi32>, tensor<90xf32>
}
"""


def test_two_keys() -> None:
    check(TWO_KEYS)


def test_top_k() -> None:
    for shape, k in (("8", 3), ("4x100", 5), ("2x3x1000", 1)):
        out = "x".join([*shape.split("x")[:-1], str(k)])
        check(f"""(%x: tensor<{shape}xf32>) -> (tensor<{out}xf32>, tensor<{out}xi32>) {{
  %r:2 = chlo.top_k(%x, k = {k}) : tensor<{shape}xf32> -> (tensor<{out}xf32>, tensor<{out}xi32>)
  return %r#0, %r#1 : tensor<{out}xf32>, tensor<{out}xi32>
}}
""")


def test_a_sort_among_other_operations() -> None:
    """Median-like: sorted rows, then a slice and a sum of them, and only one result of the sort."""
    check("""(%x: tensor<6x41xf32>) -> (tensor<6xf32>, tensor<6x41xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.negate %x : tensor<6x41xf32>
  %r = "stablehlo.sort"(%y) <{dimension = 1 : i64, is_stable = false}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<6x41xf32>) -> tensor<6x41xf32>
  %m = stablehlo.slice %r [0:6:1, 10:31:1] : (tensor<6x41xf32>) -> tensor<6x21xf32>
  %s = stablehlo.reduce(%m init: %z) applies stablehlo.add across dimensions = [1] : (tensor<6x21xf32>, tensor<f32>) -> tensor<6xf32>
  %d = stablehlo.subtract %r, %y : tensor<6x41xf32>
  return %s, %d : tensor<6xf32>, tensor<6x41xf32>
}
""")


def order(kind: str, elem: str = "f32") -> Order | None:
    module = oracle.parse(outlined(sort((5,), 0, elem, kind), "sort"))
    with module.context:
        group = read_group(module.body.operations[0])
        return order_of(group.results[0].regions[0])


def test_orders_are_recognised() -> None:
    assert order("LT") == Order(0, descending=False)
    assert order("GT", "i32") == Order(0, descending=True)
    assert order("GT") == Order(0, descending=True, nan_above=False)
    assert order("nan above") == Order(0, descending=False)
    assert order("nan above, descending") == Order(0, descending=True)
    assert order("by magnitude") is None
    assert order("EQ") is None


def first_of_sorted(rows: int, length: int, k: int, elem: str, kind: str) -> str:
    """Top-k as the lowering writes it: the beginning of a sorted row, positions widened."""
    t, i, s = f"tensor<{rows}x{length}x{elem}>", f"tensor<{rows}x{length}xi32>", f"tensor<{elem}>"
    v, j, w = f"tensor<{rows}x{k}x{elem}>", f"tensor<{rows}x{k}xi32>", f"tensor<{rows}x{k}xi64>"
    return f"""(%x: {t}) -> ({v}, {w}) {{
  %i = stablehlo.iota dim = 1 : {i}
  %r:2 = "stablehlo.sort"(%x, %i) <{{dimension = 1 : i64, is_stable = true}}> ({{
  ^bb0(%a: {s}, %b: {s}, %ia: tensor<i32>, %ib: tensor<i32>):
{comparator(kind, elem)}    stablehlo.return %p : tensor<i1>
  }}) : ({t}, {i}) -> ({t}, {i})
  %v = stablehlo.slice %r#0 [0:{rows}, 0:{k}] : ({t}) -> {v}
  %j = stablehlo.slice %r#1 [0:{rows}, 0:{k}] : ({i}) -> {j}
  %w = stablehlo.convert %j : ({j}) -> {w}
  return %v, %w : {v}, {w}
}}
"""


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("kind", ["nan above, descending", "LT", "by magnitude"])
@pytest.mark.parametrize(("length", "k"), [(40, 5), (300, 40), (1000, 7), (5000, 600), (3001, 1)])
def test_first_of_a_row(length: int, k: int, kind: str, target: str) -> None:
    random = np.random.default_rng(length)
    x = (random.standard_normal((3, length)) * 100).round().astype(np.float32)
    if kind != "LT":
        x[:, ::17] = np.nan if kind.startswith("nan") else 0.0
    values, positions = run(
        outlined(first_of_sorted(3, length, k, "f32", kind), "sort"), [x], detect(target)
    )
    key = {"LT": x, "by magnitude": np.abs(x)}.get(kind, np.where(np.isnan(x), -np.inf, -x))
    order = np.argsort(key, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("elem", ["i64", "f64"])
def test_first_of_a_row_of_wide_elements(elem: str) -> None:
    """Small integers share their leading bits: everything is a candidate."""
    x = np.random.default_rng(0).integers(-50, 50, (2, 2000)).astype(oracle._NUMPY[elem])
    _, positions = run(outlined(first_of_sorted(2, 2000, 9, elem, "GT"), "sort"), [x])
    np.testing.assert_array_equal(positions, np.argsort(-x, axis=1, kind="stable")[:, :9])


def test_the_first_of_a_row_need_one_kernel() -> None:
    module = oracle.parse(outlined(first_of_sorted(3, 1000, 5, "f32", "LT"), "sort"))
    with module.context:
        kernels = generate(read_group(module.body.operations[0]), detect())
    assert len(kernels) == 1


def test_a_slice_whose_start_is_computed_is_not_the_first_of_a_row() -> None:
    check(
        """(%x: tensor<40xf32>, %i: tensor<i64>) -> (tensor<30xf32>) {
  %s = "stablehlo.sort"(%x) <{dimension = 0 : i64}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %p = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }) : (tensor<40xf32>) -> tensor<40xf32>
  %r = stablehlo.dynamic_slice %s, %i, sizes = [30] : (tensor<40xf32>, tensor<i64>) -> tensor<30xf32>
  return %r : tensor<30xf32>
}
"""
    )
